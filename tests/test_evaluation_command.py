"""`memsearcher evaluate`, with scripted models, a scripted search and a scripted judge behind it."""

import csv
import json
import os
from concurrent.futures import Future
from itertools import combinations
from pathlib import Path

import pytest
from typer.testing import CliRunner

from memsearcher import cli
from memsearcher.commands import common
from memsearcher.commands import evaluate as command
from memsearcher.engines.protocol import ContinuousEngine, EngineFailure
from memsearcher.environments.search import SearchEnvironment
from memsearcher.retrieval.corpus import Corpus
from memsearcher.retrieval.lexical import LexicalIndex
from memsearcher.tasks.files import read_tasks
from memsearcher.trajectory import read_trajectories
from tests.scripted import ScriptedEngine, ScriptedEnvironment, answer, memory, search

BENCH = Path(os.environ.get("MEMSEARCHER_BENCH", Path(__file__).parents[2] / "shared" / "bench"))
needs_bench = pytest.mark.skipif(not BENCH.is_dir(), reason=f"no slices of the benchmarks at {BENCH}")


@pytest.fixture(autouse=True)
def wide(monkeypatch, tmp_path):
    """A terminal wide enough not to break lines, and a cache of the test's own."""
    monkeypatch.setattr(common.out, "width", 400)
    monkeypatch.setattr(common.err, "width", 400)
    monkeypatch.setenv("MEMSEARCHER_CACHE", str(tmp_path / "cache"))


class World:
    """The parts that the command asks for, and what it asked."""

    def __init__(self, script, judge, books, environment):
        self.script, self.judge = script, judge
        self.environment = environment or ScriptedEnvironment(books)
        self.models, self.engines, self.environments = [], [], 0

    def make_engine(self, recipe):
        self.models.append(recipe.model)
        self.engines.append(ScriptedEngine(self.judge if recipe.model.engine == "openai" else self.script))
        return self.engines[-1]

    def make_environment(self, recipe):
        self.environments += 1
        return self.environment


@pytest.fixture
def world(monkeypatch):
    def put(script=lambda request: answer("kip"), judge=None, books=None, environment=None):
        made = World(script, judge, books, environment)
        monkeypatch.setattr(command, "make_engine", made.make_engine)
        monkeypatch.setattr(command, "make_environment", made.make_environment)
        return made

    return put


def run(*arguments):
    return CliRunner().invoke(cli.app, ["evaluate", *(str(each) for each in arguments)])


def fails(result, message):
    """One line on standard error, exit code 1, and no traceback."""
    assert result.exit_code == 1, result.output
    assert isinstance(result.exception, SystemExit)
    assert result.stderr.startswith("error: ")
    assert message in result.stderr


