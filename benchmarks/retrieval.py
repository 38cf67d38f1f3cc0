"""How fast and how good retrieval is: our whole path beside its bare parts, and recall of the built-in questions.

    python benchmarks/retrieval.py --index /tmp/factbook-index --out retrieval.json

Speed: the same queries, `--batch` at a time, through
  bare     SentenceTransformer.encode and a FAISS flat search: vectors in, rows out, no passages
  dense    SearchEnvironment over DenseIndex: actions in, observations with passages out
  hybrid   the same over dense and BM25, fused
in turn, `--repeats` times after one round that is not counted. Reported are median queries a second,
and the median over the rounds of the ratio to `bare` in the same round (goal for dense: at least 0.85).

Recall: of each step of each question, whether the passage that answers it is among the first three
hits of the step's own search query.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import faiss
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sentence_transformers import SentenceTransformer

from memsearcher import jsonl
from memsearcher.environments.protocol import ActRequest
from memsearcher.environments.search import SearchEnvironment
from memsearcher.retrieval.build import build_retriever
from memsearcher.retrieval.corpus import Corpus
from memsearcher.retrieval.encoder import CONVENTIONS, load_encoder, weights_folder
from memsearcher.retrieval.fusion import FusionRetriever
from memsearcher.retrieval.index import INDEX_FILE
from memsearcher.retrieval.lexical import LexicalIndex
from memsearcher.retrieval.protocol import CorpusRetriever
from memsearcher.tasks import factbook
from memsearcher.trajectory import Action, Observation, Task

GOAL = 0.85


def main() -> None:
    options = _options()
    torch.set_num_threads(options.threads)
    faiss.omp_set_num_threads(options.threads)
    steps = [step for task in factbook.load("dev") for step in task.metadata["steps"]]
    retrievers = _retrievers(Corpus(factbook.corpus_path()), options.index)
    queries = list(dict.fromkeys(step["ask"] for step in steps))[: options.queries]
    speed = _speed(retrievers, options.index, queries, options.batch, options.repeats)
    result = {
        "settings": {
            "queries": len(queries),
            "batch": options.batch,
            "repeats": options.repeats,
            "threads": options.threads,
            "cpus": os.cpu_count(),
            "machine": platform.machine(),
            "torch": torch.__version__,
            "faiss": faiss.__version__,
            "passages": len(retrievers["dense"].corpus),
            "corpus_sha256": retrievers["dense"].corpus.sha256,
        },
        "speed": speed,
        "recall_at_3": {name: _recall(retriever, steps) for name, retriever in retrievers.items()},
        "recall_steps": len(steps),
    }
    _print(result)
    if options.out:
        jsonl.replace(options.out, json.dumps(result, indent=1).encode() + b"\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--index", type=Path, required=True, help="folder of the dense index, built if missing")
    parser.add_argument("--queries", type=int, default=512)
    parser.add_argument("--batch", type=int, default=64, help="queries asked at once")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, help="write the numbers as JSON here")
    return parser.parse_args()


def _retrievers(corpus: Corpus, folder: Path) -> dict[str, CorpusRetriever]:
    dense = build_retriever(corpus, folder, "dense", load_encoder())
    lexical = LexicalIndex(corpus)
    return {"dense": dense, "bm25": lexical, "hybrid": FusionRetriever([dense, lexical])}


def _speed(
    retrievers: dict[str, CorpusRetriever], folder: Path, queries: Sequence[str], batch: int, repeats: int
) -> dict[str, dict[str, float]]:
    """Median queries a second of each path, and its median ratio to the bare one of the same round."""
    paths = {"bare": _bare(folder)} | {name: _ours(retrievers[name]) for name in ("dense", "hybrid")}
    batches = [queries[start : start + batch] for start in range(0, len(queries), batch)]
    rates: dict[str, list[float]] = {name: [] for name in paths}
    for number in track(range(repeats + 1), "measuring", console=Console(stderr=True)):
        for name, ask in paths.items():
            start = time.perf_counter()
            for some in batches:
                ask(some)
            if number:
                rates[name].append(len(queries) / (time.perf_counter() - start))
    return {
        name: {
            "queries_per_second": median(measured),
            "ratio_to_bare": median(rate / bare for rate, bare in zip(measured, rates["bare"], strict=True)),
            "n": repeats,
        }
        for name, measured in rates.items()
    }


def _bare(folder: Path) -> Callable[[Sequence[str]], object]:
    model = SentenceTransformer(str(weights_folder(CONVENTIONS["minilm"])), device="cpu")
    index = faiss.read_index(str(folder / INDEX_FILE))
    return lambda queries: index.search(model.encode(list(queries), show_progress_bar=False), 5)


def _ours(retriever: CorpusRetriever) -> Callable[[Sequence[str]], object]:
    environment = SearchEnvironment(retriever)
    task = Task("benchmark", "")

    def ask(queries: Sequence[str]) -> None:
        requests = [ActRequest("benchmark#0", task, Action("search", {"query": query})) for query in queries]
        for answer in environment.act(requests):
            if not isinstance(answer, Observation):
                raise answer

    return ask


def _recall(retriever: CorpusRetriever, steps: Sequence[dict[str, str]]) -> float:
    """The share of steps whose passage is among the first three hits of their own query."""
    rankings = retriever.search([step["ask"] for step in steps], 3)
    found = [
        step["passage_id"] in {retriever.corpus.passage(hit.row).id for hit in hits}
        for step, hits in zip(steps, rankings, strict=True)
    ]
    return sum(found) / len(found)


def _print(result: dict[str, dict[str, dict[str, float]]]) -> None:
    settings = result["settings"]
    console = Console()
    speed = Table(
        title=f"{settings['queries']} queries, {settings['batch']} at a time, {settings['threads']} thread(s), "
        f"{settings['passages']} passages"
    )
    for column in ("path", "queries/s (median)", "ratio to bare (median)", "n"):
        speed.add_column(column, justify="left" if column == "path" else "right")
    for name, row in result["speed"].items():
        speed.add_row(name, f"{row['queries_per_second']:.1f}", f"{row['ratio_to_bare']:.3f}", str(row["n"]))
    console.print(speed)
    recall = Table(title=f"recall@3 of {result['recall_steps']} steps")
    recall.add_column("retriever")
    recall.add_column("recall@3", justify="right")
    for name, value in result["recall_at_3"].items():
        recall.add_row(name, f"{value:.3f}")
    console.print(recall)
    reached = result["speed"]["dense"]["ratio_to_bare"] >= GOAL
    console.print(f"goal for dense, {GOAL} of bare: {'reached' if reached else 'NOT reached'}")


if __name__ == "__main__":
    main()
