"""The web as a source of passages, through a search service that speaks Serper's format.

`POST {url}/search {"q", "num"}` with the key in the header `X-API-KEY` gives `{"organic": [{"title",
"link", "snippet"}, …]}`. Only these organic results are passages; answer boxes and knowledge
panels are not, since they may hold the answer to the question.

Every answer is kept in a file, so that a run can be repeated when the web has moved on, and
without a key. The key is in no record, message or log.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from memsearcher import jsonl
from memsearcher.retrieval.corpus import UNREADABLE, Document
from memsearcher.retrieval.http import RequestFailed, Servers
from memsearcher.retrieval.protocol import Found, Retriever, check_k

SERPER = "https://google.serper.dev"
KEY_ENV = "SERPER_API_KEY"
CONCURRENCY = 8

Key = tuple[str, int]


class WebSearch(Retriever):
    """Finds web pages: the title and the snippet the service shows, the link as the id, 1 / rank as the score.

    Args:
        cache: the file of answers, made if it is not there; one line an answer.
        url: of the service.
        key_env: the environment variable that holds its key, read at the first query that is not kept.
        options: see `Servers`.

    Raises:
        JsonlError: the cache is damaged.
    """

    def __init__(self, cache: Path, url: str = SERPER, key_env: str = KEY_ENV, **options: Any) -> None:
        self._url = url
        self._cache = cache
        self._key_env = key_env
        self._options = options
        self._servers: Servers | None = None
        self._kept: dict[Key, list[Found]] = {}
        if cache.exists():
            for number, line in jsonl.read(cache):
                try:
                    self._kept[line["query"], line["k"]] = _read(line["organic"], line["k"])
                except (KeyError, TypeError):
                    place = f"{cache}:{number}"
                    raise jsonl.JsonlError(f"{place}: not an answer of a search; remove the line") from None

    @property
    def fingerprint(self) -> dict[str, str]:
        return {"kind": "web", "server": self._url}

    def retrieve(self, queries: Sequence[str], k: int) -> list[list[Found]]:
        """See `Retriever.retrieve`. Where some queries fail, the answers to the others are kept all the same.

        Raises:
            ValueError: `k` below 1, or the key is needed and not set.
            RequestFailed: the service refused, did not answer in time, or its answer is none.
        """
        check_k(k)
        waiting = [query for query in dict.fromkeys(queries) if (query, k) not in self._kept]
        failure = None
        if waiting:
            servers = self._connect()
            with ThreadPoolExecutor(CONCURRENCY, thread_name_prefix="web") as pool:
                asked = {query: pool.submit(_ask, servers, query, k) for query in waiting}
                for query, future in asked.items():
                    try:
                        organic = future.result()
                    except RequestFailed as error:
                        failure = error
                        continue
                    self._kept[query, k] = _read(organic, k)
                    self._cache.parent.mkdir(parents=True, exist_ok=True)
                    jsonl.append(self._cache, {"query": query, "k": k, "organic": organic})
        if failure:
            raise failure
        return [self._kept[query, k] for query in queries]

    def _connect(self) -> Servers:
        if self._servers is None:
            key = os.environ.get(self._key_env)
            if not key:
                raise ValueError(f"the environment variable {self._key_env} is not set; it should hold the API key")
            self._servers = Servers([self._url], {"X-API-KEY": key}, **self._options)
        return self._servers


def _ask(servers: Servers, query: str, k: int) -> list[dict[str, str]]:
    """The organic results as the service gives them, no more of each than is used."""
    response = servers.post("/search", {"q": UNREADABLE.sub("\ufffd", query), "num": k})
    try:
        organic = response.json().get("organic", [])
        return [{name: _text(item.get(name)) for name in ("title", "link", "snippet")} for item in organic]
    except (ValueError, AttributeError, TypeError) as error:
        raise RequestFailed(f"{response.url}: the answer is not one of a search: {error!r}") from error


def _read(organic: list[dict[str, str]], k: int) -> list[Found]:
    """Results as passages; one without a link or without any text is none."""
    usable = [item for item in organic if item["link"] and (item["title"] or item["snippet"])][:k]
    return [Found(_document(item), 1 / rank) for rank, item in enumerate(usable, 1)]


def _document(item: dict[str, str]) -> Document:
    title, text = " ".join(item["title"].split()), item["snippet"]
    return Document(item["link"], title, text, f'"{title}"\n{text}')


def _text(value: Any) -> str:
    """A field as a text that a passage can have."""
    return UNREADABLE.sub("\ufffd", value) if isinstance(value, str) else ""
