"""What reinforcement adds, from runs on disk: exact numbers, question by question and seed by seed."""

import csv
import json

import pytest

from memsearcher import jsonl
from memsearcher.training.resume import write_step
from memsearcher.trajectory import Call, Limits, Task, Trajectory
from scripts import gains

HOPS = {"a": 2, "b": 2, "c": 3, "d": 3}


def evaluation(right, failed=(), wordy=()):
    """The four questions, those in `right` answered right, those in `wordy` in a sentence."""
    said = {name: "Kip" if name in right else "It is the kip." if name in wordy else "Baht" for name in HOPS}
    return [
        Trajectory(
            Task(name, "Which?", ("Kip",), {"hops": hops, "shape": "chain"}), "memsearcher", Limits(),
            answer=said[name], error="TimeoutError: slow" if name in failed else None,
        )
        for name, hops in HOPS.items()
    ]  # fmt: skip


def trained(folder, seed, evaluations, agent="memsearcher", failed=(), wordy=(), start=None):
    """A run folder with evaluations by step."""
    recipe = {"agent": agent, "seed": seed, "model": {"adapter": start and str(start)}}
    jsonl.replace(folder / "run.json", json.dumps({"recipe": recipe}).encode())
    for step, right in evaluations.items():
        write_step(folder, "eval", step, 0, evaluation(right, failed, wordy))
    jsonl.write_csv(folder / "log.csv", [
        {"reward": 0.5, "step": 1, "trajectories/sampled_tokens": 10.5, "step_time": 90},
        {"reward": 0.7, "step": 2, "trajectories/sampled_tokens": 20.0, "step_time": 36},
    ])  # fmt: skip


@pytest.fixture
def tables(tmp_path, monkeypatch, capsys):
    """Makes the tables of the runs in a folder, and what was printed."""

    def make():
        monkeypatch.setattr("sys.argv", ["gains", "--runs", str(tmp_path), "--out", str(tmp_path / "out")])
        gains.main()
        found = {}
        for path in (tmp_path / "out").glob("*.csv"):
            with path.open(newline="") as file:
                found[path.stem] = list(csv.DictReader(file))
        return found, capsys.readouterr().out

    return make


def test_rises_of_runs_and_of_the_mean_over_seeds(tmp_path, tables):
    trained(tmp_path / "train-memsearcher-0", 0, {0: "a", 20: "ab", 40: "abc"})
    trained(tmp_path / "train-memsearcher-1", 1, {0: "b", 20: "abd", 40: "a"})
    trained(tmp_path / "ablation-reward-em", 0, {0: "a", 40: ""})
    trained(tmp_path / "trial-slow", 0, {0: "abcd"}, agent="react")
    trained(tmp_path / "warm-memsearcher", 0, {0: "a", 20: "b"})
    found, printed = tables()

    rows = {(row["run"], row["seed"]): row for row in found["gains"] if row["measure"] == "em"}
    assert set(rows) == {
        ("train-memsearcher-0", "0"), ("train-memsearcher-1", "1"), ("ablation-reward-em", "0"), ("", "0 1"),
    }  # fmt: skip
    first = rows["train-memsearcher-0", "0"]
    assert [first[each] for each in ("first_step", "last_step", "n", "won", "lost", "p")] == [
        "0",
        "40",
        "4",
        "2",
        "0",
        "0.5",
    ]
    assert [float(first[each]) for each in ("before", "after", "rise")] == [0.25, 0.75, 0.5]
    second = rows["train-memsearcher-1", "1"]
    assert [float(second[each]) for each in ("before", "after", "rise", "won", "lost")] == [0.25, 0.25, 0, 1, 1]
    ablation = rows["ablation-reward-em", "0"]
    assert (ablation["change"], float(ablation["rise"])) == ("reward-em", -0.25)
    # By question over both seeds: a 1/2 to 1, b 1/2 to 1/2, c 0 to 1/2, d 0 to 0.
    both = rows["", "0 1"]
    assert [float(both[each]) for each in ("before", "after", "rise", "low", "high")] == [0.25, 0.5, 0.25, 0, 0.5]
    assert both["p"] == both["won"] == ""
    assert "| memsearcher |  | 0 1 | 40 | 4 | em | 0.250 | 0.500 | +0.250 (+0.000 to +0.500) |" in printed

    kinds = {
        row["questions"]: row
        for row in found["validation"]
        if (row["run"], row["step"]) == ("train-memsearcher-0", "40")
    }
    assert {name: (row["n"], float(row["em"])) for name, row in kinds.items()} == {
        "all": ("4", 0.75), "2-hop": ("2", 1.0), "3-hop": ("2", 0.5),
    }  # fmt: skip
    assert [row["reward"] for row in found["log"] if row["run"] == "ablation-reward-em"] == ["0.5", "0.7"]
    assert {row["change"] for row in found["validation"]} == {"", "reward-em", "slow"}
    assert {row["run"] for row in found["validation"]} == {
        "train-memsearcher-0", "train-memsearcher-1", "trial-slow", "ablation-reward-em"
    }  # fmt: skip


