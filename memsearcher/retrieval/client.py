"""A retriever on other machines: any server of Search-R1's protocol, ours or theirs."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Any

from memsearcher.retrieval.corpus import Document
from memsearcher.retrieval.http import RequestFailed, Servers
from memsearcher.retrieval.protocol import FINGERPRINT_HEADER, Found, Retriever, check_k, digest

QUERIES = 512
"""Queries of one request; more are sent in several."""
SURROGATES = re.compile("[\ud800-\udfff]")

logger = logging.getLogger(__name__)


class RemoteRetriever(Retriever):
    """Asks `POST /retrieve` of one server, or of several that serve the same.

    A server of ours says what it is, and that is this retriever's fingerprint: an answer found
    through it is bound to the same index as one found in-process. Each answer is checked to come
    from that very index, so a server that was started again with another is noticed. Of other
    servers only the address is known. A lone surrogate, which JSON in UTF-8 cannot carry, counts as
    U+FFFD, as it does for the encoders.

    Args:
        urls: of the servers, as `http://127.0.0.1:8000`.
        token: sent as a bearer token.
        options: see `Servers`.

    Raises:
        RequestFailed: no server answers.
        ValueError: the servers do not serve the same, or not an address.
    """

    def __init__(self, urls: Sequence[str], token: str | None = None, **options: Any) -> None:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._servers = Servers(urls, headers, **options)
        try:
            self._fingerprint, self._digest = self._meet()
        except (RequestFailed, ValueError):
            self.close()
            raise

    @property
    def fingerprint(self) -> dict[str, str]:
        return self._fingerprint

    def close(self) -> None:
        """Close the connections."""
        self._servers.close()

    def retrieve(self, queries: Sequence[str], k: int) -> list[list[Found]]:
        """See `Retriever.retrieve`.

        Raises:
            ValueError: `k` below 1, or an answer of another index than at the start.
            RequestFailed: refused, not answered in time, or an answer that is none.
        """
        check_k(k)
        found = []
        for start in range(0, len(queries), QUERIES):
            found += self._ask([SURROGATES.sub("\ufffd", query) for query in queries[start : start + QUERIES]], k)
        return found

    def _ask(self, queries: list[str], k: int) -> list[list[Found]]:
        response = self._servers.post("/retrieve", {"queries": queries, "topk": k, "return_scores": True})
        told = response.headers.get(FINGERPRINT_HEADER)
        if told != self._digest:
            raise ValueError(f"{response.url}: serves another index than when this run began; start the run again")
        try:
            result = response.json()["result"]
            found = [[_found(each, str(response.url)) for each in some] for some in result]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RequestFailed(f"{response.url}: the answer is not one of /retrieve: {error!r}") from error
        if len(found) != len(queries) or any(len(some) > k for some in found):
            counts = f"{len(found)} lists for {len(queries)} queries, the longest of {max(map(len, found), default=0)}"
            raise RequestFailed(f"{response.url}: {counts} where {k} passages were asked for")
        return found

    def _meet(self) -> tuple[dict[str, str], str | None]:
        """What the servers say they are, and how their answers are marked; one that is down may come later."""
        known: dict[str, tuple[dict[str, str], str | None]] = {}
        failure: RequestFailed | None = None
        for url in self._servers.urls:
            try:
                known[url] = _identity(self._servers, url)
            except RequestFailed as error:
                failure = error
                logger.warning("%s", error)
        if failure is not None and not known:
            raise failure
        names = {url: mark or "an unknown index" for url, (_, mark) in known.items()}
        if len(set(names.values())) > 1:
            raise ValueError(f"these servers do not serve the same index: {names}")
        return next(iter(known.values()))


def _identity(servers: Servers, url: str) -> tuple[dict[str, str], str | None]:
    """A server's fingerprint and the digest of it; a server that has none is named by its address."""
    unknown = {"kind": "remote", "server": ", ".join(servers.urls)}, None
    try:
        health = servers.get(f"{url}/health").json()
    except RequestFailed as error:
        if error.status == 404:  # Search-R1's server has no such path.
            return unknown
        raise
    except ValueError:
        return unknown
    told = health.get("fingerprint") if isinstance(health, dict) else None
    if not isinstance(told, dict) or not all(isinstance(value, str) for value in told.values()):
        return unknown
    return told, digest(told)


def _found(item: Any, place: str) -> Found:
    """A passage of an answer.

    Raises:
        CorpusError, TypeError, KeyError: it is none.
    """
    return Found(Document.from_record(item["document"], place), float(item["score"]))
