"""The questions of a run: built-in ones by kind, goals of the web shop, or a file of one's own."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from memsearcher.assemble import make_tasks
from memsearcher.recipe import Recipe
from memsearcher.scoring import check_golds
from memsearcher.tasks import factbook
from memsearcher.tasks.files import read_tasks
from memsearcher.trajectory import Task

KINDS: dict[str, dict[str, Any]] = {
    "2-hop": {"shape": "chain", "hops": 2},
    "3-hop": {"shape": "chain", "hops": 3},
    "4-hop": {"shape": "chain", "hops": 4},
    "comparison": {"shape": "comparison"},
    "intersection": {"shape": "intersection"},
}


def draw_questions(wanted: dict[str, int] | str, split: factbook.Split, recipe: Recipe, field: str) -> list[Task]:
    """The questions that a recipe's `field` asks for, in an order drawn by its seed.

    Args:
        wanted: how many built-in questions of each kind, or the path of a JSONL file, all of which is taken; in the
            web shop, how many `goals`.
        split: of the built-in questions and of the goals.

    Raises:
        ValueError: an unknown kind, more questions than there are, or a task of a file without golds to judge by.
        OSError: the file cannot be opened.
    """
    if recipe.environment == "webshop":
        if isinstance(wanted, str) or wanted.keys() != {"goals"}:
            raise ValueError(f"{field}: in the web shop it says how many goals, as {{goals: 60}}, not {wanted!r:.60}")
        return make_tasks(recipe, f"webshop-{split}", wanted["goals"])
    tasks: list[Task] = []
    if isinstance(wanted, str):
        tasks += read_tasks(Path(wanted))
        for task in tasks:
            try:
                check_golds(task.golds)
            except ValueError as error:
                raise ValueError(f"{field}: {wanted}: task {task.id!r}: {error}") from None
    else:
        for kind, n in wanted.items():
            if kind not in KINDS:
                raise ValueError(f"{field}: {kind!r} is not one of {', '.join(KINDS)}")
            tasks += factbook.load(split, **KINDS[kind], n=n, seed=recipe.seed)
    random.Random(recipe.seed).shuffle(tasks)
    return tasks
