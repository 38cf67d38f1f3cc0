"""A second look at what was found: a cross-encoder reads query and passage together and orders anew.

It is slower than a vector search by orders of magnitude, so only the best of a first retriever go
through it. Source: Nogueira and Cho 2019, "Passage Re-ranking with BERT".
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from memsearcher.retrieval.encoder import WEIGHTS
from memsearcher.retrieval.manifest import file_sha256
from memsearcher.retrieval.protocol import Found, Retriever, check_k

DEPTH = 20


class Scorer(Protocol):
    """Judges how well passages answer queries."""

    @property
    def fingerprint(self) -> dict[str, str]: ...

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """A score for each pair of query and passage; higher is better."""
        ...


class CrossEncoderScorer:
    """A cross-encoder of sentence-transformers, from a folder with its weights.

    Raises:
        ValueError: the folder holds no weights.
    """

    def __init__(self, folder: Path, device: str = "cpu") -> None:
        from sentence_transformers import CrossEncoder  # Takes seconds, which only reranking should cost.

        if not (folder / WEIGHTS).is_file():
            raise ValueError(f"{folder}: holds no {WEIGHTS}; give the folder of a cross-encoder")
        self.fingerprint = {"weights": file_sha256(folder / WEIGHTS)}
        self._model: Any = CrossEncoder(str(folder), device=device, local_files_only=True)

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """See `Scorer.score`."""
        return [float(score) for score in self._model.predict(list(pairs), show_progress_bar=False)]


class RerankRetriever(Retriever):
    """Orders the `depth` best passages of a retriever (or `k`, if that is more) by a scorer.

    Equal scores stay in the order of the first retriever.

    Raises:
        ValueError: `depth` below 1.
    """

    def __init__(self, retriever: Retriever, scorer: Scorer, depth: int = DEPTH) -> None:
        if depth < 1:
            raise ValueError(f"depth is how many passages are scored and must be at least 1, not {depth}")
        self._retriever = retriever
        self._scorer = scorer
        self._depth = depth

    @property
    def fingerprint(self) -> dict[str, str]:
        scorer = {f"scorer.{key}": value for key, value in self._scorer.fingerprint.items()}
        first = {f"first.{key}": value for key, value in self._retriever.fingerprint.items()}
        return {"kind": "rerank", "depth": str(self._depth), **scorer, **first}

    def retrieve(self, queries: Sequence[str], k: int) -> list[list[Found]]:
        """See `Retriever.retrieve`. The scores are the scorer's.

        Raises:
            ValueError: `k` below 1.
        """
        check_k(k)
        rankings = self._retriever.retrieve(queries, max(k, self._depth))
        pairs = [
            (query, found.document.contents) for query, some in zip(queries, rankings, strict=True) for found in some
        ]
        scores = iter(self._scorer.score(pairs) if pairs else [])
        judged = [[Found(found.document, next(scores)) for found in some] for some in rankings]
        return [sorted(some, key=lambda found: -found.score)[:k] for some in judged]
