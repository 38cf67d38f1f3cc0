"""The built-in world: questions of several hops over the World Factbook.

Made by `python -m scripts.factbook`; `data/factbook/README.md` is its card. A task's
metadata holds its `shape`, `hops`, `relations`, `supporting_ids` and the `steps` that
lead to the answer (facts, which many questions share, lie in a file of their own).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

from memsearcher import jsonl
from memsearcher.data import data_folder
from memsearcher.tasks.files import draw, read_tasks
from memsearcher.trajectory import Task

Split = Literal["train", "dev", "test"]
Shape = Literal["chain", "comparison", "intersection"]


def corpus_path() -> Path:
    """The passages, in Search-R1's schema."""
    return data_folder() / "factbook" / "corpus.jsonl"


def load(
    split: Split, *, shape: Shape | None = None, hops: int | None = None, n: int | None = None, seed: int = 0
) -> list[Task]:
    """Questions of a split, `n` of them drawn by `seed`, in the order of the draw.

    Raises:
        ValueError: fewer than `n` questions are of that kind.
    """
    folder = data_folder() / "factbook"
    facts = {row["id"]: row for _, row in jsonl.read(folder / "facts.jsonl")}
    tasks = [
        replace(task, metadata={**task.metadata, "steps": [facts[each] for each in task.metadata["steps"]]})
        for task in read_tasks(folder / f"{split}.jsonl")
        if (shape is None or task.metadata["shape"] == shape) and (hops is None or task.metadata["hops"] == hops)
    ]
    kind = f"{split} questions" + (f" of {hops} hops" if hops else "") + (f" of shape {shape}" if shape else "")
    return draw(tasks, n, seed, kind)
