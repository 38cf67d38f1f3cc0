"""Answers to several questions: written, read and scored by position."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memsearcher.objective_scoring import (
    Objective,
    ObjectiveScores,
    has_objectives,
    objectives_of,
    read_answers,
    score_objectives,
    write_answers,
)
from memsearcher.scoring import Scores, score
from memsearcher.trajectory import Limits, Task, Trajectory

ANY_TEXT = st.text(st.characters(exclude_categories=[]), max_size=20)
HOSTILE = st.text(st.sampled_from(list(';"" \n\t\\{}ab\x00\ud800<|')), max_size=12) | ANY_TEXT
RIGHT, WRONG = Scores(1.0, 1.0, 1.0, 1.0), Scores(0.0, 0.0, 0.0, 0.0)


def attempt(answer, *golds, error=None):
    objectives = [
        {"id": f"o{number}", "question": f"Q{number}?", "golds": list(each)} for number, each in enumerate(golds)
    ]
    trajectory = Trajectory(Task("t", "?", (), {"objectives": objectives}), "agent", Limits())
    trajectory.answer, trajectory.error = answer, error
    return trajectory


@given(st.lists(HOSTILE, max_size=17))
def test_what_is_written_is_read_again(answers):
    assert read_answers(write_answers(answers)) == answers


@given(st.lists(st.text(st.characters(exclude_categories=[], exclude_characters=';"'), min_size=1, max_size=9)))
def test_the_plain_form_is_read_as_mem1_does(answers):
    text = ";".join(answers)
    wanted = [each.strip() for each in text.split(";")]
    while wanted and not text.strip():
        wanted.pop()
    if text.strip().endswith(";"):
        wanted.pop()
    assert read_answers(text) == wanted


@pytest.mark.parametrize(
    ("text", "answers"),
    [
        ("", []),
        (" \n", []),
        ("kip", ["kip"]),
        ("kip; Laos", ["kip", "Laos"]),
        ("kip;Laos ;  yes", ["kip", "Laos", "yes"]),
        ("kip; Laos;", ["kip", "Laos"]),
        ("kip; Laos ; ", ["kip", "Laos"]),
        ("kip; ; yes", ["kip", "", "yes"]),
        (";", [""]),
        ('"a; b"; c', ["a; b", "c"]),
        ('c; "a; b"', ["c", "a; b"]),
        ('c; "a; b";', ["c", "a; b"]),
        ('"a""; b"; c', ['a"; b', "c"]),
        ('"Heroes"; Low', ["Heroes", "Low"]),
        ('a 5" disk; the 3.5" one', ['a 5" disk', 'the 3.5" one']),
        ('"Heroes" by Bowie; Low', ['"Heroes" by Bowie', "Low"]),
        ('"Heroes; Low', ['"Heroes', "Low"]),
        ('"Heroes; Low;', ['"Heroes', "Low"]),
        ('""; a', ["", "a"]),
        ("1. kip\n2. Laos", ["1. kip\n2. Laos"]),
    ],
)
def test_reading(text, answers):
    assert read_answers(text) == answers


@pytest.mark.parametrize(
    ("answers", "text"),
    [
        ([], ""),
        (["kip", "Laos"], "kip; Laos"),
        (["a; b", "c"], '"a; b"; c'),
        (['"Heroes"', ""], '"""Heroes"""; ""'),
        ([" a", 'b "c"'], '" a"; b "c"'),
    ],
)
def test_writing(answers, text):
    assert write_answers(answers) == text


@pytest.mark.parametrize(
    ("text", "count"),
    [('"""; ' * 50_000, 25_000), ('"' * 200_000, 1), (";" * 200_000, 200_000), ('"a' + '"";' * 60_000, 60_000)],
)
def test_a_long_text_is_read(text, count):
    """Quotes that are opened and never closed would take minutes if each were looked for anew."""
    assert len(read_answers(text)) == count


def test_each_answer_is_scored_by_its_position():
    scores = score_objectives(attempt("kip; Laos; Mekong", ["Lao kip", "kip"], ["China"], ["Mekong River"]))
    assert scores == ObjectiveScores((RIGHT, WRONG, score("Mekong", ["Mekong River"])), 3)
    assert scores.complete
    assert scores.total("em") == scores.total("em", strict=True) == 1.0
    assert scores.mean("em") == pytest.approx(1 / 3)
    assert scores.total("f1") == pytest.approx(1 + 2 / 3)
    assert scores.mean("f1", strict=True) == pytest.approx((1 + 2 / 3) / 3)


