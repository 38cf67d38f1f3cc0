"""A run folder: everything that was asked for and everything that came out.

`recipe.yaml` (resolved), `run.json` (seed, versions, tasks), `trajectories.jsonl` (appended as
they end) and `metrics.csv` (a row a trajectory, made from the former). A run that was
stopped goes on where it was: trajectories that are there are not played again.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from memsearcher import __version__, jsonl
from memsearcher.objective_scoring import Metric, has_objectives, objectives_of, score_objectives
from memsearcher.recipe import Recipe
from memsearcher.scoring import Scores, has_goal, score_outcome, score_trajectory
from memsearcher.statistics import Interval, bootstrap_mean
from memsearcher.trajectory import Task, Trajectory, attempt_id, read_trajectories, write_trajectory

PACKAGES = (
    "torch",
    "transformers",
    "trl",
    "accelerate",
    "peft",
    "deepspeed",
    "vllm",
    "faiss-cpu",
    "faiss-gpu",
    "bm25s",
    "sentence-transformers",
)


class RunError(ValueError):
    """A run folder that cannot be used; the message names it and the remedy."""


@dataclass(frozen=True, slots=True)
class Run:
    """A folder of one run."""

    folder: Path

    @classmethod
    def open(cls, folder: Path, recipe: Recipe, about: dict[str, Any]) -> Run:
        """Start a run, or go on with one of the same recipe and tasks.

        Raises:
            RunError: the folder holds another run, or something that is no run.
        """
        run = cls(folder)
        mine = {"about": about, "recipe": recipe.to_json()}
        if run.card.exists():
            try:
                theirs = json.loads(run.card.read_bytes())
            except ValueError as error:
                raise RunError(f"{run.card}: not JSON ({error}); name another --out, or remove the folder") from None
            if not isinstance(theirs, dict) or {key: theirs.get(key) for key in mine} != mine:
                raise RunError(f"{folder} holds a run of other settings; name another --out, or remove it")
        elif folder.exists() and not all(map(jsonl.is_part, folder.iterdir())):
            raise RunError(f"{folder} is not empty and holds no run; name another --out")
        else:
            jsonl.replace(run.card, json.dumps({**mine, "versions": versions()}, indent=2).encode())
        if not (folder / "recipe.yaml").exists():  # a kill may have come between the two
            jsonl.replace(folder / "recipe.yaml", recipe.to_yaml().encode())
        return run

    @property
    def card(self) -> Path:
        return self.folder / "run.json"

    @property
    def path(self) -> Path:
        return self.folder / "trajectories.jsonl"

    def stream(self) -> Iterator[Trajectory]:
        """What is there so far, one by one."""
        return read_trajectories(self.path) if self.path.exists() else iter(())

    def trajectories(self) -> list[Trajectory]:
        """What is there so far."""
        return list(self.stream())

    def missing(self, tasks: Iterable[Task], samples: int = 1) -> list[tuple[Task, int]]:
        """The attempts (task, sample) that have no trajectory yet.

        Raises:
            RunError: a task of that id was another question when it was played.
        """
        done = {each.id: task_hash(each.task) for each in self.stream()}
        waiting = []
        for task, sample in ((task, sample) for task in tasks for sample in range(samples)):
            played = done.get(attempt_id(task, sample))
            if played is None:
                waiting.append((task, sample))
            elif played != task_hash(task):
                raise RunError(f"{self.path}: task {task.id} was another question when played; name another --out")
        return waiting

    def keep(self, trajectories: Iterable[Trajectory]) -> Iterator[Trajectory]:
        """Pass trajectories through, each written before it is passed on."""
        for trajectory in trajectories:
            write_trajectory(self.path, trajectory)
            yield trajectory

    def write_metrics(self) -> list[dict[str, Any]]:
        """Make `metrics.csv` from the trajectories; returns its rows."""
        rows = [metrics(trajectory) for trajectory in self.trajectories()]
        if rows:
            jsonl.write_csv(self.folder / "metrics.csv", rows)
        return rows


def task_hash(task: Task) -> str:
    """Tells questions apart, where an id alone may be a line's number: SHA-256 of id, question and golds."""
    return hashlib.sha256(json.dumps([task.id, task.question, task.golds]).encode()).hexdigest()


def metrics(trajectory: Trajectory) -> dict[str, Any]:
    """One row of `metrics.csv`. Scores of a failed trajectory are None, never 0.

    A task of several questions is scored question by question (see `objective_scoring.py`): em, f1,
    cover_em and em_unicode are then means over them, and further columns hold MEM1's sums. A goal of an
    environment with an end has no answer to compare: columns of its own hold the score (its reward × 100,
    0 without an outcome), success (whether that is 100) and its steps, which are no searches.

    Raises:
        ValueError: golds that cannot be scored by; the message names the task.
    """
    parts = _objective_columns(trajectory) if has_objectives(trajectory.task) else {}
    parts |= _goal_columns(trajectory) if has_goal(trajectory.task) else {}
    scores: Scores | None = score_trajectory(trajectory) if trajectory.task.golds else None
    return {
        "id": trajectory.id,
        "question": trajectory.task.question,
        "gold": trajectory.task.golds[0] if trajectory.task.golds else None,
        "answer": trajectory.answer,
        "em": scores.em if scores else None,
        "f1": scores.f1 if scores else None,
        "cover_em": scores.cover_em if scores else None,
        "em_unicode": scores.em_unicode if scores else None,
        "turns": len(trajectory.turns),
        "searches": len(trajectory.actions),
        "peak_tokens": trajectory.peak_tokens,
        "sampled_tokens": trajectory.sampled_tokens,
        "events": " ".join(event.name for _, event in trajectory.events),
        "error": trajectory.error,
        "seconds": trajectory.seconds,
        **parts,
    }


def _objective_columns(trajectory: Trajectory) -> dict[str, Any]:
    """The scores of a task of several questions; the sums run from 0 to their number, `_strict` is MEM1's rule."""
    metrics: tuple[Metric, ...] = ("em", "f1", "cover_em", "em_unicode")
    found = score_objectives(trajectory)
    means: dict[str, Any] = {metric: found.mean(metric) if found else None for metric in metrics}
    counts = {"objectives": len(objectives_of(trajectory.task)), "answers": found.answers if found else None}
    sums = {
        f"{metric}_sum{rule}": found.total(metric, strict=bool(rule)) if found else None
        for metric in metrics[:2]
        for rule in ("", "_strict")
    }
    return {**means, **counts, **sums}


def _goal_columns(trajectory: Trajectory) -> dict[str, Any]:
    """What came of a goal; a step is an action, also one that could not be carried out."""
    reward = score_outcome(trajectory)
    return {
        "searches": None,
        "score": None if reward is None else 100 * reward,
        "success": None if reward is None else float(reward == 1),
        "steps": len(trajectory.actions),
    }


def mean_of(rows: Iterable[dict[str, Any]], name: str) -> Interval | None:
    """Mean and 95% bootstrap interval of a column over the rows that have it; None where none has."""
    values = [row[name] for row in rows if row[name] is not None]
    return bootstrap_mean(values, seed=0) if values else None


def versions() -> dict[str, str]:
    """The versions a run depends on; of faiss, one of two packages is installed."""
    found = {"memsearcher": __version__, "python": platform.python_version()}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
