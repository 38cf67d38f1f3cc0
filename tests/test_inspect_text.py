"""Marked text: runs, sentences, invisible characters, and gold answers by the scorer's own rules."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memsearcher.inspect.golds import Golds
from memsearcher.inspect.text import MOST_SENTENCES, runs, sentences, visible
from memsearcher.scoring import exact_match, exact_match_unicode, normalize

TEXTS = st.text(alphabet=st.sampled_from("aB .!\n\"'(cé北。\u0301"), max_size=40)
LONG = 100_000


def texts(made):
    return [run if isinstance(run, str) else run[0] for run in made]


def found(golds, text):
    return [text[start:end] for start, end in Golds(golds).spans(text)]


def split(text):
    return [text[start:end] for start, end in sentences(text)]


def test_invisible_characters_are_spelled_out():
    assert visible("a\x00b\x1b[0m") == "a\\x00b\\x1b[0m"
    assert visible("\u202eabc\u2066\u200f\ufeff") == "\\u202eabc\\u2066\\u200f\\ufeff"
    assert visible("\ud800") == "\\ud800"
    assert visible("line\n\ttab, Ghana, 北京, é, 👩‍👧") == "line\n\ttab, Ghana, 北京, é, 👩‍👧"


def test_runs_are_cut_where_marks_begin_and_end():
    assert runs("abcdef", [(1, 4, "g"), (2, 3, "i")]) == ["a", ("b", "g"), ("c", "gi"), ("d", "g"), "ef"]
    assert runs("ab", [(0, 2, "g")]) == [("ab", "g")]
    assert runs("") == []
    assert runs("a\x00b", [(1, 2, "g")]) == ["a", ("\\x00", "g"), "b"]


@given(TEXTS, st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40), st.sampled_from("gidsu")), max_size=5))
def test_runs_give_the_text_back_with_the_marks_of_each_character(text, drawn):
    marks = [(min(a, b, len(text)), min(max(a, b), len(text)), letter) for a, b, letter in drawn]
    made = runs(text, marks)
    assert "".join(texts(made)) == visible(text)
    letters = [set() if isinstance(run, str) else set(run[1]) for run in made for _ in texts([run])[0]]
    assert letters == [{letter for a, b, letter in marks if a <= place < b} for place in range(len(text))]


@given(TEXTS)
@example("")
def test_sentences_together_are_the_text(text):
    assert "".join(split(text)) == text
    assert all(split(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three? Four", ["One. ", "Two! ", "Three? ", "Four"]),
        ("Dr. Smith met J. R. Ewing in the U.S. capital.", ["Dr. Smith met J. R. Ewing in the U.S. capital."]),
        (".ci is a code. .gh is another.", [".ci is a code. ", ".gh is another."]),
        ("It is 3.5 km. It is far.", ["It is 3.5 km. ", "It is far."]),
        ("He said “Stop.” Then he left.", ["He said “Stop.” ", "Then he left."]),
        ("- one\n- two\n\n- three", ["- one\n", "- two\n\n", "- three"]),
        ("北京是首都。上海不是。", ["北京是首都。", "上海不是。"]),
        ("An end that is none. then small", ["An end that is none. then small"]),
    ],
)
def test_a_sentence_ends_where_a_reader_would_end_it(text, expected):
    assert split(text) == expected


def test_the_last_of_very_many_sentences_holds_the_rest():
    text = "A b. " * LONG
    assert len(sentences(text)) == MOST_SENTENCES
    assert "".join(split(text)) == text


@pytest.mark.parametrize(
    ("gold", "text", "expected"),
    [
        ("Accra", "(ACCRA), Accra's and accra; not Accrascape.", ["ACCRA", "Accra", "accra"]),
        ("O'Brien", "O’Brien and OBrien", ["O’Brien", "OBrien"]),
        (
            "27 October 1991",
            "on October 27, 1991 or the 27th of October 1991",
            ["October 27, 1991", "27th of October 1991"],
        ),
        ("Café", "the cafe\u0301 and the cafe", ["cafe\u0301", "cafe"]),
        ("3.5", "3.5 km, not 3", ["3.5"]),
        ("€5", "costs €5 or $5", ["€5"]),
        ("The Beatles", "The Beatles, the beatles", ["Beatles", "beatles"]),
        ("北京", "首都是北京。", ["北京"]),
        ("New York City", "New York, New York City", ["New York City"]),
        ("Man", "Germany", []),
        ("C++", "in C++ or C", ["C", "C"]),  # SQuAD's rule takes one for the other
    ],
)
def test_golds_are_found_as_the_scorer_would_judge(gold, text, expected):
    assert found([gold], text) == expected


def test_the_longest_gold_wins_and_none_lies_inside_another():
    assert found(["27 October", "27 October 1991"], "27 October 1991, 27 October") == ["27 October 1991", "27 October"]


@pytest.mark.parametrize("golds", [[], [""], ["  "], ["yes"], ["No."], ["!!!"]])
def test_golds_that_tell_nothing_are_not_looked_for(golds):
    assert found(golds, "yes, no, Accra, !!!") == []


@given(st.text(max_size=20), TEXTS)
def test_every_span_is_a_gold_by_one_of_the_scores(gold, text):
    for span in found([gold], text):
        assert exact_match(span, [gold]) or exact_match_unicode(span, [gold])


@given(st.from_regex(r"[A-Za-zé0-9]{2,6}( [A-Za-z0-9']{2,5}){0,2}", fullmatch=True))
@example("st Edda")
def test_a_gold_that_stands_by_itself_is_found(gold):
    wanted = Golds([gold])
    assert wanted.spans(f"zzz {gold} zzz") or not wanted.spans(gold)
    assert wanted.spans(gold) or normalize(gold) in ("", "yes", "no")


@pytest.mark.parametrize("text", ["a " * (LONG // 2), "a" * LONG, "Accra. " * (LONG // 7), ". " * LONG])
def test_a_very_long_text_is_searched(text):
    assert len(found(["Accra"], text)) == text.count("Accra")
