"""Text for a page: marked runs, sentences, and nothing that a reader cannot see.

A page is given text as a list of runs, so that it never counts characters: Python counts code
points, a browser UTF-16 units. A run is a string, or a string with the letters of its marks.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise

Span = tuple[int, int]
Run = str | tuple[str, str]

GOLD, INSERTED, DELETED, SOURCE, UNSEEN = "gidsu"
"""Marks: a gold answer, words put in or taken out, the source of a sentence, what the model was not shown."""

MOST_SENTENCES = 400
"""A text is split into no more sentences than this; the last holds all that follows."""

# Controls but line break and tab, line separators, what turns the direction of its surroundings, lone surrogates.
_INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
_BOUNDARY = re.compile(r"\n\s*|[.!?…][\"'”’)\]]*\s+(?![a-zà-ÿ])|[。！？]\s*")
_SHORT_FORM = re.compile(
    r"\b(?:[A-Z]|Mr|Mrs|Ms|Dr|St|Mt|Ft|Jr|Sr|vs|etc|est|approx|Prof|Gen|Gov|Inc|Ltd|Co|e\.g|i\.e)\.$"
)
_LONGEST_SHORT_FORM = 8


def visible(text: str) -> str:
    """Text in which invisible characters are spelled out, as `\\x1b` and `\\u202e`."""
    return _INVISIBLE.sub(lambda match: _spell(ord(match.group())), text)


def runs(text: str, marks: Iterable[tuple[int, int, str]] = ()) -> list[Run]:
    """`text` cut where marks begin and end; marks are (start, end, letter) and may overlap."""
    marks = list(marks)
    if not marks:
        return [visible(text)] if text else []
    turns: dict[int, Counter[str]] = {0: Counter(), len(text): Counter()}
    for start, end, letter in marks:
        turns.setdefault(start, Counter())[letter] += 1
        turns.setdefault(end, Counter())[letter] -= 1
    active: Counter[str] = Counter()
    made: list[Run] = []
    for start, end in pairwise(sorted(turns)):
        active.update(turns[start])
        letters = "".join(sorted(letter for letter, count in active.items() if count > 0))
        shown = visible(text[start:end])
        made.append((shown, letters) if letters else shown)
    return made


def sentences(text: str) -> list[Span]:
    """Where the sentences of a text lie; together they are the text, white space included.

    A line break ends one, and so does a full stop before white space and anything but a small
    letter, unless it follows an initial or a common short form.
    """
    starts = [0, *(end for end in _ends(text) if end < len(text))][:MOST_SENTENCES]
    return list(pairwise([*starts, len(text)])) if text else []


def _ends(text: str) -> Iterator[int]:
    for match in _BOUNDARY.finditer(text):
        stop = match.start() + 1
        before = text[max(0, stop - _LONGEST_SHORT_FORM) : stop]
        if text[match.start()] != "." or not _SHORT_FORM.search(before):
            yield match.end()


def _spell(code: int) -> str:
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
