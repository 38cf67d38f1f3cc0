"""The figure of what training adds: exact numbers from recorded evaluations, run by run and over seeds."""

import json

import pytest

from memsearcher import jsonl
from memsearcher.figures.rise import plot, rise
from memsearcher.figures.runs import read_runs
from memsearcher.statistics import paired_difference
from memsearcher.trajectory import Limits, Task, Trajectory, write_trajectory


def trained(folder, seed, evaluations):
    """A training run whose evaluations, by step, answered so; None failed."""
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"recipe": {"seed": seed}}))
    jsonl.write_csv(folder / "log.csv", [{"step": 1, "reward": 0.5}])
    for step, answers in evaluations.items():
        for place, answer in enumerate(answers):
            error = None if answer else "TimeoutError: slow"
            each = Trajectory(Task(f"q{place}", "?", ("Kip",)), "react", Limits(), answer=answer, error=error)
            each.begin_turn("")
            (folder / "trajectories").mkdir(exist_ok=True)
            write_trajectory(folder / "trajectories" / f"eval-{step:06d}-{place % 2:04d}.jsonl", each)
    return folder


@pytest.fixture
def folders(tmp_path):
    wrong = ["Baht", "Baht", "Baht", "Kip"]
    return [
        trained(tmp_path / "train-0", 0, {0: wrong, 6: ["Kip", "Baht", "Kip", "Kip"], 12: ["Baht"] * 4}),
        trained(tmp_path / "train-1", 1, {0: wrong, 6: ["Kip", "Kip", None, "Kip"]}),
        trained(tmp_path / "ablation-cap", 0, {0: wrong, 6: wrong}),
        trained(tmp_path / "once", 0, {0: wrong}),
    ]


def test_seeds_end_where_all_came_and_have_a_mean_over_what_never_failed(folders):
    rows = {row["run"]: row for row in rise(read_runs(folders).logs)}
    assert list(rows) == ["train-0", "train-1", "train", "ablation-cap"]
    assert {row["last_step"] for row in rows.values()} == {6}
    ends = {name: (row["n"], row["before"], row["after"], row["rise"]) for name, row in rows.items()}
    assert ends["train-0"] == (4, 0.25, 0.75, 0.5)
    assert ends["train-1"] == pytest.approx((3, 1 / 3, 1, 2 / 3))
    assert ends["train"] == pytest.approx((3, 1 / 3, (1 + 0.5 + 1) / 3, 0.5))  # the first, second and fourth question
    assert ends["ablation-cap"] == (4, 0.25, 0.25, 0)
    assert rows["train"]["seeds"] == "0 1"
    wanted = paired_difference([1, 0.5, 1], [0, 0, 1], seed=0)
    assert (rows["train"]["low"], rows["train"]["high"]) == (wanted.low, wanted.high)


def test_seeds_without_two_evaluations_in_common_stand_alone(tmp_path):
    folders = [
        trained(tmp_path / "train-0", 0, {0: ["Baht"], 6: ["Kip"]}),
        trained(tmp_path / "train-1", 1, {0: ["Baht"], 4: ["Baht"]}),
        trained(tmp_path / "train-2", 2, {0: [None, "Kip"], 6: ["Kip"]}),  # no question that never failed
    ]
    rows = rise(read_runs(folders).logs)
    assert [(row["run"], row["group"], row["last_step"]) for row in rows] == [
        ("train-0", "train-0", 6), ("train-1", "train-1", 4)
    ]  # fmt: skip
    assert rise([]) == []


def test_the_plot_names_each_group_and_escapes_what_it_is_called(folders, tmp_path):
    import pandas as pd

    odd = trained(tmp_path / "<b>odd", 7, {0: ["Baht"], 2: ["Kip"]})
    table = pd.DataFrame(rise(read_runs([*folders, odd]).logs))
    drawn = plot(table, "demo")
    assert list(drawn.layout.yaxis.ticktext) == [
        "train, seeds 0 1, 6 steps: 0.33 → 0.83",
        "ablation-cap, seed 0, 6 steps: 0.25 → 0.25",
        "&lt;b&gt;odd, seed 7, 2 steps: 0.00 → 1.00",
    ]
    points = {trace.name: list(trace.x) for trace in drawn.data}
    assert points["train, seeds"] == pytest.approx([0.5, 2 / 3])
    assert points["train"] == pytest.approx([0.5])
    assert "(n = 1, 3, 4)" in drawn.layout.annotations[1].text
