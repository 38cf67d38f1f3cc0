"""A corpus encoded by the workers of a Ray cluster, block by block, with the same encoder as at home."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import ray
import ray.data

from memsearcher.retrieval.corpus import Corpus
from memsearcher.retrieval.encoder import load_named
from memsearcher.retrieval.protocol import Vectors

# Nothing is reported to Ray's makers, and devices are left as they are where no GPU is asked for.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")


@dataclass(frozen=True, slots=True)
class RayEncoding:
    """Encodes blocks of passages over Ray Data, for `VectorBlocks.encode`.

    Ray is joined where the environment variable RAY_ADDRESS says, else started on this machine.
    Every worker opens the corpus by its path and loads the encoder by its name, so both must be
    there on every machine; one that finds another corpus fails, and the build with it. The blocks
    that have come back by then are kept.

    Attributes:
        encoder: a name as `load_named` takes it.
        device: of each worker's encoder; one that is not a CPU takes a GPU of the cluster's.
        workers: how many encode at once.
    """

    encoder: str
    device: str
    workers: int

    def __call__(self, corpus: Corpus, blocks: Sequence[range]) -> Iterator[tuple[range, Vectors]]:
        """The rows of each block with their vectors, as they come.

        Raises:
            RuntimeError: a worker failed; its cause is in the message.
        """
        if not ray.is_initialized():
            ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        ray.data.DataContext.get_current().enable_progress_bars = False
        rows = [{"start": each.start, "stop": each.stop} for each in blocks]
        about = {"path": str(corpus.path.resolve()), "sha256": corpus.sha256}
        encoded = ray.data.from_items(rows, override_num_blocks=len(rows)).map(
            _Worker,
            fn_constructor_kwargs={**about, "encoder": self.encoder, "device": self.device},
            concurrency=min(self.workers, len(rows)),
            num_gpus=None if self.device == "cpu" else 1,
        )
        try:
            for row in encoded.iter_rows():
                yield range(row["start"], row["stop"]), np.asarray(row["vectors"])
        except ray.exceptions.RayError as error:
            raise RuntimeError(f"a worker of the Ray cluster failed: {error}") from error


class _Worker:
    """A process that has the corpus open and the encoder loaded."""

    def __init__(self, path: str, sha256: str, encoder: str, device: str) -> None:
        self._corpus = Corpus(Path(path))
        if self._corpus.sha256 != sha256:
            raise ValueError(f"{path}: on this machine, it is another corpus than where the build was started")
        self._encoder = load_named(encoder, device)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        rows = range(row["start"], row["stop"])
        texts = [self._corpus.passage(number).contents for number in rows]
        return {**row, "vectors": self._encoder.encode_passages(texts)}
