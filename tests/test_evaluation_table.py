"""Measures, tables and paired differences against numbers by hand."""

from dataclasses import replace

import pytest

from memsearcher.evaluation.measures import MEASURES, dependency, measure, recall, supporting
from memsearcher.evaluation.paper import dataset_of, paper_rows, paper_section
from memsearcher.evaluation.report import LISTED, markdown, number, sections
from memsearcher.evaluation.table import PAIRED, Arm, by_question, compare, pair_rows, table_rows
from memsearcher.runs import task_hash
from memsearcher.statistics import Interval, bootstrap_mean, mcnemar, paired_difference
from memsearcher.trajectory import Action, Call, Limits, Observation, Outcome, Passage, Step, Task, Trajectory

A, B = Arm("a", "set", "", 4), Arm("b", "set", "turns=3", 4)


def trajectory(number=0, answer="kip", golds=("kip",), error=None, sample=0, calls=((10, 4),), metadata=None):
    task = Task(f"t{number}", "q?", golds, metadata or {})
    made = Trajectory(task, "a", Limits(), sample, answer=answer, error=error, seconds=1.5)
    turn = made.begin_turn("")
    turn.calls += [Call("act", 0, 0, "eos", context, sampled) for context, sampled in calls]
    return made


def found(made, *passages):
    """The trajectory with searches that brought back passages, given as (id, title)."""
    for one in passages:
        seen = Observation(passages=tuple(Passage(id, title, "text", 1.0, 1) for id, title in one))
        made.turns[-1].steps.append(Step(Action("search", {"query": "x"}), seen))
    return made


def rows(*answers, **fields):
    return [measure(trajectory(number, answer, **fields)) for number, answer in enumerate(answers)]


def test_dependency_by_hand():
    made = trajectory(calls=((100, 10), (115, 20)))
    made.begin_turn("").calls.append(Call("act", 0, 0, "eos", 90, 0))
    assert dependency(made) == (100 + 5) * 10 + (115 + 10) * 20 + 0
    assert dependency(trajectory(calls=())) == 0
    for unknown in ((None, 3), (3, None)):
        assert dependency(trajectory(calls=((10, 4), unknown))) is None


@pytest.mark.parametrize(
    ("metadata", "searches", "share"),
    [
        ({}, [[("1", "A")]], None),
        ({"supporting_ids": []}, [[("1", "A")]], None),
        ({"supporting_ids": ["1", "2"]}, [], 0.0),
        ({"supporting_ids": ["1", "2"]}, [[("1", "A"), ("3", "C")]], 0.5),
        ({"supporting_ids": ["1", "2"]}, [[("1", "A")], [], [("1", "A"), ("2", "B")]], 1.0),
        ({"supporting_ids": ["1", "1", "2"]}, [[("1", "A")]], 0.5),
        ({"supporting_titles": ["A", "B"]}, [[("7", "A")], [("8", "B")]], 1.0),
        ({"supporting_titles": ["A", "B"]}, [[("A", "1")]], 0.0),
        ({"supporting_ids": ["1"], "supporting_titles": ["A", "B"]}, [[("1", "X")]], 1.0),
        ({"supporting_ids": None, "supporting_titles": ["A"]}, [[("1", "A")]], 1.0),
    ],
)
def test_recall_counts_what_any_search_brought_back(metadata, searches, share):
    made = found(trajectory(metadata=metadata), *searches)
    made.turns[-1].steps.append(Step(Action("search", {"query": "x"})))  # the environment failed
    assert recall(made) == share
    row = measure(made)
    assert (row["recall"], row["all_found"]) == (share, None if share is None else float(share == 1))


@pytest.mark.parametrize("value", ["1", 3, [1], {"1": 2}])
def test_supporting_passages_that_cannot_be_read_are_named(value):
    with pytest.raises(ValueError, match=r"task t0: metadata\.supporting_titles must be a list of texts, not "):
        supporting(Task("t0", "q?", ("x",), {"supporting_titles": value}))


def test_a_failed_trajectory_is_measured_as_none():
    made = found(trajectory(error="E: x", metadata={"supporting_ids": ["1"]}), [("1", "A")])
    row = measure(made)
    assert [row[name] for name in ("em", "f1", "recall", "all_found", "judge")] == [None] * 5
    assert row["task_sha256"] == task_hash(made.task)


