"""Queries of many clients merged into batches: an encoder takes 64 at once in a fraction of 64 times one.

While a batch is under way the next one gathers. When none is, the first query to come waits
for company, but no longer than a deadline. Equal queries are asked once; answers are kept.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from memsearcher.retrieval.metrics import Metrics
from memsearcher.retrieval.protocol import Found, Retriever

Key = tuple[str, int]
Answer = list[Found] | Exception

logger = logging.getLogger(__name__)


class QueueFull(RuntimeError):
    """More queries are waiting than are let in."""


@dataclass(frozen=True, slots=True)
class Batching:
    """How queries are merged.

    Attributes:
        size: queries of one batch, at most.
        wait: seconds that the first query of a batch waits for others, at most.
        queue: queries that may wait; more are refused.
        cache: answers that are kept, the least recently used going first; 0 keeps none.
    """

    size: int = 64
    wait: float = 0.005
    queue: int = 8192
    cache: int = 4096

    def __post_init__(self) -> None:
        if self.size < 1 or self.queue < 1 or self.wait < 0 or self.cache < 0:
            raise ValueError(
                "size and queue must be at least 1, wait and cache at least 0, "
                f"not {self.size}, {self.queue}, {self.wait} and {self.cache}"
            )


class Batcher:
    """Answers queries through one retriever, which runs in one thread of its own.

    Only queries that ask for equally many passages share a batch, so that what a query brings back
    does not depend on its company. Where a batch fails, its queries are asked one by one, and each
    that fails again fails alone.

    Used within one event loop: `start`, any number of `retrieve` at once, `close`.
    """

    def __init__(self, retriever: Retriever, batching: Batching, metrics: Metrics) -> None:
        self._retriever = retriever
        self._batching = batching
        self._metrics = metrics
        self._cache: OrderedDict[Key, list[Found]] = OrderedDict()
        self._waiting: dict[Key, asyncio.Future[list[Found]]] = {}
        self._running: dict[Key, asyncio.Future[list[Found]]] = {}
        self._oldest = 0.0
        self._some = asyncio.Event()
        self._full = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="retriever")

    def start(self) -> None:
        self._worker = asyncio.create_task(self._work())

    async def close(self) -> None:
        """Let the batch under way end, and give up what is waiting."""
        self._worker.cancel()
        with suppress(asyncio.CancelledError):
            await self._worker
        await asyncio.to_thread(self._thread.shutdown)

    @property
    def full(self) -> bool:
        return len(self._waiting) >= self._batching.queue

    async def retrieve(self, queries: Sequence[str], k: int) -> list[list[Found]]:
        """See `Retriever.retrieve`.

        Raises:
            QueueFull: there is no room for all of the queries; none of them was let in.
            Exception: what the retriever raised for one of them.
        """
        keys = [(query, k) for query in queries]
        new = {key for key in keys if key not in self._cache and not self._pending(key)}
        if len(self._waiting) + len(new) > self._batching.queue:
            raise QueueFull(f"{len(self._waiting)} queries are waiting and {self._batching.queue} are let in")
        # Shielded: a client that leaves must not take the query from others that joined it.
        answers = await asyncio.gather(*(asyncio.shield(self._ask(key)) for key in keys), return_exceptions=True)
        found = []
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
            found.append(answer)
        return found

    def _pending(self, key: Key) -> asyncio.Future[list[Found]] | None:
        return self._waiting.get(key) or self._running.get(key)

    def _ask(self, key: Key) -> asyncio.Future[list[Found]]:
        """The answer to come, or the one that is kept."""
        if key in self._cache:
            self._cache.move_to_end(key)
            self._metrics.cached.inc()
            kept = asyncio.get_running_loop().create_future()
            kept.set_result(self._cache[key])
            return kept
        if pending := self._pending(key):
            self._metrics.joined.inc()
            return pending
        if not self._waiting:
            self._oldest = time.monotonic()
        future = self._waiting[key] = asyncio.get_running_loop().create_future()
        self._notice()
        return future

    def _notice(self) -> None:
        """Tell the worker what there is to do."""
        self._metrics.waiting.set(len(self._waiting))
        for event, holds in ((self._some, bool(self._waiting)), (self._full, self._has_batch())):
            if holds:
                event.set()
            else:
                event.clear()

    def _has_batch(self) -> bool:
        return len(self._waiting) >= self._batching.size

    async def _work(self) -> None:
        while True:
            await self._some.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._oldest + self._batching.wait - time.monotonic()):
                    await self._full.wait()
            self._running = self._take()
            self._metrics.batches.observe(len(self._running))
            (k,) = {k for _, k in self._running}
            queries = [query for query, _ in self._running]
            answers = await asyncio.get_running_loop().run_in_executor(self._thread, self._answer, queries, k)
            for (key, future), answer in zip(self._running.items(), answers, strict=True):
                if isinstance(answer, Exception):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)
                    self._keep(key, answer)
            self._running = {}

    def _take(self) -> dict[Key, asyncio.Future[list[Found]]]:
        """The next batch: the oldest query and those behind it that ask for as many passages."""
        k = next(iter(self._waiting))[1]
        keys = [key for key in self._waiting if key[1] == k][: self._batching.size]
        batch = {key: self._waiting.pop(key) for key in keys}
        self._notice()
        return batch

    def _answer(self, queries: list[str], k: int) -> list[Answer]:
        """Runs in the retriever's thread."""
        try:
            found = self._retriever.retrieve(queries, k)
            if len(found) != len(queries):
                raise RuntimeError(f"the retriever gave {len(found)} answers to {len(queries)} queries")
            return list(found)
        except Exception as error:  # noqa: BLE001 - whatever a retriever raises must cost its query only
            if len(queries) == 1:
                return [error]
            logger.warning("a batch of %d queries failed (%r); asking one by one", len(queries), error)
        return [answer for query in queries for answer in self._answer([query], k)]

    def _keep(self, key: Key, answer: list[Found]) -> None:
        self._cache[key] = answer
        if len(self._cache) > self._batching.cache:
            self._cache.popitem(last=False)
