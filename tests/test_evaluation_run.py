"""The folder of an evaluation: what it refuses, what it keeps, and that its tables follow from its records."""

import csv
import json
import random
from dataclasses import replace

import pytest

from memsearcher import jsonl
from memsearcher.evaluation.run import CARD, Evaluation, compare_runs, find_run, read_card
from memsearcher.evaluation.table import Arm
from memsearcher.recipe import Recipe
from memsearcher.runs import Run, RunError
from memsearcher.trajectory import Limits, Task, Trajectory

TASKS = [Task(f"t{number}", "q?", ("kip",)) for number in range(12)]
ARM = Arm("a", "set", "", len(TASKS))
OTHER = Arm("b", "set", "", len(TASKS))
TABLES = ("questions.csv", "table.csv", "pairs.csv", "table.md")


def played(task, answer="kip", **fields):
    made = Trajectory(task, "a", Limits(), answer=answer, seconds=1.5, **fields)
    made.begin_turn("")
    return made


def evaluation_of(folder, *arms, order=lambda tasks: tasks):
    evaluation = Evaluation.open(folder, arms)
    for arm in arms:
        waiting = evaluation.start(arm, Recipe(), TASKS)
        answers = {
            task.id: "kip" if (number + len(arm.agent)) % 3 else "dong" for number, (task, _) in enumerate(waiting)
        }
        list(evaluation.run(arm).keep(played(task, answers[task.id]) for task in order([task for task, _ in waiting])))
    return evaluation


