"""Several retrievers as one: reciprocal rank fusion."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum

from memsearcher.retrieval.protocol import CorpusRetriever, Hit, best, check_k

RRF_K = 60

DEPTH = 5
"""Few, on purpose. With 60 in the sum, whatever both retrievers know at all, even at rank 50, beats
the first of one that the other does not know, such as a code or a name that only words can match.
Recall@5 over the steps of the built-in training questions was 0.996 at depth 5, 0.994 at 10 and
0.972 at 100 (BM25 alone 0.970); over 200 gold passages of HotpotQA depth made no difference.
"""


class FusionRetriever(CorpusRetriever):
    """Ranks a passage by the sum of 1 / (60 + rank) over the retrievers that found it.

    Each retriever is asked for its `depth` best (or `k`, if that is more); ranks start at 1.
    Only ranks count, so scores of different kinds need no scaling. The score of a hit is that sum.
    Up to `depth`, fewer hits are the first of more hits.

    Source: Cormack, Clarke and Büttcher 2009, "Reciprocal Rank Fusion outperforms Condorcet
    and individual Rank Learning Methods", k = 60.

    Raises:
        ValueError: no retrievers, retrievers over different corpora, `depth` or `rrf_k` below 1.
    """

    def __init__(self, retrievers: Sequence[CorpusRetriever], rrf_k: int = RRF_K, depth: int = DEPTH) -> None:
        if not retrievers:
            raise ValueError("fusion needs at least one retriever")
        if len({retriever.corpus.sha256 for retriever in retrievers}) > 1:
            paths = ", ".join(str(retriever.corpus.path) for retriever in retrievers)
            raise ValueError(f"fusion needs retrievers over one corpus, not over different ones: {paths}")
        if rrf_k < 1 or depth < 1:
            raise ValueError(f"rrf_k and depth must be at least 1, not {rrf_k} and {depth}")
        self.corpus = retrievers[0].corpus
        self._retrievers = list(retrievers)
        self._rrf_k = rrf_k
        self._depth = depth

    @property
    def fingerprint(self) -> dict[str, str]:
        own = {
            "kind": "fusion",
            "corpus": self.corpus.sha256,
            "method": f"reciprocal rank k={self._rrf_k} depth={self._depth}",
        }
        for number, retriever in enumerate(self._retrievers):
            own |= {f"{number}.{key}": value for key, value in retriever.fingerprint.items() if key != "corpus"}
        return own

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """See `Retriever.search`.

        Raises:
            ValueError: `k` below 1.
        """
        check_k(k)
        found = [retriever.search(queries, max(k, self._depth)) for retriever in self._retrievers]
        return [self._fuse(rankings, k) for rankings in zip(*found, strict=True)]

    def _fuse(self, rankings: Sequence[Sequence[Hit]], k: int) -> list[Hit]:
        shares: dict[int, list[float]] = {}
        for ranking in rankings:
            for rank, hit in enumerate(ranking, 1):
                shares.setdefault(hit.row, []).append(1 / (self._rrf_k + rank))
        # fsum is exact whatever the order, so that equal ranks in another order are equal scores.
        return best((Hit(row, fsum(parts)) for row, parts in shares.items()), k)