def test_a_table_has_means_with_intervals_over_what_did_not_fail():
    played = [*rows("kip", "dong", "kip"), measure(trajectory(3, error="E: gone"))]
    played[1]["peak_tokens"] = None
    table = {(row["agent"], row["measure"]): row for row in table_rows({A: played, B: []})}
    assert {agent for agent, _ in table} == {"a"}  # nothing is played of b: no mean, and not 0
    assert table["a", "em"] == {
        "agent": "a",
        "tasks": "set",
        "limits": "",
        "questions": 4,
        "measure": "em",
        **bootstrap_mean([1.0, 0.0, 1.0], seed=0)._asdict(),
        "n": 3,
        "played": 4,
        "failed": 1,
    }
    assert table["a", "peak_tokens"]["n"] == 2
    assert ("a", "recall") not in table
    assert set(MEASURES) >= {name for _, name in table}


def test_a_comparison_is_over_the_questions_of_both():
    first = [*rows("kip", "kip", "kip", "dong", "kip"), measure(trajectory(9))]
    second = [*rows("kip", "dong", "dong", "kip"), measure(trajectory(4, error="E: gone"))]
    by = {row["measure"]: row for row in compare(first, second)}
    assert list(by) == [name for name in PAIRED if name not in ("judge", "score", "success", "steps")]
    assert by["em"] == {
        "measure": "em",
        "difference": 0.25,
        "low": paired_difference([1, 1, 1, 0], [1, 0, 0, 1], seed=0).low,
        "high": paired_difference([1, 1, 1, 0], [1, 0, 0, 1], seed=0).high,
        "n": 4,
        "shared": 5,
        "only_first": 2,
        "only_second": 1,
        "p": mcnemar(2, 1),
    }
    assert by["turns"]["p"] is None and by["turns"]["difference"] == 0
    assert compare(first, [measure(trajectory(7))]) == []
    assert compare(first, [measure(trajectory(0, golds=("other",)))]) == []  # another question under the same id


def test_several_attempts_count_by_their_mean():
    first = [measure(trajectory(0, answer, sample=n)) for n, answer in enumerate(("kip", "dong", "kip", "kip"))]
    first.append(measure(trajectory(0, sample=4, error="E: gone")))
    (question,) = by_question(first).values()
    assert question["em"] == 0.75
    (em, *_) = compare(first, rows("dong"))
    assert (em["difference"], em["n"], em["p"]) == (0.75, 1, None)
    (em, *_) = compare([first[0], first[2]], rows("dong"))
    assert (em["difference"], em["p"]) == (1.0, None)  # both attempts were right, and still they are two


def test_pairs_of_all_arms_that_share_questions():
    other = Arm("c", "elsewhere", "", 1)
    results = {A: rows("kip"), B: rows("dong"), other: [measure(trajectory(8))]}
    assert {(row["first"], row["second"], row["tasks"]) for row in pair_rows(results)} == {("a", "b turns=3", "set")}
    results[replace(other, agent="d")] = rows("kip")
    assert ("a", "d", "set / elsewhere") in {(row["first"], row["second"], row["tasks"]) for row in pair_rows(results)}


@pytest.mark.parametrize(
    ("arm", "name", "folder"),
    [
        (A, "a", "a/set"),
        (B, "b turns=3", "b/set@turns=3"),
        (
            Arm("imported:../x", "/etc/passwd", "turns=3,memory_tokens=9", 1),
            None,
            "imported-..-x/etc-passwd@turns=3-memory_tokens=9",
        ),
        (Arm("..", "..", "", 1), None, "_/_"),
    ],
)
def test_an_arm_has_a_name_and_a_folder_inside(arm, name, folder):
    assert name is None or arm.name == name
    assert str(arm.folder) == folder


def shown(results, judge=None):
    return sections(results, table_rows(results), pair_rows(results), judge)


