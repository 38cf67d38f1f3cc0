"""What a retrieval server counts, in Prometheus' format."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class Metrics:
    """Counters of one server, in a registry of their own: two servers in a process do not add up."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "memsearcher_requests", "Requests by path and status.", ["path", "status"], registry=self._registry
        )
        self.seconds = Histogram(
            "memsearcher_request_seconds", "Time of a request.", ["path"], buckets=SECONDS, registry=self._registry
        )
        self.batches = Histogram(
            "memsearcher_batch_queries", "Queries of a batch.", buckets=SIZES, registry=self._registry
        )
        self.cached = Counter("memsearcher_cached_queries", "Queries answered from the cache.", registry=self._registry)
        self.joined = Counter(
            "memsearcher_joined_queries", "Queries that joined an equal one under way.", registry=self._registry
        )
        self.waiting = Gauge("memsearcher_waiting_queries", "Queries that wait for a batch.", registry=self._registry)

    def render(self) -> bytes:
        """All of it as text (format 0.0.4)."""
        return generate_latest(self._registry)
