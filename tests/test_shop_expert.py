"""The scripted shopper writes every agent's replies: it notes where it is, and ends with the whole reward."""

import json

import pytest

from memsearcher.agents.parsing import parse_act, parse_memory
from memsearcher.assemble import make_agent, make_environment
from memsearcher.engines.chat import ChatFormat
from memsearcher.environments.webshop.actions import parse_action
from memsearcher.environments.webshop.catalogue import Catalogue, Goal
from memsearcher.environments.webshop.environment import WebShopEnvironment
from memsearcher.environments.webshop.shop import Shop
from memsearcher.environments.webshop.shoppers import scripted
from memsearcher.recipe import Recipe, WarmStart, load_recipe
from memsearcher.training.expert import HANDS, demonstrate
from memsearcher.training.shop_expert import ShopExpert
from memsearcher.training.warmstart import ends_right, examples, make_expert, record_demonstrations, warm_start
from memsearcher.trajectory import Limits, read_trajectories
from tests.scripted import names
from tests.tiny import tiny_model, tiny_tokenizer
from tests.webshop_world import CROWD, GOAL, LAMP, make_shop, product

CHAT = ChatFormat.from_tokenizer(tiny_tokenizer())
LIMITS = Limits(turns=9, passages=1, passage_tokens=3000, memory_tokens=400, context_tokens=60_000, history_tokens=9000)
AGENTS = [name for name in HANDS if name != "search-r1"]  # a dialect of questions


def recipe(agent="memsearcher", **changes):
    return Recipe(agent=agent, environment="webshop", tool="shop", limits=LIMITS, **changes)


def demonstrations(shop, agent="memsearcher", split="test"):
    environment = WebShopEnvironment(shop)
    expert = ShopExpert(shop)
    return list(demonstrate(make_agent(recipe(agent)), environment, expert, CHAT, environment.tasks(split)))


def replies(trajectory):
    return [trajectory.conversations[call.conversation].segments[call.segment].text for call in trajectory.calls]


def call(text):
    return f'<tool_call>{{"name": "shop", "arguments": {{"query": "{text}"}}}}</tool_call>'


def test_word_for_word():
    (trajectory,) = demonstrations(make_shop())
    lamp = "LAMP000001 (Kilnwood Arc Lamp, $30.00)"
    page = 'Page 1 of the results for "floor lamp dimmable sky blue large":'
    chosen = f"At {lamp}. Chosen: color: sky blue, size: large. Ready to buy."
    assert replies(trajectory) == [
        f"<think>I search for what is asked for.</think>\n{call('search[floor lamp dimmable sky blue large]')}",
        f"<memory>{page} {lamp} fits.</memory>",
        f"<think>I click LAMP000001.</think>\n{call('click[LAMP000001]')}",
        f"<memory>At {lamp}. To choose: sky blue, large.</memory>",
        f"<think>I click sky blue.</think>\n{call('click[sky blue]')}",
        f"<memory>At {lamp}. Chosen: color: sky blue. To choose: large.</memory>",
        f"<think>I click large.</think>\n{call('click[large]')}",
        f"<memory>{chosen}</memory>",
        f"<think>That is all, I buy it.</think>\n{call('click[Buy Now]')}",
    ]
    assert trajectory.outcome.reward == 1.0 and ends_right(trajectory)
    (other,) = demonstrations(make_shop(), "react")
    assert replies(other)[-1] == f"<think>{chosen} That is all, I buy it.</think>\n<search>click[Buy Now]</search>"


@pytest.mark.parametrize("agent", AGENTS)
def test_every_agent_is_shown_how_to_earn_the_whole_reward(agent):
    shop = make_shop()
    (trajectory,) = demonstrations(shop, agent)
    assert (trajectory.error, trajectory.outcome.reward) == (None, 1.0)
    assert {name for _, name in names(trajectory)} == set()
    assert len(trajectory.turns) == ShopExpert(shop).turns(trajectory.task) - 1 == 5
    rows, counts = examples([trajectory], 0)
    assert (counts["right"], counts["conversations"]) == (1, len(rows)) and counts["trained_tokens"] > 0
    for turn, written in zip(
        trajectory.turns, [each for each in replies(trajectory) if "<think>" in each], strict=True
    ):
        assert turn.thought and turn.thought in written


