"""Where gold answers stand in a text, by the scorer's own rules.

A piece of text is a gold answer where `scoring` would call it one, in SQuAD's normal form or in
the one that judges as a person would. Spans lie in the text as it is, so `Accra` is found in
`(ACCRA)`, `Accra's` and `Accra,`.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Iterable
from functools import cache, lru_cache

from memsearcher.inspect.text import Span
from memsearcher.scoring import normalize, normalize_unicode

_ARTICLES = frozenset({"a", "an", "the"})
_TELL_NOTHING = frozenset({"", "yes", "no"})
"""Golds that any text may hold by chance, and those that are articles and signs only; they are not looked for."""

_FILLERS = _ARTICLES | {"of"}
_ORDINAL = re.compile(r"(?<=\d)(?:st|nd|rd|th)$")

_SLACK = 6
"""How many letters a span may have beyond its gold: an article, `of`, the `th` of a date."""

_BASIC_PLANE = 0xFFFF
_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7af"


class Golds:
    """Finds the golds of one task."""

    def __init__(self, golds: Iterable[str]) -> None:
        kept = [gold for gold in golds if normalize(gold) not in _TELL_NOTHING]
        self._strict = {normalize(gold) for gold in kept}
        self._wide = {normalize_unicode(gold) for gold in kept}
        self._letters = sorted({form.replace(" ", "") for form in self._strict | self._wide}, key=len)
        self._known: dict[str, bool] = {}
        self._beginnings: dict[str, bool] = {}
        self._found: dict[str, list[Span]] = {}

    def spans(self, text: str) -> list[Span]:
        """The places of gold answers from left to right, none inside another; the longest at each place."""
        if text not in self._found:
            self._found[text] = self._search(text) if self._letters else []
        return self._found[text]

    def _search(self, text: str) -> list[Span]:
        found: list[Span] = []
        words = [match.span() for match in _word().finditer(text)]
        place = 0
        while place < len(words):
            last = self._match(text, words, place) if self._begins(text[slice(*words[place])]) else None
            if last is None:
                place += 1
            else:
                found.append((words[place][0], words[last][1]))
                place = last + 1
        return found

    def _match(self, text: str, words: list[Span], first: int) -> int | None:
        """The last word of the longest gold that begins with word `first`."""
        shortest, longest = len(self._letters[0]), len(self._letters[-1]) + _SLACK
        length, best, start = 0, None, words[first][0]
        for last in range(first, len(words)):
            word = _fold(text[slice(*words[last])])
            length += len(word)
            span = text[start : words[last][1]]
            if length > longest or len(span) > 4 * longest or not (word in _FILLERS or self._has(word)):
                break
            if length >= shortest and word not in _ARTICLES and self._is_gold(span):
                best = last
        return best

    def _begins(self, word: str) -> bool:
        """Whether a gold may begin with a word; most do not, so this is what a search spends its time on."""
        if word not in self._beginnings:
            folded = _fold(word)
            self._beginnings[word] = folded not in _ARTICLES and self._has(folded)
        return self._beginnings[word]

    def _has(self, word: str) -> bool:
        """Whether a gold holds these letters; what it has no letter of cannot be part of it."""
        bare = _ORDINAL.sub("", word)
        return any(bare in letters for letters in self._letters)

    def _is_gold(self, span: str) -> bool:
        if span not in self._known:
            self._known[span] = normalize(span) in self._strict or normalize_unicode(span) in self._wide
        return self._known[span]


@lru_cache(maxsize=256)
def golds_finder(golds: tuple[str, ...]) -> Golds:
    """The `Golds` of a task; attempts at one question share it, and with it what it found before."""
    return Golds(golds)


@lru_cache(maxsize=1 << 16)
def _fold(word: str) -> str:
    return normalize_unicode(word).replace(" ", "")


@cache
def _word() -> re.Pattern[str]:
    """A word: no white space, punctuation or invisible sign in it; a CJK character is one by itself."""
    kinds = ((chr(code), unicodedata.category(chr(code))) for code in range(0x80, _BASIC_PLANE + 1))
    signs = "".join(character for character, kind in kinds if kind[0] == "P" or kind == "Cf")
    return re.compile(rf"[{_CJK}]|[^\s{re.escape(string.punctuation + signs)}{_CJK}]+")
