"""Tables of the tests after reinforcement: each number of hops and all of them, seed by seed."""

import csv

import pytest

from memsearcher.evaluation.run import Evaluation
from memsearcher.evaluation.table import Arm
from memsearcher.recipe import Recipe
from memsearcher.trajectory import Action, Call, Limits, Step, Task, Trajectory
from scripts.tested import context_rows, main, tables


def evaluated(folder, **answers):
    """An evaluation of agents that gave so many right answers (k) and wrong ones (d), and failed (x)."""
    for agent, given in answers.items():
        tasks = [Task(f"{folder.name}{place}", f"{folder.name} {place}?", ("kip",)) for place in range(len(given))]
        arm = Arm(agent, "factbook-test", "", len(tasks))
        evaluation = Evaluation.open(folder, [arm])
        evaluation.start(arm, Recipe(), tasks)
        made = []
        for task, letter in zip(tasks, given, strict=True):
            error = "TimeoutError: slow" if letter == "x" else None
            each = Trajectory(task, agent, Limits(), answer={"k": "kip", "d": "dong"}.get(letter), error=error)
            each.begin_turn("")
            made.append(each)
        list(evaluation.run(arm).keep(made))


@pytest.fixture
def runs(tmp_path):
    evaluated(tmp_path / "test-2-hops-0", memsearcher="kkkd", react="kddd")
    evaluated(tmp_path / "test-3-hops-0", memsearcher="dx", react="kk")
    evaluated(tmp_path / "test-2-hops-1", memsearcher="dd")
    (tmp_path / "test-2-hops-late").mkdir()
    return tmp_path


def test_tables_are_of_each_number_of_hops_and_of_all(runs):
    table, pairs, contexts = tables(runs)
    assert contexts == []  # nothing was counted
    ems = {(row["seed"], row["tasks"], row["agent"]): row for row in table if row["measure"] == "em"}
    shown = {name: (row["mean"], row["n"], row["failed"]) for name, row in ems.items()}
    assert shown == {
        (0, "2-hop", "memsearcher"): (0.75, 4, 0),
        (0, "2-hop", "react"): (0.25, 4, 0),
        (0, "3-hop", "memsearcher"): (0, 1, 1),
        (0, "3-hop", "react"): (1, 2, 0),
        (0, "all", "memsearcher"): (0.6, 5, 1),
        (0, "all", "react"): (0.5, 6, 0),
        (1, "2-hop", "memsearcher"): (0, 2, 0),
    }
    ems = {row["tasks"]: row for row in pairs if row["measure"] == "em"}
    assert {name: (row["n"], row["only_first"], row["only_second"]) for name, row in ems.items()} == {
        "2-hop": (4, 2, 0), "3-hop": (1, 0, 1), "all": (5, 2, 1)
    }  # fmt: skip
    assert ems["all"]["difference"] == pytest.approx(0.2)


def test_the_command_writes_both_tables_or_says_what_is_missing(runs, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["tested", "--runs", str(runs), "--out", str(tmp_path / "out")])
    main()
    with (tmp_path / "out" / "tested.csv").open(newline="") as file:
        assert {row["seed"] for row in csv.DictReader(file)} == {"0", "1"}
    monkeypatch.setattr("sys.argv", ["tested", "--runs", str(tmp_path / "nothing")])
    with pytest.raises(SystemExit):
        main()
    assert "has no evaluation test-HOPS-hops-SEED" in capsys.readouterr().err


def test_contexts_are_of_turns_that_search_and_of_those_that_answer():
    first, second, failed = (Trajectory(Task(name, "?", ("kip",)), "react", Limits(), answer="kip") for name in "abc")
    failed.error = "TimeoutError: slow"
    for each, sizes in ((first, (10, 30)), (second, (20, 40, 7)), (failed, (99,))):
        for tokens in sizes:
            turn = each.begin_turn("")
            turn.calls = [Call("act", 0, 0, "eos", tokens - 2, 2)]
            if each is second or tokens == 10:
                turn.steps = [Step(Action("search", {"query": "q"}))]
    assert context_rows([first, second, failed]) == [
        {"turn": 1, "searches": True, "n": 2, "tokens": 15},
        {"turn": 2, "searches": False, "n": 1, "tokens": 30},
        {"turn": 2, "searches": True, "n": 1, "tokens": 40},
        {"turn": 3, "searches": True, "n": 1, "tokens": 7},
    ]
