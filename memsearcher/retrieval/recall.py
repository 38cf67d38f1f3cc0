"""How much of what a flat index finds an approximate one finds too, on queries that are not in it.

The queries are the titles of passages, or the first words of those without one, encoded as
queries: short, as a search agent's are, and none of them a vector that the index holds or was
trained on. What is right is computed exactly, block by block, in float32.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from memsearcher.retrieval.corpus import Corpus, Document
from memsearcher.retrieval.protocol import Encoder, Vectors
from memsearcher.retrieval.types import IndexType, efforts, set_effort

DEPTH = 10
QUERIES = 256
WORDS = 12
TARGET = 0.95

Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Recall:
    """The mean share of the `k` best rows by exact search that an index finds among its own `k` best.

    Attributes:
        effort: of the search at which it was measured; None where the type has no dial.
    """

    value: float
    k: int
    queries: int
    effort: int | None


def held_out_queries(corpus: Corpus, encoder: Encoder) -> Vectors:
    """Vectors of `QUERIES` queries, or one a passage where there are fewer, drawn by a fixed seed."""
    size = min(QUERIES, len(corpus))
    rows = np.random.default_rng(0).choice(len(corpus), size, replace=False)
    return encoder.encode_queries([_query(corpus.passage(int(row))) for row in rows])


def exact(queries: Vectors, blocks: Iterable[Vectors], k: int) -> Rows:
    """The rows of the `k` vectors with the largest inner products, for each query, over all blocks."""
    heap = faiss.ResultHeap(len(queries), k, keep_max=True)
    start = 0
    for block in blocks:
        scores, rows = faiss.knn(queries, block, min(k, len(block)), metric=faiss.METRIC_INNER_PRODUCT)
        heap.add_result(scores, rows + start)
        start += len(block)
    heap.finalize()
    found: Rows = heap.I
    return found


def measure(index: Any, queries: Vectors, truth: Rows) -> float:
    """The mean share of each row of `truth` that the index finds."""
    _, found = index.search(queries, truth.shape[1])
    shared = sum(len(set(a) & set(b)) for a, b in zip(found.tolist(), truth.tolist(), strict=True))
    return shared / truth.size


def tune(index: Any, index_type: IndexType, queries: Vectors, truth: Rows, target: float = TARGET) -> Recall:
    """Set the least effort that reaches `target`, or the largest there is, and say what it reaches."""
    value, used = None, None
    for effort in efforts(index_type, index.ntotal):
        set_effort(index, index_type, effort)
        value, used = measure(index, queries, truth), effort
        if value >= target:
            break
    if value is None:
        value = measure(index, queries, truth)
    return Recall(value, truth.shape[1], len(queries), used)


def _query(document: Document) -> str:
    return document.title or " ".join(document.text.split()[:WORDS])