def questions(path, count=3, **fields):
    rows = [
        {"id": f"q{number}", "question": f"What is {number}?", "golden_answers": ["kip"], **fields}
        for number in range(count)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def table(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def text_of(request):
    return "".join(segment.text for segment in request.conversation.segments)


def test_agents_questions_and_limits_in_one_table(world, tmp_path):
    made = world(lambda request: answer("the Kip" if "1" in text_of(request) else "dong"))
    files = [questions(tmp_path / "some.jsonl"), questions(tmp_path / "more.v2.jsonl", 2)]
    tasks = [part for file in files for part in ("--tasks", file)]
    limits = ("--limits", "turns=2", "--limits", "turns=3,memory_tokens=64")
    out = tmp_path / "out"
    result = run("--agents", "memsearcher,react", "--adapter", "react=null", *tasks, *limits, "--out", out)
    assert result.exit_code == 0, result.output
    places = {str(path.parent.relative_to(out)) for path in out.rglob("trajectories.jsonl")}
    assert places == {
        f"{agent}/{tasks}@{limits}"
        for agent in ("memsearcher", "react")
        for tasks in ("some", "more.v2")
        for limits in ("turns=2", "turns=3-memory_tokens=64")
    }
    (trajectory, *_) = read_trajectories(out / "react" / "some@turns=3-memory_tokens=64" / "trajectories.jsonl")
    assert (trajectory.agent, trajectory.limits.turns, trajectory.limits.memory_tokens) == ("react", 3, 64)
    assert [model.adapter for model in made.models] == ["shipped", None]  # loaded once for each agent
    assert made.environments == 1
    rows = table(out / "table.csv")
    assert {(row["agent"], row["tasks"], row["limits"]) for row in rows} == {
        (agent, tasks, limits)
        for agent in ("memsearcher", "react")
        for tasks in ("some", "more.v2")
        for limits in ("turns=2", "turns=3,memory_tokens=64")
    }
    assert len(table(out / "questions.csv")) == 4 * 3 + 4 * 2
    em = next(row for row in rows if (row["agent"], row["tasks"], row["measure"]) == ("memsearcher", "some", "em"))
    assert float(em["mean"]) == pytest.approx(1 / 3)
    assert "memsearcher turns=2 - react turns=2" in result.stdout
    assert f"evaluation: {out}" in result.stdout
    assert (out / "memsearcher" / "some@turns=2" / "recipe.yaml").is_file()


def test_every_agent_is_compared_with_every_other(world, tmp_path):
    world()
    names = ("memsearcher", "react", "search-r1", "mem1", "truncate", "summarize")
    bare = [part for name in names[1:] for part in ("--adapter", f"{name}=null")]
    path = questions(tmp_path / "tasks.jsonl")
    result = run("--agents", ",".join(names), *bare, "--tasks", path, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    pairs = [row for row in table(tmp_path / "out" / "pairs.csv") if row["measure"] == "em"]
    assert [(row["first"], row["second"]) for row in pairs] == list(combinations(names, 2))
    assert {(row["n"], row["shared"]) for row in pairs} == {("3", "3")}


def test_what_was_stopped_goes_on_and_a_report_needs_no_model(world, tmp_path):
    path, out = questions(tmp_path / "tasks.jsonl", 5), tmp_path / "out"
    calls = []

    def script(request):
        calls.append(request)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return answer("kip")

    world(script)
    result = run("--tasks", path, "--out", out, "-s", "width=1")
    assert result.exit_code == 130
    assert "stopped; what was done is kept, the same command goes on from there" in result.stderr
    assert not (out / "table.md").exists()
    half = run("--out", out)
    assert half.exit_code == 0
    assert "| played | 3 |" in (out / "table.md").read_text()

    made = world()
    assert run("--tasks", path, "--out", out, "-s", "width=1").exit_code == 0
    assert len(made.engines[0].requests) == 2
    before = (out / "table.md").read_bytes()
    made = world()
    assert run("--tasks", path, "--out", out, "-s", "width=1").exit_code == 0
    assert run("--out", out).exit_code == 0
    assert made.models == [] and made.environments == 0
    assert (out / "table.md").read_bytes() == before
    fails(run("--tasks", path, "--out", out, "-s", "width=2"), "holds a run of other settings")
    fails(run("--tasks", path, "--n", 2, "--out", out), "is for the 5 questions of tasks, not for the 2 of tasks")


def test_an_agent_named_twice_is_played_once(world, tmp_path):
    made = world()
    path = questions(tmp_path / "tasks.jsonl")
    options = ("--agents", "memsearcher,memsearcher", "--limits", "turns=2", "--limits", "turns=2")
    assert run("--tasks", path, "--out", tmp_path / "out", *options).exit_code == 0
    assert len(made.engines[0].requests) == 3


def test_each_agent_has_its_own_adapter_and_its_own_passages(world, tmp_path):
    made = world()
    path = questions(tmp_path / "tasks.jsonl")
    (tmp_path / "adapter_config.json").write_text("{}")
    options = ("--adapter", f"react={tmp_path}", "--limits", "passages=1", "--limits", "passages=2")
    result = run("--agents", "memsearcher,react", *options, "--tasks", path, "--out", tmp_path / "out")
    assert result.exit_code == 0
    assert [model.adapter for model in made.models] == ["shipped", str(tmp_path)]
    assert made.environments == 4


class Continuous(ContinuousEngine):
    """A scripted engine that says when it is closed."""

    def __init__(self, name, log):
        self.name, self.log = name, log
        self.scripted = ScriptedEngine(lambda request: answer("kip"))

    @property
    def fingerprint(self):
        return {"engine": self.name}

    def submit(self, request, sampling):
        future = Future()
        future.set_result(self.scripted.generate([request], sampling)[0])
        return future

    def close(self):
        self.log.append(f"close {self.name}")


def test_an_engine_is_closed_before_the_next_is_loaded(world, tmp_path, monkeypatch):
    world()
    log = []

    def make_engine(recipe):
        log.append(f"load {recipe.model.adapter}")
        return Continuous(str(recipe.model.adapter), log)

    monkeypatch.setattr(command, "make_engine", make_engine)
    options = ("--agents", "memsearcher,react", "--adapter", "react=null", "--out", tmp_path / "out")
    assert run("--tasks", questions(tmp_path / "tasks.jsonl"), *options).exit_code == 0
    assert log == ["load shipped", "close shipped", "load None", "close None"]


def test_failed_questions_are_counted_and_listed(world, tmp_path):
    world(lambda request: EngineFailure("gone") if "is 1?" in text_of(request) else answer("kip"))
    result = run("--tasks", questions(tmp_path / "tasks.jsonl"), "--out", tmp_path / "out")
    assert result.exit_code == 0
    assert "memsearcher: failed and not scored: q1#0 (EngineFailure: gone)" in result.stdout
    rows = {row["measure"]: row for row in table(tmp_path / "out" / "table.csv")}
    assert (rows["em"]["mean"], rows["em"]["n"], rows["em"]["failed"]) == ("1.0", "2", "1")


def verdict(request):
    return json.dumps({"item": request.conversation.segments[2].text, "correct": "What is 0?" in text_of(request)})


def test_a_judge_stands_beside_and_its_failures_are_said(world, tmp_path):
    path, out = questions(tmp_path / "tasks.jsonl"), tmp_path / "out"
    world()
    assert run("--tasks", path, "--out", out).exit_code == 0
    made = world(judge=lambda request: EngineFailure("gone") if "What is 1?" in text_of(request) else verdict(request))
    options = ("--judge", "grader", "--judge-url", "http://127.0.0.1:9/v1", "--judge-key-env", "KEY")
    result = run("--tasks", path, "--out", out, *options)
    assert result.exit_code == 0
    (model,) = made.models
    assert (model.name, model.base_url, model.api_key_env) == ("grader", "http://127.0.0.1:9/v1", "KEY")
    assert "memsearcher: judged 2 of 3 by grader, prompt judge (SHA-256 " in result.stdout
    assert "memsearcher: without a verdict: q1#0 (no reply: gone)" in result.stdout
    rows = {row["measure"]: row for row in table(out / "table.csv")}
    assert (rows["judge"]["mean"], rows["judge"]["n"], rows["em"]["n"]) == ("0.5", "2", "3")

    made = world(judge=verdict)
    assert run("--out", out, *options).exit_code == 0
    assert len(made.engines[0].requests) == 1  # only the one without a verdict is asked about again
    assert [row["judge"] for row in table(out / "questions.csv")] == ["1.0", "0.0", "0.0"]


def test_tasks_of_several_questions(world, tmp_path):
    world(lambda request: answer("kip; dong; kip"))
    path, out = questions(tmp_path / "tasks.jsonl", 6), tmp_path / "out"
    options = ("--objectives", 3, "--paper")
    result = run("--tasks", path, "--out", out, *options)
    assert result.exit_code == 0, result.output
    rows = {row["measure"]: row for row in table(out / "table.csv")}
    assert rows["em"]["tasks"] == "tasks 3-objective"
    assert (rows["em_sum"]["mean"], rows["em_sum_strict"]["mean"], rows["em_sum"]["n"]) == ("2.0", "2.0", "2")
    assert "No paper-reported figures on 3-objective." in result.stdout


def test_paper_reported_figures_are_marked(world, tmp_path):
    world()
    path = questions(tmp_path / "hotpotqa.sample.jsonl")
    result = run("--tasks", path, "--out", tmp_path / "out", "--paper")
    assert result.exit_code == 0
    lines = [line for line in result.stdout.splitlines() if "│ hotpotqa " in line]
    assert "ours" in lines[0] and "1.000 (1.000–1.000), n=3" in lines[0]
    assert all("paper-reported [" in line for line in lines[1:]) and len(lines) > 20
    alone = run("--paper")
    assert alone.exit_code == 0
    assert "ours" not in alone.stdout.replace("than ours", "")


def foreign(path, items):
    path.write_text(json.dumps(items))
    return path


def item(number, pred="kip", **fields):
    output = {"retrieval_result": [{"id": "1", "contents": "A\ntext"}], "pred": pred}
    return {
        "id": f"q{number}",
        "question": f"What is {number}?",
        "golden_answers": ["kip"],
        "metadata": {},
        "output": output,
        **fields,
    }


def test_a_foreign_record_is_one_more_arm(world, tmp_path):
    world(lambda request: answer("dong"))
    path, out = questions(tmp_path / "tasks.jsonl"), tmp_path / "out"
    record = foreign(tmp_path / "intermediate_data.json", [item(0), item(1), item(7), item(8, output=None)])
    result = run("--tasks", path, "--out", out, "--import", f"theirs={record}")
    assert result.exit_code == 0, result.output
    assert "not imported: " in result.stderr and "item 3" in result.stderr
    em = next(row for row in table(out / "pairs.csv") if row["measure"] == "em")
    assert (em["first"], em["second"]) == ("memsearcher", "imported:theirs")
    assert (em["shared"], em["difference"], em["only_second"]) == ("2", "-1.0", "2")
    rows = {(row["agent"], row["measure"]): row for row in table(out / "table.csv")}
    theirs = rows["imported:theirs", "em"]
    assert (theirs["tasks"], theirs["questions"], theirs["played"]) == ("tasks", "4", "3")
    assert ("imported:theirs", "sampled_tokens") not in rows  # not counted there is not 0
    alone = run("--out", tmp_path / "alone", "--import", f"theirs={record}")
    assert alone.exit_code == 0
    assert {row["tasks"] for row in table(tmp_path / "alone" / "table.csv")} == {"intermediate_data"}


def test_two_runs_are_compared(world, tmp_path):
    path = questions(tmp_path / "tasks.jsonl", 6)
    for name, text in (("one", "kip"), ("two", "dong")):
        world(lambda request, text=text: answer(text))
        assert run("--tasks", path, "--out", tmp_path / name).exit_code == 0
    result = run("--compare", tmp_path / "one", tmp_path / "two" / "memsearcher" / "tasks")
    assert result.exit_code == 0
    line = next(line for line in result.stdout.splitlines() if "│ em " in line)
    for shown in ("+1.000 (+1.000 to +1.000)", "6 of 6", "6 : 0", "0.031"):
        assert shown in line
    world()
    assert run("--tasks", questions(tmp_path / "other.jsonl", 2, question="x?"), "--out", tmp_path / "x").exit_code == 0
    fails(run("--compare", tmp_path / "one", tmp_path / "x"), "0 are the same")
    fails(run("--compare", tmp_path / "one", tmp_path), "is no run folder")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name the folder of the evaluation: --out FOLDER"),
        (["--tasks", "FILE", "--paper"], "name the folder of the evaluation: --out FOLDER"),
        (["--out", "OUT"], "holds no evaluation yet: name its --tasks"),
        (["--out", "OUT", "--tasks", "FILE", "--agents", "truncate"], "evaluate: --adapter truncate=FOLDER), or null"),
        (["--out", "OUT", "--tasks", "FILE", "--agents", "nobody"], "field agent"),
        (["--out", "OUT", "--tasks", "FILE", "--adapter", "memsearcher=x"], "x holds no adapter_config.json"),
        (["--out", "OUT", "--tasks", "FILE", "-s", "prompts=x"], "no such prompt"),
        (["--out", "OUT", "--tasks", "FILE", "--adapter", "react=x"], "--adapter react=x: AGENT=FOLDER was expected"),
        (["--out", "OUT", "--tasks", "FILE", "--adapter", "memsearcher"], "AGENT=FOLDER was expected"),
        (["--out", "OUT", "--tasks", "FILE", "--limits", "turns"], "an override looks like limits.turns=8"),
        (["--out", "OUT", "--tasks", "FILE", "--limits", "turns=0"], "field limits"),
        (["--out", "OUT", "--tasks", "FILE", "--tasks", "FILE"], "another set of questions is named tasks too"),
        (["--out", "OUT", "--tasks", "EMPTY"], "no questions"),
        (["--out", "OUT", "--tasks", "factbook-test", "--hops", "9"], "no questions of 9 hops"),
        (["--out", "OUT", "--tasks", "nowhere.jsonl"], "nowhere.jsonl: no such file"),
        (["--out", "OUT", "--tasks", "BAD"], "task q0: metadata.supporting_ids must be a list of texts"),
        (["--out", "OUT", "--tasks", "FILE", "--judge", "x"], "--judge needs --judge-url"),
        (
            ["--out", "OUT", "--tasks", "FILE", "--judge", "x", "--objectives", "2"],
            "--judge does not go with --objectives",
        ),
        (["--out", "OUT", "--import", "FILE"], "NAME=FILE was expected"),
        (["--out", "OUT", "--import", "x=FILE"], "not JSON"),
        (["--out", "OUT", "--import", "x=NOTHING"], "nothing could be imported"),
        (["--out", "FILE", "--tasks", "FILE"], "tasks.jsonl"),
        (["--out", "HERE", "--tasks", "FILE"], "is not empty and holds no evaluation"),
    ],
)
def test_what_cannot_be_evaluated_is_one_clear_error(arguments, message, world, tmp_path):
    world()
    places = {
        "FILE": questions(tmp_path / "tasks.jsonl"),
        "EMPTY": tmp_path / "empty.jsonl",
        "BAD": questions(tmp_path / "bad.jsonl", metadata={"supporting_ids": "1"}),
        "NOTHING": foreign(tmp_path / "nothing.json", []),
        "OUT": tmp_path / "out",
        "HERE": tmp_path,
    }
    places["EMPTY"].write_text("")
    replaced = [
        each.replace("FILE", str(places["FILE"])).replace("NOTHING", str(places["NOTHING"]))
        if "=" in each and "x=" in each
        else places.get(each, each)
        for each in arguments
    ]
    fails(run(*replaced), message)


def test_hostile_questions_and_answers_are_only_text(world, tmp_path):
    nasty = "[/bold]|<img onerror=x>\ud800\x00\x1b[31m"
    world(lambda request: EngineFailure(nasty) if "is 0?" in text_of(request) else answer(nasty))
    path = questions(tmp_path / "tasks.jsonl", metadata={"supporting_ids": [nasty]})
    result = run("--tasks", path, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    text = (tmp_path / "out" / "table.md").read_text()
    assert r"\|\<img onerror=x\>" in text and "\x00" not in text and "\x1b" not in text
    assert "\x1b" not in result.stdout


def play_gold(golds):
    """A model that searches for the question once and then gives the gold."""

    def script(request):
        parts = {segment.part: segment.text for segment in request.conversation.segments}
        if "observation" in parts:
            return memory("read")
        return answer(golds[parts["question"]]) if parts["memory"] else search(parts["question"])

    return script


@needs_bench
def test_real_questions_with_a_model_that_knows_all_and_one_that_knows_nothing(world, tmp_path):
    path = BENCH / "hotpotqa_100.questions.jsonl"
    tasks = list(read_tasks(path))
    corpus = Corpus(BENCH / "hotpotqa_100.corpus.jsonl")
    index = LexicalIndex(corpus)
    environment = SearchEnvironment(index, 5)
    world(play_gold({task.question: task.golds[0] for task in tasks}), environment=environment)
    options = ("-s", "limits.passages=5")
    assert run("--tasks", path, "--out", tmp_path / "all", *options).exit_code == 0
    rows = {row["measure"]: row for row in table(tmp_path / "all" / "table.csv")}
    assert [float(rows[name]["mean"]) for name in ("em", "f1", "cover_em", "em_unicode")] == [1.0] * 4
    assert {row["n"] for row in rows.values()} == {"100"}
    gold = [set(task.metadata["supporting_titles"]) for task in tasks]
    hits = index.search([task.question for task in tasks], 5)
    seen = [{corpus.passage(hit.row).title for hit in each} for each in hits]
    shares = [len(wanted & titles) / len(wanted) for wanted, titles in zip(gold, seen, strict=True)]
    assert float(rows["recall"]["mean"]) == pytest.approx(sum(shares) / 100)
    assert float(rows["all_found"]["mean"]) == sum(share == 1 for share in shares) / 100
    world(lambda request: "no idea", environment=environment)
    assert run("--tasks", path, "--out", tmp_path / "none", *options, "--limits", "turns=2").exit_code == 0
    rows = {row["measure"]: row for row in table(tmp_path / "none" / "table.csv")}
    assert [float(rows[name]["mean"]) for name in ("em", "f1", "recall")] == [0.0] * 3
    result = run("--compare", tmp_path / "all", tmp_path / "none")
    assert "100 : 0" in result.stdout
