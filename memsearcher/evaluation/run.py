"""An evaluation: agents on sets of questions under limits, each a run folder of its own inside one folder.

`evaluation.json` names the arms, `AGENT/TASKS[@LIMITS]/` is the run of one (see `runs.py`; a judge
adds `verdicts.jsonl`). `questions.csv`, `table.csv`, `pairs.csv` and `table.md` are made from these
and from nothing else, in an order that does not depend on when a trajectory ended: a run that was
killed and gone on with gives the bytes that one in a single go gives. Seconds are measured once,
when a question is played, and lie on its record.

An arm can be added later, and so can a judge; what is there is not played again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from memsearcher import jsonl
from memsearcher.evaluation.judge import judged, verdicts
from memsearcher.evaluation.measures import Row, measure
from memsearcher.evaluation.report import Section, markdown, pair_section, sections
from memsearcher.evaluation.table import Arm, compare, pair_rows, table_rows
from memsearcher.recipe import Recipe
from memsearcher.runs import Run, RunError, task_hash, versions
from memsearcher.trajectory import Task, Trajectory, exact_adapter, first_fault

CARD = "evaluation.json"


@dataclass(frozen=True, slots=True)
class Card:
    """What an evaluation is made of; `judge` is the fingerprint of the last one asked."""

    arms: tuple[Arm, ...]
    judge: dict[str, str] | None = None
    versions: dict[str, str] = field(default_factory=versions)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A folder with the runs of several arms."""

    folder: Path
    card: Card

    @classmethod
    def open(cls, folder: Path, arms: Sequence[Arm] = (), judge: dict[str, str] | None = None) -> Evaluation:
        """Start an evaluation, or go on with one: what it has of arms and judge already stays.

        Raises:
            RunError: the folder holds something else, or a card that cannot be read; two arms of one name.
        """
        path = folder / CARD
        known = read_card(path) if path.exists() else Card(())
        if not path.exists() and folder.exists() and not all(map(jsonl.is_part, folder.iterdir())):
            raise RunError(f"{folder} is not empty and holds no evaluation; name another --out")
        together = {arm.folder: arm for arm in known.arms}
        for arm in arms:
            there = together.setdefault(arm.folder, arm)
            if there != arm:
                raise RunError(
                    f"{folder / arm.folder} is for the {there.questions} questions of {there.tasks}, "
                    f"not for the {arm.questions} of {arm.tasks}; name another --out"
                )
        card = Card(tuple(together.values()), judge or known.judge, known.versions)
        if card != known:
            jsonl.replace(path, json.dumps(asdict(card), indent=2).encode())
        return cls(folder, card)

    def run(self, arm: Arm) -> Run:
        return Run(self.folder / arm.folder)

    def start(self, arm: Arm, recipe: Recipe, tasks: Sequence[Task]) -> list[tuple[Task, int]]:
        """Open the run of an arm; returns what is still to play.

        Raises:
            RunError: it is there with another recipe or other questions.
        """
        digest = hashlib.sha256("".join(map(task_hash, tasks)).encode()).hexdigest()
        about = {"tasks": arm.tasks, "questions": len(tasks), "tasks_sha256": digest}
        return Run.open(self.folder / arm.folder, recipe, about).missing(tasks)

    def add(self, arm: Arm, trajectories: Sequence[Trajectory]) -> None:
        """Put in the trajectories of an arm that was played elsewhere, in place of what was there of it.

        Raises:
            ValueError: one that cannot be measured (see `measure`); none is then put in.
        """
        for each in trajectories:
            measure(each)
        jsonl.write(self.run(arm).path, [each.to_json() for each in trajectories])

    def results(self) -> dict[Arm, list[Row]]:
        """The rows of every arm, in the order of their ids."""
        return {arm: self._rows(arm) for arm in self.card.arms}

    def report(self) -> tuple[list[Section], list[Row]]:
        """Write all tables; returns what there is to show, and the rows of `table.csv`."""
        results = self.results()
        questions = [
            {"agent": arm.agent, "tasks": arm.tasks, "limits": arm.limits, **row}
            for arm, rows in results.items()
            for row in rows
        ]
        table, pairs = table_rows(results), pair_rows(results)
        for name, rows in (("questions.csv", questions), ("table.csv", table), ("pairs.csv", pairs)):
            if rows:
                # Tasks of several questions have columns of their own.
                columns = list(dict.fromkeys(column for row in rows for column in row))
                jsonl.write_csv(self.folder / name, rows, columns)
        shown = sections(results, table, pairs, self.card.judge)
        text = markdown("Evaluation", shown)
        jsonl.replace(self.folder / "table.md", text.encode("utf-8", "backslashreplace"))
        return shown, table

    def _rows(self, arm: Arm) -> list[Row]:
        run, judge = self.run(arm), self.card.judge
        known = verdicts(run.folder) if judge else {}
        rows = [{**measure(each), **(judged(each, judge, known) if judge else {})} for each in run.stream()]
        return sorted(rows, key=lambda row: row["id"])


def find_run(folder: Path) -> Run:
    """The run in a folder of `rollout` or of `evaluate`.

    Raises:
        RunError: there is none, or several.
    """
    run = Run(folder)
    if run.path.is_file():
        return run
    if not (folder / CARD).is_file():
        raise RunError(f"{folder} is no run folder: it has no {run.path.name}")
    arms = [folder / arm.folder for arm in read_card(folder / CARD).arms]
    if len(arms) != 1:
        raise RunError(f"{folder} holds {len(arms)} runs; name one of them: {', '.join(map(str, arms))}")
    return find_run(arms[0])


def compare_runs(first: Run, second: Run) -> Section:
    """The paired differences of two runs.

    Raises:
        RunError: they share no questions, or none that both played without failing.
    """
    ours, theirs = (sorted(map(measure, run.stream()), key=lambda row: row["id"]) for run in (first, second))
    pairs = compare(ours, theirs)
    counts = [len({row["task_sha256"] for row in rows}) for rows in (ours, theirs)]
    if not pairs:
        shared = len({row["task_sha256"] for row in ours} & {row["task_sha256"] for row in theirs})
        raise RunError(
            f"{first.folder} and {second.folder} cannot be compared: of their {counts[0]} and {counts[1]} questions "
            f"(told apart by id, text and golds) {shared} are the same" + (", and each failed in one" if shared else "")
        )
    about = {"first": str(first.folder), "second": str(second.folder), "tasks": f"{counts[0]} and {counts[1]}"}
    return pair_section([{**about, **row} for row in pairs])


def read_card(path: Path) -> Card:
    """The card of an evaluation.

    Raises:
        RunError: it is not one.
    """
    try:
        return _adapter().validate_json(path.read_bytes())
    except ValidationError as error:
        raise RunError(f"{path}: {first_fault(error)}; name another --out, or remove the folder") from None


@cache
def _adapter() -> TypeAdapter[Card]:
    return exact_adapter(Card, Arm)
