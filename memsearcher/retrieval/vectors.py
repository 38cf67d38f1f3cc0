"""The vectors of a corpus on disk while its index is built: blocks, from which a stopped build goes on."""

from __future__ import annotations

import io
import json
import logging
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from memsearcher import jsonl
from memsearcher.retrieval.corpus import Corpus
from memsearcher.retrieval.protocol import Encoder, Vectors

BLOCKS = "blocks"
OWNER_FILE = "blocks.json"
BLOCK_PASSAGES = 512

logger = logging.getLogger(__name__)


BlockEncoding = Callable[[Corpus, Sequence[range]], Iterator[tuple[range, Vectors]]]
"""Encodes blocks of a corpus, given as rows, and gives each back with its vectors `[rows, dimension]`, in any order."""


class VectorBlocks:
    """The vectors of a corpus: one `.npy` a block of `size` passages, and `blocks.json` saying whose they are."""

    def __init__(self, corpus: Corpus, encoder: Encoder, folder: Path, size: int) -> None:
        self._corpus = corpus
        self._encoder = encoder
        self._folder = folder
        self._size = size
        self._owner = {
            "corpus_sha256": corpus.sha256,
            "count": len(corpus),
            "encoder": encoder.fingerprint,
            "dimension": encoder.dimension,
            "block": size,
        }

    def __iter__(self) -> Iterator[Vectors]:
        """The vectors of all blocks in order."""
        return self.after(0)

    def after(self, row: int) -> Iterator[Vectors]:
        """The vectors of the blocks from the one that starts at `row`."""
        return (np.load(self._path(start), allow_pickle=False) for start in self._starts() if start >= row)

    def sample(self, size: int) -> Vectors:
        """Vectors of `size` different passages, drawn by a fixed seed, in the order of their rows."""
        rows = np.sort(np.random.default_rng(0).choice(len(self._corpus), size, replace=False))
        parts = []
        for start in self._starts():
            inside = rows[(rows >= start) & (rows < start + self._size)] - start
            if len(inside):
                parts.append(np.load(self._path(start), mmap_mode="r", allow_pickle=False)[inside])
        vectors: Vectors = np.concatenate(parts)
        return vectors

    def prepare(self) -> None:
        """Keep the blocks of this very build, and make room where there are others."""
        if _read_owner(self._folder) == self._owner:
            return
        if self._folder.exists():
            logger.warning("%s: vectors of another corpus, encoder or block size; starting anew", self._folder)
            shutil.rmtree(self._folder)
        jsonl.replace(self._folder / OWNER_FILE, json.dumps(self._owner).encode())

    def encode(self, progress: bool, encode: BlockEncoding | None = None) -> None:
        """Write every block that is not there yet.

        Args:
            encode: who encodes blocks; None does it here, one after the other.

        Raises:
            ValueError: vectors of another shape than is due, or not finite ones.
        """
        done = {start for start in self._starts() if self._is_whole(start)}
        missing = [self._rows(start) for start in self._starts() if start not in done]
        with rate_bar(progress) as bar:
            total = len(self._corpus)
            task = bar.add_task("encoding", total=total, completed=sum(len(self._rows(start)) for start in done))
            for rows, vectors in (encode or self._here)(self._corpus, missing) if missing else ():
                if vectors.shape != (len(rows), self._encoder.dimension) or not np.isfinite(vectors).all():
                    raise ValueError(
                        f"{self._corpus.path}: the encoder gave vectors of shape {vectors.shape} for rows {rows.start} "
                        f"to {rows.stop - 1}, where {(len(rows), self._encoder.dimension)} and finite values were due"
                    )
                content = io.BytesIO()
                np.save(content, vectors.astype(np.float32, copy=False), allow_pickle=False)
                jsonl.replace(self._path(rows.start), content.getvalue())
                bar.advance(task, len(rows))

    def _here(self, corpus: Corpus, blocks: Sequence[range]) -> Iterator[tuple[range, Vectors]]:
        for rows in blocks:
            yield rows, self._encoder.encode_passages([corpus.passage(row).contents for row in rows])

    def _is_whole(self, start: int) -> bool:
        path = self._path(start)
        if not path.is_file():
            return False
        try:
            vectors = np.load(path, allow_pickle=False)
        except (ValueError, EOFError, OSError):
            logger.warning("%s: damaged; its passages are encoded again", path)
            return False
        return bool(vectors.shape == (len(self._rows(start)), self._encoder.dimension) and vectors.dtype == np.float32)

    def _starts(self) -> range:
        return range(0, len(self._corpus), self._size)

    def _rows(self, start: int) -> range:
        return range(start, min(start + self._size, len(self._corpus)))

    def _path(self, start: int) -> Path:
        return self._folder / f"{start:012d}.npy"


def unfinished(folder: Path) -> dict[str, Any] | None:
    """How many passages the blocks in a folder have (`done` of `count`) and whose they are; None if there are none."""
    owner = _read_owner(folder)
    if owner is None:
        return None
    files = len(list(folder.glob("*.npy")))
    return {**owner, "done": min(files * owner["block"], owner["count"])}


def _read_owner(folder: Path) -> dict[str, Any] | None:
    """Whose blocks these are; None where nobody can tell."""
    path = folder / OWNER_FILE
    if not path.is_file():
        return None
    try:
        owner: dict[str, Any] = json.loads(path.read_bytes())
    except ValueError:
        return None
    return owner


class _Rate(ProgressColumn):
    """Passages a second."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:.0f} passages/s" if task.speed else "")


def rate_bar(progress: bool) -> Progress:
    """A bar on standard error with count, rate and the time that is left."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _Rate(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), disable=not progress)