def test_what_it_writes_is_read_back_without_a_fault():
    (trajectory,) = demonstrations(make_shop())
    for text, made in zip(replies(trajectory), trajectory.calls, strict=True):
        if made.purpose == "remember":
            assert parse_memory(text)[1]
        else:
            act = parse_act(text, "shop")
            assert act.events == [] and parse_action(act.action.arguments["query"])[1] is None


def test_pages_are_turned_and_searches_without_the_product_are_noted():
    hidden = product("HIDDEN0001", "Zephyr Quill", query="candle")
    shop = Shop(Catalogue((*CROWD[:60], hidden), (Goal("g", "test", "HIDDEN0001", "a quill", (), ()),), "0" * 64))
    (trajectory,) = demonstrations(shop)
    written = replies(trajectory)
    assert [action.arguments["query"] for action in trajectory.actions] == [
        "search[candle]", *["click[Next >]"] * 4, "search[Zephyr Quill]", "click[HIDDEN0001]", "click[Buy Now]"
    ]  # fmt: skip
    assert written[1] == '<memory>Page 1 of the results for "candle": nothing fits.</memory>'
    assert written[2].startswith("<think>I turn the page.</think>")
    assert written[9] == '<memory>Page 5 of the results for "candle": nothing fits, and there are no more.</memory>'
    assert written[13].endswith("Zephyr Quill, $30.00). Ready to buy.</memory>")
    assert trajectory.outcome.reward == 1.0


def test_brackets_and_quotes_in_an_option_survive():
    odd = product("ODD0000001", 'A "Quoted" Rug', query="rug", options={"size": ['5" [pair]', "{small}"]})
    shop = Shop(Catalogue((odd,), (Goal("g", "test", "ODD0000001", "a rug", (), ('5" [pair]',)),), "0" * 64))
    for agent in AGENTS:
        (trajectory,) = demonstrations(shop, agent)
        assert trajectory.outcome.reward == 1.0


def test_what_earns_less_than_the_whole_reward_is_left_out():
    """A goal asks for an option that its product does not have."""
    shop = Shop(Catalogue((LAMP,), (Goal("g", "test", LAMP.asin, "a lamp", (), ("crimson",)),), "0" * 64))
    (trajectory,) = demonstrations(shop)
    assert trajectory.outcome.reward == 0.5 and not ends_right(trajectory)
    assert examples([trajectory], 0)[1]["right"] == 0


def test_the_expert_is_the_environment_s():
    shop = make_shop()
    expert = make_expert(recipe(), WebShopEnvironment(shop))
    assert expert == ShopExpert(shop, "shop")
    assert expert.turns(WebShopEnvironment(shop).tasks("test")[0]) == len(list(scripted(shop, GOAL.id))) + 1


@pytest.mark.parametrize("agent", ["memsearcher", "react"])
def test_the_whole_warm_start_on_built_in_goals(agent, tmp_path):
    settings = WarmStart(questions={"goals": 6}, steps=2, batch=2, rank=2, alpha=4)
    mine = recipe(agent, warmstart=settings)
    model = tiny_model(max_position_embeddings=8192)
    folder = warm_start(mine, make_environment(mine), model, tiny_tokenizer(), tmp_path / "run")
    card = json.loads((folder / "agent.json").read_text())
    assert (card["counts"]["trajectories"], card["counts"]["right"]) == (6, 6)
    assert card["environment"]["environment"] == "webshop" and card["agent"]["prompts"] == f"webshop-{agent}"
    played = list(read_trajectories(tmp_path / "run" / "demonstrations.jsonl"))
    assert {each.task.metadata["split"] for each in played} == {"train"}


def test_built_in_goals_are_shown_within_the_limits_of_the_recipe(tmp_path):
    mine = load_recipe("webshop", ["warmstart.questions.goals=20"])
    for trajectory in record_demonstrations(mine, make_environment(mine), CHAT, tmp_path / "d.jsonl"):
        assert ends_right(trajectory) and len(trajectory.turns) < mine.limits.turns
