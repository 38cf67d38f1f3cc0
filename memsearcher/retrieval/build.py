"""From a corpus file to a retriever in one call: what is missing is built, what is there is opened."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, get_args

from filelock import FileLock

from memsearcher.retrieval.corpus import Corpus
from memsearcher.retrieval.devices import parse_devices
from memsearcher.retrieval.encoder import load_named
from memsearcher.retrieval.fusion import FusionRetriever
from memsearcher.retrieval.index import INDEX_FILE, DenseIndex
from memsearcher.retrieval.lexical import LexicalIndex
from memsearcher.retrieval.manifest import MANIFEST_FILE, REBUILD, IndexRefused, Manifest
from memsearcher.retrieval.protocol import CorpusRetriever, Encoder
from memsearcher.retrieval.recall import TARGET
from memsearcher.retrieval.types import IndexType
from memsearcher.retrieval.vectors import BLOCKS, BlockEncoding, unfinished

Kind = Literal["hybrid", "dense", "bm25"]


def build_retriever(
    corpus: Path | Corpus,
    folder: Path,
    kind: Kind = "hybrid",
    encoder: Encoder | str = "minilm",
    rebuild: bool = False,
    progress: bool = True,
    *,
    index_type: IndexType | None = None,
    recall: float = TARGET,
    mapped: bool = False,
    device: str = "cpu",
    search_device: str = "cpu",
    encode: BlockEncoding | None = None,
) -> CorpusRetriever:
    """A retriever over a corpus.

    Args:
        corpus: its file, or the corpus where it is open already.
        folder: where the dense index is, or will be after this; not touched for `bm25`.
        kind: `dense` (FAISS), `bm25`, or `hybrid`, which fuses the ranks of both.
        encoder: an encoder, or a name from `encoder.CONVENTIONS`, or that name with other weights of
            its kind, a folder or a hub id, as in `bge=BAAI/bge-small-en-v1.5`; not loaded for `bm25`.
        rebuild: build the dense index again, also where there is one.
        progress: show how far the build is, on standard error.
        index_type: of the dense index; None takes the one that is there, and builds a flat one.
        recall: that an approximate index is to reach when it is built (see `DenseIndex.build`).
        mapped: open the dense index memory-mapped.
        device: of an encoder that is given by name: a torch device.
        search_device: where the vectors lie and are searched: `cpu` (FAISS), or GPUs (see `devices.parse_devices`).
        encode: who encodes the corpus where the index is built (`cluster.RayEncoding`); None does it here.

    Processes that build in one folder at once take turns, and the later ones open what the first built.

    Raises:
        ValueError: an unknown kind, encoder or device.
        CorpusError, EncoderError: the corpus or the weights cannot be used.
        IndexRefused: the folder holds an index of another corpus, encoder or type, or a damaged one,
            or one that does not fit into memory.
    """
    if kind not in get_args(Kind):
        raise ValueError(f"unknown retriever {kind!r}; choose from {', '.join(get_args(Kind))}")
    devices = parse_devices(search_device)
    opened = corpus if isinstance(corpus, Corpus) else Corpus(corpus)
    if kind == "bm25":
        return LexicalIndex(opened)
    loaded = load_named(encoder, device) if isinstance(encoder, str) else encoder
    manifest = folder / MANIFEST_FILE
    if rebuild or not manifest.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / ".build.lock"):
            if rebuild or not manifest.exists():
                DenseIndex.build(opened, loaded, folder, index_type or "flat", recall, progress=progress, encode=encode)
    dense = DenseIndex.open(folder, opened, loaded, mapped, devices)
    there = dense.manifest.index_type
    if index_type not in (None, there):
        raise IndexRefused(f"{manifest}: an index of type {there}, where {index_type} was asked for; {REBUILD}")
    return dense if kind == "dense" else FusionRetriever([dense, LexicalIndex(opened)])


def index_info(folder: Path) -> dict[str, Any]:
    """What the index of a folder is: the fields of its manifest with `state` "built", its file checked by hash.

    Where a build has not finished, `state` is "building", with the passages `done` of `count`.

    Raises:
        IndexRefused: no index, or a damaged one.
    """
    if not (folder / MANIFEST_FILE).exists():
        building = unfinished(folder / BLOCKS)
        if building is not None:
            return {"state": "building", **building}
    manifest = Manifest.read(folder)
    manifest.check_file(folder / INDEX_FILE)
    return {"state": "built", **asdict(manifest)}
