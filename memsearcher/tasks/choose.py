"""Tasks by the names and files that a command is given."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from memsearcher.scoring import check_golds
from memsearcher.tasks import benchmarks, factbook
from memsearcher.tasks.benchmarks import BENCHMARKS
from memsearcher.tasks.files import draw, read_tasks
from memsearcher.tasks.objectives import compose, compose_dependent
from memsearcher.trajectory import Task

HELP = (
    "factbook-train, factbook-dev, factbook-test; a JSONL file; a benchmark, as hotpotqa (from the hub) or "
    "hotpotqa=FILE (JSONL, or Search-R1's parquet); nq_hotpotqa-train or nq_hotpotqa-dev, alone or with =FILE; "
    "with -r webshop webshop-train, webshop-dev, webshop-test."
)


def choose_tasks(
    tasks: str,
    n: int | None,
    hops: int | None,
    seed: int,
    *,
    objectives: str | None = None,
    shuffle: bool = False,
    dependent: bool = False,
) -> list[Task]:
    """Tasks by name or file.

    Args:
        tasks: as `HELP` says.
        n: how many questions: drawn by `seed`, but of a plain JSONL file the first ones.
        hops: only chain questions of so many hops; of the built-in ones.
        seed: of all that is drawn and shuffled.
        objectives: how many questions go into a task, as `4`, or by turns, as `1,2,4` (see `compose`).
        shuffle: shuffle the questions before they are put together.
        dependent: make tasks whose questions need each other's answers (see `compose_dependent`).

    Raises:
        ValueError: no such tasks, golds that no answer could be scored by (better now than after the
            run), or options that do not go together.
    """
    sizes = _read_sizes(objectives)
    if shuffle and (dependent or not sizes):
        raise ValueError("--shuffle goes with --objectives, and not with --dependent")
    if dependent and (len(sizes) != 1 or not tasks.startswith("factbook-")):
        raise ValueError("--dependent goes with one number of --objectives and with the built-in questions only")
    chosen = _choose(tasks, n, hops, seed, chains=bool(hops) or dependent)
    if not dependent:
        return compose(chosen, sizes, seed=seed if shuffle else None) if sizes else chosen
    return compose_dependent(chosen, *sizes)


def _read_sizes(objectives: str | None) -> list[int]:
    try:
        return [int(each) for each in objectives.split(",")] if objectives is not None else []
    except ValueError:
        raise ValueError(f"--objectives {objectives}: a whole number was expected, or some, as 1,2,4") from None


def _choose(tasks: str, n: int | None, hops: int | None, seed: int, chains: bool) -> list[Task]:
    for split in ("train", "dev", "test"):
        if tasks == f"factbook-{split}":
            return factbook.load(split, shape="chain" if chains else None, hops=hops, n=n, seed=seed)
    if hops:
        raise ValueError("--hops goes with the built-in questions only")
    name, named, file = tasks.partition("=")
    source = Path(file) if named else None
    if name in BENCHMARKS:
        return benchmarks.load(name, source, n=n, seed=seed)
    if name in ("nq_hotpotqa-train", "nq_hotpotqa-dev"):
        train, dev = benchmarks.load_training(source, seed=seed)
        return draw(train if name == "nq_hotpotqa-train" else dev, n, seed, f"questions of {name}")
    return _from_file(Path(tasks), n)


def _from_file(path: Path, n: int | None) -> list[Task]:
    if not path.is_file():
        raise ValueError(
            f"{path}: no such file; built-in are factbook-train, factbook-dev and factbook-test, "
            f"benchmarks are {', '.join(BENCHMARKS)}"
        )
    chosen = list(islice(read_tasks(path), n))
    for task in chosen:
        if task.golds:
            try:
                check_golds(task.golds)
            except ValueError as error:
                raise ValueError(f"{path}: task {task.id}: {error}") from None
    return chosen
