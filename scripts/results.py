"""The table of results of the shipped agent, from run folders: as CSV to commit and as Markdown to show.

python -m scripts.results runs/test-2 runs/test-3 --out data/pocket/results.csv
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path
from statistics import mean

from memsearcher import jsonl
from memsearcher.runs import mean_of, metrics
from memsearcher.trajectory import Trajectory, read_trajectories


def row_of(kind: str, trajectories: list[Trajectory]) -> dict[str, str]:
    """Means with 95% bootstrap intervals over the questions of one kind; failed ones are counted apart."""
    rows = [metrics(each) for each in trajectories]
    row = {"questions": kind, "n": str(len(rows)), "failed": str(sum(each["error"] is not None for each in rows))}
    for name in ("em", "f1"):
        interval = mean_of(rows, name)
        row[name] = f"{interval.mean:.3f} ({interval.low:.3f}–{interval.high:.3f})" if interval else ""
    for name in ("turns", "searches", "peak_tokens"):
        interval = mean_of(rows, name)
        row[name] = f"{interval.mean:.1f}" if interval else ""
    last = [lengths[-1] for each in trajectories if (lengths := each.react_tokens)]
    row["counterfactual_react_tokens"] = f"{mean(last):.1f}" if last else ""
    supported = [reached(each) for each in trajectories if each.error is None]
    row["all_passages_found"] = f"{mean(supported):.3f}" if supported else ""
    return row


def reached(trajectory: Trajectory) -> float:
    """Whether every supporting passage was among those the agent was shown."""
    seen = {
        passage.id
        for turn in trajectory.turns
        for step in turn.steps
        if step.observation
        for passage in step.observation.passages
    }
    return float(set(trajectory.task.metadata["supporting_ids"]) <= seen)


def markdown(rows: list[dict[str, str]]) -> str:
    header = "| " + " | ".join(name.replace("_", " ") for name in rows[0]) + " |"
    lines = ["| " + " | ".join(row.values()) + " |" for row in rows]
    return "\n".join([header, "|---" * len(rows[0]) + "|", *lines])


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
    print(markdown(rows))


if __name__ == "__main__":
    main()
