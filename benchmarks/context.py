"""Context tokens a turn of recorded trajectories, beside the ReAct context of the same trajectories.

    memsearcher rollout --tasks factbook-test --hops 4 --out runs/four-hops
    python benchmarks/context.py runs/four-hops [--out context.json]

The second column is counterfactual: what each trajectory would have held in its context had it
kept its history (`Trajectory.react_tokens`). It is not a measured ReAct run.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import mean
from typing import Any

from rich.console import Console
from rich.table import Table

from memsearcher import jsonl
from memsearcher.trajectory import Trajectory, read_trajectories


def growth(trajectories: list[Trajectory]) -> list[dict[str, Any]]:
    """A row a turn: how many trajectories reached it, and the mean context of both kinds, in tokens."""
    rows = []
    kept = {each.id: each.react_tokens for each in trajectories}
    for turn in range(max(len(each.turns) for each in trajectories)):
        alive = [each for each in trajectories if len(each.turns) > turn]
        ours = [tokens for each in alive if (tokens := each.context_tokens[turn]) is not None]
        theirs = [lengths[turn] for each in alive if (lengths := kept[each.id]) is not None]
        rows.append({"turn": turn + 1, "n": len(alive), "memsearcher": mean(ours), "react": mean(theirs)})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a run folder")
    parser.add_argument("--out", type=Path, help="write the rows as JSON")
    arguments = parser.parse_args()
    path = arguments.run / "trajectories.jsonl"
    rows = growth([each for each in read_trajectories(path) if each.error is None])
    table = Table(title=f"Mean context tokens a turn, {rows[0]['n']} trajectories of {path}")
    for column in ("turn", "n", "MemSearcher", "counterfactual ReAct"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(str(row["turn"]), str(row["n"]), f"{row['memsearcher']:.0f}", f"{row['react']:.0f}")
    Console().print(table)
    if arguments.out:
        jsonl.replace(arguments.out, json.dumps(rows, indent=1).encode())


if __name__ == "__main__":
    main()