def test_text_shows_every_number_and_what_failed():
    played = [*rows("kip", "dong", "kip"), measure(trajectory(3, error="E: a|b <i>\n\x00`x`"))]
    played[1]["peak_tokens"] = None
    text = markdown("Evaluation", shown({A: played, B: rows("dong", "dong", "dong")}))
    lines = text.splitlines()
    assert lines[:9] == [
        "# Evaluation",
        "",
        "## set",
        "",
        "|  | a | b turns=3 |",
        "|---|---|---|",
        "| questions | 4 | 4 |",
        "| played | 4 | 3 |",
        "| failed | 1 | 0 |",
    ]
    assert "| em | 0.667 (0.000–1.000) | 0.000 (0.000–0.000) |" in lines
    assert r"| peak_tokens | 14.0 (14.0–14.0) \[2\] | 14.0 (14.0–14.0) |" in lines
    assert "| dependency | 48 (48–48) | 48 (48–48) |" in lines
    assert r"- a: failed and not scored: t3#0 (E: a\|b \<i\> \\x00\`x\`)" in lines
    assert "| a - b turns=3 | set | em | +0.667 (+0.000 to +1.000) | 3 of 3 | 2 : 0 | 0.5 |" in lines
    assert "Σ over model calls of (n_context + n_generated / 2) · n_generated" in text
    assert not any(line.startswith("| judge") or line.startswith("| recall") for line in lines)


def test_the_judge_is_named_with_what_it_judged():
    played = rows("kip", "dong", "kip")
    for row, verdict in zip(played, (1.0, None, 0.0), strict=True):
        row["judge"] = verdict
    played[1]["judge_error"] = "no reply: gone"
    played.append(measure(trajectory(3, error="E: x")))
    (section,) = shown({A: played}, {"model": "grader", "prompts": "judge", "prompts_sha256": "0123456789abcdef"})
    assert {"": "judge", "a": "0.500 (0.000–1.000) [2]"} in section.rows
    assert section.notes == [
        "a: failed and not scored: t3#0 (E: x)",
        "a: judged 2 of 3 by grader, prompt judge (SHA-256 0123456789ab)",
        "a: without a verdict: t1#0 (no reply: gone)",
    ]


def test_long_lists_are_cut():
    played = [measure(trajectory(number, error="E: x")) for number in range(LISTED + 2)]
    (section,) = shown({A: played})
    assert section.notes[0].endswith("; and 2 more in questions.csv")
    assert section.notes[0].count("(E: x)") == LISTED


def test_numbers_in_the_digits_of_their_measure():
    interval = Interval(1234.5678, 0.5, 2000.0)
    assert number("f1", interval) == "1,234.568 (0.500–2,000.000)"
    assert number("turns", interval) == "1,234.6 (0.5–2,000.0)"
    assert number("dependency", Interval(1.2e6, -5.0, 2e6), signed=True) == "+1,200,000 (-5 to +2,000,000)"


def objectives(answer, *golds):
    listed = [{"id": str(place), "question": "q?", "golds": [gold]} for place, gold in enumerate(golds)]
    return trajectory(0, answer, ("; ".join(golds),), metadata={"objectives": listed})


def test_tasks_of_several_questions_are_scored_question_by_question():
    row = measure(objectives("kip; dong", "kip", "won"))
    assert (row["em"], row["em_sum"], row["em_sum_strict"], row["objectives"], row["answers"]) == (0.5, 1, 1, 2, 2)
    short = measure(objectives("kip", "kip", "won"))
    assert (short["em"], short["em_sum"], short["em_sum_strict"], short["f1_sum_strict"]) == (0.5, 1, 0, 0)
    failed = measure(replace(objectives(None, "kip", "won"), error="E: x"))
    assert [failed[name] for name in ("em", "f1", "cover_em", "em_unicode", "em_sum", "answers")] == [None] * 6
    assert failed["objectives"] == 2
    (em, *_) = compare([row], [short])
    assert (em["difference"], em["p"]) == (0, None)  # half right is neither right nor wrong
    table = {each["measure"]: each["mean"] for each in table_rows({A: [row]})}
    assert (table["em"], table["f1_sum"]) == (0.5, 1)


def visit(number, reward, error=None):
    """A goal in a shop: two actions, the second of which buys where there is a reward."""
    made = trajectory(number, None, (), error, metadata={"goal": {"asin": "LAMP"}})
    outcome = None if reward is None else Outcome(reward)
    made.turns[-1].steps += [
        Step(Action("shop", {}), Observation("")),
        Step(Action("shop", {}), Observation("", outcome=outcome)),
    ]
    return measure(made)


