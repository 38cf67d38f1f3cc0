"""The retrieval server under each peer's documented requests: does every reply have the documented schema?

    python benchmarks/peer_requests.py [--url http://127.0.0.1:8000]

Without `--url`, `memsearcher serve` runs over the built-in corpus (BM25) as a process of its own. The requests are sent
with httpx alone, as a peer's trainer or agent would, and none of our client is in between. Replies are checked with
pydantic, strictly and without unknown keys; one that differs ends the program with 1. The schemas are Search-R1's
(`search_r1/search/retrieval_server.py`) and FlashRAG's, as MemSearcher and ReSearch serve it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Annotated, Any

import httpx
from annotated_types import Len
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from rich.console import Console
from rich.table import Table
from serving import serving

QUERIES = ["capital of Laos", "Mont Blanc"]
TOPK = 3


class Passage(BaseModel):
    """FlashRAG's, with nothing else."""

    model_config = ConfigDict(strict=True, extra="forbid")
    id: str
    contents: str


class Document(Passage):
    """A line of the corpus; Search-R1 gives what else stands there, too."""

    model_config = ConfigDict(extra="allow")


class Scored(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    document: Document
    score: float


class Health(BaseModel):
    """FlashRAG's fields; ours has more."""

    model_config = ConfigDict(strict=True, extra="allow")
    status: str
    retrievers: dict[str, int]


Few = Len(TOPK, TOPK)
Each = Len(len(QUERIES), len(QUERIES))
Documents = Annotated[list[Document], Few]
ScoredDocuments = Annotated[list[Scored], Few]
Passages = Annotated[list[Passage], Few]
Scores = Annotated[list[float], Few]


class Retrieved(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    result: Annotated[list[Documents], Each]


class RetrievedScored(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    result: Annotated[list[ScoredDocuments], Each]


REQUESTS: list[tuple[str, str, dict[str, Any] | None, Any]] = [
    ("Search-R1", "/retrieve", {"queries": QUERIES, "topk": TOPK, "return_scores": True}, RetrievedScored),
    ("Search-R1", "/retrieve", {"queries": QUERIES, "topk": TOPK, "return_scores": False}, Retrieved),
    ("Search-R1", "/retrieve", {"queries": QUERIES, "topk": None, "return_scores": True}, RetrievedScored),
    ("Search-R1", "/retrieve", {"queries": QUERIES}, Retrieved),
    ("MemSearcher", "/health", None, Health),
    ("MemSearcher", "/search", {"query": QUERIES[0], "top_n": TOPK, "return_score": False}, Passages),
    ("MemSearcher", "/search", {"query": QUERIES[0], "top_n": TOPK, "return_score": True}, tuple[Passages, Scores]),
    ("MemSearcher", "/search", {"query": QUERIES[0]}, Annotated[list[Passage], Len(10, 10)]),
    (
        "ReSearch",
        "/batch_search",
        {"query": QUERIES, "top_n": TOPK, "return_score": False},
        Annotated[list[Passages], Each],
    ),
    (
        "ReSearch",
        "/batch_search",
        {"query": QUERIES, "top_n": TOPK, "return_score": True},
        tuple[Annotated[list[Passages], Each], Annotated[list[Scores], Each]],
    ),
]
"""Peer, path, body (None is a GET) and the type of the reply."""


@contextmanager
def ours() -> Iterator[str]:
    """The address of a server of our own."""
    command = ["-m", "memsearcher.cli", "serve", "--topk", str(TOPK), "--port"]
    with serving(command, quiet=True) as port:
        yield f"http://127.0.0.1:{port}"


def fault(url: str, path: str, body: dict[str, Any] | None, schema: Any) -> str:
    """What is wrong with a reply; empty where nothing is."""
    reply = httpx.get(url + path) if body is None else httpx.post(url + path, json=body)
    if reply.status_code != httpx.codes.OK:
        return f"status {reply.status_code}: {reply.text[:200]}"
    try:
        TypeAdapter(schema).validate_json(reply.content, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="of a server that runs with `--topk 3`; none starts one")
    options = parser.parse_args()
    table = Table("peer", "request", "reply", title="each peer's documented requests")
    faults = 0
    with nullcontext(options.url) if options.url else ours() as url:
        for peer, path, body, schema in REQUESTS:
            found = fault(url, path, body, schema)
            faults += bool(found)
            table.add_row(peer, f"{path} {'' if body is None else body}", found or "as documented")
    Console(width=150).print(table)
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
