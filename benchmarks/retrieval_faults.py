"""Many clients, and a server that is started again under them: no error, and the right passages for each.

    python benchmarks/retrieval_faults.py [--clients 64] [--requests 1000] [--out faults.json]

`memsearcher serve` runs over the built-in corpus (BM25, its cache off) as a process of its own. Each client
sends queries of one word or several out of the corpus's passages, drawn by its number, and compares every
answer with what the same index gives in this process. In the second round the server is stopped and started
again on its port when half of the requests are answered. An answer that differs, or a request that fails, ends
the program with its number.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from pathlib import Path

from rich.console import Console
from rich.table import Table

from memsearcher.retrieval.client import RemoteRetriever
from memsearcher.retrieval.corpus import Corpus
from memsearcher.retrieval.lexical import LexicalIndex
from memsearcher.tasks import factbook

K = 3
QUERIES = 2000
"""Different ones; clients draw from them."""


@contextmanager
def serving(port: int) -> Iterator[None]:
    command = [sys.executable, "-m", "memsearcher.cli", "serve", "--recipe", "pocket", "--port", str(port)]
    process = subprocess.Popen([*command, "--cache", "0"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def reachable(url: str) -> RemoteRetriever:
    """A client, once the server answers."""
    while True:
        try:
            return RemoteRetriever([url], tries=10_000, deadline=300)
        except OSError:
            time.sleep(0.2)


def client(number: int, url: str, requests: int, wanted: dict[str, list[str]], seconds: list[float]) -> None:
    """One client's requests; `seconds`, which all clients share, gets those of each."""
    remote, draw, queries = reachable(url), random.Random(number), sorted(wanted)
    for _ in range(requests):
        query = draw.choice(queries)
        started = time.perf_counter()
        (found,) = remote.retrieve([query], K)
        seconds.append(time.perf_counter() - started)
        if [each.document.id for each in found] != wanted[query]:
            raise SystemExit(f"client {number}: {query!r} was answered with the passages of another query")
    remote.close()


def play(clients: int, requests: int, wanted: dict[str, list[str]], restart: bool) -> dict[str, float]:
    """A round; percentiles are of single requests, in milliseconds."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    url, each = f"http://127.0.0.1:{port}", list[float]()
    with ThreadPoolExecutor(clients) as pool:
        with serving(port):
            reachable(url).close()
            started = time.perf_counter()
            jobs = [pool.submit(client, number, url, requests, wanted, each) for number in range(clients)]
            while len(each) < clients * requests // 2 and not any(job.done() for job in jobs):
                time.sleep(0.05)
            if not restart:
                wait(jobs)
        with serving(port) if restart else nullcontext():
            for job in jobs:
                job.result()
    seconds = time.perf_counter() - started
    each.sort()
    return {
        "requests": len(each),
        "failed": 0,
        "wrong": 0,
        "requests_per_second": len(each) / seconds,
        "p50_ms": 1000 * each[len(each) // 2],
        "p99_ms": 1000 * each[int(0.99 * len(each))],
        "longest_ms": 1000 * each[-1],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--requests", type=int, default=1000, help="of each client")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    corpus, draw = Corpus(factbook.corpus_path()), random.Random(0)
    index = LexicalIndex(corpus)
    queries = set()
    while len(queries) < QUERIES:
        words = corpus.passage(draw.randrange(len(corpus))).contents.split()
        queries.add(" ".join(draw.sample(words, min(len(words), draw.randint(1, 6)))))
    asked = sorted(queries)
    wanted = {
        query: [each.document.id for each in found]
        for query, found in zip(asked, index.retrieve(asked, K), strict=True)
    }
    rounds = {
        "one server": play(options.clients, options.requests, wanted, restart=False),
        "started again in the middle": play(options.clients, options.requests, wanted, restart=True),
    }
    table = Table("round", *next(iter(rounds.values())), title=f"{options.clients} clients")
    for name, numbers in rounds.items():
        table.add_row(name, *(f"{value:,.0f}" for value in numbers.values()))
    Console().print(table)
    if options.out:
        options.out.write_text(json.dumps(rounds, indent=2))


if __name__ == "__main__":
    main()
