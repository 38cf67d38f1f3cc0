"""Which passage a sentence of a memory most likely comes from. A heuristic, and labelled so.

A sentence is compared with every passage that the model has seen, by stems without stop words; stems
that few of those passages hold weigh more. Its score is the share of its weight that the passage's
title and one short stretch of its text (the *span*) hold. It comes from the passage that scores
highest, the first seen of equals; it is unsupported where that is below `ENOUGH`, or where a number or
a name of the sentence is not there. The heuristic knows no meaning: it takes "not the capital" for
"the capital" and misses what is said in other words.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cache, lru_cache

from memsearcher.inspect.text import Span
from memsearcher.retrieval.lexical import Words

ENOUGH = 0.6
DIGITS = 6
"""Scores are rounded, so that equal ones are equal whatever order they were added up in."""

LONGEST_SENTENCE = 200
"""Stems of a sentence that count, from its start."""

SPAN_WORDS, SPAN_MARGIN = 2, 4
"""A span has at most this many words for each stem of the sentence, and so many more."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A passage that the model was shown: its number in the view, the turn, and the text it was shown."""

    passage: int
    turn: int
    rank: int
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Source:
    """Where a sentence most likely comes from; `score` is from 0 to 1, `span` lies in the passage's text."""

    seen: Seen
    score: float
    span: Span | None


class Sources:
    """The passages seen so far, ready to be compared with.

    Args:
        seen: in the order in which they were seen.
    """

    def __init__(self, seen: Sequence[Seen]) -> None:
        self._seen = [(each, _vocabulary(f"{each.title}\n{each.text}")) for each in seen]
        self._frequency = Counter(term for _, vocabulary in self._seen for term in vocabulary)

    def of(self, sentence: str) -> Source | None:
        """The source of a sentence; None where nothing supports it, or it says nothing."""
        terms = _terms(sentence)[:LONGEST_SENTENCE]
        wanted = {term: self._weight(term) for term, _ in terms}
        vital = {term for term, (start, end) in terms if _is_vital(sentence[start:end], first=start == 0)}
        best: Source | None = None
        for seen, vocabulary in self._seen:
            # Most passages lack a vital word or hold too few words at all: there is no need to look for a span.
            if not vital <= vocabulary or _share(wanted, vocabulary) < ENOUGH:
                continue
            span, held = _best_span(_terms(seen.text), _vocabulary(seen.title), wanted)
            score = _share(wanted, held)
            if vital <= held and score >= ENOUGH and (best is None or score > best.score):
                best = Source(seen, score, span)
        return best

    def _weight(self, term: str) -> float:
        return math.log(1 + len(self._seen) / max(1, self._frequency[term]))


def _share(wanted: dict[str, float], held: AbstractSet[str]) -> float:
    """How much of the weight of all `wanted` stems those that are held have; 0 where nothing is wanted."""
    weight = sum(wanted.values())
    return round(sum(wanted[term] for term in wanted if term in held) / weight, DIGITS) if weight else 0.0


def _is_vital(word: str, first: bool) -> bool:
    """Whether a word is a number or a name: has a digit, or a capital where no sentence begins."""
    return any(character.isdigit() for character in word) or (word[0].isupper() and not first)


def _best_span(
    terms: Sequence[tuple[str, Span]], title: frozenset[str], wanted: dict[str, float]
) -> tuple[Span | None, set[str]]:
    """The stretch of a text that holds the most weight beside its title, the shortest of equals, and what both hold."""
    width = SPAN_WORDS * len(wanted) + SPAN_MARGIN
    best: tuple[float, int] = (0.0, 0)
    span: Span | None = None
    held: set[str] = set()
    for first, (term, (start, _)) in enumerate(terms):
        if term not in wanted:
            continue
        inside: set[str] = set()
        weight = 0.0
        for place, (other, (_, end)) in enumerate(terms[first : first + width]):
            if other in wanted and other not in inside:
                inside.add(other)
                weight += wanted[other]
                if (merit := (round(weight, DIGITS), -place)) > best:
                    best, span, held = merit, (start, end), set(inside)
    return span, held | (title & wanted.keys())


@lru_cache(maxsize=4096)
def _terms(text: str) -> list[tuple[str, Span]]:
    """The stems of a text with the places of their words."""
    stems = _stems()
    return [(stem, match.span()) for match in re.finditer(r"\w+", text) for stem in stems(match.group())]


@lru_cache(maxsize=4096)
def _vocabulary(text: str) -> frozenset[str]:
    return frozenset(term for term, _ in _terms(text))


@cache
def _stems() -> Words:
    return Words()
