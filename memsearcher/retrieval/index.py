"""The dense index: vectors of a corpus on disk, bound to the corpus and the encoder they came from.

A folder with two files, each written in one step: `index.faiss` (FAISS's own format) and
`manifest.json`, which is written last and says what the index belongs to. While it is
being built there is also `blocks/`, from which a build that was stopped goes on.
"""

from __future__ import annotations

import io
import json
import logging
import os
import shutil
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from memsearcher import jsonl
from memsearcher.retrieval.corpus import Corpus
from memsearcher.retrieval.manifest import REBUILD, IndexRefused, Manifest, file_sha256
from memsearcher.retrieval.protocol import Encoder, Hit, Vectors, best, check_k

INDEX_FILE = "index.faiss"
BLOCKS = "blocks"
OWNER_FILE = "blocks.json"
BLOCK_PASSAGES = 512
METRIC = "inner_product"
LIBRARIES = ("numpy", "sentence-transformers", "torch", "transformers")

SCORE_DECIMALS = 6
"""Scores are rounded here, which is above float32's noise: a query must get the same hits
alone and in a batch, and passages that are the same text must tie."""

TIES = 8
"""Hits asked of FAISS beyond `k`, so that rows decide ties at the cut."""

logger = logging.getLogger(__name__)


class DenseIndex:
    """Exact search by inner product of unit vectors (cosine), over FAISS's flat index.

    Scores lie in [-1, 1] and are rounded to six decimals. Made by `build` or `open`.
    """

    def __init__(self, corpus: Corpus, encoder: Encoder, manifest: Manifest, vectors: Any) -> None:
        self.corpus = corpus
        self.manifest = manifest
        self._encoder = encoder
        self._vectors = vectors

    @classmethod
    def build(
        cls, corpus: Corpus, encoder: Encoder, folder: Path, block: int = BLOCK_PASSAGES, progress: bool = True
    ) -> DenseIndex:
        """Encode the corpus and write its index to `folder`, in place of one that is there.

        Passages are encoded as their `contents` (title line included), `block` at a time, and each
        block is on disk before the next begins: a build that was killed goes on behind the last one.
        Blocks of another corpus, encoder or size are thrown away, which is logged as a warning.

        Raises:
            ValueError: the encoder gives vectors of another shape, or not finite ones.
            OSError: the folder cannot be written or the disk is full; what is done so far is kept.
        """
        folder.mkdir(parents=True, exist_ok=True)
        blocks = _Blocks(corpus, encoder, folder / BLOCKS, block)
        blocks.prepare()
        blocks.encode(progress)
        vectors = faiss.IndexFlatIP(encoder.dimension)
        for part in blocks:
            vectors.add(part)
        path = folder / INDEX_FILE
        _write_index(vectors, path)
        manifest = Manifest(
            corpus_sha256=corpus.sha256,
            count=len(corpus),
            encoder=encoder.fingerprint,
            dimension=encoder.dimension,
            metric=METRIC,
            index_sha256=file_sha256(path),
            index_bytes=path.stat().st_size,
            versions={"faiss": faiss.__version__, **{name: version(name) for name in LIBRARIES}},
        )
        manifest.write(folder)
        shutil.rmtree(folder / BLOCKS)
        return cls(corpus, encoder, manifest, vectors)

    @classmethod
    def open(cls, folder: Path, corpus: Corpus, encoder: Encoder) -> DenseIndex:
        """Load the index of a folder, its file checked by hash before FAISS reads it.

        Raises:
            IndexRefused: there is none, it was built from another corpus or by another encoder, or
                a file of it is damaged.
        """
        manifest = Manifest.read(folder)
        manifest.check_owner(folder, corpus.sha256, encoder.fingerprint, encoder.dimension)
        path = folder / INDEX_FILE
        manifest.check_file(path)
        vectors = faiss.read_index(str(path))
        found = (vectors.ntotal, vectors.d, vectors.metric_type)
        if found != (len(corpus), encoder.dimension, faiss.METRIC_INNER_PRODUCT) or manifest.count != len(corpus):
            raise IndexRefused(
                f"{path}: {vectors.ntotal} vectors of dimension {vectors.d} for a corpus of {len(corpus)} passages "
                f"and an encoder of dimension {encoder.dimension}; {REBUILD}"
            )
        return cls(corpus, encoder, manifest, vectors)

    @property
    def fingerprint(self) -> dict[str, str]:
        encoder = {f"encoder.{key}": value for key, value in self.manifest.encoder.items()}
        return {"kind": "dense", "corpus": self.corpus.sha256, **encoder}

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """See `Retriever.search`. Every passage is a candidate, so there are always min(k, corpus) hits.

        Raises:
            ValueError: `k` below 1.
        """
        check_k(k)
        if not queries:
            return []
        wanted = min(k + TIES, self._vectors.ntotal)
        scores, rows = self._vectors.search(self._encoder.encode_queries(queries), wanted)
        rounded = scores.astype(np.float64).round(SCORE_DECIMALS).tolist()
        return [best(map(Hit, *found), k) for found in zip(rows.tolist(), rounded, strict=True)]