def test_contexts_of_an_evaluation_are_counted_turn_by_turn(tmp_path, tables):
    trained(tmp_path / "train-memsearcher-0", 0, {})
    played = evaluation("a")
    for tokens, each in zip((10, 30), played, strict=False):
        each.begin_turn("").calls = [Call("act", 0, 0, "eos", tokens - 2, 2)]
    write_step(tmp_path / "train-memsearcher-0", "eval", 6, 0, played)
    found, _ = tables()
    (row,) = found["contexts"]
    assert [row[each] for each in ("run", "step", "turn", "searches", "n", "tokens")] == [
        "train-memsearcher-0", "6", "1", "False", "2", "20"
    ]  # fmt: skip


def test_every_trajectory_of_training_has_a_row(tmp_path, tables):
    trained(tmp_path / "train-memsearcher-0", 0, {0: "a"})
    played = evaluation("a", failed="b")
    played[0].reward, played[0].advantage = 1.0, 0.7
    played[0].begin_turn("")
    write_step(tmp_path / "train-memsearcher-0", "train", 1, 0, played)
    found, _ = tables()
    about = ("run", "step", "question", "kind", "sample", "turns", "answered", "em", "reward", "advantage")
    assert [[row[each] for each in about] for row in found["groups"][:2]] == [
        ["train-memsearcher-0", "1", "a", "2-hop", "0", "1", "True", "1.0", "1.0", "0.7"],
        ["train-memsearcher-0", "1", "b", "2-hop", "0", "0", "True", "", "", ""],
    ]
    assert len(found["groups"]) == 4


def test_seeds_are_compared_where_all_of_them_came(tmp_path, tables):
    trained(tmp_path / "train-memsearcher-0", 0, {0: "a", 20: "ab", 40: "abcd"})
    trained(tmp_path / "train-memsearcher-1", 1, {0: "a", 20: "ab"})
    found, _ = tables()
    mine = [row for row in found["gains"] if row["measure"] == "em"]
    assert [(row["seed"], row["last_step"], float(row["after"])) for row in mine] == [
        ("0", "40", 1.0), ("1", "20", 0.5), ("0 1", "20", 0.5),
    ]  # fmt: skip


def test_seeds_without_a_common_evaluation_have_no_mean(tmp_path, tables):
    trained(tmp_path / "train-memsearcher-0", 0, {0: "a", 20: "ab"})
    trained(tmp_path / "train-memsearcher-1", 1, {0: "a", 40: "ab"})
    found, _ = tables()
    assert [row["seed"] for row in found["gains"] if row["measure"] == "em"] == ["0", "1"]


def test_what_is_said_in_a_sentence_counts_as_covered(tmp_path, tables):
    trained(tmp_path / "train-memsearcher-0", 0, {0: "a", 20: "ab"}, wordy="b")
    found, _ = tables()
    em, cover, turns = found["gains"]
    assert [each["measure"] for each in (em, cover, turns)] == ["em", "cover_em", "turns"]
    assert (float(turns["before"]), turns["won"]) == (0.0, "")
    assert [float(em[each]) for each in ("before", "after", "rise")] == [0.25, 0.5, 0.25]
    assert [float(cover[each]) for each in ("before", "after", "rise")] == [0.5, 0.5, 0]
    (first, _) = (row for row in found["validation"] if row["questions"] == "all")
    assert [float(first[each]) for each in ("em", "cover_em", "cover_em_low", "cover_em_high")] == [0.25, 0.5, 0, 1]


def test_a_question_that_failed_is_left_out_and_counted(tmp_path, tables):
    trained(tmp_path / "train-memsearcher-0", 0, {0: "a", 20: "ab"}, failed="d")
    found, _ = tables()
    row = found["gains"][0]
    assert (row["n"], float(row["rise"])) == ("3", pytest.approx(1 / 3))
    assert {(each["n"], each["failed"]) for each in found["validation"] if each["questions"] == "all"} == {("3", "1")}


