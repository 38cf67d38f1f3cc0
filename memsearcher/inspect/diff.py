"""What became of a memory: which sentences were kept, edited, added, dropped, and the words inside.

A memory is rewritten as a whole, so a sentence that only moved was kept; one that shares half its
words with a sentence that is gone was edited.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

from memsearcher.inspect.golds import Golds
from memsearcher.inspect.text import DELETED, GOLD, INSERTED, Run, Span, runs, sentences

Change = Literal["kept", "moved", "edited", "added", "dropped"]

ALIKE = 0.5
"""Two sentences are one that was edited where this share of their words, counted on both sides, is common."""

MOST_WORK = 250_000
"""Sequences whose lengths multiply to more are compared at their ends only; in a memory of real length none do."""


@dataclass(frozen=True, slots=True)
class Line:
    """A sentence of the new memory, or one that it lost.

    `new` is the number of the sentence in the new memory, None for one that was dropped;
    `text` has the words that were taken out and put in where the sentence was edited.
    """

    change: Change
    text: list[Run]
    new: int | None


def diff(before: str, after: str, golds: Golds) -> list[Line]:
    """The lines of the new memory in their order, each dropped one behind what it followed."""
    old = [before[start:end].strip() for start, end in sentences(before)]
    new = [after[start:end].strip() for start, end in sentences(after)]
    origins = _origins(_bare(old), _bare(new))
    gone = _by_anchor(len(old), origins)
    lines = [Line("dropped", _gold_runs(old[each], golds), None) for each in gone.get(None, ())]
    for number, sentence in enumerate(new):
        origin = origins.get(number)
        if origin is None:
            lines.append(Line("added", _gold_runs(sentence, golds), number))
        elif origin[1] == "edited":
            lines.append(Line("edited", _edited(old[origin[0]], sentence, golds), number))
        else:
            lines.append(Line(origin[1], _gold_runs(sentence, golds), number))
        if origin is not None:
            lines += [Line("dropped", _gold_runs(old[each], golds), None) for each in gone.get(origin[0], ())]
    return [line for line in lines if line.text]


def _origins(old: Sequence[str], new: Sequence[str]) -> dict[int, tuple[int, Change]]:
    """For each new sentence that comes from an old one, which it is and what happened to it."""
    origins: dict[int, tuple[int, Change]] = {there: (here, "kept") for here, there in matches(old, new)}
    used = {here for here, _ in origins.values()}
    left = [number for number in range(len(old)) if number not in used]
    waiting: dict[str, list[int]] = {}
    for number in reversed(left):
        waiting.setdefault(old[number], []).append(number)
    for number, sentence in enumerate(new):
        if number not in origins and waiting.get(sentence):
            origins[number] = (waiting[sentence].pop(), "moved")
    left = sorted(number for numbers in waiting.values() for number in numbers)
    fresh = [number for number in range(len(new)) if number not in origins]
    if len(left) * len(fresh) <= MOST_WORK:
        origins.update(_edits(left, fresh, [Counter(_words(each)) for each in old], [Counter(_words(e)) for e in new]))
    return origins


def _edits(
    left: Sequence[int], fresh: Sequence[int], old: Sequence[Counter[str]], new: Sequence[Counter[str]]
) -> dict[int, tuple[int, Change]]:
    """The pairs of sentences that are alike, the most alike first."""
    pairs = [(_likeness(old[here], new[there]), here, there) for here in left for there in fresh]
    origins: dict[int, tuple[int, Change]] = {}
    used: set[int] = set()
    for likeness, here, there in sorted(pairs, key=lambda pair: (-pair[0], pair[1], pair[2])):
        if likeness >= ALIKE and here not in used and there not in origins:
            origins[there] = (here, "edited")
            used.add(here)
    return origins


def _likeness(old: Counter[str], new: Counter[str]) -> float:
    total = old.total() + new.total()
    return 2 * (old & new).total() / total if total else 0.0


def _by_anchor(count: int, origins: dict[int, tuple[int, Change]]) -> dict[int | None, list[int]]:
    """The dropped sentences, by the last one before them that lives on; None where there is none."""
    alive = {here for here, _ in origins.values()}
    gone: dict[int | None, list[int]] = {}
    anchor: int | None = None
    for number in range(count):
        if number in alive:
            anchor = number
        else:
            gone.setdefault(anchor, []).append(number)
    return gone


def _edited(old: str, new: str, golds: Golds) -> list[Run]:
    """Both versions of a sentence in one: common words once, old words marked deleted, new ones inserted."""
    old_words, new_words = _word_spans(old), _word_spans(new)
    common = matches([old[a:b] for a, b in old_words], [new[a:b] for a, b in new_words])
    made: list[Run] = []
    here = there = 0
    for next_here, next_there, size in _blocks(common, len(old_words), len(new_words)):
        made += _part(old, old_words[here:next_here], golds, DELETED)
        made += _part(new, new_words[there:next_there], golds, INSERTED)
        made += _part(new, new_words[next_there : next_there + size], golds, "")
        here, there = next_here + size, next_there + size
    return made


def _blocks(pairs: Sequence[tuple[int, int]], old: int, new: int) -> list[tuple[int, int, int]]:
    """Stretches of common words, as (place in the old, place in the new, words); the last is empty, at both ends."""
    blocks: list[tuple[int, int, int]] = []
    for here, there in pairs:
        if blocks and (here, there) == (blocks[-1][0] + blocks[-1][2], blocks[-1][1] + blocks[-1][2]):
            blocks[-1] = (*blocks[-1][:2], blocks[-1][2] + 1)
        else:
            blocks.append((here, there, 1))
    return [*blocks, (old, new, 0)]


def _part(text: str, words: Sequence[Span], golds: Golds, letter: str) -> list[Run]:
    """The stretch of `text` from the first to the last of `words`, with its golds, under one more mark."""
    if not words:
        return []
    start, end = words[0][0], words[-1][1]
    marks = [(max(a, start) - start, min(b, end) - start, GOLD) for a, b in golds.spans(text) if a < end and b > start]
    return runs(text[start:end], [*marks, *([(0, end - start, letter)] if letter else [])])


def matches(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    """Places of equal elements in both, rising together: common ends first, then difflib between them."""
    start = 0
    while start < min(len(old), len(new)) and old[start] == new[start]:
        start += 1
    end = 0
    while end < min(len(old), len(new)) - start and old[-1 - end] == new[-1 - end]:
        end += 1
    middle_old, middle_new = old[start : len(old) - end], new[start : len(new) - end]
    pairs = [(place, place) for place in range(start)]
    if len(middle_old) * len(middle_new) <= MOST_WORK:
        blocks = SequenceMatcher(None, middle_old, middle_new, autojunk=False).get_matching_blocks()
        pairs += [(start + a + step, start + b + step) for a, b, size in blocks for step in range(size)]
    return pairs + [(len(old) - place, len(new) - place) for place in range(end, 0, -1)]


def _gold_runs(text: str, golds: Golds) -> list[Run]:
    return runs(text, [(start, end, GOLD) for start, end in golds.spans(text)])


def _bare(each: Sequence[str]) -> list[str]:
    return [" ".join(sentence.split()) for sentence in each]


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def _word_spans(text: str) -> list[Span]:
    return [match.span() for match in re.finditer(r"\w+|\s+|[^\w\s]", text)]
