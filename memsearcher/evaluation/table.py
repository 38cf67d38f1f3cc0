"""From rows of questions to tables: means with intervals, and paired differences.

Means are over the questions that did not fail, with 95% bootstrap intervals over questions. A
difference is taken question by question over those that both arms played, so what makes a question
hard for both cancels out.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from memsearcher.evaluation.measures import MEASURES, Row
from memsearcher.runs import mean_of
from memsearcher.statistics import mcnemar, paired_difference

PAIRED = ("em", "f1", "judge", "score", "success", "turns", "searches", "steps", "peak_tokens", "dependency")


@dataclass(frozen=True, slots=True)
class Arm:
    """One column of a table: an agent, the questions it is asked, and its limits where they are not the recipe's.

    `questions` is how many it is to play.
    """

    agent: str
    tasks: str
    limits: str
    questions: int

    @property
    def name(self) -> str:
        return f"{self.agent} {self.limits}".strip()

    @property
    def folder(self) -> Path:
        """The place of its run inside the folder of an evaluation."""
        tasks = _file_name(self.tasks)
        return Path(_file_name(self.agent), f"{tasks}@{_file_name(self.limits)}" if self.limits else tasks)


Results = Mapping[Arm, Sequence[Row]]


def table_rows(results: Results) -> list[Row]:
    """`table.csv`: a row for each arm and measure, with its mean, interval and the number of questions in it."""
    rows = []
    for arm, played in results.items():
        about = {"agent": arm.agent, "tasks": arm.tasks, "limits": arm.limits, "questions": arm.questions}
        failed = sum(row["error"] is not None for row in played)
        for name in MEASURES:
            values = [row for row in played if row["error"] is None and row.get(name) is not None]
            if interval := mean_of(values, name):
                counts = {"n": len(values), "played": len(played), "failed": failed}
                rows.append({**about, "measure": name, **interval._asdict(), **counts})
    return rows


def pair_rows(results: Results) -> list[Row]:
    """`pairs.csv`: what `compare` gives for every two arms that share questions."""
    rows = []
    for (one, first), (other, second) in combinations(results.items(), 2):
        tasks = one.tasks if one.tasks == other.tasks else f"{one.tasks} / {other.tasks}"
        about = {"first": one.name, "second": other.name, "tasks": tasks}
        rows += [{**about, **row} for row in compare(first, second)]
    return rows


def compare(first: Sequence[Row], second: Sequence[Row]) -> list[Row]:
    """The difference `first - second` in each measure, over the questions that both have a value for.

    `shared` counts the questions (by hash) in both, `n` those with a value on both sides: a failed one
    has none. With several attempts at a question their mean counts. `only_first`, `only_second` and `p`
    are McNemar's, of EM and of success, and None where there are several attempts or an answer has several parts.
    """
    ours, theirs = by_question(first), by_question(second)
    single = (len(ours), len(theirs)) == (len(first), len(second))
    shared = [question for question in ours if question in theirs]
    rows = []
    for name in PAIRED:
        pairs = [
            (one, other)
            for question in shared
            if (one := ours[question][name]) is not None and (other := theirs[question][name]) is not None
        ]
        if not pairs:
            continue
        left, right = zip(*pairs, strict=True)
        difference = paired_difference(left, right, seed=0)
        row: Row = {"measure": name, "difference": difference.mean, "low": difference.low, "high": difference.high}
        row |= {"n": len(pairs), "shared": len(shared), "only_first": None, "only_second": None, "p": None}
        if name in ("em", "success") and single and {*left, *right} <= {0.0, 1.0}:
            only_first, only_second = pairs.count((1.0, 0.0)), pairs.count((0.0, 1.0))
            row |= {"only_first": only_first, "only_second": only_second, "p": mcnemar(only_first, only_second)}
        rows.append(row)
    return rows


def by_question(rows: Sequence[Row]) -> dict[str, Row]:
    """The measures of each question, by its hash: the mean over its attempts that did not fail, None without one."""
    attempts: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        attempts[row["task_sha256"]].append(row)
    return {
        question: {name: _mean([row.get(name) for row in tries if row["error"] is None]) for name in PAIRED}
        for question, tries in attempts.items()
    }


def _file_name(text: str) -> str:
    return re.sub(r"[^\w=.]+", "-", text).strip("-.") or "_"


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
