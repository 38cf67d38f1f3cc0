"""What became of a memory, and where its sentences come from."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memsearcher.inspect.diff import MOST_WORK, diff, matches
from memsearcher.inspect.golds import Golds
from memsearcher.inspect.provenance import Seen, Sources
from memsearcher.inspect.text import sentences
from memsearcher.trajectory import read_trajectories
from tests.provenance_cases import CASES

NO_GOLDS = Golds(())
SENTENCES = st.lists(st.sampled_from(["One two.", "One three.", "Four five six.", "X."]), max_size=5).map(" ".join)
SAMPLES = Path(__file__).parent.parent / "data" / "samples"


def changes(before, after, golds=NO_GOLDS):
    return [(line.change, line.text) for line in diff(before, after, golds)]


def said(line, but):
    """The text of a line without the runs of a mark."""
    return "".join(run if isinstance(run, str) else "" if but in run[1] else run[0] for run in line.text)


def test_sentences_are_kept_added_and_dropped():
    assert changes("A one. B two.", "A one. C three.") == [
        ("kept", ["A one."]),
        ("dropped", ["B two."]),
        ("added", ["C three."]),
    ]
    assert changes("", "A one.") == [("added", ["A one."])]
    assert changes("A one.", "") == [("dropped", ["A one."])]
    assert changes("", "") == []


def test_a_sentence_that_only_moved_was_kept():
    made = changes("A one. B two. C three.", "C three. A one. B two.")
    assert sorted(change for change, _ in made) == ["kept", "kept", "moved"]


def test_a_sentence_with_other_words_was_edited_word_by_word():
    ((change, text),) = changes(
        "The capital of Ghana is Accra.", "The largest city of Ghana is Kumasi.", Golds(["Accra"])
    )
    assert change == "edited"
    assert text == [
        "The ", ("capital", "d"), ("largest city", "i"), " of Ghana is ", ("Accra", "dg"), ("Kumasi", "i"), "."
    ]  # fmt: skip


def test_the_most_alike_sentences_are_one_that_was_edited():
    made = changes("The river is long. The river is long and wide.", "The river is long and deep.")
    assert [change for change, _ in made] == ["dropped", "edited"]


def test_repetitions_are_told_apart():
    assert [change for change, _ in changes("A one.", "A one. A one. A one.")] == ["kept", "added", "added"]


def test_gold_answers_stay_marked():
    assert changes("", "It is Accra.", Golds(["Accra"])) == [("added", ["It is ", ("Accra", "g"), "."])]


@given(SENTENCES, SENTENCES)
def test_a_diff_holds_both_memories(before, after):
    lines = diff(before, after, NO_GOLDS)
    new = [said(line, "d") for line in lines if line.new is not None]
    old = sorted(said(line, "i") for line in lines if line.change != "added")
    assert new == [after[start:end].strip() for start, end in sentences(after)]
    kept_old = [before[start:end].strip() for start, end in sentences(before)]
    assert sorted(old) == sorted(kept_old)
    assert [line.new for line in lines if line.new is not None] == list(range(len(new)))


def test_what_is_too_long_to_compare_is_compared_at_its_ends():
    size = int(MOST_WORK**0.5) + 10
    old = ["same", *(f"a{number}" for number in range(size)), "end"]
    new = ["same", *(f"b{number}" for number in range(size)), "end"]
    assert matches(old, new) == [(0, 0), (size + 1, size + 1)]
    assert matches(old, old) == [(place, place) for place in range(size + 2)]


@pytest.mark.parametrize("unit", ["word ", "A b c. ", "x"])
def test_a_very_long_memory_is_compared(unit):
    long = unit * (100_000 // len(unit))
    assert diff("A one.", long, NO_GOLDS)
    assert [line.change for line in diff(long, "A one.", NO_GOLDS)][-1:] in (["added"], ["dropped"])
    assert {line.change for line in diff(long, long, NO_GOLDS)} == {"kept"}


def test_a_source_is_the_passage_that_holds_the_words_and_its_span_the_place():
    text = "Government: republic. Capital of Ghana: Accra; other cities: Kumasi."
    sources = Sources(
        [Seen(0, 1, 2, "Ghana: Capital", text), Seen(1, 1, 1, "Niger: Capital", "Capital of Niger: Niamey.")]
    )
    source = sources.of("The capital of Ghana is Accra.")
    assert (source.seen.passage, source.score, text[slice(*source.span)]) == (0, 1.0, "Capital of Ghana: Accra")
    assert sources.of("Accra was founded by traders.") is None
    assert sources.of("") is None
    assert Sources([]).of("The capital of Ghana is Accra.") is None


def test_a_number_that_is_not_there_is_not_supported():
    sources = Sources([Seen(0, 1, 1, "Laos: Independence", "Independence of Laos: 19 July 1949 (from France).")])
    assert sources.of("Laos became independent on 19 July 1949.") is not None
    assert sources.of("Laos became independent on 19 July 1939.") is None


def test_of_equal_passages_the_first_that_was_seen_is_the_source():
    sources = Sources([Seen(n, n + 1, 1, "", "The capital of Ghana is Accra.") for n in range(3)])
    assert sources.of("The capital of Ghana is Accra.").seen.turn == 1


def test_a_title_supports_without_a_span():
    source = Sources([Seen(0, 1, 1, "Accra Ghana capital", "nothing here")]).of("The capital of Ghana is Accra.")
    assert (source.score, source.span) == (1.0, None)


def test_precision_on_sentences_labelled_by_hand(capsys):
    """Printed, so that the inspector's word "heuristic" has a number to it."""
    seen = {}
    for path in sorted(SAMPLES.glob("*.jsonl")):
        for trajectory in read_trajectories(path):
            for step in (step for turn in trajectory.turns for step in turn.steps):
                seen.update((passage.id, passage) for passage in step.observation.passages)
    names = list(seen)
    assert {name for _, label in CASES for name in label} <= set(names)
    sources = Sources([Seen(number, 1, p.rank, p.title, p.text) for number, p in enumerate(seen.values())])
    given = right = 0
    for sentence, label in CASES:
        source = sources.of(sentence)
        given += source is not None
        right += source is not None and names[source.seen.passage] in label
    stated = sum(bool(label) for _, label in CASES)
    with capsys.disabled():
        print(f"\nsources of {len(CASES)} labelled sentences among {len(names)} passages:", end=" ")
        print(f"precision {right}/{given} = {right / given:.2f}, recall {right}/{stated} = {right / stated:.2f}")
    assert right / given >= 0.9
    assert right / stated >= 0.85
