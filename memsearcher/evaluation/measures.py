"""What is measured of one trajectory: its scores, what it cost, and what the search brought back."""

from __future__ import annotations

from typing import Any

from memsearcher.runs import metrics, task_hash
from memsearcher.trajectory import Task, Trajectory

Row = dict[str, Any]

SUMS = ("em_sum", "em_sum_strict", "f1_sum", "f1_sum_strict")
SCORES = ("em", "f1", "cover_em", "em_unicode", *SUMS, "judge", "recall", "all_found")
COSTS = ("turns", "searches", "steps", "peak_tokens", "dependency", "sampled_tokens", "seconds")
MEASURES = (*SCORES, "score", "success", *COSTS)

DEPENDENCY = "Σ over model calls of (n_context + n_generated / 2) · n_generated"


def measure(trajectory: Trajectory) -> Row:
    """One row of `questions.csv`: `runs.metrics` and what only an evaluation asks for. The judge's columns are empty.

    Raises:
        ValueError: golds or supporting passages of the task that cannot be read.
    """
    found = None if trajectory.error is not None else recall(trajectory)
    return {
        **metrics(trajectory),
        "dependency": dependency(trajectory),
        "recall": found,
        "all_found": None if found is None else float(found == 1),
        "judge": None,
        "judge_error": None,
        "task_sha256": task_hash(trajectory.task),
    }


def dependency(trajectory: Trajectory) -> float | None:
    """MEM1's measure of what attention costs, in tokens squared; None where any call was not counted.

    `DEPENDENCY` is the formula: each generated token attends to the context and, on average, to
    half of its own reply. The context is all the model is shown, prompts and markers included.
    """
    total = 0.0
    for call in trajectory.calls:
        if call.context_tokens is None or call.sampled_tokens is None:
            return None
        total += (call.context_tokens + call.sampled_tokens / 2) * call.sampled_tokens
    return total


def recall(trajectory: Trajectory) -> float | None:
    """The share of a question's supporting passages that any search brought back; None where they are not known.

    Raises:
        ValueError: see `supporting`.
    """
    field, wanted = supporting(trajectory.task)
    if not wanted:
        return None
    seen = {
        passage.id if field == "supporting_ids" else passage.title
        for turn in trajectory.turns
        for step in turn.steps
        if step.observation
        for passage in step.observation.passages
    }
    return len(wanted & seen) / len(wanted)


def supporting(task: Task) -> tuple[str, set[str]]:
    """The metadata field that names a task's supporting passages, and the ids or titles in it; ids go before titles.

    Raises:
        ValueError: a field that is no list of texts; the message names the task.
    """
    for field in ("supporting_ids", "supporting_titles"):
        names = task.metadata.get(field)
        if names is not None:
            if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
                raise ValueError(f"task {task.id}: metadata.{field} must be a list of texts, not {names!r:.60}")
            return field, set(names)
    return "supporting_ids", set()
