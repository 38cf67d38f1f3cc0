"""Question answering over a retriever: one tool, a query in, passages out."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from memsearcher.environments.protocol import ActRequest, EnvironmentFailure
from memsearcher.retrieval.protocol import Found, Retriever
from memsearcher.trajectory import Action, Observation, Passage

NOTHING = "No passages found."

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Ask:
    query: str
    top_n: int


class SearchEnvironment:
    """Carries out `Action(tool, {"query": str, "top_n": int})` on a retriever.

    All actions of a batch are one call of the retriever, equal queries are asked once. `top_n` may
    be left out or be null (then it is `limit`) and is bounded to 1 … `limit`. The retriever is always
    asked for `limit` hits, so that what a query brings back does not depend on the rest of its batch.
    An action that makes no sense (another tool, no query, a `top_n` that is not a whole number) is
    answered by a text.

    A retriever that fails on a batch is asked again query by query, so that one bad query fails
    alone; this is logged as a warning, and each query that fails again is an `EnvironmentFailure`
    with its cause. It is not tried a third time.

    Raises:
        ValueError: `limit` below 1.
    """

    def __init__(self, retriever: Retriever, limit: int = 5, tool: str = "search") -> None:
        if limit < 1:
            raise ValueError(f"limit is how many passages an action may bring back, at least 1, not {limit}")
        self._retriever = retriever
        self._limit = limit
        self._tool = tool

    @property
    def fingerprint(self) -> dict[str, str]:
        retriever = {f"retriever.{key}": value for key, value in self._retriever.fingerprint.items()}
        return {"environment": "search", "tool": self._tool, "limit": str(self._limit), **retriever}

    def act(self, requests: Sequence[ActRequest]) -> list[Observation | EnvironmentFailure]:
        """See `Environment.act`."""
        read = [self._read(request.action) for request in requests]
        found = self._search(list(dict.fromkeys(ask.query for ask in read if isinstance(ask, _Ask))))
        return [_observe(found[ask.query], ask.top_n) if isinstance(ask, _Ask) else ask for ask in read]

    def _read(self, action: Action) -> _Ask | Observation:
        """What an action asks for, or the text that says why it cannot be carried out."""
        if action.name != self._tool:
            return Observation(f"There is no tool {action.name!r}; the only one is {self._tool!r}.")
        query = action.arguments.get("query")
        if not isinstance(query, str) or not query.strip():
            return Observation("The argument 'query' is missing or empty; it must be a text to search for.")
        top_n = action.arguments.get("top_n")
        if top_n is None:
            top_n = self._limit
        if not isinstance(top_n, int) or isinstance(top_n, bool):
            return Observation("The argument 'top_n' must be a whole number.")
        return _Ask(query.strip(), min(max(top_n, 1), self._limit))

    def _search(self, queries: list[str]) -> dict[str, tuple[Passage, ...] | EnvironmentFailure]:
        """The passages of each query, or why there are none."""
        if not queries:
            return {}
        try:
            rankings = self._retriever.retrieve(queries, self._limit)
            return {query: _passages(found) for query, found in zip(queries, rankings, strict=True)}
        except Exception as error:  # noqa: BLE001 - whatever a retriever raises must cost its query only
            if len(queries) == 1:
                failure = EnvironmentFailure(f"the search failed: {type(error).__name__}: {error}")
                failure.__cause__ = error
                return {queries[0]: failure}
            logger.warning("a search for %d queries failed (%r); asking one by one", len(queries), error)
        return {query: found for single in queries for query, found in self._search([single]).items()}


def _passages(found: Sequence[Found]) -> tuple[Passage, ...]:
    return tuple(
        Passage(document.id, document.title, document.text, score, rank)
        for rank, (document, score) in enumerate(found, 1)
    )


def _observe(found: tuple[Passage, ...] | EnvironmentFailure, top_n: int) -> Observation | EnvironmentFailure:
    if isinstance(found, EnvironmentFailure):
        return found
    return Observation(passages=found[:top_n]) if found else Observation(NOTHING)
