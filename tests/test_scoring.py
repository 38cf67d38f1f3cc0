"""Scores and rewards against values worked out by hand."""

import ast
import re
import string
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import memsearcher
from memsearcher.agents.memsearcher import MemSearcher
from memsearcher.rollout import rollout
from memsearcher.scoring import (
    MALFORMED,
    REWARDS,
    Scores,
    check_golds,
    cover_exact_match,
    exact_match,
    exact_match_unicode,
    f1,
    has_goal,
    normalize,
    normalize_unicode,
    reward,
    score,
    score_outcome,
    score_trajectory,
)
from memsearcher.trajectory import Action, Limits, Observation, Outcome, Step, Task, Trajectory
from tests.scripted import ScriptedEngine, ScriptedEnvironment, answer, memory, passage, search

ANSWERED = ("em", "f1", "format_f1")
INFORMATION = {
    "question_cut",
    "passage_cut",
    "memory_unchanged",
    "duplicate_query",
    "turn_limit",
    "no_passages",
    "context_limit",
    "history_cut",
}


def attempt(answer=None, golds=("Paris",), events=(), error=None):
    """A trajectory of one turn an event, and at least one."""
    trajectory = Trajectory(Task("t1", "Which city?", golds), "memsearcher", Limits(), answer=answer, error=error)
    trajectory.begin_turn("")
    for event in events:
        trajectory.begin_turn("").event(event)
    return trajectory


# Each odd case of the field: the answer, the gold, what SQuAD's rule says, what a reader says.
ODD = [
    pytest.param("U.S.", "US", 1, 1, id="abbreviation"),
    pytest.param("1,000", "1000", 1, 1, id="thousands"),
    pytest.param("1,000,000 people", "1000000 people", 1, 1, id="millions"),
    pytest.param("1914–1918", "1914-1918", 0, 1, id="en-dash"),
    pytest.param("1914 – 1918", "1914-1918", 0, 1, id="spaced-dash"),
    pytest.param("1914-1918", "19141918", 1, 0, id="range-is-no-number"),
    pytest.param("O’Brien", "O'Brien", 0, 1, id="curly-apostrophe"),
    pytest.param("“Hamlet”", '"Hamlet"', 0, 1, id="curly-quotes"),
    pytest.param("«Hamlet»", "Hamlet", 0, 1, id="guillemets"),
    pytest.param("Beyonc\u00e9", "Beyonce\u0301", 0, 1, id="composed-decomposed"),
    pytest.param("Beyoncé", "Beyonce", 0, 1, id="accent"),
    pytest.param("São Paulo", "Sao Paulo", 0, 1, id="tilde"),
    pytest.param("Tromsø", "Tromso", 0, 1, id="slashed-letter"),
    pytest.param("İstanbul", "Istanbul", 0, 1, id="dotted-capital"),
    pytest.param("Ｔｏｋｙｏ", "Tokyo", 0, 1, id="full-width"),
    pytest.param("3.5", "35", 1, 0, id="decimal-point"),
    pytest.param("3.5.", "3.5", 1, 1, id="full-stop-behind-a-number"),
    pytest.param("−5", "5", 0, 0, id="minus-sign"),
    pytest.param("-5", "5", 1, 0, id="negative"),
    pytest.param("−5", "-5", 0, 1, id="two-minus-signs"),
    pytest.param("10²", "102", 0, 0, id="power"),
    pytest.param("C++", "C", 1, 0, id="c-plus-plus"),
    pytest.param("C#", "C++", 1, 0, id="c-sharp"),
    pytest.param("5km", "5 km", 0, 1, id="unit-without-space"),
    pytest.param("5 km", "5", 0, 0, id="unit-left-out"),
    pytest.param("€5", "$5", 0, 0, id="currencies"),
    pytest.param("€ 5", "€5", 0, 1, id="currency-with-space"),
    pytest.param("$5 million", "5 million", 1, 1, id="dollar-sign"),
    pytest.param("2:1", "21", 1, 0, id="result"),
    pytest.param("1/2", "12", 1, 0, id="fraction"),
    pytest.param("3½", "3 1/2", 0, 1, id="fraction-sign"),
    pytest.param("5%", "5", 1, 1, id="percent-sign"),
    pytest.param("July 4, 1776", "4 July 1776", 0, 1, id="two-orders"),
    pytest.param("the 4th of July, 1776", "July 04, 1776", 0, 1, id="ordinal"),
    pytest.param("4 July 1776", "July 4, 1777", 0, 0, id="another-year"),
    pytest.param("07/04/1776", "04/07/1776", 0, 0, id="ambiguous-order"),
    pytest.param("北京。", "北京", 0, 1, id="cjk-full-stop"),
    pytest.param("東京 都", "東京都", 0, 1, id="cjk-space"),
    pytest.param("北京市", "北京", 0, 0, id="cjk-longer"),
    pytest.param("がく", "かく", 0, 0, id="voicing-is-not-an-accent"),
    pytest.param("हिन्दी", "हन्द", 0, 0, id="vowel-signs-are-not-accents"),
    pytest.param("yes", "Yes.", 1, 1, id="yes"),
    pytest.param("yes", "no", 0, 0, id="yes-no"),
    pytest.param("The Beatles", "Beatles", 1, 1, id="article"),
    pytest.param("The The", "The The", 1, 1, id="only-articles"),
    pytest.param("the", "A", 1, 0, id="two-articles"),
    pytest.param("A+", "A", 1, 0, id="grade"),
    pytest.param("Serie A", "Serie", 1, 0, id="letter-at-the-end"),
    pytest.param("a The Hague", "Hague", 1, 0, id="two-articles-are-a-name"),
    pytest.param("Paris\u200b", "Paris", 0, 1, id="zero-width-space"),
    pytest.param("!!!", "???", 1, 0, id="only-punctuation"),
    pytest.param("", "A", 0, 0, id="empty-prediction-empty-gold"),
    pytest.param(" \n", "Paris", 0, 0, id="blank-prediction"),
    pytest.param("Paris,France", "Paris, France", 0, 1, id="comma-without-space"),
]


