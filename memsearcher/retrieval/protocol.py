"""What a retriever is: queries in, passages out, whether the corpus is at hand or on another machine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from memsearcher.retrieval.corpus import Corpus, Document

Vectors = NDArray[np.float32]

FINGERPRINT_HEADER = "X-Retriever"
"""Every answer of a server names its retriever, by the `digest` of its fingerprint."""


class Hit(NamedTuple):
    """A passage found in a corpus at hand: its row, and a score (higher is better)."""

    row: int
    score: float


class Found(NamedTuple):
    """A passage found, with its text, and a score (higher is better)."""

    document: Document
    score: float


class Retriever(Protocol):
    """Finds passages, best first."""

    @property
    def fingerprint(self) -> dict[str, str]:
        """What binds a result to this retriever: kind, corpus, weights, parameters."""
        ...

    def retrieve(self, queries: Sequence[str], k: int) -> list[list[Found]]:
        """At most `k` passages a query, in the order of the queries; any string is a query.

        Fewer than `k` where the corpus is smaller, and none where nothing matches.
        """
        ...


class CorpusRetriever(Retriever, Protocol):
    """A retriever over a corpus at hand: it ranks rows, and the passages are read from the corpus.

    Equal scores come in the order of their rows.
    """

    corpus: Corpus

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """The rows that `retrieve` reads, with their scores."""
        ...

    def retrieve(self, queries: Sequence[str], k: int) -> list[list[Found]]:
        """See `Retriever.retrieve`."""
        rankings = self.search(queries, k)
        return [[Found(self.corpus.passage(hit.row), hit.score) for hit in hits] for hits in rankings]


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


def digest(fingerprint: dict[str, str]) -> str:
    """A short name of a fingerprint."""
    return hashlib.sha256(json.dumps(fingerprint, sort_keys=True).encode()).hexdigest()[:16]


def best(hits: Iterable[Hit], k: int) -> list[Hit]:
    """The `k` best hits; of equal scores the lower row comes first."""
    return sorted(hits, key=lambda hit: (-hit.score, hit.row))[:k]


def check_k(k: int) -> None:
    """Refuse to look for fewer than one passage."""
    if k < 1:
        raise ValueError(f"k is how many passages to find and must be at least 1, not {k}")
