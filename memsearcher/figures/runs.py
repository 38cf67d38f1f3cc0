"""Runs as the figures read them: recorded trajectories, logs of training, and one group of a training run."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from memsearcher.figures.files import FigureError
from memsearcher.trajectory import Trajectory, read_trajectories

RECORDS = "trajectories.jsonl"
LOG, VALIDATION, CARD = "log.csv", "validation.csv", "run.json"
# A file a step and process, `train-STEP-PROCESS.jsonl`, as `training/resume.py` writes them.
STEPS = "trajectories/train-*.jsonl"
EVALUATIONS = "trajectories/eval-*.jsonl"


@dataclass(frozen=True, slots=True)
class Records:
    """The trajectories of one run, or of one group of a step, and what binds a table to them.

    Attributes:
        name: of the run; in an evaluation that of the questions.
        place: tells it from all others that were read.
        sha256: of the file, or files, that it was read from.
    """

    name: str
    place: str
    sha256: str
    trajectories: tuple[Trajectory, ...]

    @property
    def whole(self) -> list[Trajectory]:
        """Those that did not fail."""
        return [each for each in self.trajectories if each.error is None]


@dataclass(frozen=True, slots=True)
class Log:
    """The tables of one training run: a row a step, and a row an evaluation.

    Attributes:
        seed: of its recipe; None where the folder does not say.
        evaluations: the files of each evaluation's trajectories, by the step it follows.
    """

    name: str
    seed: int | None
    sha256: str
    steps: list[dict[str, str]]
    validation: list[dict[str, str]]
    evaluations: dict[int, tuple[Path, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Runs:
    """All that was read.

    Attributes:
        groups: one of each training run that has trajectories (see `read_runs`).
        question: the id of the question that figures of single trajectories show; None leaves it to them.
    """

    records: tuple[Records, ...] = ()
    logs: tuple[Log, ...] = ()
    groups: tuple[Records, ...] = ()
    question: str | None = None

    @property
    def digests(self) -> dict[str, str]:
        """The SHA-256 of what was read, by the name of the run; of several of one name the later ones are numbered."""
        read = [(each.place, each.sha256) for each in (*self.records, *self.groups)]
        read += [(each.name, each.sha256) for each in self.logs]
        found: dict[str, str] = {}
        for name, digest in read:
            number = sum(each == name or each.startswith(f"{name} (") for each in found)
            found[f"{name} ({number + 1})" if number else name] = digest
        return found


def read_runs(folders: Iterable[Path], question: str | None = None) -> Runs:
    """Read run folders, evaluations (a folder of run folders) and training runs.

    Of a training run's trajectories one group is read, all attempts at a question in one step: of the
    last step in which rewards differ within a group, the group in which they differ most; of the last
    step where they never do. With `question`, only groups of this one count.

    Raises:
        FigureError: a folder holds neither trajectories nor a log of training.
        RecordError: a record that cannot be read.
    """
    records: list[Records] = []
    logs: list[Log] = []
    groups: list[Records] = []
    for folder in folders:
        files = [folder / RECORDS] if (folder / RECORDS).is_file() else sorted(folder.glob(f"*/*/{RECORDS}"))
        for path in files:
            name = (folder if path.parent == folder else path.parent).name
            place = "/".join((folder.name, *path.parent.relative_to(folder).parts))
            records.append(Records(name, place, _sha256([path]), tuple(read_trajectories(path))))
        if (log := folder / LOG).is_file():
            validation = folder / VALIDATION
            rows = read_csv(validation) if validation.is_file() else []
            evaluations = _evaluations(folder)
            digest = _sha256([log, *(path for files in evaluations.values() for path in files)])
            logs.append(Log(folder.name, _seed(folder), digest, read_csv(log), rows, evaluations))
            if group := _read_group(folder, question):
                groups.append(group)
        elif not files:
            raise FigureError(f"{folder}: neither {RECORDS} nor {LOG} is there; name a run, evaluation or training run")
    return Runs(tuple(records), tuple(logs), tuple(groups), question)


def stem(name: str, seed: int | None) -> str:
    """The name of a training run without the seed at its end, which runs of several seeds have in common."""
    return name if seed is None else name.removesuffix(f"-{seed}")


def read_csv(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file, all as text."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _seed(folder: Path) -> int | None:
    """The seed of a training run.

    Raises:
        FigureError: its card cannot be read.
    """
    card = folder / CARD
    try:
        return int(json.loads(card.read_text(encoding="utf-8"))["recipe"]["seed"]) if card.is_file() else None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FigureError(f"{card}: it does not say the recipe's seed: {error!r}") from None


def _evaluations(folder: Path) -> dict[int, tuple[Path, ...]]:
    """The files of a training run's evaluations (see `Log`)."""
    steps = groupby(sorted(folder.glob(EVALUATIONS)), key=lambda path: int(path.name.split("-")[1]))
    return {step: tuple(files) for step, files in steps}


def _read_group(folder: Path, question: str | None) -> Records | None:
    """The group to draw (see `read_runs`); its name tells run and step."""
    chosen = None
    steps = groupby(sorted(folder.glob(STEPS), reverse=True), key=lambda path: path.name.split("-")[1])
    for step, files in steps:
        paths = sorted(files)
        found: dict[tuple[str, str], list[Trajectory]] = {}
        for each in (each for path in paths for each in read_trajectories(path)):
            if question in (None, each.task.id):
                found.setdefault((each.task.id, each.task.question), []).append(each)
        if found:
            best = max(found.values(), key=_spread)
            if chosen is None or _spread(best):
                name = f"{folder.name}, step {int(step)}"
                chosen = Records(name, name, _sha256(paths), tuple(sorted(best, key=lambda each: each.sample)))
            if _spread(best):
                break
    return chosen


def _spread(group: Sequence[Trajectory]) -> float:
    """How far apart the rewards of a group are."""
    rewards = [each.reward for each in group if each.reward is not None]
    return max(rewards, default=0) - min(rewards, default=0)


def _sha256(paths: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()