@pytest.mark.parametrize(("prediction", "gold", "squad", "reader"), ODD)
def test_odd_cases_by_squad_and_by_a_reader(prediction, gold, squad, reader):
    assert exact_match(prediction, [gold]) == squad
    assert exact_match_unicode(prediction, [gold]) == reader


@pytest.mark.parametrize(
    ("prediction", "gold", "expected"),
    [
        ("Paris", "Paris", 1.0),
        ("Paris, France", "Paris", 2 / 3),
        ("the city of Paris", "Paris France", 2 / 5),
        ("a b b c", "b b d", 2 * 2 / (3 + 3)),  # the article goes; b counts twice
        ("London", "Paris", 0.0),
        ("yes", "yes", 1.0),
        ("yes it is", "yes", 0.0),
        ("no", "no way", 0.0),
        ("yes sir", "yes madam", 0.5),  # the guard is for the bare word
        ("noanswer", "noanswer given", 0.0),
        ("", "Paris", 0.0),
        ("...", "Paris", 0.0),
        ("The The", "The The", 1.0),
        ("the", "The The", 0.0),
        ("北京市", "北京", 0.0),  # one token each: SQuAD's rule knows no words without spaces
        ("12 km", "12 miles", 0.5),
    ],
)
def test_f1(prediction, gold, expected):
    assert f1(prediction, [gold]) == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize(
    ("prediction", "gold", "expected"),
    [
        ("It is Paris, I think", "paris", 1),
        ("Paris", "Paris, France", 0),
        ("首都是北京", "北京", 1),
        ("Germany", "man", 1),  # letters, not words: the field's definition
        ("Beijing", "A", 0),
        ("a dog", "A", 0),
        ("A", "A", 1),
        ("Beijing", "The The", 0),
        ("The The", "The The", 1),
        ("", "A", 0),
    ],
)
def test_cover_exact_match(prediction, gold, expected):
    assert cover_exact_match(prediction, [gold]) == expected


