"""Every agent plays the shop through the protocol of environments, with a scripted model."""

import json
from dataclasses import dataclass

import pytest

from memsearcher.agents.mem1 import MEM1
from memsearcher.agents.memsearcher import MemSearcher
from memsearcher.agents.react import ReAct
from memsearcher.agents.summarize import Summarize
from memsearcher.agents.truncate import Truncate
from memsearcher.engines.chat import ChatFormat
from memsearcher.environments.webshop.actions import write_action
from memsearcher.environments.webshop.environment import WebShopEnvironment
from memsearcher.environments.webshop.shoppers import scripted
from memsearcher.rollout import rollout
from memsearcher.trajectory import Limits
from tests.scripted import ScriptedEngine, names
from tests.tagged import look
from tests.tiny import tiny_tokenizer
from tests.webshop_world import make_shop

CHAT = ChatFormat.from_tokenizer(tiny_tokenizer())
LIMITS = Limits(turns=12, passage_tokens=2000, context_tokens=60_000)


def call(text):
    said = json.dumps({"name": "shop", "arguments": {"query": text}})
    return f"<think>Next.</think>\n<tool_call>{said}</tool_call>"


@dataclass
class Player:
    """An agent and how its model writes an action; `remembers` is its second reply of a turn."""

    agent: type
    prompts: str
    act: callable = call
    remembers: str = ""


PLAYERS = {
    "memsearcher": Player(MemSearcher, "webshop-memsearcher", remembers="<memory>At the lamp.</memory>"),
    "react": Player(ReAct, "webshop-react", look),
    "mem1": Player(MEM1, "webshop-mem1", look),
    "truncate": Player(Truncate, "webshop-truncate"),
    "summarize": Player(Summarize, "webshop-summarize", remembers="At the lamp."),
}


def play(player, actions, environment=None):
    """One trajectory in which the model writes these actions; works on tokens, as training does."""
    environment = environment or WebShopEnvironment(make_shop())
    script = [text for action in actions for text in (player.act(action), player.remembers) if text]
    engine = ScriptedEngine(script, CHAT)
    agent = player.agent(limits=LIMITS, prompts=player.prompts, tool="shop")
    (trajectory,) = rollout(agent, environment, engine, [(environment.tasks("test")[0], 0)])
    return trajectory, engine


def odd(trajectory):
    """Events, without those of the scripted model that always remembers the same."""
    usual = {"memory_unchanged", "history_cut", "duplicate_query"}
    return [(turn, name) for turn, name in names(trajectory) if name not in usual]


@pytest.fixture(params=PLAYERS)
def player(request):
    return PLAYERS[request.param]


def bought():
    shop = make_shop()
    return [write_action(action) for _, action in scripted(shop, "g1")]


def test_a_purchase_ends_the_episode_with_its_outcome(player):
    actions = bought()
    trajectory, engine = play(player, actions)
    assert (trajectory.error, trajectory.answer, odd(trajectory)) == (None, None, [])
    assert trajectory.outcome.reward == 1.0
    assert [action.arguments["query"] for action in trajectory.actions] == actions
    assert len(trajectory.turns) == len(actions)
    assert len(engine.requests) == (2 * len(actions) - 1 if player.remembers else len(actions))


def test_every_conversation_can_be_trained_on(player):
    trajectory, _ = play(player, bought())
    for talk in trajectory.conversations:
        assert talk.token_ids is not None
        assert sum(talk.loss_mask) > 0
        assert talk.segments[-1].part == "reply"


def test_the_model_sees_what_it_can_click(player):
    _, engine = play(player, bought())
    prompts = ["".join(segment.text for segment in request.conversation.segments) for request in engine.requests]
    assert any("You can search, or click: [Back to Search] [LAMP" in prompt for prompt in prompts)
    assert all("search[what to look for]" in prompt for prompt in prompts)
    assert "and price lower than" in prompts[0]


def test_what_the_shop_finds_odd_is_an_event_of_the_turn(player):
    trajectory, _ = play(player, ["click[Buy Now]", "search[click[x]]", "buy it", *bought()])
    assert odd(trajectory) == [(1, "button_elsewhere"), (2, "nested_action"), (3, "not_an_action")]
    assert trajectory.outcome.reward == 1.0


def test_who_buys_nothing_has_no_outcome_and_leaves_nothing_to_the_next_attempt(player):
    environment = WebShopEnvironment(make_shop())
    left, _ = play(player, ["search[lamp]", *["click[lamp000001]"] * (LIMITS.turns - 1)], environment)
    assert left.outcome is None
    assert names(left)[-1] == (LIMITS.turns, "turn_limit")
    again, _ = play(player, ["click[Buy Now]", *bought()], environment)
    assert odd(again) == [(1, "button_elsewhere")]
    assert again.outcome.reward == 1.0
