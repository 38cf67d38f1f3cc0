"""The seven benchmarks that search agents are compared on, by name.

Their questions are those of FlashRAG's data sets, which all the compared papers use; the numbers
of questions are FlashRAG's published ones. They come from the hub, from a JSONL file in
FlashRAG's schema, or from a parquet file of Search-R1's, which may hold several data sets.

A task's id is data set, split and index, as in `hotpotqa-dev-17`, the same from each source; an id
of another form stands behind the data set's name. (All sources number the questions of every data
set from 0: ids taken as they are bring two questions into one group of GRPO.) Its metadata hold
`benchmark`, what the file has on the question, but for passages, and `supporting_titles` where they
can be told.
"""

from __future__ import annotations

import logging
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import httpx

from memsearcher.scoring import check_golds
from memsearcher.tasks.files import TaskError, draw, read_tasks
from memsearcher.tasks.parquet import read_search_r1
from memsearcher.trajectory import Task

Split = Literal["train", "dev", "test"]

HUB = "RUC-NLPIR/FlashRAG_datasets"
TRAINING = ("nq", "hotpotqa")
DEV = 500

_FLASHRAG_ID = re.compile(r"(train|dev|test)_(\d+)")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A data set of questions.

    Attributes:
        name: as FlashRAG has it, there and in tables.
        split: the one that published results are of: the test set, or dev where the test set's answers are hidden.
        counts: the published number of questions of each split.
        note: what to know before its EM and F1 are read.
    """

    name: str
    split: Split
    counts: Mapping[Split, int]
    note: str


_ALL = (
    Benchmark(
        "nq",
        "test",
        {"train": 79_168, "dev": 8_757, "test": 3_610},
        "Questions that people typed into a search engine, in lower case; most have one gold, some a few.",
    ),
    Benchmark(
        "triviaqa",
        "test",
        {"train": 78_785, "dev": 8_837, "test": 11_313},
        "Many aliases a question, some of them far-fetched, so EM is high beside the others'.",
    ),
    Benchmark(
        "popqa",
        "test",
        {"test": 14_267},
        "Made of Wikidata triples by templates; its authors report cover-EM, the papers on agents EM.",
    ),
    Benchmark(
        "hotpotqa",
        "dev",
        {"train": 90_447, "dev": 7_405},
        "Two supporting pages a question; one gold; yes and no earn all or nothing in F1.",
    ),
    Benchmark(
        "2wikimultihopqa",
        "dev",
        {"train": 15_000, "dev": 12_576},
        "Made by templates over Wikidata; one gold; about a tenth are yes-or-no questions.",
    ),
    Benchmark(
        "musique",
        "dev",
        {"train": 19_938, "dev": 2_417},
        "The answerable questions, of 2 to 4 hops, made of single-hop ones; one gold.",
    ),
    Benchmark(
        "bamboogle",
        "test",
        {"test": 125},
        "125 questions written by hand: one is 0.8 points of EM, so intervals are wide.",
    ),
)
BENCHMARKS: Mapping[str, Benchmark] = {each.name: each for each in _ALL}


def load(
    name: str, path: Path | None = None, *, split: Split | None = None, n: int | None = None, seed: int = 0
) -> list[Task]:
    """Questions of a benchmark, `n` of them drawn by `seed`, in the order of the draw.

    Args:
        name: one of `BENCHMARKS`.
        path: a JSONL file in FlashRAG's schema, or a parquet file (`.parquet`) of Search-R1's, of
            which the rows of that data set are taken; None fetches the split from the hub.
        split: the benchmark's own where it is None. A file is taken as it is; the split only says
            how many questions are to be expected.

    Where there are more or fewer questions than were published, or their ids tell of another
    split, a warning is logged (`notices` gives it): a slice is no fault.

    Raises:
        TaskError: an unknown name or split, a hub out of reach, a file or a row that cannot be
            used; names file, line or row, and field.
        ValueError: fewer than `n` questions.
    """
    benchmark = _known(name)
    split = split or benchmark.split
    if split not in benchmark.counts:
        raise TaskError(f"{name} has no split {split}; there are: {', '.join(benchmark.counts)}")
    tasks = _unique(_read(benchmark, path, split), path or HUB)
    _say(benchmark, split, tasks)
    return draw(tasks, n, seed, f"questions of {name}")


def load_training(path: Path | None = None, *, dev: int = DEV, seed: int = 0) -> tuple[list[Task], list[Task]]:
    """What Search-R1 and MemSearcher train on, the train questions of NQ and HotpotQA, and a dev set cut from them.

    The cut is drawn by `seed` from the distinct questions, case and question mark aside: all tasks of
    `dev` of them are dev tasks. So no question is on both sides, and both sources are cut alike.

    Args:
        path: Search-R1's `train.parquet` (`nq_hotpotqa_train`); None fetches both from the hub. (Search-R1
            adds a question mark where there is none; the hub's questions are as they were asked.)
        dev: how many questions, from 0.
        seed: of the cut.

    Returns:
        Train tasks and dev tasks, each in the order of the source.

    Raises:
        TaskError: as `load`.
        ValueError: not fewer than all the questions were asked for as dev set.
    """
    read: Iterator[Task]
    if path is None:
        read = (task for name in TRAINING for task in _read(BENCHMARKS[name], None, "train"))
    elif path.suffix == ".parquet" and path.is_file():
        read = _from_parquet(path, TRAINING)
    else:
        raise TaskError(f"{path}: no such parquet file; give Search-R1's train.parquet of nq_hotpotqa_train")
    tasks = _unique(read, path or HUB)
    for name in TRAINING:
        _say(BENCHMARKS[name], "train", [task for task in tasks if task.metadata["benchmark"] == name])
    questions = sorted({_plain(task.question) for task in tasks})
    if not 0 <= dev < len(questions):
        raise ValueError(f"a dev set of {dev} questions cannot be cut from {len(questions)}")
    held = set(random.Random(seed).sample(questions, dev))
    return [t for t in tasks if _plain(t.question) not in held], [t for t in tasks if _plain(t.question) in held]


def notices(benchmark: Benchmark, split: Split, tasks: Sequence[Task]) -> list[str]:
    """What a reader of results over `tasks` should know: another number of questions than published, another split."""
    said = []
    if len(tasks) != (published := benchmark.counts[split]):
        said.append(f"{benchmark.name}: {len(tasks):,} questions; its {split} set has {published:,}")
    found = {each for each in get_args(Split) if any(task.id.startswith(f"{benchmark.name}-{each}-") for task in tasks)}
    if others := found - {split}:
        said.append(f"{benchmark.name}: ids of {' and '.join(sorted(others))} are there; {split} was asked for")
    return said


def _say(benchmark: Benchmark, split: Split, tasks: Sequence[Task]) -> None:
    for notice in notices(benchmark, split, tasks):
        logger.warning("%s", notice)


def _plain(question: str) -> str:
    return question.strip().rstrip("? ").casefold()


def _known(name: str) -> Benchmark:
    if name not in BENCHMARKS:
        raise TaskError(f"unknown benchmark {name!r}; there are: {', '.join(BENCHMARKS)}")
    return BENCHMARKS[name]


def _read(benchmark: Benchmark, path: Path | None, split: Split) -> Iterator[Task]:
    if path is None:
        path = _fetch(f"{benchmark.name}/{split}.jsonl")
    if not path.is_file():
        raise TaskError(f"{path}: no such file; give a JSONL file in FlashRAG's schema or Search-R1's parquet")
    return _from_parquet(path, [benchmark.name]) if path.suffix == ".parquet" else _from_jsonl(benchmark, path)


def _fetch(file: str) -> Path:
    """A file of the data sets' hub repository, from the local cache where it is there."""
    from huggingface_hub import hf_hub_download

    try:
        return Path(hf_hub_download(HUB, file, repo_type="dataset"))
    except (OSError, httpx.HTTPError) as error:  # all of the hub's own errors here are OSErrors
        raise TaskError(
            f"{file} of {HUB} could not be fetched from the hub ({type(error).__name__}); "
            "download it on another machine and give its path"
        ) from error