@pytest.mark.parametrize(
    ("answer", "given", "em"),
    [
        ("a", 1, 1.0),
        ("a; b", 2, 2.0),
        ("x; b", 2, 1.0),
        ("; b", 2, 1.0),
        ("b; a", 2, 0.0),
        ("a; b; c; d", 4, 3.0),
        ("", 0, 0.0),
        (None, 0, 0.0),
    ],
)
def test_a_wrong_count_scores_what_is_there_and_nothing(answer, given, em):
    scores = score_objectives(attempt(answer, ["a1", "a"], ["b"], ["c"]))
    assert (scores.answers, scores.complete) == (given, False)
    assert scores.total("em") == em
    assert scores.total("em", strict=True) == scores.mean("f1", strict=True) == 0.0


def test_an_answer_with_a_semicolon_is_one_answer():
    assert score_objectives(attempt('"Paris; Texas"; b', ["Paris; Texas"], ["b"])).total("em") == 2.0


def test_of_one_objective_the_answer_is_all():
    scores = score_objectives(attempt("Paris; Texas", ["Paris; Texas"]))
    assert (scores.total("em"), scores.answers, scores.complete) == (1.0, 1, True)
    assert score_objectives(attempt(" ", ["x"])).answers == 0


def test_columns_of_a_table():
    row = score_objectives(attempt("a", ["a"], ["b"])).columns()
    assert row == {
        "objectives": 2,
        "answers": 1,
        "em_sum": 1.0,
        "em_mean": 0.5,
        "em_sum_strict": 0.0,
        "em_mean_strict": 0.0,
        "f1_sum": 1.0,
        "f1_mean": 0.5,
        "f1_sum_strict": 0.0,
        "f1_mean_strict": 0.0,
    }
    assert list(row)[2:6] == ["em_sum", "em_mean", "em_sum_strict", "em_mean_strict"]


def test_a_failed_trajectory_has_no_score():
    assert score_objectives(attempt("a; b", ["a"], ["b"], error="engine: gone")) is None


@given(st.lists(st.lists(HOSTILE.filter(str.strip), min_size=1, max_size=3), min_size=1, max_size=16))
def test_the_golds_score_full_marks(golds):
    answers = [each[-1] for each in golds]
    text = write_answers(answers) if len(answers) > 1 else answers[0]
    scores = score_objectives(attempt(text, *golds))
    assert scores.total("em") == scores.total("f1", strict=True) == len(golds)
    assert scores.mean("em", strict=True) == 1.0


@given(st.none() | HOSTILE | st.lists(HOSTILE, max_size=5).map(";".join), st.integers(1, 5))
def test_any_answer_is_scored(answer, count):
    scores = score_objectives(attempt(answer, *[["gold"]] * count))
    assert len(scores.scores) == count
    assert 0 <= scores.total("em", strict=True) <= scores.total("em") <= count


def test_objectives_are_read_off_a_task():
    task = attempt(None, ["a"], ["b", "c"]).task
    assert objectives_of(task) == [Objective("o0", "Q0?", ("a",)), Objective("o1", "Q1?", ("b", "c"))]
    assert has_objectives(task)
    assert not has_objectives(Task("t", "?", ("a",)))


GOOD = {"id": "o", "question": "Q?", "golds": ["a"]}


@pytest.mark.parametrize(
    ("objectives", "message"),
    [
        (None, "task t: metadata.objectives must be a list of questions"),
        ([], "task t: metadata.objectives must be a list of questions"),
        ("x", "task t: metadata.objectives must be a list of questions"),
        ([GOOD, "x"], r"task t: metadata.objectives\[1\] must be an object"),
        ([{**GOOD, "id": 1}], r"task t: metadata.objectives\[0\] must have an id and a question, both texts"),
        ([{**GOOD, "question": None}], "must have an id and a question, both texts"),
        ([{**GOOD, "golds": "a"}], r"metadata.objectives\[0\].golds must be a list of texts"),
        ([{**GOOD, "golds": [1]}], "golds must be a list of texts"),
        ([{**GOOD, "golds": []}], "task t: objective o: there are no golds"),
        ([{**GOOD, "golds": [" "]}], r"task t: objective o: golds\[0\] is blank"),
    ],
)
def test_objectives_that_cannot_be_scored_are_named(objectives, message):
    trajectory = attempt("a")
    trajectory.task.metadata["objectives"] = objectives
    with pytest.raises(ValueError, match=message):
        score_objectives(trajectory)
