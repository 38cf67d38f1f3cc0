"""The table of results of the shipped agent, from run folders: as CSV to commit and as Markdown to show.

python -m scripts.results runs/test-2 runs/test-3 --out data/pocket/results.csv
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path
from statistics import mean

from memsearcher import jsonl
from memsearcher.evaluation.measures import recall
from memsearcher.evaluation.report import markdown_table, number
from memsearcher.runs import mean_of, metrics
from memsearcher.trajectory import Trajectory, read_trajectories


def row_of(kind: str, trajectories: list[Trajectory]) -> dict[str, str]:
    """Means with 95% bootstrap intervals over the questions of one kind; failed ones are counted apart."""
    rows = [metrics(each) for each in trajectories]
    row = {"questions": kind, "n": str(len(rows)), "failed": str(sum(each["error"] is not None for each in rows))}
    for name in ("em", "f1"):
        interval = mean_of(rows, name)
        row[name] = number(name, interval) if interval else ""
    for name in ("turns", "searches", "peak_tokens"):
        interval = mean_of(rows, name)
        row[name] = f"{interval.mean:.1f}" if interval else ""
    last = [lengths[-1] for each in trajectories if (lengths := each.react_tokens)]
    row["counterfactual_react_tokens"] = f"{mean(last):.1f}" if last else ""
    found = [share == 1 for each in trajectories if each.error is None and (share := recall(each)) is not None]
    row["all_passages_found"] = f"{mean(found):.3f}" if found else ""
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    kinds: dict[str, list[Trajectory]] = defaultdict(list)
    for run in arguments.runs:
        for trajectory in read_trajectories(run / "trajectories.jsonl"):
            kinds[f"{trajectory.task.metadata['shape']}, {trajectory.task.metadata['hops']} hops"].append(trajectory)
    rows = [row_of(kind, trajectories) for kind, trajectories in sorted(kinds.items())]
    jsonl.write_csv(arguments.out, rows)
    print(markdown_table([{name.replace("_", " "): cell for name, cell in row.items()} for row in rows]))


if __name__ == "__main__":
    main()
