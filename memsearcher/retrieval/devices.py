"""Exact search on GPUs by PyTorch: an index whole on one, or its rows shared out over several.

FAISS has a build for GPUs of its own, which this does without: a flat search is a product and a
top-k, and torch is there already. Of the types it takes those that compare every vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from numpy.typing import NDArray

from memsearcher.retrieval.manifest import IndexRefused
from memsearcher.retrieval.plan import human
from memsearcher.retrieval.protocol import Vectors

BLOCK = 65_536
"""Rows that a product takes at once; fp16 rows are widened to float32 for it."""
QUERIES = 1024
"""Queries that a product takes at once."""


def parse_devices(names: str) -> list[torch.device]:
    """The devices of a list such as `cuda:0,cuda:1`; `cuda` are all GPUs, and `cpu` alone none (FAISS searches there).

    Raises:
        ValueError: not a device of PyTorch's, or one that is not there.
    """
    if names == "cpu":
        return []
    count = torch.cuda.device_count()
    found: list[torch.device] = []
    for name in names.split(","):
        try:
            device = torch.device(name.strip())
        except RuntimeError as error:
            raise ValueError(f"retrieval.search_device: {name.strip()!r} is no device: {error}") from None
        if device.type == "cuda" and (device.index or 0) >= count:
            raise ValueError(f"retrieval.search_device: there is no {device}; PyTorch sees {count} GPUs here")
        if device.type not in ("cuda", "cpu"):
            raise ValueError(f"retrieval.search_device: {device} is neither cuda nor cpu")
        everywhere = device.type == "cuda" and device.index is None
        found += [torch.device("cuda", index) for index in range(count)] if everywhere else [device]
    return found


class DeviceVectors:
    """The vectors of an exhaustive FAISS index, in equal parts on torch devices; searched as FAISS's own are.

    Vectors of `flat-fp16` stay fp16 on the device. Scores are float32 products of float32 values for
    both types, so they are FAISS's up to float32's noise, as long as PyTorch's float32 products
    are at their default precision (no TF32).

    Attributes:
        ntotal: vectors.
        d: their dimension.
    """

    def __init__(self, index: Any, devices: Sequence[torch.device], half: bool, path: Path) -> None:
        """Copy the vectors of `index` block by block, so that memory never holds all of them a second time.

        Args:
            half: whether the index keeps fp16.
            path: its file, for what an error says.

        Raises:
            IndexRefused: a part does not fit on its device; nothing is copied then.
        """
        self.ntotal, self.d = int(index.ntotal), int(index.d)
        kind = torch.float16 if half else torch.float32
        ends = [self.ntotal * (number + 1) // len(devices) for number in range(len(devices))]
        parts = [part for part in zip(devices, [0, *ends], ends, strict=False) if part[1] < part[2]]
        _check_room(path, parts, self.d, kind)
        self._parts = [_Part.copied(index, *part, kind) for part in parts]

    def search(self, queries: Vectors, k: int) -> tuple[Vectors, NDArray[np.int64]]:
        """Scores and rows of the `k` nearest of each query, best first; fewer where there are fewer vectors."""
        asked = torch.from_numpy(np.ascontiguousarray(queries))
        # GPUs work while this queues the next one's part; copying back waits for them.
        queued = [[part.nearest(some, k) for part in self._parts] for some in torch.split(asked, QUERIES)]
        merged = [_best([(scores.cpu(), rows.cpu()) for scores, rows in found], k) for found in queued]
        return torch.cat([scores for scores, _ in merged]).numpy(), torch.cat([rows for _, rows in merged]).numpy()


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows of the index from `first` on, on one device."""

    vectors: torch.Tensor
    first: int

    @classmethod
    def copied(cls, index: Any, device: torch.device, start: int, end: int, kind: torch.dtype) -> _Part:
        vectors = torch.empty((end - start, index.d), dtype=kind, device=device)
        for row in range(start, end, BLOCK):
            count = min(BLOCK, end - row)
            vectors[row - start : row - start + count] = torch.from_numpy(index.reconstruct_n(row, count))
        return cls(vectors, start)

    def nearest(self, queries: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Scores and rows of the best `k` of this part, on its device."""
        asked = queries.to(self.vectors.device)
        found = []
        for start in range(0, len(self.vectors), BLOCK):
            block = self.vectors[start : start + BLOCK].float()
            scores, places = (asked @ block.T).topk(min(k, len(block)))
            found.append((scores, places + (self.first + start)))
        return _best(found, k)


def _best(found: Sequence[tuple[torch.Tensor, torch.Tensor]], k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The best `k` of what several parts found."""
    scores, rows = (torch.cat(each, dim=1) for each in zip(*found, strict=True))
    kept, places = scores.topk(min(k, scores.shape[1]))
    return kept, rows.gather(1, places)


def _check_room(path: Path, parts: Sequence[tuple[torch.device, int, int]], dimension: int, kind: torch.dtype) -> None:
    """Refuse parts that their devices have no room for; a device may be named more than once."""
    needed: dict[torch.device, int] = {}
    for device, start, end in parts:
        working = 2 * BLOCK * (4 * dimension + 4 * QUERIES)  # A block and its scores, and the next ones.
        needed[device] = needed.get(device, working) + (end - start) * dimension * kind.itemsize
    for device, size in needed.items():
        free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else psutil.virtual_memory().available
        if size > free:
            raise IndexRefused(
                f"{path}: needs {human(size)} on {device} and {human(free)} are free there; "
                "name more devices in retrieval.search_device, or build the type flat-fp16"
            )
