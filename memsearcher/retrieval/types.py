"""The types of FAISS index, and what a vector costs in each.

`flat` and `flat-fp16` compare a query with every vector. `hnsw` walks a graph of near
neighbours. `ivf-sq8` and `ivf-pq` sort vectors into lists by their nearest centroid and look
into a few lists only; they keep a vector as one byte a dimension, or one byte for four.

The approximate types have one dial, the effort of a search: how many candidates a walk keeps
(`hnsw`) or how many lists are looked into (`ivf-*`). It is set when the index is built (see recall.py).
"""

from __future__ import annotations

from math import log2, sqrt
from typing import Any, Literal, get_args

import faiss

IndexType = Literal["flat", "flat-fp16", "hnsw", "ivf-sq8", "ivf-pq"]
INDEX_TYPES: tuple[IndexType, ...] = get_args(IndexType)
EXHAUSTIVE: tuple[IndexType, ...] = ("flat", "flat-fp16")

LINKS = 32
"""Neighbours a vector has on each upper floor of the graph (M); twice as many on the ground floor."""
BUILD_EFFORT = 200
"""Candidates kept while a vector is linked in (efConstruction)."""
SUBVECTOR = 4
"""Dimensions that product quantization keeps in one byte."""
POINTS_PER_CENTROID = 39
"""Vectors k-means needs for each centroid by FAISS's own rule; with fewer it warns."""
SAMPLED_PER_CENTROID = 64
PQ_CENTROIDS = 256


def lists(count: int) -> int:
    """Inverted lists for so many vectors: the power of two near 4 √count that k-means has vectors enough for."""
    wanted = 1 << round(log2(4 * sqrt(count)))
    while wanted > 1 and wanted * POINTS_PER_CENTROID > count:
        wanted //= 2
    return wanted


def sample_size(index_type: IndexType, count: int) -> int:
    """Vectors to train on; 0 where a type needs no training."""
    if not index_type.startswith("ivf"):
        return 0
    return min(count, max(SAMPLED_PER_CENTROID * lists(count), SAMPLED_PER_CENTROID * PQ_CENTROIDS))


def check_buildable(index_type: IndexType, count: int, dimension: int) -> None:
    """Refuse a type that so many vectors of that dimension cannot make.

    Raises:
        ValueError: `ivf-pq` with too few vectors to train on, or a dimension it cannot divide.
    """
    if index_type != "ivf-pq":
        return
    needed = POINTS_PER_CENTROID * PQ_CENTROIDS
    if count < needed:
        raise ValueError(f"ivf-pq needs at least {needed} passages to train on, this corpus has {count}; use flat")
    if dimension % SUBVECTOR:
        raise ValueError(f"ivf-pq needs a dimension that {SUBVECTOR} divides, not {dimension}; use ivf-sq8")


def empty_index(index_type: IndexType, count: int, dimension: int) -> Any:
    """A FAISS index over inner products that is to hold `count` vectors; the `ivf-*` types are yet to be trained."""
    recipes: dict[IndexType, str] = {
        "flat": "Flat",
        "flat-fp16": "SQfp16",
        "hnsw": f"HNSW{LINKS}_SQfp16",
        "ivf-sq8": f"IVF{lists(count)},SQ8",
        "ivf-pq": f"IVF{lists(count)},PQ{dimension // SUBVECTOR}",
    }
    index: Any = faiss.index_factory(dimension, recipes[index_type], faiss.METRIC_INNER_PRODUCT)
    if index_type == "hnsw":
        index.hnsw.efConstruction = BUILD_EFFORT
    elif index_type == "ivf-pq":
        # For a filter that no search here uses, and most of the time of training.
        index.do_polysemous_training = False
    return index


def efforts(index_type: IndexType, count: int) -> list[int]:
    """The efforts a search can take, from the least; none where every vector is compared anyway."""
    if index_type in EXHAUSTIVE:
        return []
    if index_type == "hnsw":
        return [16, 32, 64, 128, 256, 512]
    return [2**power for power in range(lists(count).bit_length())]


def set_effort(index: Any, index_type: IndexType, effort: int) -> None:
    """Turn the dial of an approximate index. FAISS keeps it in the file."""
    if index_type == "hnsw":
        index.hnsw.efSearch = effort
    else:
        index.nprobe = effort


def index_bytes(index_type: IndexType, count: int, dimension: int) -> int:
    """Bytes of an index in memory, which is what its file has: vectors, graph or lists, centroids."""
    if index_type == "flat":
        return count * 4 * dimension
    if index_type == "flat-fp16":
        return count * 2 * dimension
    if index_type == "hnsw":
        # Floor l has a share LINKS^-l of the vectors, so the upper floors come to 1 / (LINKS - 1) slots each.
        slots = 2 * LINKS + LINKS / (LINKS - 1)
        return round(count * (2 * dimension + 4 * slots + 8 + 4))
    code = dimension if index_type == "ivf-sq8" else dimension // SUBVECTOR
    codebook = 2 * 4 * dimension if index_type == "ivf-sq8" else PQ_CENTROIDS * 4 * dimension
    return count * (code + 8) + lists(count) * (4 * dimension + 8) + codebook