def _from_jsonl(benchmark: Benchmark, path: Path) -> Iterator[Task]:
    # Every line is a task or an error, so tasks are counted as lines are.
    for number, task in enumerate(read_tasks(path), 1):
        yield _finish(benchmark, task, f"{path}:{number}")


def _from_parquet(path: Path, names: Sequence[str]) -> Iterator[Task]:
    for where, name, task in read_search_r1(path, {name: BENCHMARKS[name].split for name in names}):
        yield _finish(BENCHMARKS[name], task, where)


def _finish(benchmark: Benchmark, task: Task, where: str) -> Task:
    """A task with its name among all benchmarks, its golds checked, its metadata in order."""
    try:
        check_golds(task.golds)
    except ValueError as error:
        raise TaskError(f"{where}: field 'golden_answers': {error}") from None
    found = _FLASHRAG_ID.fullmatch(task.id)
    name = f"{benchmark.name}-{found[1]}-{found[2]}" if found else f"{benchmark.name}-{task.id}"
    titles = _supporting_titles(task.metadata)
    # The passages that come with a question are no part of it here: they are searched for.
    kept = {key: value for key, value in task.metadata.items() if key != "context"}
    metadata = {**kept, "benchmark": benchmark.name, **({"supporting_titles": titles} if titles else {})}
    return replace(task, id=name, metadata=metadata)


def _supporting_titles(metadata: dict[str, Any]) -> list[str]:
    """The titles of the pages that lead to the answer, as HotpotQA, 2WikiMultihopQA and MuSiQue have them."""
    if "supporting_titles" in metadata:
        titles = metadata["supporting_titles"]
    elif isinstance(facts := metadata.get("supporting_facts"), dict):
        titles = facts.get("title")
    elif isinstance(hops := metadata.get("question_decomposition"), list):
        pages = [hop.get("support_paragraph") for hop in hops if isinstance(hop, dict)]
        titles = [page.get("title") for page in pages if isinstance(page, dict)]
    else:
        titles = None
    return list(dict.fromkeys(each for each in titles if isinstance(each, str))) if isinstance(titles, list) else []


def _unique(tasks: Iterable[Task], source: Path | str) -> list[Task]:
    """The tasks as a list, no two of one id."""
    listed: dict[str, Task] = {}
    for task in tasks:
        if task.id in listed:
            raise TaskError(f"{source}: id {task.id!r} is there twice; take one of them out")
        listed[task.id] = task
    return list(listed.values())
