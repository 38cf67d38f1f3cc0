"""A run folder: what is asked for once is played once, and failures are not zeros."""

import csv
import json
from dataclasses import replace
from importlib.metadata import PackageNotFoundError

import pytest

from memsearcher import jsonl, runs
from memsearcher.recipe import Recipe, load_recipe
from memsearcher.runs import Run, RunError, mean_of, metrics, task_hash, versions
from memsearcher.trajectory import Call, Limits, Task, Trajectory, read_trajectories

ABOUT = {"tasks": "factbook-test", "n": 2}
COLUMNS = [
    "id",
    "question",
    "gold",
    "answer",
    "em",
    "f1",
    "cover_em",
    "em_unicode",
    "turns",
    "searches",
    "peak_tokens",
    "sampled_tokens",
    "events",
    "error",
    "seconds",
]


def trajectory(number=0, answer="kip", golds=("kip",), error=None, sample=0):
    made = Trajectory(Task(f"t{number}", "q?", golds), "a", Limits(), sample, answer=answer, error=error, seconds=1.5)
    turn = made.begin_turn("")
    turn.event("no_thought")
    turn.calls.append(Call("act", 0, 0, "eos", 10, 3))
    return made


def table(run):
    with (run.folder / "metrics.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_a_new_run_is_self_contained(tmp_path):
    run = Run.open(tmp_path / "a" / "b", Recipe(), ABOUT)
    assert load_recipe(str(run.folder / "recipe.yaml")) == Recipe()
    card = json.loads(run.card.read_text())
    assert card["about"] == ABOUT
    assert card["recipe"] == Recipe().to_json()
    assert {"memsearcher", "python", "torch", "transformers"} <= set(card["versions"])
    assert run.trajectories() == []
    assert run.write_metrics() == []
    assert not (run.folder / "metrics.csv").exists()


def test_a_run_goes_on_where_it_was_and_nothing_is_doubled(tmp_path):
    tasks = [Task(f"t{number}", "q?", ("kip",)) for number in range(3)]
    run = Run.open(tmp_path, Recipe(), ABOUT)
    assert run.missing(tasks, 2) == [(task, sample) for task in tasks for sample in range(2)]
    done = [trajectory(0), trajectory(1, sample=1), trajectory(2, error="E: gone", answer=None)]
    stream = run.keep(iter(done))
    next(stream)
    assert list(read_trajectories(run.path)) == done[:1]  # written before it is passed on
    assert list(stream) == done[1:]
    with run.path.open("ab") as file:
        file.write(b'{"schema": 1, "torn')

    again = Run.open(tmp_path, Recipe(), ABOUT)
    missing = again.missing(tasks, 2)
    assert [(task.id, sample) for task, sample in missing] == [("t0", 1), ("t1", 0), ("t2", 1)]
    list(again.keep(trajectory(int(task.id[1]), sample=sample) for task, sample in missing))
    assert sorted(each.id for each in again.trajectories()) == ["t0#0", "t0#1", "t1#0", "t1#1", "t2#0", "t2#1"]
    assert again.missing(tasks, 2) == []
    assert len(again.write_metrics()) == 6


def test_another_question_under_an_id_that_was_played_is_refused(tmp_path):
    run = Run.open(tmp_path, Recipe(), ABOUT)
    list(run.keep([trajectory(0)]))
    task = trajectory(0).task
    assert run.missing([replace(task, metadata={"supporting_ids": ["a"]})]) == []  # not part of the question
    for changed in (replace(task, question="why?"), replace(task, golds=("dong",))):
        with pytest.raises(RunError, match="task t0 was another question when played; name another --out"):
            run.missing([changed])
    assert task_hash(replace(task, question="\ud800")) != task_hash(task)


def test_opening_again_writes_nothing(tmp_path):
    run = Run.open(tmp_path, Recipe(), ABOUT)
    before = run.card.read_bytes(), run.card.stat().st_mtime_ns
    Run.open(tmp_path, Recipe(), ABOUT)
    assert (run.card.read_bytes(), run.card.stat().st_mtime_ns) == before


def test_a_start_that_was_killed_is_taken_up(tmp_path):
    (tmp_path / ".run.json.17.part").write_text('{"about"')
    run = Run.open(tmp_path, Recipe(), ABOUT)
    (tmp_path / "recipe.yaml").unlink()
    Run.open(tmp_path, Recipe(), ABOUT)
    assert load_recipe(str(run.folder / "recipe.yaml")) == Recipe()


@pytest.mark.parametrize(
    ("recipe", "about"),
    [(Recipe(seed=1), ABOUT), (Recipe(limits=Limits(turns=9)), ABOUT), (Recipe(), {**ABOUT, "n": 3}), (Recipe(), {})],
)
def test_other_settings_are_refused(recipe, about, tmp_path):
    Run.open(tmp_path, Recipe(), ABOUT)
    with pytest.raises(RunError, match="holds a run of other settings; name another --out, or remove it"):
        Run.open(tmp_path, recipe, about)


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(RunError, match="is not empty and holds no run; name another --out"):
        Run.open(tmp_path, Recipe(), ABOUT)
    assert [each.name for each in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(OSError, match=r"thesis\.tex"):
        Run.open(tmp_path / "thesis.tex", Recipe(), ABOUT)


@pytest.mark.parametrize(("content", "message"), [(b"{", "not JSON"), (b"\xff", "not JSON"), (b"[]", "other settings")])
def test_a_damaged_card_is_named(content, message, tmp_path):
    (tmp_path / "run.json").write_bytes(content)
    with pytest.raises(RunError, match=message) as caught:
        Run.open(tmp_path, Recipe(), ABOUT)
    assert str(tmp_path) in str(caught.value)


def test_a_damaged_record_is_named(tmp_path):
    run = Run.open(tmp_path, Recipe(), ABOUT)
    run.path.write_text("{\n")
    with pytest.raises(jsonl.JsonlError, match=r"trajectories\.jsonl:1: not a line of JSON"):
        run.missing([])


def test_metrics_of_a_right_and_a_wrong_one(tmp_path):
    run = Run.open(tmp_path, Recipe(), ABOUT)
    list(run.keep([trajectory(0), trajectory(1, answer=None), trajectory(2, answer="the Kip!")]))
    rows = run.write_metrics()
    assert list(rows[0]) == COLUMNS
    assert rows[0] == {
        "id": "t0#0",
        "question": "q?",
        "gold": "kip",
        "answer": "kip",
        "em": 1.0,
        "f1": 1.0,
        "cover_em": 1.0,
        "em_unicode": 1.0,
        "turns": 1,
        "searches": 0,
        "peak_tokens": 13,
        "sampled_tokens": 3,
        "events": "no_thought",
        "error": None,
        "seconds": 1.5,
    }
    assert [row["em"] for row in rows] == [1.0, 0.0, 1.0]
    read = table(run)
    assert list(read[0]) == COLUMNS
    assert [row["em"] for row in read] == ["1.0", "0.0", "1.0"]
    assert [row["answer"] for row in read] == ["kip", "", "the Kip!"]


@pytest.mark.parametrize("golds", [("kip",), ()])
def test_a_failed_one_has_no_score(golds, tmp_path):
    failed = trajectory(0, answer=None, golds=golds, error="EngineFailure: gone")
    failed.turns[0].calls.append(Call("remember", 0, 0, "eos", None, None))
    row = metrics(failed)
    assert [row[name] for name in ("em", "f1", "cover_em", "em_unicode")] == [None] * 4
    assert row["peak_tokens"] is None and row["sampled_tokens"] is None  # not counted is not 0
    run = Run.open(tmp_path, Recipe(), ABOUT)
    list(run.keep([failed]))
    run.write_metrics()
    (read,) = table(run)
    assert [read[name] for name in ("em", "f1", "cover_em", "em_unicode", "peak_tokens")] == [""] * 5
    assert read["error"] == "EngineFailure: gone"


def test_without_golds_there_is_no_score():
    row = metrics(trajectory(golds=()))
    assert (row["gold"], row["em"], row["answer"]) == (None, None, "kip")


def test_any_text_fits_into_the_table(tmp_path):
    run = Run.open(tmp_path, Recipe(), ABOUT)
    nasty = trajectory(0, answer='a,"b"\n\ud800\x00\u202e')
    list(run.keep([replace(nasty, task=replace(nasty.task, question="\udfff;\r\n"))]))
    run.write_metrics()
    (row,) = table(run)
    assert row["answer"] == 'a,"b"\n\\ud800\x00\u202e'
    assert row["question"] == "\\udfff;\r\n"


def test_means_leave_out_what_is_not_there():
    rows = [{"em": 1.0}, {"em": None}, {"em": 0.0}]
    assert mean_of(rows, "em").mean == 0.5
    assert mean_of([{"em": None}], "em") is None
    assert mean_of([], "em") is None


def test_versions_name_what_is_installed(monkeypatch):
    def version(name):
        if name == "faiss-cpu":
            raise PackageNotFoundError(name)
        return "1"

    monkeypatch.setattr(runs, "version", version)
    found = versions()
    assert "faiss-cpu" not in found
    assert found["faiss-gpu"] == "1"


def test_a_full_disk_leaves_the_run_as_it_was(tmp_path, monkeypatch):
    run = Run.open(tmp_path, Recipe(), ABOUT)
    list(run.keep([trajectory(0)]))
    run.write_metrics()
    before = run.path.read_bytes(), (tmp_path / "metrics.csv").read_bytes()

    def full(handle):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(jsonl.os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            list(run.keep([trajectory(1)]))
        with pytest.raises(OSError, match="No space left"):
            run.write_metrics()
    assert (run.path.read_bytes(), (tmp_path / "metrics.csv").read_bytes()) == before
    assert not list(tmp_path.glob(".*.part"))
    list(run.keep([trajectory(1)]))
    assert [each.id for each in run.trajectories()] == ["t0#0", "t1#0"]
