"""What the agents do on test questions after reinforcement: tables of the evaluations of `scripts.pocket`.

    python -m scripts.tested --runs runs/pocket --out figures/pocket

It reads `test-HOPS-hops-SEED`, one evaluation for each seed and number of hops, and writes, of each number of hops
and, where there are several, of all questions together,

- `tested.csv`: mean and 95% bootstrap interval over questions of each measure, for each seed and agent;
- `tested-pairs.csv`: the differences between two agents of a seed, question by question (`evaluation.table.compare`);
- `tested-context.csv`: mean tokens in the context of each turn, those that search and those that answer apart: an
  agent that reads at the end of a turn has a longer context where there is something to read.
"""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from statistics import mean

from memsearcher import jsonl
from memsearcher.evaluation.measures import Row
from memsearcher.evaluation.run import Evaluation
from memsearcher.evaluation.table import Arm, pair_rows, table_rows
from memsearcher.trajectory import Trajectory

ALL = "all"


def tables(runs: Path) -> tuple[list[Row], list[Row], list[Row]]:
    """The rows of `tested.csv`, of `tested-pairs.csv` and of `tested-context.csv`.

    Raises:
        RunError: an evaluation that cannot be read.
        ValueError: there is none.
    """
    contexts: list[Row] = []
    sets: dict[tuple[int, str], dict[str, list[tuple[Arm, list[Row]]]]] = defaultdict(lambda: defaultdict(list))
    for folder in sorted(runs.glob("test-*-hops-*")):
        if name := re.fullmatch(r"test-(\d+)-hops-(\d+)", folder.name):
            hops, seed = map(int, name.groups())
            evaluation = Evaluation.open(folder)
            for arm, rows in evaluation.results().items():
                about = {"seed": seed, "agent": arm.agent, "tasks": f"{hops}-hop"}
                contexts += [{**about, **row} for row in context_rows(evaluation.run(arm).stream())]
                for questions in (f"{hops}-hop", ALL):
                    sets[seed, questions][arm.agent].append((arm, rows))
    if not sets:
        raise ValueError(f"{runs} has no evaluation test-HOPS-hops-SEED; `python -m scripts.pocket` makes them")
    table: list[Row] = []
    pairs: list[Row] = []
    for (seed, questions), agents in sorted(sets.items()):
        if questions == ALL and sum(each == seed for each, _ in sets) == 2:  # one number of hops alone
            continue
        results = {
            Arm(agent, questions, "", sum(arm.questions for arm, _ in parts)): [
                row for _, rows in parts for row in rows
            ]
            for agent, parts in sorted(agents.items())
        }
        table += [{"seed": seed, **row} for row in table_rows(results)]
        pairs += [{"seed": seed, **row} for row in pair_rows(results)]
    return table, pairs, contexts


def context_rows(trajectories: Iterable[Trajectory]) -> list[Row]:
    """`turn, searches, n, tokens`: of the trajectories that did not fail, where tokens were counted."""
    found: dict[tuple[int, bool], list[int]] = defaultdict(list)
    for each in trajectories:
        for number, (turn, tokens) in enumerate(zip(each.turns, each.context_tokens, strict=True), 1):
            if each.error is None and tokens is not None:
                found[number, bool(turn.steps)].append(tokens)
    return [
        {"turn": number, "searches": searches, "n": len(tokens), "tokens": round(mean(tokens), 1)}
        for (number, searches), tokens in sorted(found.items())
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs/pocket"), help="where `scripts.pocket` put its runs")
    parser.add_argument("--out", type=Path, default=Path("figures/pocket"))
    arguments = parser.parse_args()
    try:
        table, pairs, contexts = tables(arguments.runs)
    except ValueError as error:
        parser.error(str(error))
    for name, rows in (("tested", table), ("tested-pairs", pairs), ("tested-context", contexts)):
        if rows:
            jsonl.write_csv(arguments.out / f"{name}.csv", rows, list(rows[0]))
            print(arguments.out / f"{name}.csv")


if __name__ == "__main__":
    main()
