"""The commands in the web shop: its goals are chosen by name, played by any agent, and measured by what was bought."""

import csv
import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from memsearcher import cli, doctor
from memsearcher.assemble import make_agent, make_environment, make_shop, make_tasks
from memsearcher.commands import common
from memsearcher.commands import evaluate as evaluate_command
from memsearcher.console import show
from memsearcher.engines.chat import ChatFormat
from memsearcher.engines.protocol import EngineFailure
from memsearcher.environments.webshop.environment import WebShopEnvironment
from memsearcher.recipe import Recipe, load_recipe
from memsearcher.tasks import factbook
from memsearcher.training.expert import demonstrate
from memsearcher.training.questions import draw_questions
from memsearcher.training.run import questions_of
from memsearcher.training.shop_expert import ShopExpert
from memsearcher.trajectory import read_trajectories
from tests.scripted import ScriptedEngine
from tests.tiny import tiny_tokenizer

SHOP = load_recipe("webshop")
CHAT = ChatFormat.from_tokenizer(tiny_tokenizer())
ROOMY = ["limits.passage_tokens=4000", "limits.memory_tokens=900", "limits.context_tokens=90000"]


@pytest.fixture(autouse=True)
def wide(monkeypatch, tmp_path):
    """A terminal wide enough not to break lines, and a cache of the test's own."""
    monkeypatch.setattr(common.out, "width", 400)
    monkeypatch.setattr(common.err, "width", 400)
    monkeypatch.setenv("MEMSEARCHER_CACHE", str(tmp_path / "cache"))


def run(*arguments):
    return CliRunner().invoke(cli.app, [str(each) for each in arguments])


def fails(result, message):
    assert result.exit_code == 1, result.output
    assert result.stderr.startswith("error: ") and message in result.stderr


