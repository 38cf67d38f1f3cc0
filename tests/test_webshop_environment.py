import json
import random

import pytest

from memsearcher.agents.protocol import Act
from memsearcher.environments.protocol import ActRequest, EnvironmentFailure
from memsearcher.environments.webshop.catalogue import Catalogue, Goal
from memsearcher.environments.webshop.environment import WebShopEnvironment
from memsearcher.environments.webshop.shop import Shop
from memsearcher.environments.webshop.shoppers import ShopperError, random_action, scripted, scripted_reward, wander
from memsearcher.rollout import rollout
from memsearcher.trajectory import Action, Limits, Outcome, Step, Task, Trajectory, read_trajectories, write_trajectory
from tests.scripted import ScriptedEngine
from tests.webshop_world import CROWD, LAMP, click, make_shop, product, search

BUYING = [search("kilnwood lamp"), click("LAMP000001"), click("sky blue"), click("large"), click("Buy Now")]


@pytest.fixture
def environment():
    return WebShopEnvironment(make_shop())


def play(environment, actions, episode="g1#0", task=None):
    task = task or environment.tasks("test")[0]
    seen = []
    for number, action in enumerate(actions, 1):
        seen += environment.act([ActRequest(episode, task, action, number)])
    return seen


def test_tasks_are_the_goals_with_what_they_ask_for(environment):
    (task,) = environment.tasks("test")
    limit = environment.shop.goals["g1"].limit
    assert task.id == "g1"
    assert task.question == f"i want an arc lamp that is dimmable, and price lower than {limit:.2f} dollars"
    assert task.golds == ()
    goal = {"asin": "LAMP000001", "attributes": ["dimmable"], "options": ["sky blue", "large"], "limit": limit}
    assert task.metadata == {"split": "test", "goal": goal}
    json.dumps(task.metadata)


def test_tasks_are_drawn_by_a_seed():
    goals = tuple(Goal(f"g{n}", "dev", "LAMP000001", "lamp", ("dimmable",), ()) for n in range(20))
    environment = WebShopEnvironment(Shop(Catalogue((LAMP,), goals, "")))
    drawn = [task.id for task in environment.tasks("dev", 5, seed=1)]
    assert drawn == [task.id for task in environment.tasks("dev", 5, seed=1)]
    assert len(set(drawn)) == 5
    assert drawn != [task.id for task in environment.tasks("dev", 5, seed=2)]
    with pytest.raises(ValueError, match="21 dev goals were asked for; there are 20"):
        environment.tasks("dev", 21)


def test_a_purchase_gives_the_outcome_with_its_parts(environment):
    *before, last = play(environment, BUYING)
    assert all(seen.outcome is None and seen.events == () for seen in before)
    assert last.outcome.reward == 1.0
    assert last.outcome.parts["options"] == {"sky blue": True, "large": True}
    assert last.text.startswith("The shop is closed.\nThank you")


def test_actions_can_be_written_as_text_for_agents_with_one_tool(environment):
    texts = ["search[kilnwood lamp]", "click[LAMP000001]", "click[sky blue]", "click[large]", "click[Buy Now]"]
    spoken = play(environment, [Action("shop", {"query": text}) for text in texts])
    assert spoken == play(environment, BUYING)


@pytest.mark.parametrize(
    ("action", "event", "said"),
    [
        (Action("shop", {"query": "search[click[x]]"}), "nested_action", "An action inside an action"),
        (Action("shop", {"query": "buy it"}), "not_an_action", "That is no action. Write search[what to look for]"),
        (Action("shop", {}), "bad_argument", "A search needs a query"),
        (Action("wiki", {"query": "x"}), "unknown_action", "There is no such action."),
        (click("Buy Now"), "button_elsewhere", "That button is not on this page."),
    ],
)
def test_what_cannot_be_done_is_said_and_the_page_shown_again(environment, action, event, said):
    (seen,) = play(environment, [action])
    assert [each.name for each in seen.events] == [event]
    assert seen.text.startswith(said)
    assert seen.text.endswith("\nYou can search.\nWebShop [SEP] Search")
    assert seen.outcome is None


def test_episodes_are_kept_apart_in_one_batch(environment):
    task = environment.tasks("test")[0]
    for number in range(len(BUYING)):
        requests = [
            ActRequest("a", task, BUYING[number], number + 1),
            ActRequest("b", task, search("soap"), number + 1),
        ]
        bought, looked = environment.act(requests)
    assert bought.outcome.reward == 1.0
    assert looked.text.startswith("You can search, or click: [Back to Search]")


def test_after_the_purchase_nothing_counts(environment):
    task = environment.tasks("test")[0]
    play(environment, BUYING)
    (seen,) = environment.act([ActRequest("g1#0", task, search("lamp"), 6)])
    assert (seen.text, seen.outcome) == ("The purchase is made. Nothing more can be done.", None)
    assert [event.name for event in seen.events] == ["after_end"]


def test_an_abandoned_episode_begins_anew_with_its_first_action(environment):
    play(environment, BUYING[:2])
    assert play(environment, [click("Description")])[0].events[0].name == "button_elsewhere"


