"""The pocket runs: every agent warm-started alike, trained by multi-context GRPO, and tested once at the end.

    python -m scripts.pocket                  # all of it, under runs/pocket (see docs/pocket.md for the hours)
    python -m scripts.pocket --workers 2      # two jobs at once, each with half of the cores and a log of its own
    python -m scripts.pocket --list           # the commands, one a line, and which of them are done
    python -m scripts.pocket --only train     # the jobs whose name holds a word
    python -m scripts.pocket --warmstarts     # in its place the early warm starts of all agents, which are compared
    python -m scripts.pocket --smoke          # the same chain, a step of each and a few questions
    python -m scripts.pocket --set model.dtype=bfloat16    # with a setting in every command

Every job is one `memsearcher` command in a process of its own. A job that is done is not started
again, and one that was interrupted goes on from where it was, so the same call resumes the chain.
A model this small gains little from a second core: with a worker a core the chain is about twice as fast.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean

from rich.console import Console

AGENTS = {"memsearcher": 4, "react": 2, "mem1": 4, "summarize": 4, "truncate": 3, "search-r1": 2}
"""With the conversations in a step of the warm start, so that a step of each has about as many tokens."""

TRAINED = ("memsearcher", "react", "mem1")
"""The agents that reinforcement goes on from."""

SEEDS = (0, 1, 2)
HOPS = (2, 3, 4)

ABLATIONS: dict[str, tuple[str, ...]] = {
    "average-conversation": ("training.average=conversation",),
    "average-trajectory": ("training.average=trajectory",),
    "memory-untrained": ("training.options.train_memory=false",),
    "reward-f1": ("training.reward=f1",),
    "reward-format_f1": ("training.reward=format_f1",),
    "memory-16": ("limits.memory_tokens=16",),
    "memory-64": ("limits.memory_tokens=64",),
    "memory-256": ("limits.memory_tokens=256",),
}
"""Of MemSearcher with the first seed, each against the run that it departs from in one setting."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much of everything a chain takes.

    Attributes:
        longer: agents that are also trained from a warm start of 3.6 times the tokens, as the shipped MemSearcher was.
        overrides: settings that go to every command.
    """

    agents: Sequence[str] = TRAINED
    seeds: Sequence[int] = SEEDS
    ablations: Sequence[str] = tuple(ABLATIONS)
    longer: Sequence[str] = ("memsearcher", "react")
    hops: Sequence[int] = HOPS
    n: int = 300
    overrides: Sequence[str] = ()


SMOKE = Size(
    agents=("memsearcher", "react"),
    seeds=(0,),
    ablations=("memory-untrained",),
    longer=(),
    hops=(2,),
    n=2,
    overrides=(
        "warmstart.questions={2-hop: 4}",
        "warmstart.steps=1",
        "warmstart.batch=1",
        "training.questions={2-hop: 4}",
        "training.dev={2-hop: 1}",
        "training.evaluate_every=1",
        "training.steps=1",
        "training.batch=1",
        "training.num_generations=2",
        "limits.turns=2",
        "limits.call_tokens=48",
    ),
)


@dataclass(frozen=True, slots=True)
class Job:
    """A command of `memsearcher`.

    Attributes:
        leaves: the file that is there once it is done.
        needs: files of other jobs that must be there first.
    """

    name: str
    command: Sequence[str]
    leaves: Path
    needs: Sequence[Path] = ()


def jobs(out: Path, size: Size) -> Iterator[Job]:
    """The chain, in an order in which each job finds what it needs."""
    for agent in size.agents:
        yield warm_start(out / f"warm-{agent}", agent, size)
    for seed in size.seeds:
        for agent in size.agents:
            yield training(out / f"train-{agent}-{seed}", agent, seed, size)
    for name in size.ablations:
        yield training(out / f"ablation-{name}", "memsearcher", size.seeds[0], size, ABLATIONS[name])
    for agent in size.longer:
        longer = out / f"longer-{agent}"
        yield warm_start(longer, agent, size, "pocket-longer", start=out / f"warm-{agent}" / "adapter")
        yield training(out / f"trial-longer-{agent}", agent, size.seeds[0], size, start=longer / "adapter")
    for seed in size.seeds:
        for hops in size.hops:
            yield testing(out / f"test-{hops}-hops-{seed}", out, hops, seed, size)


def warm_start(folder: Path, agent: str, size: Size, recipe: str = "pocket-grpo", start: Path | None = None) -> Job:
    """A warm start of an agent, or another from the adapter `start`, on the same questions and about as many tokens
    as the others'."""
    pairs = [f"agent={agent}", "model.adapter=null", f"warmstart.batch={AGENTS[agent]}"]
    if start:
        pairs.append(f"warmstart.start={start}")
    command = ["warmstart", "--recipe", recipe, "--out", str(folder), *settings(*pairs, *size.overrides)]
    return Job(folder.name, command, folder / "adapter" / "agent.json", [start / "agent.json"] if start else [])