def table(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_tables_do_not_depend_on_the_order_in_which_questions_ended(tmp_path):
    evaluation_of(tmp_path / "one", ARM, OTHER).report()
    evaluation_of(tmp_path / "two", ARM, OTHER, order=lambda tasks: random.Random(3).sample(tasks, len(tasks))).report()
    for name in TABLES:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    questions = table(tmp_path / "one" / "questions.csv")
    assert [row["agent"] for row in questions] == ["a"] * 12 + ["b"] * 12
    assert [row["id"] for row in questions[:12]] == sorted(f"{task.id}#0" for task in TASKS)
    assert {"tasks", "limits", "em", "dependency", "recall", "judge", "judge_error", "task_sha256"} <= set(questions[0])


def test_a_second_agent_and_a_judge_come_later(tmp_path):
    first = evaluation_of(tmp_path, ARM)
    first.report()
    assert not (tmp_path / "pairs.csv").exists()
    card = (tmp_path / CARD).read_bytes()
    assert Evaluation.open(tmp_path, [ARM]) == first
    assert (tmp_path / CARD).read_bytes() == card
    evaluation_of(tmp_path, OTHER)
    judge = {"model": "grader", "prompts": "judge", "prompts_sha256": "0" * 64}
    both = Evaluation.open(tmp_path, [], judge)
    assert both.card.arms == (ARM, OTHER)
    assert both.start(ARM, Recipe(), TASKS) == []
    sections, rows = both.report()
    assert {row["agent"] for row in rows} == {"a", "b"}
    assert len(table(tmp_path / "pairs.csv")) > 0
    assert sections[0].notes[0] == "a: judged 0 of 12 by grader, prompt judge (SHA-256 000000000000)"
    assert {row["judge_error"] for row in table(tmp_path / "questions.csv")} == {"not judged yet"}
    assert Evaluation.open(tmp_path).card.judge == judge


def test_an_arm_that_has_not_been_played_has_no_means(tmp_path):
    evaluation = Evaluation.open(tmp_path, [ARM])
    ((section,), rows) = evaluation.report()
    assert rows == []
    assert section.rows == [{"": "questions", "a": "12"}, {"": "played", "a": "0"}, {"": "failed", "a": "0"}]
    assert not (tmp_path / "table.csv").exists()


def test_an_arm_from_elsewhere_is_put_in_its_place(tmp_path):
    evaluation = Evaluation.open(tmp_path, [ARM])
    for answers in (("kip", "dong"), ("kip",)):
        evaluation.add(ARM, [played(task, answer) for task, answer in zip(TASKS, answers, strict=False)])
        assert [row["answer"] for row in evaluation.results()[ARM]] == list(answers)
    odd = replace(TASKS[0], metadata={"supporting_ids": 3})
    with pytest.raises(ValueError, match=r"task t0: metadata\.supporting_ids must be a list of texts"):
        evaluation.add(ARM, [played(TASKS[1]), played(odd)])
    assert len(evaluation.results()[ARM]) == 1


def test_another_folder_is_not_touched(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(RunError, match="is not empty and holds no evaluation; name another --out"):
        Evaluation.open(tmp_path, [ARM])
    assert [each.name for each in tmp_path.iterdir()] == ["thesis.tex"]
    (tmp_path / "killed").mkdir()
    (tmp_path / "killed" / ".evaluation.json.17.part").write_text("{")
    assert Evaluation.open(tmp_path / "killed", [ARM]).card.arms == (ARM,)


def test_two_arms_do_not_share_a_place(tmp_path):
    with pytest.raises(RunError, match=r"is for the 12 questions of set, not for the 12 of set\.; name another --out"):
        Evaluation.open(tmp_path, [ARM, replace(ARM, tasks="set.")])
    assert not (tmp_path / CARD).exists()
    Evaluation.open(tmp_path, [ARM])
    with pytest.raises(RunError, match="is for the 12 questions of set, not for the 5 of set; name another --out"):
        Evaluation.open(tmp_path, [replace(ARM, questions=5)])


@pytest.mark.parametrize("content", ["{", "[]", '{"arms": 3}', '{"arms": [{"agent": "a"}]}', '{"arms": [], "more": 1}'])
def test_a_damaged_card_is_named(content, tmp_path):
    (tmp_path / CARD).write_text(content)
    with pytest.raises(RunError, match=r"evaluation\.json: field .*; name another --out, or remove the folder"):
        Evaluation.open(tmp_path)
    with pytest.raises(RunError):
        read_card(tmp_path / CARD)


@pytest.mark.parametrize(
    ("tasks", "recipe", "message"),
    [
        (TASKS[:-1], Recipe(), "holds a run of other settings"),
        ([*TASKS[:-1], replace(TASKS[-1], question="Another?")], Recipe(), "holds a run of other settings"),
        (TASKS, Recipe(seed=1), "holds a run of other settings"),
    ],
)
def test_other_questions_or_settings_are_refused(tasks, recipe, message, tmp_path):
    evaluation = evaluation_of(tmp_path, ARM)
    with pytest.raises(ValueError, match=message):
        evaluation.start(ARM, recipe, tasks)


def test_the_card_says_what_was_played(tmp_path):
    evaluation = evaluation_of(tmp_path, ARM)
    card = json.loads((tmp_path / "a" / "set" / "run.json").read_text())
    assert card["about"].keys() == {"tasks", "questions", "tasks_sha256"}
    assert (tmp_path / "a" / "set" / "recipe.yaml").is_file()
    assert evaluation.card.versions["memsearcher"]


def test_a_full_disk_leaves_the_tables_as_they_were(tmp_path, monkeypatch):
    evaluation = evaluation_of(tmp_path, ARM, OTHER)
    evaluation.report()
    before = [(tmp_path / name).read_bytes() for name in TABLES]

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(jsonl.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        evaluation.report()
    assert [(tmp_path / name).read_bytes() for name in TABLES] == before
    assert not list(tmp_path.glob(".*.part"))


def run_of(folder, *trajectories):
    folder.mkdir()
    jsonl.write(folder / "trajectories.jsonl", [each.to_json() for each in trajectories])
    return Run(folder)


def test_two_runs_are_compared_by_what_they_share(tmp_path):
    first = run_of(tmp_path / "one", *(played(task) for task in TASKS))
    second = run_of(tmp_path / "two", *(played(task, "dong") for task in TASKS[:5]), played(TASKS[5], error="E: x"))
    section = compare_runs(first, second)
    em = section.rows[0]
    assert em["first - second"] == f"{first.folder} - {second.folder}"
    assert em["questions"] == "12 and 6"
    assert em["difference"] == "+1.000 (+1.000 to +1.000)"
    assert (em["n"], em["only first : only second"], em["McNemar p"]) == ("5 of 6", "5 : 0", "0.062")


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            [Task("t0", "Another?", ("kip",))],
            r"of their 1 and 1 questions \(told apart by id, text and golds\) 0 are the same$",
        ),
        ([Task("t0", "q?", ("kip",))], "1 are the same, and each failed in one"),
    ],
)
def test_runs_that_cannot_be_compared(other, message, tmp_path):
    first = run_of(tmp_path / "one", played(TASKS[0]))
    second = run_of(tmp_path / "two", *(played(task, error="E: x") for task in other))
    with pytest.raises(RunError, match=message):
        compare_runs(first, second)


def test_the_run_in_a_folder(tmp_path):
    run = run_of(tmp_path / "run", played(TASKS[0]))
    assert find_run(run.folder) == run
    one = evaluation_of(tmp_path / "one", ARM)
    assert find_run(tmp_path / "one") == one.run(ARM)
    evaluation_of(tmp_path / "two", ARM, OTHER)
    with pytest.raises(RunError, match=r"holds 2 runs; name one of them: .*two/a/set, .*two/b/set"):
        find_run(tmp_path / "two")
    with pytest.raises(RunError, match=r"is no run folder: it has no trajectories\.jsonl"):
        find_run(tmp_path / "nowhere")