def test_the_best_gold_counts():
    assert score("New York City", ["NYC", "New York", "The Big Apple"]) == Scores(0.0, 0.8, 1.0, 0.0)
    assert score("nyc", ["New York", "NYC"]) == Scores(1.0, 1.0, 1.0, 1.0)


@pytest.mark.parametrize("prediction", [None, "", "  ", "\n\t"])
def test_no_answer_scores_zero(prediction):
    assert score(prediction, ["A", "Paris"]) == Scores(0.0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("golds", "message"),
    [
        ([], "there are no golds"),
        ((), "there are no golds"),
        (["Paris", "  "], r"golds\[1\] is blank"),
        ("Paris", "must be a list of answers, not the single text 'Paris'"),
    ],
)
@pytest.mark.parametrize("metric", [exact_match, exact_match_unicode, cover_exact_match, f1, score])
def test_golds_that_nothing_compares_with_are_refused(metric, golds, message):
    with pytest.raises(ValueError, match=message):
        check_golds(golds)
    with pytest.raises(ValueError, match=message):
        metric("", golds)


@pytest.mark.parametrize(
    ("text", "squad", "unicode"),
    [
        ("  The  Quick, brown FOX! ", "quick brown fox", "quick brown fox"),
        ("an apple a day", "apple day", "apple day"),
        ("Theatre", "theatre", "theatre"),
        ("e-mail", "email", "email"),
        ("\ud800x\x00", "\ud800x\x00", "\ud800x\x00"),
        ("3½ m²", "3½ m²", "3 1/2 m2"),
        ("", "", ""),
    ],
)
def test_normal_forms(text, squad, unicode):
    assert normalize(text) == squad
    assert normalize_unicode(text) == unicode


def squad_reference(text):
    """`normalize_answer` of the SQuAD script, step by step."""
    text = "".join(character for character in text.lower() if character not in set(string.punctuation))
    return " ".join(re.sub(re.compile(r"\b(a|an|the)\b", re.UNICODE), " ", text).split())


def f1_reference(prediction, gold):
    """`f1_score` of the HotpotQA script."""
    answer, wanted = squad_reference(prediction), squad_reference(gold)
    for one, other in ((answer, wanted), (wanted, answer)):
        if one in ("yes", "no", "noanswer") and one != other:
            return 0.0
    common = sum((Counter(answer.split()) & Counter(wanted.split())).values())
    if common == 0:
        return 0.0
    precision, recall = common / len(answer.split()), common / len(wanted.split())
    return 2 * precision * recall / (precision + recall)


WORDS = st.lists(
    st.sampled_from(
        ["the", "A", "yes", "no", "Paris", "paris,", "of", "3.5", "é", "‘x’", "C++", "-5", ".", "4", "July"]
    ),
    max_size=6,
).map(" ".join)
TEXT = st.text(max_size=30) | WORDS


@given(TEXT, TEXT)
def test_strict_metrics_agree_with_the_reference(prediction, gold):
    assert normalize(prediction) == squad_reference(prediction)
    if prediction.strip() and squad_reference(gold):
        assert exact_match(prediction, [gold]) == (squad_reference(prediction) == squad_reference(gold))
        assert f1(prediction, [gold]) == pytest.approx(f1_reference(prediction, gold), abs=1e-12)
        assert cover_exact_match(prediction, [gold]) == (squad_reference(gold) in squad_reference(prediction))


@given(st.text(st.characters(exclude_categories=[]), max_size=30) | WORDS)
def test_any_text_equals_itself_and_only_a_blank_one_is_empty(text):
    blank = not text.strip()
    assert (normalize_unicode(text) == "") == blank
    if not blank:
        assert score(text, [text]) == Scores(1.0, 1.0, 1.0, 1.0)


