"""Guesses of what a model writes next, taken from what it has before it.

An agent mostly copies: names out of passages, facts out of its memory, words of the question. After
the last few tokens the guess is what followed them when they stood there last. One pass tells
whether the model would have written the guessed tokens, and those that it would not have written
are dropped, so a reply is what it is without guesses, up to floating point (prompt lookup decoding,
Saxena 2023, a form of the speculative decoding of Leviathan et al. 2023).
"""

from __future__ import annotations

from collections.abc import Iterable

LONGEST = 3
"""Tokens that are looked up together at most; fewer where so many have not stood there yet."""


class Guesses:
    """What is guessed of one row: its context at first, and what it writes as it comes."""

    def __init__(self, context: Iterable[int]) -> None:
        self._ids: list[int] = []
        self._next: dict[tuple[int, ...], int] = {}
        self.extend(context)

    def extend(self, ids: Iterable[int]) -> None:
        """Take note of tokens that the row has now."""
        for token in ids:
            for length in range(1, min(LONGEST, len(self._ids)) + 1):
                self._next[tuple(self._ids[-length:])] = len(self._ids)
            self._ids.append(token)

    def guess(self, most: int) -> list[int]:
        """At most so many tokens that may come next; none where nothing is known."""
        for length in range(LONGEST, 0, -1):
            place = self._next.get(tuple(self._ids[-length:]))
            if place is not None:
                return self._ids[place : place + most]
        return []
