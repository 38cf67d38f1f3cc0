"""Tasks from a JSONL file in FlashRAG's schema, with errors that name the line."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from memsearcher import jsonl
from memsearcher.trajectory import Task


class TaskError(ValueError):
    """A question that cannot be asked; the message names file, line and field."""


def read_tasks(path: Path) -> Iterator[Task]:
    """Read `{"id", "question", "golden_answers": [...], "metadata": {...}}` a line, as a stream.

    Raises:
        TaskError: a line that is no object, an empty or non-string question, golds that are
            no list of strings, metadata that are no object, an id that is neither text nor a
            whole number or comes twice.
        JsonlError: a line that is not JSON.
    """
    seen: set[str] = set()
    for number, row in jsonl.read(path, foreign=True):
        try:
            task = make_task(row, default_id=str(number))
        except TaskError as error:
            raise TaskError(f"{path}:{number}: {error}") from None
        if task.id in seen:
            raise TaskError(f"{path}:{number}: id {task.id!r} is there twice")
        seen.add(task.id)
        yield task


def make_task(row: Any, default_id: str) -> Task:
    """One row of FlashRAG's schema as a task.

    Raises:
        TaskError: naming the field.
    """
    if not isinstance(row, dict):
        raise TaskError("an object was expected")
    question, golds = row.get("question"), row.get("golden_answers", [])
    if not isinstance(question, str) or not question.strip():
        raise TaskError(f"field 'question' must be a string with text in it, not {question!r:.60}")
    if not isinstance(golds, list) or not all(isinstance(gold, str) for gold in golds):
        raise TaskError("field 'golden_answers' must be a list of strings")
    metadata = row.get("metadata")
    if not isinstance(metadata, dict | None):
        raise TaskError("field 'metadata' must be an object")
    name = row.get("id", default_id)
    if not isinstance(name, str | int):
        raise TaskError(f"field 'id' must be a string or a whole number, not {name!r:.60}")
    return Task(str(name), question, tuple(golds), metadata or {})


def draw(tasks: Sequence[Task], n: int | None, seed: int, kind: str = "questions") -> list[Task]:
    """`n` of the tasks, drawn by `seed`, in the order of the draw; all, as they are, where it is None.

    Raises:
        ValueError: there are fewer than `n`; `kind` says of what.
    """
    if n is None:
        return list(tasks)
    if n > len(tasks):
        raise ValueError(f"{n} {kind} were asked for; there are {len(tasks)}")
    return random.Random(seed).sample(tasks, n)