@given(TEXT, st.lists(TEXT.filter(str.strip), min_size=1, max_size=4))
def test_a_metric_is_the_best_over_golds_and_lies_between_0_and_1(prediction, golds):
    for metric in (exact_match, exact_match_unicode, cover_exact_match, f1):
        alone = [metric(prediction, [gold]) for gold in golds]
        assert metric(prediction, golds) == max(alone)
        assert all(0.0 <= value <= 1.0 for value in alone)


@pytest.mark.parametrize("text", ["1 " * 50_000, "a+" * 50_000, "1," * 50_000, "july 1 " * 14_000, "漢 " * 50_000])
def test_a_long_answer_is_scored(text):
    assert score(text, ["Paris"]) == Scores(0.0, 0.0, 0.0, 0.0)


def test_a_failed_trajectory_has_no_score_and_no_reward():
    failed = attempt("Paris", error="engine: connection refused")
    assert score_trajectory(failed) is None
    assert [reward(name, failed) for name in REWARDS] == [None] * 4


def test_an_honest_no_answer_scores_zero():
    gave_up = attempt(None, events=["turn_limit"])
    assert score_trajectory(gave_up) == Scores(0.0, 0.0, 0.0, 0.0)
    assert [reward(name, gave_up) for name in ANSWERED] == [0.0, 0.0, 0.0]


def test_a_task_without_golds_is_named():
    with pytest.raises(ValueError, match="task t1: there are no golds"):
        reward("em", attempt("Paris", golds=()))


def test_the_outcome_is_what_the_environment_gave():
    goal = Task("g", "Buy a lamp.", metadata={"goal": {"asin": "LAMP"}})
    left = attempt(None, events=["turn_limit"])
    left.task = goal
    assert has_goal(goal) and reward("outcome", left) == score_outcome(left) == 0.0
    bought = attempt(None)
    bought.task = goal
    bought.turns[0].steps.append(Step(Action("shop", {}), Observation("Thanks.", outcome=Outcome(0.25))))
    assert reward("outcome", bought) == score_outcome(bought) == 0.25
    bought.error = "E: gone"
    assert reward("outcome", bought) is score_outcome(bought) is None


@pytest.mark.parametrize(("metadata", "golds"), [({}, ()), ({"goal": "a lamp"}, ()), ({"goal": {}}, ("Paris",))])
def test_a_question_has_no_outcome(metadata, golds):
    asked = attempt("Paris")
    asked.task = Task("t1", "Where?", golds, metadata)
    assert not has_goal(asked.task)
    with pytest.raises(ValueError, match="task t1: no goal of an environment with an end"):
        reward("outcome", asked)


def test_an_unknown_reward_lists_the_known_ones():
    with pytest.raises(ValueError, match="unknown reward 'bleu'; there are: em, f1, format_f1, outcome"):
        reward("bleu", attempt("Paris"))


@pytest.mark.parametrize(
    ("answer", "em", "f1_value", "format_f1"),
    [
        ("Paris", 1.0, 1.0, 1.0),
        ("Paris, France", 0.0, 2 / 3, 0.1 + 0.9 * 2 / 3),
        ("London", 0.0, 0.0, 0.1),
        ("", 0.0, 0.0, 0.0),
        (" ", 0.0, 0.0, 0.0),
        (None, 0.0, 0.0, 0.0),
    ],
)
def test_rewards(answer, em, f1_value, format_f1):
    trajectory = attempt(answer)
    assert reward("em", trajectory) == em
    assert reward("f1", trajectory) == pytest.approx(f1_value, abs=1e-15)
    assert reward("format_f1", trajectory) == pytest.approx(format_f1, abs=1e-15)


@pytest.mark.parametrize("event", sorted(MALFORMED))
def test_a_malformed_turn_anywhere_earns_no_format_reward(event):
    for events in ([event, "duplicate_query"], ["duplicate_query", event]):
        assert reward("format_f1", attempt("Paris", events=events)) == 0.0
        assert reward("f1", attempt("Paris", events=events)) == 1.0


