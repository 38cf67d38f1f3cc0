"""Several questions in one task: how their answers are written, read and scored by position.

The answers of N questions are one text, `a1; a2; …`, as MEM1 has it (arXiv 2506.15841). An
answer that holds a semicolon would fall apart there, so here it stands in double quotes, and a
quote within those is doubled (CSV's rule). MEM1's plain form is read the same way.

A wrong number of answers is scored twice: leniently, what is there by its position, and
strictly, nothing at all, which is MEM1's rule. Each task holds its questions in
`metadata["objectives"]`, a list of `{"id", "question", "golds"}` (see `tasks/objectives.py`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from memsearcher.scoring import Scores, score
from memsearcher.trajectory import Task, Trajectory

Metric = Literal["em", "f1", "cover_em", "em_unicode"]

# A field and the semicolon behind it. What is matched is never given back, so time is linear in the text.
_FIELD = re.compile(r'\s*+(?:"((?:[^"]|"")*+)"\s*+|([^";][^;]*+)?)(?:;|\Z)')


@dataclass(frozen=True, slots=True)
class Objective:
    """One of the questions of a task, with its accepted answers."""

    id: str
    question: str
    golds: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ObjectiveScores:
    """The scores of each objective, in order, and how many answers were given.

    An objective without an answer scores 0; answers beyond the last objective count for nothing.
    """

    scores: tuple[Scores, ...]
    answers: int

    @property
    def complete(self) -> bool:
        """Whether there are as many answers as objectives."""
        return self.answers == len(self.scores)

    def total(self, metric: Metric, *, strict: bool = False) -> float:
        """The sum of a metric over the objectives, from 0 to their number; `strict` gives 0 at a wrong count."""
        return 0.0 if strict and not self.complete else sum(getattr(each, metric) for each in self.scores)

    def mean(self, metric: Metric, *, strict: bool = False) -> float:
        """The mean of a metric over the objectives, from 0 to 1; `strict` as in `total`."""
        return self.total(metric, strict=strict) / len(self.scores)

    def columns(self) -> dict[str, float]:
        """EM and F1 for a table: sum and mean over the objectives, lenient and strict, and both counts."""
        row: dict[str, float] = {"objectives": len(self.scores), "answers": self.answers}
        metrics: tuple[Metric, ...] = ("em", "f1")
        for metric in metrics:
            for rule, strict in (("", False), ("_strict", True)):
                row[f"{metric}_sum{rule}"] = self.total(metric, strict=strict)
                row[f"{metric}_mean{rule}"] = self.mean(metric, strict=strict)
        return row


def score_objectives(trajectory: Trajectory) -> ObjectiveScores | None:
    """Score the answers of a task of several questions, each by its position.

    None for a trajectory that failed (`error` is set); one without an answer scores 0. Where there
    is one objective, all of the answer is its answer, semicolons too.

    Raises:
        ValueError: the task has no objectives, or they cannot be scored; the message names the task.
    """
    if trajectory.error is not None:
        return None
    objectives = objectives_of(trajectory.task)
    answer = (trajectory.answer or "").strip()
    given = [answer] if answer and len(objectives) == 1 else read_answers(answer)
    scores = []
    for place, objective in enumerate(objectives):
        try:
            scores.append(score(given[place] if place < len(given) else None, objective.golds))
        except ValueError as error:
            raise ValueError(f"task {trajectory.task.id}: objective {objective.id}: {error}") from None
    return ObjectiveScores(tuple(scores), len(given))


def has_objectives(task: Task) -> bool:
    """Whether a task is made of several questions and is scored by `score_objectives`."""
    return "objectives" in task.metadata


def objectives_of(task: Task) -> list[Objective]:
    """The questions that a task is made of.

    Raises:
        ValueError: there are none, or one is not as it must be; the message names task and field.
    """
    listed = task.metadata.get("objectives")
    if not isinstance(listed, list) or not listed:
        raise ValueError(f"task {task.id}: metadata.objectives must be a list of questions; make them with `compose`")
    return [_objective(each, f"task {task.id}: metadata.objectives[{place}]") for place, each in enumerate(listed)]


def golds_of(task: Task) -> tuple[str, ...]:
    """The accepted answers of a task; of all its questions, where it is made of several."""
    if has_objectives(task):
        return tuple(gold for objective in objectives_of(task) for gold in objective.golds)
    return task.golds


def _objective(data: Any, where: str) -> Objective:
    if not isinstance(data, dict):
        raise ValueError(f"{where} must be an object")
    name, question, golds = data.get("id"), data.get("question"), data.get("golds")
    if not isinstance(name, str) or not isinstance(question, str):
        raise ValueError(f"{where} must have an id and a question, both texts")
    if not isinstance(golds, list) or not all(isinstance(gold, str) for gold in golds):
        raise ValueError(f"{where}.golds must be a list of texts")
    return Objective(name, question, tuple(golds))


def write_answers(answers: Sequence[str]) -> str:
    """Answers as one text, which `read_answers` takes apart again."""
    return "; ".join(map(_quoted, answers))


def read_answers(text: str) -> list[str]:
    """The answers in a text, in order: split at semicolons, but for those within double quotes.

    White space around an answer goes, and so does a semicolon behind the last one. Quotes that
    enclose no whole answer (`5" disk`) are characters; where a leading one is never closed, or
    closes before the answer ends, the whole text is read in MEM1's plain form: split at each semicolon.
    """
    text = text.strip()
    answers: list[str] = []
    position = 0
    while position < len(text):
        field = _FIELD.match(text, position)
        if field is None:
            return [each.strip() for each in text.removesuffix(";").split(";")]
        quoted, plain = field.groups()
        answers.append((plain or "").strip() if quoted is None else quoted.replace('""', '"'))
        position = field.end()
    return answers


def _quoted(answer: str) -> str:
    if answer and answer == answer.strip() and ";" not in answer and not answer.startswith('"'):
        return answer
    return '"' + answer.replace('"', '""') + '"'
