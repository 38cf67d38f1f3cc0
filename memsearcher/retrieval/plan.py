"""What an index will need before there is one, and which type to take for a given memory and recall."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import psutil

from memsearcher.retrieval.manifest import IndexRefused
from memsearcher.retrieval.types import EXHAUSTIVE, INDEX_TYPES, IndexType, index_bytes, sample_size

EXPECTED_RECALL: dict[IndexType, float] = {
    "flat": 1.0,
    "flat-fp16": 0.99,
    "hnsw": 0.97,
    "ivf-sq8": 0.97,
    "ivf-pq": 0.7,
}
"""A guess at the recall@10 a type reaches at its best effort; it depends on the vectors a good deal.
For choosing only: the build measures the real one and keeps it in the manifest."""

SMALL = 200_000
"""Passages up to which comparing a query with every vector takes less time than encoding it."""

UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}


@dataclass(frozen=True, slots=True)
class Plan:
    """The needs of one type of index, in bytes.

    Attributes:
        memory: of the index when it is open and not memory-mapped.
        disk: of the finished index.
        building: of memory at the most while it is built, without the encoder.
        building_disk: of disk at the most while it is built.
    """

    index_type: IndexType
    memory: int
    disk: int
    building: int
    building_disk: int


def plan(index_type: IndexType, count: int, dimension: int) -> Plan:
    """What `count` passages of vectors of `dimension` need.

    Raises:
        ValueError: a count or dimension below 1.
    """
    if count < 1 or dimension < 1:
        raise ValueError(f"passages and dimension must be at least 1, not {count} and {dimension}")
    size = index_bytes(index_type, count, dimension)
    vectors = 4 * dimension * count
    # FAISS grows a list by doubling while vectors are added, so the lists may be twice their size.
    grown = 2 * size if index_type.startswith("ivf") else size
    training = 2 * 4 * dimension * sample_size(index_type, count)
    saves = 0 if index_type in EXHAUSTIVE else size
    return Plan(index_type, size, size, max(grown, size + training), vectors + saves + size)


def choose(count: int, dimension: int, memory: int | None, recall: float) -> tuple[Plan, str]:
    """The fastest type that is expected to reach `recall` in `memory` bytes, and why it and none before it.

    Raises:
        ValueError: none does; the message has what each would need.
    """
    if not 0 < recall <= 1:
        raise ValueError(f"recall is a share above 0 and at most 1, not {recall}")
    exhaustive_first: tuple[IndexType, ...] = ("flat", "flat-fp16", "hnsw", "ivf-sq8", "ivf-pq")
    graph_first: tuple[IndexType, ...] = ("hnsw", "ivf-sq8", "ivf-pq", "flat-fp16", "flat")
    passed = []
    for index_type in exhaustive_first if count <= SMALL else graph_first:
        found = plan(index_type, count, dimension)
        if EXPECTED_RECALL[index_type] < recall:
            passed.append(f"{index_type} is expected to reach a recall@10 of {EXPECTED_RECALL[index_type]} only")
        elif memory is not None and found.memory > memory:
            passed.append(f"{index_type} needs {human(found.memory)}")
        else:
            limit = f" of {human(memory)}" if memory is not None else ""
            why = f"{index_type} needs {human(found.memory)}{limit} and is expected to reach {recall}"
            return found, "; ".join([*passed, why])
    raise ValueError(f"no type of index fits: {'; '.join(passed)}; allow more memory or less recall")


def plans(count: int, dimension: int) -> list[Plan]:
    """The needs of every type."""
    return [plan(index_type, count, dimension) for index_type in INDEX_TYPES]


def check_memory(path: Path, needed: int, remedy: str) -> None:
    """Refuse an index that memory has no room for, before anything of it is loaded.

    Raises:
        IndexRefused: with both numbers.
    """
    free = psutil.virtual_memory().available
    if needed > free:
        raise IndexRefused(
            f"{path}: needs {human(needed)} of memory and {human(free)} are free; {remedy}"
            " a smaller type (`memsearcher index info --plan` shows what each needs)"
        )


def parse_size(text: str) -> int:
    """Bytes of a size such as `16GB` (10^9) or `16GiB` (2^30).

    Raises:
        ValueError: not a size.
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?I?B)\s*", text.upper())
    if not found or found[2] not in UNITS:
        raise ValueError(f"{text!r} is not a size; write it as 16GB or 512MiB")
    return round(float(found[1]) * UNITS[found[2]])


def human(size: float) -> str:
    """Bytes with a unit, three digits: 61.2 GB."""
    for unit in ("B", "KB", "MB", "GB"):
        if size < 999.5:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"