def test_one_evaluation_is_no_rise_and_none_is_refused(tmp_path, tables, capsys):
    trained(tmp_path / "train-memsearcher-0", 0, {0: "a"})
    found, printed = tables()
    assert "gains" not in found and "no run was evaluated twice yet" in printed
    (tmp_path / "train-memsearcher-0" / "run.json").unlink()
    with pytest.raises(SystemExit):
        tables()
    assert "has no training run that was evaluated" in capsys.readouterr().err


def test_the_budget_is_that_of_the_run_and_of_the_warm_start_before_it(tmp_path, tables):
    card = {
        "recipe": {"warmstart": {"steps": 10, "batch": 4}}, "minutes": 3.5,
        "counts": {"conversations": 80, "tokens": 8100, "trained_tokens": 404},
    }  # fmt: skip
    jsonl.replace(tmp_path / "warm" / "agent.json", json.dumps(card).encode())
    jsonl.replace(tmp_path / "reinforced" / "agent.json", json.dumps({"steps": 6}).encode())
    trained(tmp_path / "train-memsearcher-0", 0, {0: "a"}, start=tmp_path / "warm")
    trained(tmp_path / "train-react-0", 0, {0: "a"}, agent="react", start=tmp_path / "gone")
    trained(tmp_path / "train-mem1-0", 0, {0: "a"}, agent="mem1", start=tmp_path / "reinforced")
    write_step(tmp_path / "train-memsearcher-0", "train", 1, 0, evaluation("a"))
    write_step(tmp_path / "train-memsearcher-0", "train", 2, 0, evaluation("ab")[:2])
    found, _ = tables()
    rows = {row["agent"]: row for row in found["budget"]}
    names = ("warm_conversations", "warm_tokens", "warm_trained_tokens", "warm_minutes", "steps", "trajectories")
    mine = rows["memsearcher"]
    assert [mine[each] for each in (*names, "sampled_tokens", "minutes")] == [
        "40", "4050", "202", "3.5", "2", "6", "82", "2.1"
    ]  # fmt: skip
    assert rows["react"]["warm_tokens"] == rows["mem1"]["warm_tokens"] == ""


def test_a_change_is_compared_question_by_question_with_the_run_that_it_departs_from(tmp_path, tables):
    trained(tmp_path / "train-memsearcher-0", 0, {0: "a", 6: "ab", 12: "abcd"})
    trained(tmp_path / "ablation-memory-16", 0, {0: "", 6: "bc"}, failed="d")
    trained(tmp_path / "trial-odd", 1, {0: "a"})  # no run of this seed to compare with
    trained(tmp_path / "trial-lost", 0, {0: "a"}, failed="abcd")  # no question to compare
    trained(tmp_path / "trial-begun", 0, {0: "abc"}, wordy="d")
    found, _ = tables()
    rows = {(row["change"], row["step"], row["measure"]): row for row in found["changes"]}
    measures = {"em", "cover_em", "turns"}
    assert {each[:2] for each in rows} == {("memory-16", "0"), ("memory-16", "6"), ("begun", "0")}
    assert {each[2] for each in rows} == measures
    told = ("n", "base", "mean", "difference", "won", "lost")
    third = pytest.approx(1 / 3)
    assert [float(rows["memory-16", "0", "em"][each]) for each in told] == [3, third, 0, -1 / 3, 0, 1]
    assert [float(rows["memory-16", "6", "em"][each]) for each in told] == [3, 2 / 3, 2 / 3, 0, 1, 1]
    assert [float(rows["begun", "0", "em"][each]) for each in told] == [4, 0.25, 0.75, 0.5, 2, 0]
    assert [float(rows["begun", "0", "cover_em"][each]) for each in told] == [4, 0.25, 1, 0.75, 3, 0]
    assert rows["begun", "0", "turns"]["p"] == ""

    asked = [row for row in found["questions"] if (row["run"], row["step"]) == ("ablation-memory-16", "6")]
    assert [(row["question"], row["kind"], row["em"]) for row in asked] == [
        ("a", "2-hop", "0.0"), ("b", "2-hop", "1.0"), ("c", "3-hop", "1.0"),
    ]  # fmt: skip