def table(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def replay(recipe, tasks):
    """A model that buys the right thing for the first task, nothing for the second, and fails at the third."""
    expert = ShopExpert(make_shop(recipe).shop, recipe.tool)
    (shown,) = demonstrate(make_agent(recipe), make_environment(recipe), expert, CHAT, tasks[:1])
    texts = iter([shown.conversations[each.conversation].segments[each.segment].text for each in shown.calls])

    def write(request):
        question = next(each.text for each in request.conversation.segments if each.part == "question")
        if question == tasks[0].question:
            return next(texts)
        return "<think>Hm.</think> a lamp" if question == tasks[1].question else EngineFailure("gone")

    return write


def test_an_agent_of_the_shop_has_the_prompts_of_the_shop():
    for agent in ("memsearcher", "react", "mem1", "truncate", "summarize"):
        made = make_agent(replace(SHOP, agent=agent))
        assert (made.name, made.texts.folder, made.tool) == (agent, f"webshop-{agent}", "shop")
    assert make_agent(replace(SHOP, prompts="memsearcher")).texts.folder == "memsearcher"
    with pytest.raises(
        ValueError, match=r"webshop-search-r1/system\.txt: no such prompt; built-in sets are: .*webshop-react"
    ):
        make_agent(replace(SHOP, agent="search-r1"))


def test_a_recipe_s_shop_has_its_mode_and_seed():
    environment = make_environment(replace(SHOP, webshop=replace(SHOP.webshop, mode="strict", seed=7)))
    assert isinstance(environment, WebShopEnvironment)
    assert (environment.fingerprint["reward"], environment.fingerprint["seed"]) == ("strict", "7")
    assert environment.fingerprint["tool"] == "shop"
    assert make_shop(SHOP).shop is make_environment(SHOP).shop  # read once


def test_goals_are_tasks_by_name():
    goals = make_tasks(SHOP, "webshop-test", 5)
    assert goals == make_environment(SHOP).tasks("test", 5, SHOP.seed)
    assert {goal.metadata["split"] for goal in goals} == {"test"}
    assert [len(make_tasks(SHOP, f"webshop-{split}")) for split in ("train", "dev", "test")] == [600, 200, 200]
    # Another seed of the recipe draws other goals, but the same limits; another seed of the shop other limits.
    drawn = make_tasks(replace(SHOP, seed=3), "webshop-test")
    assert {each.id: each.question for each in drawn} == {
        each.id: each.question for each in make_tasks(SHOP, "webshop-test")
    }
    moved = make_tasks(replace(SHOP, webshop=replace(SHOP.webshop, seed=3)), "webshop-test")
    assert {each.question for each in moved} != {each.question for each in drawn}
    assert make_tasks(Recipe(), "factbook-test", 3, 2) == factbook.load("test", shape="chain", hops=2, n=3)


@pytest.mark.parametrize(
    ("recipe", "arguments", "options", "message"),
    [
        (
            Recipe(),
            ("webshop-test",),
            {},
            "goals of the web shop need a recipe with environment: webshop, as -r webshop",
        ),
        (SHOP, ("factbook-test",), {}, "factbook-test: the web shop has webshop-train, webshop-dev and webshop-test"),
        (SHOP, ("webshop-tests",), {}, "webshop-tests: the web shop has"),
        (SHOP, ("webshop-test", 3, 2), {}, "--hops, --objectives, --shuffle and --dependent go with questions"),
        (SHOP, ("webshop-test",), {"objectives": "2"}, "--hops, --objectives"),
        (SHOP, ("webshop-dev", 201), {}, "201 dev goals were asked for; there are 200"),
    ],
)
def test_tasks_that_the_environment_does_not_have(recipe, arguments, options, message):
    with pytest.raises(ValueError, match=message):
        make_tasks(recipe, *arguments, **options)


def test_training_draws_goals_of_both_splits():
    tasks, dev = questions_of(SHOP)
    assert (len(tasks), len(dev)) == (600, 60)
    assert {each.metadata["split"] for each in tasks} == {"train"} and {each.metadata["split"] for each in dev} == {
        "dev"
    }
    for wanted in ({"2-hop": 3}, {"goals": 3, "2-hop": 3}, {}, "goals.jsonl"):
        with pytest.raises(
            ValueError, match=r"warmstart\.questions: in the web shop it says how many goals, as \{goals"
        ):
            draw_questions(wanted, "train", SHOP, "warmstart.questions")


def test_rollout_and_evaluate_measure_what_was_bought(monkeypatch, tmp_path):
    settings = load_recipe("webshop", ROOMY)
    tasks = make_tasks(settings, "webshop-test", 3)
    common_options = [
        "--tasks",
        "webshop-test",
        "--n",
        3,
        "-r",
        "webshop",
        *(x for each in ROOMY for x in ("-s", each)),
    ]
    monkeypatch.setattr(cli, "make_engine", lambda recipe: ScriptedEngine(replay(settings, tasks), CHAT))
    result = run("rollout", *common_options, "--out", tmp_path / "run")
    assert result.exit_code == 0, result.output
    rows = {row["id"].partition("#")[0]: row for row in table(tmp_path / "run" / "metrics.csv")}
    right, nothing, failed = (rows[task.id] for task in tasks)
    assert (right["score"], right["success"], right["error"]) == ("100.0", "1.0", "")
    assert (nothing["score"], nothing["success"], nothing["steps"]) == ("0.0", "0.0", "0")
    assert failed["error"] and (failed["score"], failed["success"]) == ("", "")
    assert (right["em"], right["searches"]) == ("", "")
    shown = "".join(result.stdout.split())
    assert "score│50.0" in shown and "success│0.500" in shown and "steps│" in shown and "em│" not in shown

    engine = ScriptedEngine(replay(settings, tasks), CHAT)
    monkeypatch.setattr(evaluate_command, "make_engine", lambda recipe: engine)
    result = run("evaluate", *common_options, "--out", tmp_path / "evaluation")
    assert result.exit_code == 0, result.output
    means = {row["measure"]: row for row in table(tmp_path / "evaluation" / "table.csv")}
    assert (float(means["score"]["mean"]), float(means["success"]["mean"]), means["score"]["n"]) == (50.0, 0.5, "2")
    assert {"steps", "peak_tokens", "dependency"} <= means.keys() and not {"em", "searches"} & means.keys()
    (played,) = [
        each
        for each in read_trajectories(tmp_path / "evaluation" / "memsearcher" / "webshop-test" / "trajectories.jsonl")
        if each.outcome
    ]
    assert played.provenance["environment"] == "webshop" and played.provenance["prompts"] == "webshop-memsearcher"
    assert json.loads((tmp_path / "evaluation" / "evaluation.json").read_text())["arms"][0]["tasks"] == "webshop-test"


def test_goals_without_the_shop_and_questions_in_it_are_one_clear_error(tmp_path):
    fails(run("rollout", "--tasks", "webshop-test", "--out", tmp_path / "a"), "as -r webshop")
    fails(run("evaluate", "--tasks", "factbook-test", "-r", "webshop", "--out", tmp_path / "b"), "the web shop has")
    fails(run("ask", "a lamp?", "-r", "webshop"), "webshop: only a search can be asked")
    assert list(tmp_path.iterdir()) == []


def test_doctor_looks_at_the_shop_and_not_at_an_index():
    found = {finding.name: finding for finding in doctor.examine(SHOP)}
    assert found["shop"].ok and found["shop"].value == "1,000 products" and "index" not in found


def test_an_outcome_is_shown_with_its_parts(capsys):
    expert = ShopExpert(make_shop(SHOP).shop)
    (trajectory,) = demonstrate(
        make_agent(SHOP), make_environment(SHOP), expert, CHAT, make_tasks(SHOP, "webshop-test", 1)
    )
    show(common.out, trajectory)
    printed = capsys.readouterr().out
    assert "shop     click[Buy Now]" in printed
    assert "outcome: 1.000  value: 1.0, mode: original" in printed and "answer" not in printed
    assert "   outcome 1   " in trajectory.card().text()
