"""What a retriever is: queries in, rows of one corpus out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from memsearcher.retrieval.corpus import Corpus

Vectors = NDArray[np.float32]


class Hit(NamedTuple):
    """A passage found: its row in the corpus, and a score (higher is better)."""

    row: int
    score: float


class Retriever(Protocol):
    """Finds passages. Hits come best first, equal scores in the order of their rows."""

    @property
    def corpus(self) -> Corpus: ...

    @property
    def fingerprint(self) -> dict[str, str]:
        """What binds a result to this retriever: kind, corpus, weights, parameters."""
        ...

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """At most `k` hits a query, in the order of the queries; any string is a query.

        Fewer than `k` where the corpus is smaller, and none where nothing matches.
        """
        ...


class Encoder(Protocol):
    """Turns texts into unit vectors, queries and passages each in their own way."""

    @property
    def dimension(self) -> int: ...

    @property
    def fingerprint(self) -> dict[str, str]:
        """What the vectors depend on: convention and the weights' hash, not the device."""
        ...

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        """Shape (texts, dimension), float32, each row of length 1."""
        ...

    def encode_passages(self, texts: Sequence[str]) -> Vectors:
        """Shape (texts, dimension), float32, each row of length 1."""
        ...


def best(hits: Iterable[Hit], k: int) -> list[Hit]:
    """The `k` best hits; of equal scores the lower row comes first."""
    return sorted(hits, key=lambda hit: (-hit.score, hit.row))[:k]


def check_k(k: int) -> None:
    """Refuse to look for fewer than one passage."""
    if k < 1:
        raise ValueError(f"k is how many passages to find and must be at least 1, not {k}")
