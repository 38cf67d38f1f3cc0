"""The static card of a trajectory: readable, and inert whatever is in it."""

import io
from html.parser import HTMLParser

import pytest
from rich.console import Console

from memsearcher.card import LONGEST, Card
from memsearcher.trajectory import Task
from tests.test_hostile import HOSTILE
from tests.traces import GOOD_TURNS, LOSING_TURNS, attempt, react


class Reader(HTMLParser):
    def __init__(self, html):
        super().__init__()
        self.tags, self.attributes, self.words = set(), set(), ""
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attributes}

    def handle_data(self, data):
        self.words += data


def test_a_trajectory_shows_itself_as_a_card():
    trajectory = attempt(GOOD_TURNS, "Accra", reward=0.5)
    words = Reader(trajectory._repr_html_()).words
    for shown in (
        trajectory.task.question,
        "answer Accra",
        "gold Accra",
        "reward 0.5",
        "peak",
        "Turn 3",
        "Ghana: Capital",
    ):
        assert shown in words.replace("\xa0", " ")


def test_the_text_of_a_card_is_aligned():
    lines = attempt(LOSING_TURNS, "Kumasi").card().text().splitlines()
    assert lines[0] == "What is the capital of the main export partner of Cote d'Ivoire?"
    assert lines[1] == "answer Kumasi   gold Accra   agent memsearcher   peak 89 tokens"
    assert lines[2:6] == [
        "",
        "Turn 1",
        "   thought  I need the export partners of Cote d'Ivoire.",
        "    search  export partners of Cote d'Ivoire",
    ]
    assert "     event  memory_cut a detail" in lines
    start = lines.index("     found  1. Ghana: Capital")
    assert lines[start + 1] == "            2. Niger: Capital"


def test_what_is_missing_is_named():
    failed = attempt([], None, task=Task("q", "Why?"), error="EngineFailure: gone")
    assert failed.card().text().splitlines()[1:] == ["answer none   agent memsearcher   failed EngineFailure: gone"]
    trajectory = react(GOOD_TURNS[:1], "x")
    trajectory.turns[0].steps[0].observation = None
    assert "found  nothing: the environment failed" in trajectory.card().text()


def test_ipython_prints_the_card():
    class Printer:
        def __init__(self):
            self.written = ""

        def text(self, text):
            self.written += text

    printer = Printer()
    trajectory = attempt(GOOD_TURNS, "Accra")
    trajectory._repr_pretty_(printer, False)
    assert printer.written == trajectory.card().text()


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_text_is_only_text(text):
    card = Card(text, [(text, text)], [(text, [(text, text)])])
    read = Reader(card.html())
    assert read.tags == {"div", "span"}
    assert read.attributes == {"style"}
    written = card.text() + read.words
    assert all(character.isprintable() or character in "\n\xa0" for character in written)
    written.encode()
    Console(file=io.StringIO()).print(card.text(), markup=False)


def test_a_long_text_is_cut_and_says_so():
    assert Card("x" * 1000, [], []).text() == f"{'x' * LONGEST}… (1000 characters)\n"
