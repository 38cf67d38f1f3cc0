"""The retrieval server beside the peers' way and beside its bare parts; types of index beside their plans.

    python benchmarks/retrieval_server.py --work /tmp/server-benchmark --out server.json

Corpus: the built-in one, Wikipedia passages of 2WikiMultihopQA where MEMSEARCHER_BENCH (by default
`../shared/bench` beside the checkout) has them, and copies of these without a fifth of their words
until there are `--passages`. On a slow machine, `--encoded` has only the first of them encoded; the
others get vectors of these with noise, and recall is that of such vectors. Queries: different questions
and search queries, so no cache helps (ours is off). Vectors and indexes are kept in `--work`.

Tables:
  encoding  passages a second: a build of ours, SentenceTransformer.encode on the same passages
  types     each type over the same vectors: seconds to add and train, bytes in memory (of a process that
            opens it) and on disk beside the plan, recall@10 against flat, queries a second of FAISS alone
  servers   `--clients` connections with one query each, round after round: the peers' way
            (peer_server.py), ours, and encoder and FAISS alone in batches of 64, over the same type of index
  growth    the same types over random unit vectors of several sizes: bytes, seconds, recall, time of a query

All on `--threads` threads in each process. Servers and clients share the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import faiss
import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from serving import serving

from memsearcher import jsonl
from memsearcher.retrieval.corpus import Corpus
from memsearcher.retrieval.encoder import load_encoder
from memsearcher.retrieval.index import INDEX_FILE, DenseIndex
from memsearcher.retrieval.plan import human, plan
from memsearcher.retrieval.protocol import Vectors
from memsearcher.retrieval.recall import QUERIES, exact, measure, tune
from memsearcher.retrieval.types import INDEX_TYPES, IndexType, empty_index, sample_size
from memsearcher.tasks import factbook

HERE = Path(__file__).parent
BENCH = Path(os.environ.get("MEMSEARCHER_BENCH", HERE.parents[1] / "shared" / "bench"))
SERVED: tuple[IndexType, ...] = ("flat", "hnsw")
ALONE = "encoder and FAISS alone"
TOPK = 10
BATCH = 64
NOISE = 0.5
"""Length of what is added to a unit vector for a passage that is not encoded (see --encoded)."""
PARTS = ("encoding", "types", "servers", "growth")
TIMED = 128
ENCODED_ROUNDS = 7
BLOCK = 256


class Known:
    """The encoder for queries; the vectors of passages are there already, in the order of their rows."""

    def __init__(self, encoder: Any, vectors: Vectors) -> None:
        self.fingerprint, self.dimension, self.encode_queries = (
            encoder.fingerprint,
            encoder.dimension,
            encoder.encode_queries,
        )
        self._vectors, self._next = vectors, 0

    def encode_passages(self, texts: list[str]) -> Vectors:
        start, self._next = self._next, self._next + len(texts)
        return self._vectors[start : self._next]


def main() -> None:
    options = _options()
    if options.probe:
        print(json.dumps(_probe(options.probe)))
        return
    torch.set_num_threads(options.threads)
    faiss.omp_set_num_threads(options.threads)
    options.work.mkdir(parents=True, exist_ok=True)
    result: dict[str, Any] = {
        "settings": {
            "parts": options.parts,
            "threads": options.threads,
            "cpus": os.cpu_count(),
            "load": os.getloadavg()[0],
            "machine": platform.machine(),
            "faiss": faiss.__version__,
            "torch": torch.__version__,
        }
    }
    encoder = load_encoder()
    if set(options.parts) - {"growth"}:
        corpus = Corpus(_write_corpus(options.work / f"corpus-{options.passages}.jsonl", options.passages))
        encoded = min(options.encoded or len(corpus), len(corpus))
        queries = _queries(options.queries)
        result["settings"] |= {"passages": len(corpus), "encoded": encoded, "queries": len(queries)}
        result["settings"] |= {"recall": options.recall, "clients": options.clients, "rounds": options.rounds}
    if "encoding" in options.parts:
        result["encoding"] = _encoding(corpus, encoder)
    if "types" in options.parts:
        vectors = _vectors(corpus, encoder, options.work / f"vectors-{len(corpus)}-{encoded}.npy", encoded)
        result["types"] = _types(corpus, encoder, vectors, queries, options)
    if "servers" in options.parts:
        result["servers"] = _servers(corpus, encoder, queries, options)
    if "growth" in options.parts:
        result["growth"] = [row for count in options.growth for row in _growth(count, encoder.dimension)]
    _print(result)
    if options.out:
        jsonl.replace(options.out, json.dumps(result, indent=1).encode() + b"\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, help="folder for corpus, vectors and indexes")
    parser.add_argument("--passages", type=int, default=100_000)
    parser.add_argument("--encoded", type=int, help="encode so many passages, and blur their vectors for the others")
    parser.add_argument("--queries", type=int, default=2048, help="of a round")
    parser.add_argument("--recall", type=float, default=0.99, help="that approximate types are tuned to")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--growth", type=int, nargs="*", default=[10_000, 100_000], help="random vectors")
    parser.add_argument(
        "--parts", nargs="+", choices=PARTS, default=PARTS, help="tables; servers need the indexes that types has built"
    )
    parser.add_argument("--out", type=Path, help="write the numbers as JSON here")
    parser.add_argument("--probe", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work is None and options.probe is None:
        parser.error("--work is needed")
    return options


def _sources() -> list[Path]:
    wiki = BENCH / "2wikimultihopqa_6119.corpus.jsonl"
    return [factbook.corpus_path(), *([wiki] if wiki.is_file() else [])]


def _write_corpus(path: Path, count: int) -> Path:
    """The passages of the sources, and copies of them without a fifth of their words."""
    if path.is_file():
        return path
    documents = [document for source in _sources() for document in Corpus(source)]
    draw = random.Random(0)
    lines = []
    for number in range(count):
        document = documents[number % len(documents)]
        words = document.text.split()
        kept = words if number < len(documents) else [word for word in words if draw.random() > 0.2] or words
        lines.append({"id": str(number), "contents": f'"{document.title}"\n{" ".join(kept)}'})
    jsonl.write(path, lines)
    return path


def _queries(count: int) -> list[str]:
    """Search queries of the built-in questions and questions of 2WikiMultihopQA, all different."""
    tasks = [task for split in ("dev", "train") for task in factbook.load(split)]
    asked = [step["ask"] for task in tasks for step in task.metadata["steps"]]
    wiki = BENCH / "2wikimultihopqa.dev.1000.jsonl"
    asked += [json.loads(line)["question"] for line in wiki.open(encoding="utf-8")] if wiki.is_file() else []
    different = list(dict.fromkeys(asked))
    random.Random(0).shuffle(different)
    if len(different) < count:
        raise SystemExit(f"there are {len(different)} different queries; ask for fewer with --queries")
    return different[:count]


def _encoding(corpus: Corpus, encoder: Any) -> dict[str, float]:
    """Passages a second: by ours, and by the library alone."""
    texts = [corpus.passage(row).contents for row in range(TIMED)]
    rates: dict[str, list[float]] = {"library": [], "ours": []}
    ways: dict[str, Callable[[], object]] = {
        "library": lambda: encoder._model.encode(texts, batch_size=encoder.batch_size, show_progress_bar=False),
        "ours": lambda: encoder.encode_passages(texts),
    }
    for _ in range(ENCODED_ROUNDS):
        for name, way in ways.items():
            start = time.perf_counter()
            way()
            rates[name].append(len(texts) / (time.perf_counter() - start))
    ratio = median(ours / bare for ours, bare in zip(rates["ours"], rates["library"], strict=True))
    return {name: median(values) for name, values in rates.items()} | {"ratio": ratio}


def _vectors(corpus: Corpus, encoder: Any, path: Path, encoded: int) -> Vectors:
    """The vectors of all passages; those behind the first `encoded` are blurred copies."""
    if not path.is_file():
        blocks = [range(start, min(start + BLOCK, encoded)) for start in range(0, encoded, BLOCK)]
        console = Console(stderr=True)
        parts = [
            encoder.encode_passages([corpus.passage(row).contents for row in rows])
            for rows in track(blocks, "encoding", console=console)
        ]
        vectors = np.concatenate(parts)
        copies = vectors[np.arange(encoded, len(corpus)) % encoded]
        noise = np.random.default_rng(0).normal(size=copies.shape).astype(np.float32) / np.sqrt(vectors.shape[1])
        vectors = np.concatenate([vectors, copies + NOISE * noise]).astype(np.float32)
        faiss.normalize_L2(vectors)
        np.save(path, vectors)
    return np.load(path)


def _types(
    corpus: Corpus, encoder: Any, vectors: Vectors, queries: list[str], options: argparse.Namespace
) -> list[dict[str, Any]]:
    asked = encoder.encode_queries(queries[:512])
    truth = exact(asked, [vectors], TOPK)
    rows = []
    for index_type in INDEX_TYPES:
        folder = options.work / f"index-{len(corpus)}-{index_type}"
        start = time.perf_counter()
        known = Known(encoder, vectors)
        index = DenseIndex.build(corpus, known, folder, index_type, options.recall, block=4096, progress=False)
        seconds = time.perf_counter() - start
        faiss_index = index._vectors
        start = time.perf_counter()
        for first in range(0, len(asked), BATCH):
            faiss_index.search(asked[first : first + BATCH], TOPK)
        searched = time.perf_counter() - start
        needs = plan(index_type, len(corpus), encoder.dimension)
        memory = _probe_elsewhere(folder / INDEX_FILE)
        rows.append(
            {
                "type": index_type,
                "build_seconds": seconds,
                "plan": needs.memory,
                "memory": memory,
                "memory_ratio": memory / needs.memory,
                "disk": (folder / INDEX_FILE).stat().st_size,
                "recall": measure(faiss_index, asked, truth),
                "manifest_recall": index.manifest.recall,
                "queries_per_second": len(asked) / searched,
            }
        )
        Console(stderr=True).print(rows[-1])
    return rows


def _probe(path: Path) -> int:
    """Bytes that a process grows by when it opens an index, all of it touched."""
    faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)  # What the first opening costs once.
    before = _resident()
    index = faiss.read_index(str(path))
    grown = _resident() - before
    return grown if index.ntotal else 0


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _probe_elsewhere(path: Path) -> int:
    found = subprocess.run([sys.executable, __file__, "--probe", str(path)], capture_output=True, text=True, check=True)
    return int(found.stdout)


def _servers(corpus: Corpus, encoder: Any, queries: list[str], options: argparse.Namespace) -> dict[str, Any]:
    """Queries a second and latency of each way, in turn, and the medians of the ratios within a round."""
    folders = {name: options.work / f"index-{len(corpus)}-{name}" for name in SERVED}
    alone = {name: faiss.read_index(str(folder / INDEX_FILE)) for name, folder in folders.items()}
    rates: dict[str, list[float]] = {}
    times: dict[str, list[float]] = {}
    common = ["--threads", str(options.threads), "--port"]
    peer = [str(HERE / "peer_server.py"), "--corpus", str(corpus.path), "--index", str(folders["flat"] / INDEX_FILE)]
    with serving([*peer, *common]) as peers:
        ours = {}
        stack = []
        for name, folder in folders.items():
            script = [str(HERE / "serve_index.py"), "--corpus", str(corpus.path), "--index", str(folder), *common]
            stack.append(serving(script))
            ours[f"ours, {name}"] = stack[-1].__enter__()
        try:
            ports = {"the peers' way, flat": peers, **ours}
            for round_number in range(options.rounds + 1):
                for name, port in ports.items():
                    start = time.perf_counter()
                    latencies = asyncio.run(_ask_all(port, queries, options.clients))
                    if round_number:
                        rates.setdefault(name, []).append(len(queries) / (time.perf_counter() - start))
                        times.setdefault(name, []).extend(latencies)
                for name, index in alone.items():
                    start = time.perf_counter()
                    for first in range(0, len(queries), BATCH):
                        index.search(encoder.encode_queries(queries[first : first + BATCH]), TOPK)
                    if round_number:
                        rate = len(queries) / (time.perf_counter() - start)
                        rates.setdefault(f"{ALONE}, {name}", []).append(rate)
                Console(stderr=True).print(f"round {round_number}", {name: each[-1:] for name, each in rates.items()})
        finally:
            for each in stack:
                each.__exit__(None, None, None)
    peer_rates = rates["the peers' way, flat"]
    return {
        name: {
            "queries_per_second": median(values),
            "p50_ms": 1000 * float(np.percentile(times[name], 50)) if name in times else None,
            "p99_ms": 1000 * float(np.percentile(times[name], 99)) if name in times else None,
            "ratio_to_peers": median(a / b for a, b in zip(values, peer_rates, strict=True)),
            "ratio_to_bare": median(
                a / b for a, b in zip(values, rates[f"{ALONE}, {name.split(', ')[1]}"], strict=True)
            ),
        }
        for name, values in rates.items()
    }


async def _ask_all(port: int, queries: list[str], clients: int) -> list[float]:
    """Seconds of each request. Plain sockets: a full client would take as much of the machine as a server."""
    waiting = iter(queries)
    fields = ("POST /retrieve HTTP/1.1", "Host: x", "Content-Type: application/json")

    async def client() -> list[float]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        seconds = []
        for query in waiting:
            body = json.dumps({"queries": [query], "topk": TOPK, "return_scores": True}).encode()
            head = [*fields, f"Content-Length: {len(body)}", "", ""]
            start = time.perf_counter()
            writer.write("\r\n".join(head).encode() + body)
            answered = await reader.readuntil(b"\r\n\r\n")
            if not answered.startswith(b"HTTP/1.1 200"):
                raise SystemExit(f"the server answered {answered[:100]!r}")
            length = next(line for line in answered.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            await reader.readexactly(int(length.split(b":")[1]))
            seconds.append(time.perf_counter() - start)
        writer.close()
        return seconds

    return [each for some in await asyncio.gather(*(client() for _ in range(clients))) for each in some]


def _growth(count: int, dimension: int) -> list[dict[str, Any]]:
    """The types over random unit vectors that lie as embeddings do: a few directions have most of the variance."""
    draw = np.random.default_rng(0)
    spread = 1 / np.sqrt(1 + np.arange(dimension))
    vectors = (draw.normal(size=(count + QUERIES, dimension)) * spread).astype(np.float32)
    faiss.normalize_L2(vectors)
    vectors, asked = vectors[:count], vectors[count:]
    truth = exact(asked, [vectors], TOPK)
    rows = []
    for index_type in INDEX_TYPES:
        index = empty_index(index_type, count, dimension)
        start = time.perf_counter()
        if not index.is_trained:
            index.train(vectors[: sample_size(index_type, count)])
        index.add(vectors)
        built = time.perf_counter() - start
        reached = tune(index, index_type, asked, truth)
        start = time.perf_counter()
        index.search(asked, TOPK)
        needed = time.perf_counter() - start
        rows.append(
            {
                "type": index_type,
                "vectors": count,
                "seconds": built,
                "bytes": len(faiss.serialize_index(index)),
                "plan": plan(index_type, count, dimension).memory,
                "recall": reached.value,
                "effort": reached.effort,
                "query": needed / len(asked),
            }
        )
        Console(stderr=True).print(rows[-1])
    return rows


def _print(result: dict[str, Any]) -> None:
    console = Console(width=140)
    console.print(result["settings"])
    if encoding := result.get("encoding"):
        console.print(
            f"encoding: {encoding['ours']:.0f} passages/s, {encoding['ratio']:.3f} of the library (goal 0.95)"
        )
    types = _table("types", "memory", "plan", "memory/plan", "disk", "recall@10", "effort", "FAISS q/s", "build s")
    for row in result.get("types", ()):
        told = row["manifest_recall"] or {"effort": None}
        sizes = [human(row["memory"]), human(row["plan"]), f"{row['memory_ratio']:.3f}", human(row["disk"])]
        speed = [f"{row['recall']:.3f}", str(told["effort"] or "-"), f"{row['queries_per_second']:.0f}"]
        types.add_row(row["type"], *sizes, *speed, f"{row['build_seconds']:.1f}")
    if types.rows:
        console.print(types)
    servers = _table("servers", "queries/s", "p50 ms", "p99 ms", "to the peers' (goal 3)", "to bare (goal 0.85)")
    for name, row in result.get("servers", {}).items():
        delays = [f"{row[key]:.0f}" if row[key] is not None else "-" for key in ("p50_ms", "p99_ms")]
        ratios = [f"{row['ratio_to_peers']:.2f}", f"{row['ratio_to_bare']:.3f}"]
        servers.add_row(name, f"{row['queries_per_second']:.0f}", *delays, *ratios)
    if servers.rows:
        console.print(servers)
    growth = _table("growth", "vectors", "bytes", "plan", "seconds to build", "recall@10", "effort", "ms a query")
    for row in result.get("growth", ()):
        sizes = [str(row["vectors"]), human(row["bytes"]), human(row["plan"]), f"{row['seconds']:.1f}"]
        growth.add_row(row["type"], *sizes, f"{row['recall']:.3f}", str(row["effort"]), f"{1000 * row['query']:.2f}")
    if growth.rows:
        console.print(growth)


def _table(title: str, *columns: str) -> Table:
    table = Table("", title=title)
    for column in columns:
        table.add_column(column, justify="right")
    return table


if __name__ == "__main__":
    main()