class _Blocks:
    """The vectors of a build on its way: one `.npy` a block, and `blocks.json` saying whose they are."""

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
        return (np.load(self._path(start), allow_pickle=False) for start in self._starts())

    def prepare(self) -> None:
        """Keep the blocks of this very build, and make room where there are others."""
        if _read_owner(self._folder) == self._owner:
            return
        if self._folder.exists():
            logger.warning("%s: vectors of another corpus, encoder or block size; starting anew", self._folder)
            shutil.rmtree(self._folder)
        jsonl.replace(self._folder / OWNER_FILE, json.dumps(self._owner).encode())

    def encode(self, progress: bool) -> None:
        """Write every block that is not there yet."""
        done = {start for start in self._starts() if self._is_whole(start)}
        with _bar(progress) as bar:
            task = bar.add_task("encoding", total=len(self._corpus), completed=sum(map(self._length, done)))
            for start in self._starts():
                if start in done:
                    continue
                rows = range(start, start + self._length(start))
                vectors = self._encoder.encode_passages([self._corpus.passage(row).contents for row in rows])
                if vectors.shape != (len(rows), self._encoder.dimension) or not np.isfinite(vectors).all():
                    raise ValueError(
                        f"{self._corpus.path}: the encoder gave vectors of shape {vectors.shape} for rows {rows.start} "
                        f"to {rows.stop - 1}, where {(len(rows), self._encoder.dimension)} and finite values were due"
                    )
                content = io.BytesIO()
                np.save(content, vectors.astype(np.float32, copy=False), allow_pickle=False)
                jsonl.replace(self._path(start), content.getvalue())
                bar.advance(task, len(rows))

    def _is_whole(self, start: int) -> bool:
        path = self._path(start)
        if not path.is_file():
            return False
        try:
            vectors = np.load(path, allow_pickle=False)
        except (ValueError, EOFError, OSError):
            logger.warning("%s: damaged; its passages are encoded again", path)
            return False
        return bool(vectors.shape == (self._length(start), self._encoder.dimension) and vectors.dtype == np.float32)

    def _starts(self) -> range:
        return range(0, len(self._corpus), self._size)

    def _length(self, start: int) -> int:
        return min(self._size, len(self._corpus) - start)

    def _path(self, start: int) -> Path:
        return self._folder / f"{start:012d}.npy"


def unfinished(folder: Path) -> dict[str, Any] | None:
    """How far the build in a folder has come (passages `done` of `count`) and whose it is; None if there is none."""
    owner = _read_owner(folder / BLOCKS)
    if owner is None:
        return None
    files = len(list((folder / BLOCKS).glob("*.npy")))
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


def _write_index(index: Any, path: Path) -> None:
    """Write in one step; FAISS writes the file itself, since a large index does not fit in memory twice."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        faiss.write_index(index, str(part))
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


class _Rate(ProgressColumn):
    """Passages a second."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:.0f} passages/s" if task.speed else "")


def _bar(progress: bool) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _Rate(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), disable=not progress)