def training(
    folder: Path, agent: str, seed: int, size: Size, changes: Sequence[str] = (), start: Path | None = None
) -> Job:
    """Multi-context GRPO of an agent, on from its warm start or from another adapter."""
    start = start or folder.parent / f"warm-{agent}" / "adapter"
    options = settings(f"agent={agent}", f"seed={seed}", f"model.adapter={start}", *size.overrides, *changes)
    command = ["train", "--recipe", "pocket-grpo", "--out", str(folder), *options]
    return Job(folder.name, command, folder / "adapter" / "agent.json", [start / "agent.json"])


def testing(folder: Path, out: Path, hops: int, seed: int, size: Size) -> Job:
    """All agents on the same test questions of so many hops, greedy."""
    adapters = {agent: out / f"train-{agent}-{seed}" / "adapter" for agent in size.agents}
    command = ["evaluate", "--recipe", "pocket-grpo", "--out", str(folder), "--agents", ",".join(size.agents)]
    command += ["--tasks", "factbook-test", "--hops", str(hops), "--n", str(size.n)]
    command += [part for agent, adapter in adapters.items() for part in ("--adapter", f"{agent}={adapter}")]
    needs = [adapter / "agent.json" for adapter in adapters.values()]
    return Job(folder.name, [*command, *settings(*size.overrides)], folder / "table.csv", needs)


def stage_of(name: str) -> str:
    """The stage of a job by its name; jobs of one stage take about as long as each other."""
    return "train" if name.startswith(("ablation", "trial")) else name.partition("-")[0]


def settings(*pairs: str) -> list[str]:
    """Overrides of a recipe as options of a command."""
    return [part for pair in pairs for part in ("--set", pair)]


def run(chain: Sequence[Job], log: Path, workers: int = 1) -> None:
    """Do what is not done yet; a line in `log` for each job with its minutes.

    Of several at once each has its share of the cores and writes what it says to `NAME.log` beside `log`.
    When one fails, those that do not need it are done all the same.

    Raises:
        SystemExit: a job failed.
    """
    console = Console(stderr=True, highlight=False)
    waiting = [job for job in chain if not job.leaves.exists()]
    failed: list[str] = []
    running: dict[Future[float | None], Job] = {}
    log.parent.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(workers) as pool:
        while waiting or running:
            ready = [job for job in waiting if all(path.exists() for path in job.needs)]
            if not (ready or running or failed):
                ready = waiting[:1]  # what it needs is no job of this chain: its own error says it best
            for job in ready[: workers - len(running)]:
                waiting.remove(job)
                console.rule(f"{job.name}: {len(chain) - len(waiting)} of {len(chain)}")
                running[pool.submit(_minutes, job, log.parent, workers)] = job
            if not running:
                break
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                job, minutes = running.pop(future), future.result()
                if minutes is None:
                    failed.append(job.name)
                else:
                    with log.open("a", encoding="utf-8") as lines:
                        lines.write(json.dumps({"job": job.name, "minutes": minutes}) + "\n")
                    console.print(f"{job.name}: {minutes} minutes{left([*waiting, *running.values()], log, workers)}")
    if failed:
        raise SystemExit(f"{', '.join(failed)} ended with an error; the same call goes on from there")


def _minutes(job: Job, logs: Path, workers: int) -> float | None:
    """Do a job in a process of its own; how long it took, or None where it failed."""
    started = time.time()
    command = [sys.executable, "-m", "memsearcher.cli", *job.command]
    if workers == 1:
        done = subprocess.run(command, check=False)
    else:
        share = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // workers))}
        with (logs / f"{job.name}.log").open("ab") as said:
            done = subprocess.run(command, check=False, stdout=said, stderr=said, env={**os.environ, **share})
    return None if done.returncode else round((time.time() - started) / 60, 1)


def left(jobs: Sequence[Job], log: Path, workers: int) -> str:
    """What is left to do, with about how long by what jobs of each stage took so far."""
    taken: dict[str, list[float]] = defaultdict(list)
    for line in log.read_text(encoding="utf-8").splitlines():
        each = json.loads(line)
        taken[stage_of(each["job"])].append(each["minutes"])
    known = [mean(taken[stage]) for job in jobs if (stage := stage_of(job.name)) in taken]
    return f"; {len(jobs)} left, {len(known)} of them about {sum(known) / workers / 60:.1f} hours" if jobs else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/pocket"))
    parser.add_argument("--only", default="", help="only jobs whose name holds this")
    parser.add_argument("--list", action="store_true", help="print the commands and run none")
    parser.add_argument("--warmstarts", action="store_true", help="early warm starts of every agent alone")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--workers", type=int, default=1, help="jobs at once, each with its share of the cores")
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help="of every command's recipe")
    arguments = parser.parse_args()
    size = SMOKE if arguments.smoke else Size()
    size = replace(size, overrides=(*size.overrides, *arguments.set))
    chain = list(jobs(arguments.out, size))
    if arguments.warmstarts:
        chain = [warm_start(arguments.out / f"early-{agent}", agent, size, "pocket-early") for agent in AGENTS]
    chain = [job for job in chain if arguments.only in job.name]
    if arguments.list:
        for job in chain:
            print("done" if job.leaves.exists() else "    ", "memsearcher", *job.command)
        return
    run(chain, arguments.out / "jobs.jsonl", max(1, arguments.workers))


if __name__ == "__main__":
    main()
