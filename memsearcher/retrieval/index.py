"""The dense index: vectors of a corpus on disk, bound to the corpus and the encoder they came from.

A folder with two files, each written in one step: `index.faiss` (FAISS's own format) and
`manifest.json`, which is written last and says what the index belongs to. While it is
being built there is also `blocks/`, from which a build that was stopped goes on.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import torch

from memsearcher.retrieval.corpus import Corpus
from memsearcher.retrieval.devices import DeviceVectors
from memsearcher.retrieval.manifest import REBUILD, IndexRefused, Manifest, file_sha256
from memsearcher.retrieval.plan import check_memory, plan
from memsearcher.retrieval.protocol import CorpusRetriever, Encoder, Hit, best, check_k
from memsearcher.retrieval.recall import DEPTH, TARGET, exact, held_out_queries, tune
from memsearcher.retrieval.types import EXHAUSTIVE, IndexType, check_buildable, empty_index, sample_size
from memsearcher.retrieval.vectors import BLOCK_PASSAGES, BLOCKS, BlockEncoding, VectorBlocks, rate_bar

INDEX_FILE = "index.faiss"
METRIC = "inner_product"
LIBRARIES = ("numpy", "sentence-transformers", "torch", "transformers")

SCORE_DECIMALS = 6
"""Scores are rounded here, which is above float32's noise: a query must get the same hits
alone and in a batch, and passages that are the same text must tie."""

TIES = 8
"""Hits asked of FAISS beyond `k`, so that rows decide ties at the cut."""

SAVE_SECONDS = 300.0
"""Between two saves of an index that takes its vectors in, at least; a kill costs no more than that."""

logger = logging.getLogger(__name__)


class DenseIndex(CorpusRetriever):
    """Search by inner product of unit vectors (cosine) over FAISS, exact with the type `flat`.

    Scores lie in [-1, 1] (those of `ivf-pq` are approximate and may leave it a little) and are
    rounded to six decimals. Made by `build` or `open`.
    """

    def __init__(self, corpus: Corpus, encoder: Encoder, manifest: Manifest, vectors: Any) -> None:
        self.corpus = corpus
        self.manifest = manifest
        self._encoder = encoder
        self._vectors = vectors

    @classmethod
    def build(
        cls,
        corpus: Corpus,
        encoder: Encoder,
        folder: Path,
        index_type: IndexType = "flat",
        recall: float = TARGET,
        block: int = BLOCK_PASSAGES,
        progress: bool = True,
        encode: BlockEncoding | None = None,
    ) -> DenseIndex:
        """Encode the corpus and write its index to `folder`, in place of one that is there.

        Passages are encoded as their `contents` (title line included), `block` at a time, and each
        block is on disk before the next begins: a build that was killed goes on behind the last one.
        Blocks of another corpus, encoder or size are thrown away, which is logged as a warning.
        Types that are trained, or take long to add to, are saved on the way, too. An approximate
        type gets the least search effort that reaches `recall` on held-out queries; where none does
        it gets the largest, which is logged as a warning, and the manifest has what was reached.

        Raises:
            ValueError: the encoder gives vectors of another shape, or not finite ones; a type that
                this corpus is too small for.
            IndexRefused: it does not fit into memory.
            OSError: the folder cannot be written or the disk is full; what is done so far is kept.
        """
        check_buildable(index_type, len(corpus), encoder.dimension)
        needs = plan(index_type, len(corpus), encoder.dimension)
        check_memory(folder / INDEX_FILE, needs.building, "build")
        folder.mkdir(parents=True, exist_ok=True)
        blocks = VectorBlocks(corpus, encoder, folder / BLOCKS, block)
        blocks.prepare()
        blocks.encode(progress, encode)
        vectors = _filled(blocks, index_type, len(corpus), encoder.dimension, folder / BLOCKS, progress)
        reached = None
        if index_type != "flat":
            queries = held_out_queries(corpus, encoder)
            truth = exact(queries, blocks, min(DEPTH, len(corpus)))
            reached = tune(vectors, index_type, queries, truth, recall)
            if reached.value < recall:
                logger.warning("%s: recall@%d is %.3f, below %.3f", folder, reached.k, reached.value, recall)
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
            index_type=index_type,
            recall=None if reached is None else asdict(reached),
        )
        manifest.write(folder)
        shutil.rmtree(folder / BLOCKS)
        return cls(corpus, encoder, manifest, vectors)

    @classmethod
    def open(
        cls,
        folder: Path,
        corpus: Corpus,
        encoder: Encoder,
        mapped: bool = False,
        devices: Sequence[torch.device] = (),
    ) -> DenseIndex:
        """Open the index of a folder, its file checked by hash before FAISS reads it.

        Args:
            mapped: leave the vectors on disk and let the system page them in as they are looked at.
            devices: copy the vectors to these and search there (see devices.py); none has FAISS search.

        Raises:
            IndexRefused: there is none, it was built from another corpus or by another encoder, a
                file of it is damaged, it does not fit into memory and is not to be mapped, or it is
                of a type that devices do not search, or too large for them.
        """
        manifest = Manifest.read(folder)
        manifest.check_owner(folder, corpus.sha256, encoder.fingerprint, encoder.dimension)
        path = folder / INDEX_FILE
        if devices and manifest.index_type not in EXHAUSTIVE:
            raise IndexRefused(
                f"{path}: of type {manifest.index_type}, where retrieval.search_device wants one of "
                f"{', '.join(EXHAUSTIVE)}; leave it at cpu, or {REBUILD}"
            )
        mapped = mapped or bool(devices)
        if not mapped:
            check_memory(path, manifest.index_bytes, "open it memory-mapped (retrieval.mapped=true), or build")
        manifest.check_file(path)
        vectors: Any = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC if mapped else 0)
        found = (vectors.ntotal, vectors.d, vectors.metric_type)
        if found != (len(corpus), encoder.dimension, faiss.METRIC_INNER_PRODUCT) or manifest.count != len(corpus):
            raise IndexRefused(
                f"{path}: {vectors.ntotal} vectors of dimension {vectors.d} for a corpus of {len(corpus)} passages "
                f"and an encoder of dimension {encoder.dimension}; {REBUILD}"
            )
        if devices:
            vectors = DeviceVectors(vectors, devices, manifest.index_type == "flat-fp16", path)
        return cls(corpus, encoder, manifest, vectors)

    @property
    def fingerprint(self) -> dict[str, str]:
        encoder = {f"encoder.{key}": value for key, value in self.manifest.encoder.items()}
        own = {"kind": "dense", "corpus": self.corpus.sha256, **encoder}
        if self.manifest.index_type == "flat":
            return own
        # Approximate: which index it is, and not only how it was made, decides what is found.
        return {**own, "index": self.manifest.index_type, "index_sha256": self.manifest.index_sha256}

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """See `CorpusRetriever.search`.

        With `flat`, every passage is a candidate, so there are always min(k, corpus) hits; the
        `ivf-*` types may find fewer.

        Raises:
            ValueError: `k` below 1.
        """
        check_k(k)
        if not queries:
            return []
        wanted = min(k + TIES, self._vectors.ntotal)
        scores, rows = self._vectors.search(self._encoder.encode_queries(queries), wanted)
        rounded = scores.astype(np.float64).round(SCORE_DECIMALS).tolist()
        return [
            best((Hit(*each) for each in zip(*found, strict=True) if each[0] >= 0), k)
            for found in zip(rows.tolist(), rounded, strict=True)
        ]


def _filled(
    blocks: VectorBlocks, index_type: IndexType, count: int, dimension: int, folder: Path, progress: bool
) -> Any:
    """An index with all the blocks in it, gone on with from its last save where there is one."""
    saved = folder / f"{index_type}.faiss"
    index = _read_saved(saved)
    if index is None:
        index = empty_index(index_type, count, dimension)
        if not index.is_trained:
            index.train(blocks.sample(sample_size(index_type, count)))
            _write_index(index, saved)
    last = time.monotonic()
    with rate_bar(progress) as bar:
        task = bar.add_task("adding", total=count, completed=index.ntotal)
        for part in blocks.after(index.ntotal):
            index.add(part)
            bar.advance(task, len(part))
            if index_type not in EXHAUSTIVE and time.monotonic() - last > SAVE_SECONDS:
                _write_index(index, saved)
                last = time.monotonic()
    return index


def _read_saved(path: Path) -> Any:
    """The index as it was saved; None where there is none that FAISS can read."""
    if not path.is_file():
        return None
    try:
        return faiss.read_index(str(path))
    except RuntimeError:
        logger.warning("%s: damaged; its vectors are added again", path)
        return None


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