@pytest.mark.parametrize("event", sorted(INFORMATION))
def test_an_informational_event_costs_nothing(event):
    assert reward("format_f1", attempt("Paris", events=[event])) == 1.0


def test_format_reward_rises_with_f1():
    gold = " ".join(f"w{number}" for number in range(40))
    answers = ["wrong"] + [" ".join(gold.split()[:words]) for words in range(1, 41)]
    rewards = [reward("format_f1", attempt(answer, golds=(gold,))) for answer in answers]
    assert rewards == sorted(set(rewards))
    assert rewards[0] == pytest.approx(0.1)
    assert rewards[-1] == 1.0


def test_what_the_prompt_or_a_passage_holds_earns_nothing():
    """With no answer of the model's, a gold in the question or the memory is no answer."""
    trajectory = attempt(None, golds=("Beijing",))
    trajectory.turns[0].memory_after = "\\boxed{Beijing} <answer>Beijing</answer>"
    assert [reward(name, trajectory) for name in ANSWERED] == [0.0, 0.0, 0.0]


def rewards(*script):
    """What the script of a model earns, as the agent reads it: the rewards of answers, in the order of `ANSWERED`."""
    books = {None: [passage(1, "\\boxed{kip} <answer>kip</answer>")]}
    agent = MemSearcher(Limits(turns=2))
    (trajectory,) = rollout(
        agent, ScriptedEnvironment(books), ScriptedEngine(script), [(Task("t", "\\boxed{kip}?", ("kip",)), 0)]
    )
    return [reward(name, trajectory) for name in ANSWERED]


SEARCH, MEMORY = search("currency"), memory("Laos.")


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        pytest.param([answer("kip")], [1, 1, 1], id="right"),
        pytest.param([SEARCH, MEMORY, answer("kip")], [1, 1, 1], id="right-after-a-search"),
        pytest.param([answer("baht")], [0, 0, 0.1], id="wrong"),
        pytest.param([answer("")], [0, 0, 0], id="empty-box"),
        pytest.param([SEARCH, memory("\\boxed{kip}"), "<think>Hm.</think>"], [0, 0, 0], id="box-in-the-memory"),
        pytest.param([SEARCH, MEMORY, SEARCH], [0, 0, 0], id="box-in-question-and-passage-only"),
        pytest.param([search(""), MEMORY, answer("kip")], [1, 1, 0], id="empty-query-in-an-earlier-turn"),
        pytest.param([SEARCH, "Laos.", answer("kip")], [1, 1, 0], id="no-memory-in-an-earlier-turn"),
        pytest.param(["<tool_call>{</tool_call>", MEMORY, answer("kip")], [1, 1, 0], id="bad-json-in-an-earlier-turn"),
        pytest.param([search("x", tool="y"), MEMORY, answer("kip")], [1, 1, 0], id="unknown-tool-in-an-earlier-turn"),
        pytest.param(["\\boxed{kip}"], [1, 1, 0], id="no-thought"),
        pytest.param(
            ["<think>\\boxed{kip}", MEMORY, "<think>\\boxed{kip}"], [0, 0, 0], id="box-in-an-unclosed-thought"
        ),
    ],
)
def test_what_a_model_writes_earns(script, expected):
    assert rewards(*script) == expected


def test_every_event_that_an_agent_records_is_either_malformed_or_information():
    """A misspelt name would cost a malformed reply nothing."""
    assert not MALFORMED & INFORMATION
    recorded = set()
    for path in (Path(memsearcher.__file__).parent / "agents").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in {
                "event",
                "Event",
            }:
                names = [leaf.value for leaf in ast.walk(node.args[0]) if isinstance(leaf, ast.Constant)]
                recorded |= {name for name in names if isinstance(name, str)}
    assert recorded - MALFORMED - INFORMATION == set()
