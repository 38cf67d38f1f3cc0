"""A retriever as a server that speaks the protocols of both peers, so that their programs run against it unchanged.

Search-R1: `POST /retrieve {"queries", "topk", "return_scores"}` gives `{"result": [[…], …]}`.
MemSearcher and ReSearch (FlashRAG): `POST /search {"query", "top_n", "return_score"}` gives a list
of `{"id", "contents"}`, `POST /batch_search` the same for a list of queries, `GET /health`.
`GET /metrics` is for Prometheus.

It departs from them where a request makes no sense: a wrong number of passages is refused with
422 and a sentence (Search-R1 takes 0 for its default, the others take what comes), too many
requests with 429, and a search that fails is a 500, never a passage.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel

from memsearcher.retrieval.batcher import Batcher, Batching, QueueFull
from memsearcher.retrieval.gate import Access, Body, BodyLimits
from memsearcher.retrieval.metrics import Metrics
from memsearcher.retrieval.protocol import FINGERPRINT_HEADER, Found, Retriever, digest

TOP_N = 10
QUERIES = 4096
RETRY_SECONDS = 1

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a request may ask for.

    Attributes:
        topk: passages where Search-R1's protocol leaves their number open.
        most: passages for one query, at most.
        queries: of one request, at most. Search-R1's trainer sends a whole batch of rollouts in one.
    """

    topk: int = 3
    most: int = 100
    queries: int = QUERIES

    def __post_init__(self) -> None:
        if not 1 <= self.topk <= self.most or self.queries < 1:
            raise ValueError(
                f"topk must be from 1 to most, and queries at least 1, not {self.topk}, {self.most} and {self.queries}"
            )


class RetrieveRequest(BaseModel):
    queries: list[str]
    topk: int | None = None
    return_scores: bool = False


class SearchRequest(BaseModel):
    query: str
    top_n: int = TOP_N
    return_score: bool = False


class BatchSearchRequest(BaseModel):
    query: list[str]
    top_n: int = TOP_N
    return_score: bool = False


def create_app(
    retriever: Retriever,
    about: dict[str, Any],
    limits: Limits = Limits(),
    batching: Batching = Batching(),  # noqa: B008 - frozen
    body: BodyLimits = BodyLimits(),  # noqa: B008 - frozen
    token: str | None = None,
    log_queries: bool = False,
) -> FastAPI:
    """The application around a retriever.

    Args:
        about: what `/health` tells beside the fingerprint, such as the number of passages.
        token: asked for as a bearer token of every request but `/health`; None asks for none.
        log_queries: put the text of queries into the log.
    """
    metrics = Metrics()
    batcher = Batcher(retriever, batching, metrics)
    name = digest(retriever.fingerprint)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        batcher.start()
        yield
        await batcher.close()

    app = FastAPI(title="memsearcher", lifespan=lifespan)
    app.add_middleware(Body, limits=body)
    app.add_middleware(Access, metrics=metrics, token=token)

    async def find(queries: Sequence[str], k: int, field: str) -> list[list[Found]]:
        if not 1 <= k <= limits.most:
            raise HTTPException(422, f"{field} must be from 1 to {limits.most}, not {k}")
        if len(queries) > limits.queries:
            raise HTTPException(422, f"{len(queries)} queries; a request may have {limits.queries}")
        if log_queries:
            logger.info("queries %s", json.dumps(list(queries)))
        try:
            return await batcher.retrieve(queries, k)
        except QueueFull as error:
            raise HTTPException(429, f"{error}; try again later", {"Retry-After": str(RETRY_SECONDS)}) from None
        except Exception as error:
            logger.exception("a search failed")
            raise HTTPException(500, f"the search failed: {type(error).__name__}: {error}") from error

    def answer(content: Any) -> Response:
        return Response(json.dumps(content), media_type="application/json", headers={FINGERPRINT_HEADER: name})

    @app.post("/retrieve")
    async def retrieve(request: RetrieveRequest) -> Response:
        found = await find(request.queries, limits.topk if request.topk is None else request.topk, "topk")
        return answer({"result": [[_retrieved(each, request.return_scores) for each in some] for some in found]})

    @app.post("/search")
    async def search(request: SearchRequest) -> Response:
        if not request.query.strip():
            raise HTTPException(400, "query is empty; it must be a text to search for")
        (found,) = await find([request.query], request.top_n, "top_n")
        passages, scores = _searched(found)
        return answer([passages, scores] if request.return_score else passages)

    @app.post("/batch_search")
    async def batch_search(request: BatchSearchRequest) -> Response:
        some = [_searched(found) for found in await find(request.query, request.top_n, "top_n")]
        passages, scores = [each[0] for each in some], [each[1] for each in some]
        return answer([passages, scores] if request.return_score else passages)

    @app.get("/health")
    async def health() -> Response:
        available = 0 if batcher.full else 1
        state = {"status": "healthy", "retrievers": {"total": 1, "available": available}}
        return answer({**state, "fingerprint": retriever.fingerprint, **about})

    @app.get("/metrics")
    async def tell_metrics() -> Response:
        return Response(metrics.render(), media_type=CONTENT_TYPE_LATEST)

    @app.exception_handler(RequestValidationError)
    async def refuse(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        return JSONResponse({"detail": f"{place}: {first['msg']}"}, 422)

    return app


def _retrieved(found: Found, score: bool) -> dict[str, Any]:
    """A passage as Search-R1 gives it: the line of the corpus, inside an object where scores are asked for."""
    record = found.document.to_record()
    return {"document": record, "score": found.score} if score else record


def _searched(found: Sequence[Found]) -> tuple[list[dict[str, str]], list[float]]:
    """Passages as FlashRAG's servers give them, and their scores."""
    passages = [{"id": each.document.id, "contents": each.document.contents} for each in found]
    return passages, [each.score for each in found]