def test_goals_are_measured_by_their_outcome():
    first = [visit(0, 1.0), visit(1, 0.5), visit(2, None), visit(3, None, error="E: gone")]
    assert [row["score"] for row in first] == [100.0, 50.0, 0.0, None]
    assert [row["success"] for row in first] == [1.0, 0.0, 0.0, None]
    assert [row["steps"] for row in first] == [2] * 4
    assert {row[name] for row in first for name in ("em", "f1", "searches", "recall")} == {None}
    table = {each["measure"]: each for each in table_rows({A: first})}
    assert table["score"]["mean"] == 50.0 and table["success"]["mean"] == pytest.approx(1 / 3)
    assert (table["score"]["low"], table["score"]["high"]) == bootstrap_mean([100.0, 50.0, 0.0], seed=0)[1:]
    assert (table["score"]["n"], table["score"]["failed"], table["steps"]["mean"]) == (3, 1, 2.0)
    assert not {"em", "searches", "judge"} & table.keys() and {"peak_tokens", "dependency"} <= table.keys()
    (section, _) = shown({A: first, B: [visit(number, 0.0) for number in range(3)]})
    cells = {row[""]: row["a"] for row in section.rows}
    assert cells["score"].startswith("50.0 (") and cells["success"].startswith("0.333 (")
    pairs = {row["measure"]: row for row in compare(first, [visit(number, 0.0) for number in range(3)])}
    assert pairs["score"]["difference"] == 50.0 and pairs["score"]["p"] is None
    assert (pairs["success"]["only_first"], pairs["success"]["only_second"]) == (1, 0)
    assert pairs["success"]["p"] == mcnemar(1, 0)


def test_the_committed_figures_are_whole():
    reported = paper_rows()
    assert len(reported) == 237
    assert all(row["source"].endswith("(transcribed second-hand)") and float(row["value"]) >= 0 for row in reported)
    assert {"method", "model", "dataset", "metric", "value", "source"} == set(reported[0])


def ours(tasks, measure="em"):
    return {
        "agent": "a",
        "tasks": tasks,
        "limits": "turns=3",
        "measure": measure,
        "mean": 0.5,
        "low": 0.4,
        "high": 0.6,
        "n": 7,
    }


def test_ours_stands_beside_what_papers_report_and_is_told_apart():
    section = paper_section([ours("hotpotqa.dev.1000"), ours("hotpotqa.dev.1000", "turns"), ours("factbook-test")])
    assert {row["dataset"] for row in section.rows} == {"hotpotqa"}
    first, *others = section.rows
    assert first == {
        "dataset": "hotpotqa",
        "measure": "em",
        "method": "a turns=3",
        "model or questions": "hotpotqa.dev.1000",
        "value": "0.500 (0.400–0.600), n=7",
        "kind": "ours",
    }
    assert all(row["kind"].startswith("paper-reported [") for row in others)
    theirs = {"method": "MemSearcher", "model or questions": "Qwen2.5-7B-Instruct", "kind": "paper-reported [2]"}
    assert {"dataset": "hotpotqa", "measure": "em", "value": "0.508", **theirs} in others
    assert section.notes[1] == "[2] MemSearcher, arXiv 2511.02805 (transcribed second-hand)"
    assert section.notes[-1] == "No paper-reported figures on factbook-test."


def test_sums_stand_beside_mem1():
    section = paper_section([ours("hotpotqa 16-objective", "em_sum_strict"), ours("hotpotqa 16-objective")])
    values = [(row["method"], row["measure"], row["value"]) for row in section.rows]
    assert values[0] == ("a turns=3", "em", "0.500 (0.400–0.600), n=7")
    assert ("MEM1", "em", "1.97") in values and ("MEM1", "f1", "2.39") in values


def test_all_figures_where_there_is_nothing_of_ours():
    assert len(paper_section([]).rows) == sum(row["metric"] in ("em", "f1") for row in paper_rows())
    assert paper_section([ours("factbook-test")]).rows == []


@pytest.mark.parametrize(
    ("tasks", "dataset"),
    [
        ("nq", "nq"),
        ("hotpotqa.dev.1000", "hotpotqa"),
        ("hotpotqa_100.questions", "hotpotqa_100"),  # a slice with a small corpus of its own is not the benchmark
        ("nq 16-objective", "16-objective"),
    ],
)
def test_the_name_that_papers_use(tasks, dataset):
    assert dataset_of(tasks) == dataset
