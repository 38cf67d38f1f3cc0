"""Context tokens a turn of every agent on tasks of many questions, with the scripted expert in the model's place.

    python benchmarks/growth.py [--objectives 16] [--tasks 6] [--set limits.passages=5] [--out growth.json]

Real prompts, real searches over the built-in corpus and real token counts; the replies are the
expert's, so this shows what each agent's rule does to the context, not what a model would do with
it. The expert writes down every fact and drops none, the most a memory has to hold; "frugal", it
drops the facts that only led to another, and of those that answer a question keeps number and
answer, the least that a memory can hold. The slope is
a least-squares line through the mean context of the trajectories alive in a turn, from turn 3 on;
the goal is that of MemSearcher at 2% of ReAct's or less. All agents get the same questions,
passages and limits.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from statistics import linear_regression, mean
from typing import Any

from rich.console import Console
from rich.table import Table

from memsearcher import jsonl
from memsearcher.assemble import make_agent, make_environment
from memsearcher.engines.chat import ChatFormat
from memsearcher.engines.models import load_tokenizer
from memsearcher.figures.runs import Records
from memsearcher.figures.tables import context
from memsearcher.recipe import load_recipe
from memsearcher.tasks import factbook
from memsearcher.tasks.objectives import compose
from memsearcher.training.expert import Expert, demonstrate
from memsearcher.training.warmstart import ends_right

AGENTS = ("memsearcher", "mem1", "react", "truncate", "summarize")
FRUGAL = ("memsearcher", "mem1", "summarize")
"""Those that write anew in each turn what they know, and so may leave something out."""
FROM_TURN = 3


def slope(rows: list[tuple[int, float]]) -> float:
    """Tokens that a context grows by in a turn, from turn `FROM_TURN` on."""
    turns = range(FROM_TURN, len(rows) + 1)
    return linear_regression(turns, [tokens for _, tokens in rows[FROM_TURN - 1 :]]).slope


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objectives", type=int, default=16, help="questions in a task")
    parser.add_argument("--tasks", type=int, default=6)
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help="of the recipe `pocket`")
    parser.add_argument("--out", type=Path, help="write the rows as JSON")
    arguments = parser.parse_args()
    recipe = load_recipe("pocket", arguments.set)
    questions = factbook.load("test", shape="chain", hops=2, n=arguments.objectives * arguments.tasks, seed=recipe.seed)
    tasks = compose(questions, [arguments.objectives])
    # Nobody is to run out of turns or of context.
    limits = replace(
        recipe.limits, turns=6 * arguments.objectives, question_tokens=1024, memory_tokens=4096, context_tokens=10**6
    )
    environment, chat = make_environment(recipe), ChatFormat.from_tokenizer(load_tokenizer())
    settings = ", ".join([f"{len(tasks)} tasks of {arguments.objectives} 2-hop questions", *arguments.set])
    table = Table(title=f"{settings}, scripted expert, no model")
    for column in ("agent", "ended right", "turns", "turn 1", "turn 3", "turn 16", "last", "slope", "of ReAct's"):
        table.add_column(column, justify="left" if column == "agent" else "right")
    record: dict[str, Any] = {}
    for name, frugal in [(name, False) for name in AGENTS] + [(name, True) for name in FRUGAL]:
        agent = make_agent(replace(recipe, agent=name, limits=limits))
        played = list(demonstrate(agent, environment, Expert(tool=recipe.tool, frugal=frugal), chat, tasks))
        counted = context([Records(name, "", "", tuple(played))])
        rows = [(row["n"], row["tokens"]) for row in counted if row["measured"]]
        record[f"{name}, frugal" if frugal else name] = {
            "right": sum(map(ends_right, played)),
            "turns": mean(len(each.turns) for each in played),
            "contexts": rows,
            "slope": slope(rows),
        }
    for name, each in record.items():
        rows = each["contexts"]
        shown = [f"{rows[turn][1]:.0f}" if len(rows) > abs(turn) else "" for turn in (0, 2, 15, -1)]
        share = f"{each['slope'] / record['react']['slope']:.1%}"
        right = f"{each['right']} of {len(tasks)}"
        table.add_row(name, right, f"{each['turns']:.1f}", *shown, f"{each['slope']:.1f}", share)
    Console(width=110).print(table)
    if arguments.out:
        jsonl.replace(arguments.out, json.dumps(record, indent=1).encode())


if __name__ == "__main__":
    main()