def test_finished_episodes_are_forgotten_and_abandoned_ones_bounded():
    environment = WebShopEnvironment(make_shop(), episodes=3)
    for number in range(10):
        play(environment, BUYING, f"done{number}")
    assert len(environment._states) == 0
    for number in range(10):
        play(environment, BUYING[:2], f"left{number}")
    assert list(environment._states) == ["left7", "left8", "left9"]


def test_a_task_of_another_world_fails_alone(environment):
    mine, other = environment.tasks("test")[0], Task("q7", "Who?")
    failed, seen = environment.act([ActRequest("x", other, search("a"), 1), ActRequest("y", mine, search("a"), 1)])
    assert isinstance(failed, EnvironmentFailure)
    assert str(failed) == "task 'q7' is no goal of this shop; take tasks from its environment"
    assert seen.text.startswith("You can search, or click")


def test_the_fingerprint_names_all_that_a_result_depends_on():
    base = WebShopEnvironment(make_shop()).fingerprint
    assert base["environment"] == "webshop"
    assert all(isinstance(value, str) for value in base.values())
    others = [WebShopEnvironment(make_shop(seed=1)), WebShopEnvironment(make_shop(mode="strict"))]
    others.append(WebShopEnvironment(make_shop(), tool="market"))
    assert all(other.fingerprint != base for other in others)


class Shopper:
    """Plays the scripted actions, without a model."""

    name = "shopper"
    limits = Limits(turns=20)

    def __init__(self, shop):
        self.shop = shop
        self.fingerprint = {"agent": "shopper"}

    def play(self, trajectory):
        for _, action in scripted(self.shop, trajectory.task.id):
            turn = trajectory.begin_turn()
            turn.steps.append(step := Step(action))
            step.observation = seen = yield from Act(action)
            turn.events += seen.events
            if seen.outcome is not None:
                return


def test_an_agent_plays_it_through_the_rollout_and_the_record_keeps_the_outcome(environment, tmp_path):
    (task,) = environment.tasks("test")
    played = list(rollout(Shopper(environment.shop), environment, ScriptedEngine([]), [(task, n) for n in range(3)]))
    assert [trajectory.outcome.reward for trajectory in played] == [1.0] * 3
    assert len({json.dumps(trajectory.outcome.parts) for trajectory in played}) == 1
    write_trajectory(tmp_path / "t.jsonl", played[0])
    (read,) = read_trajectories(tmp_path / "t.jsonl")
    assert read == played[0]
    assert isinstance(read.outcome, Outcome)


def test_a_record_from_before_outcomes_still_reads(environment):
    (task,) = environment.tasks("test")
    (played,) = rollout(Shopper(environment.shop), environment, ScriptedEngine([]), [(task, 0)])
    data = json.loads(json.dumps(played.to_json()))
    for turn in data["turns"]:
        for step in turn["steps"]:
            del step["observation"]["events"], step["observation"]["outcome"]
    assert Trajectory.from_json(data).outcome is None


def test_the_scripted_shopper_turns_pages_and_falls_back_on_the_title():
    shop = make_shop()
    shop.goals["far"] = Goal("far", "test", "CLASH00001", "a tray", ("crowd candle",), ())
    actions = [action for _, action in scripted(shop, "far")]
    assert actions[:5] == [search("floor lamp crowd candle"), *[click("Next >")] * 4]
    assert actions[5:] == [search("Clash Tray"), click("CLASH00001"), click("Buy Now")]
    shop.goals["near"] = Goal("near", "test", "CLASH00001", "a tray", (), ("2",))
    assert [action for _, action in scripted(shop, "near")][2:] == [click("count: 2"), click("Buy Now")]
    assert scripted_reward(shop, "g1") == 1.0
    last = max(shop.rows[candle.asin] for candle in CROWD[:50])
    deep = Goal("deep", "test", shop.products[last].asin, "a candle", ("candle",), ())
    shop.goals["deep"] = deep
    assert click("Next >") in [action for _, action in scripted(shop, "deep")]
    assert scripted_reward(shop, "deep") == 1.0


def test_the_scripted_shopper_leaves_out_options_that_the_product_has_not():
    shop = make_shop()
    shop.goals["g"] = Goal("g", "test", "LAMP000001", "a lamp", ("dimmable",), ("large", "green"))
    assert scripted_reward(shop, "g") == pytest.approx(3 / 4)


def test_a_product_that_its_own_words_do_not_find_is_an_error():
    shop = Shop(Catalogue((product("NOWORDS001", "!!!", query="???"), LAMP), (), ""))
    shop.goals["g"] = Goal("g", "test", "NOWORDS001", "x", (), ())
    with pytest.raises(ShopperError, match="goal g: product NOWORDS001 is not among the results for its own title"):
        list(scripted(shop, "g"))


def test_the_random_shopper_is_seeded_and_goes_home():
    shop = make_shop()
    walks = [wander(shop, "g1", random.Random(seed)) for seed in range(40)]
    assert walks == [wander(shop, "g1", random.Random(seed)) for seed in range(40)]
    assert all(0 <= reward <= 1 and 1 <= steps <= 50 for reward, steps in walks)
    assert {reward > 0 for reward, _ in walks} == {True, False}
    assert wander(shop, "g1", random.Random(0), steps=1) == (0.0, 1)
    state = shop.start("g1")
    assert random_action(shop, state, random.Random(0)).name == "search"
