"""Vectors in Qdrant: for a corpus that one machine does not hold, or one that other programs search too.

A collection belongs to one corpus and one encoder, and its name says which: what was pushed from
another corpus, or by another encoder, is not found rather than searched by mistake. A point is a
passage: its id is the row, its payload the line of the corpus, so a search needs no corpus at hand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from qdrant_client import QdrantClient, models
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse
from rich.progress import track

from memsearcher.retrieval.corpus import Corpus, Document
from memsearcher.retrieval.http import RequestFailed
from memsearcher.retrieval.index import SCORE_DECIMALS
from memsearcher.retrieval.manifest import IndexRefused
from memsearcher.retrieval.protocol import Encoder, Found, Retriever, check_k, digest

BLOCK = 256


def connect(place: str) -> QdrantClient:
    """The client of a server by its URL, or of a folder that the client keeps itself (for tries and tests).

    Raises:
        RequestFailed: the server does not answer, or not as Qdrant does.
    """
    if not place.startswith(("http://", "https://")):
        return QdrantClient(path=place)
    client = QdrantClient(url=place, check_compatibility=False)
    try:
        client.get_collections()
    except (ResponseHandlingException, UnexpectedResponse) as error:
        client.close()
        raise RequestFailed(f"no answer from Qdrant at {place}: {error}") from error
    return client


def collection_name(corpus_sha256: str, encoder: Encoder) -> str:
    """The name of the collection of a corpus and an encoder."""
    return f"memsearcher-{digest({**encoder.fingerprint, 'corpus': corpus_sha256})}"


def push(corpus: Corpus, encoder: Encoder, client: QdrantClient, block: int = BLOCK, progress: bool = True) -> str:
    """Encode the corpus into its collection, in blocks; a push that was stopped goes on behind the last one.

    Returns the name of the collection.
    """
    name = collection_name(corpus.sha256, encoder)
    if not client.collection_exists(name):
        size = models.VectorParams(size=encoder.dimension, distance=models.Distance.DOT)
        client.create_collection(name, vectors_config=size)
    done = client.count(name, exact=True).count
    starts = range(done, len(corpus), block)
    for start in track(starts, "pushing blocks", disable=not progress):
        rows = range(start, min(start + block, len(corpus)))
        passages = [corpus.passage(row) for row in rows]
        vectors = encoder.encode_passages([passage.contents for passage in passages])
        points = [
            models.PointStruct(id=row, vector=vector.tolist(), payload=passage.to_record())
            for row, vector, passage in zip(rows, vectors, passages, strict=True)
        ]
        client.upsert(name, points, wait=True)
    return name


class QdrantRetriever(Retriever):
    """Searches the collection of a corpus by inner product of unit vectors.

    Args:
        corpus_sha256: names the corpus, which need not be here.
        where: keys of a line and the values they must have; None searches all passages.

    Raises:
        IndexRefused: there is no such collection, or not all of it.
    """

    def __init__(
        self,
        client: QdrantClient,
        corpus_sha256: str,
        count: int,
        encoder: Encoder,
        where: Mapping[str, str | int | bool] | None = None,
    ) -> None:
        self._client = client
        self._encoder = encoder
        self._name = collection_name(corpus_sha256, encoder)
        self._corpus_sha256 = corpus_sha256
        self._where = dict(where or {})
        there = client.count(self._name, exact=True).count if client.collection_exists(self._name) else 0
        if there != count:
            raise IndexRefused(
                f"{self._name}: {there} of {count} passages are there; push the corpus (`memsearcher index push`)"
            )

    @property
    def fingerprint(self) -> dict[str, str]:
        encoder = {f"encoder.{key}": value for key, value in self._encoder.fingerprint.items()}
        where = {f"where.{key}": str(value) for key, value in self._where.items()}
        return {"kind": "qdrant", "corpus": self._corpus_sha256, **encoder, **where}

    def retrieve(self, queries: Sequence[str], k: int) -> list[list[Found]]:
        """See `Retriever.retrieve`.

        Raises:
            ValueError: `k` below 1.
        """
        check_k(k)
        if not queries:
            return []
        conditions: list[Any] = [
            models.FieldCondition(key=key, match=models.MatchValue(value=value)) for key, value in self._where.items()
        ]
        only = models.Filter(must=conditions) if conditions else None
        asked = [
            models.QueryRequest(query=vector.tolist(), filter=only, limit=k, with_payload=True)
            for vector in self._encoder.encode_queries(queries)
        ]
        answers = self._client.query_batch_points(self._name, requests=asked)
        return [[self._found(point) for point in answer.points] for answer in answers]

    def _found(self, point: models.ScoredPoint) -> Found:
        document = Document.from_record(point.payload, f"{self._name}, point {point.id}")
        return Found(document, round(point.score, SCORE_DECIMALS))
