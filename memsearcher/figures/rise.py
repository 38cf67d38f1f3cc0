"""What training adds: the rise of EM on the fixed questions of validation, run by run and over seeds.

Figure 5 of the paper shows curves; how far they may be trusted, ablations beside the run that they
depart from, is drawn here.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from memsearcher.figures.runs import Log, stem
from memsearcher.figures.style import GREY, LOOKS, WIDTH, Kind, figure
from memsearcher.figures.tables import Rows
from memsearcher.objective_scoring import has_objectives
from memsearcher.scoring import score_trajectory
from memsearcher.statistics import paired_difference
from memsearcher.trajectory import read_trajectories

ROW = 22


def rise(logs: Sequence[Log]) -> Rows:
    """EM before and after training: `run, group, seeds, first_step, last_step, n, before, after, rise, low, high`.

    A row a run with two evaluations or more, from its first to its last, over the questions that failed in
    neither. Runs whose names differ in nothing but the seed at their end are a group: all of them end at
    the last step that each came to, and a row for their mean follows, where `run` is the group's name.
    `low` and `high` end a 95% bootstrap interval over questions; a question's value in a mean is its
    mean over the seeds, so that interval, too, speaks of the questions and not of further seeds.
    """
    seeds: dict[str, list[Log]] = {}
    for log in logs:
        seeds.setdefault(stem(log.name, log.seed), []).append(log)
    rows: Rows = []
    for name, runs in seeds.items():
        if len(runs) > 1 and (mean_row := _rise(name, name, runs)):
            rows += [row for log in runs if (row := _rise(log.name, name, [log], mean_row["last_step"]))]
            rows.append(mean_row)
        else:  # no two evaluations in common
            rows += [row for log in runs if (row := _rise(log.name, log.name, [log]))]
    return rows


def _rise(name: str, group: str, runs: Sequence[Log], end: int | None = None) -> dict[str, Any] | None:
    """The row of some runs up to `end`; None where they share no two evaluations, or no question."""
    steps = sorted(set.intersection(*(set(log.evaluations) for log in runs)))
    if len(steps) < 2:
        return None
    first, last = steps[0], steps[-1] if end is None else end
    before, after = over_seeds(*([_ems(log.evaluations[step]) for log in runs] for step in (first, last)))
    if not before:
        return None
    difference = paired_difference(after, before, seed=0)
    return {
        "run": name, "group": group, "seeds": " ".join(str(log.seed) for log in runs if log.seed is not None),
        "first_step": first, "last_step": last, "n": len(before), "before": mean(before), "after": mean(after),
        "rise": difference.mean, "low": difference.low, "high": difference.high,
    }  # fmt: skip


def over_seeds(
    before: Sequence[Mapping[str, float]], after: Sequence[Mapping[str, float]]
) -> tuple[list[float], list[float]]:
    """The values of each question, by question in two evaluations of some runs, as means over the runs.

    Of the questions, in one order, that have a value in all.
    """
    asked = sorted(set.intersection(*(set(values) for values in (*before, *after))))
    first, last = ([mean(values[each] for values in side) for each in asked] for side in (before, after))
    return first, last


def _ems(files: Sequence[Path]) -> dict[str, float]:
    """EM by question of an evaluation, of tasks of one question with golds, without those that failed."""
    found = {}
    for each in (each for path in files for each in read_trajectories(path)):
        scored = each.task.golds and not has_objectives(each.task)
        if scored and (scores := score_trajectory(each)):
            found[each.task.id] = scores.em
    return found


def plot(table: pd.DataFrame, kind: Kind) -> go.Figure:
    """A line a group: its rise with the interval, and of several seeds each in faint ink."""
    groups = list(table["group"].unique())
    questions = ", ".join(str(n) for n in sorted(table["n"].unique()))
    caption = (
        f"EM after training less EM before, on the same questions of validation (n = {questions}); bars: 95%<br>"
        "bootstrap interval over questions. Where a point is the mean over several seeds, each of them is faint."
    )
    margin = {"l": 12 + 6 * max(len(_named(table, name)) for name in groups), "r": 20}
    drawn = figure(kind, caption, x="rise of EM", y="", width=WIDTH + 180, margin=margin)
    drawn.add_vline(x=0, line={"color": GREY, "width": 1})
    for place, name in enumerate(groups):
        rows = table[table["group"] == name]
        seeds, one = rows.iloc[:-1], rows.iloc[-1]
        look = LOOKS[0 if len(rows) > 1 else 1]
        if len(seeds):
            drawn.add_scatter(
                x=seeds["rise"].tolist(), y=[place] * len(seeds), mode="markers", name=f"{name}, seeds",
                marker={"color": look.faint(0.4), "symbol": look.symbol, "size": 6},
            )  # fmt: skip
        error = {"type": "data", "array": [one["high"] - one["rise"]], "arrayminus": [one["rise"] - one["low"]]}
        drawn.add_scatter(
            x=[one["rise"]], y=[place], mode="markers", name=name,
            error_x={**error, "color": look.colour, "thickness": 1, "width": 3},
            marker={"color": look.colour, "symbol": look.symbol, "size": 9},
        )  # fmt: skip
    drawn.update_layout(height=drawn.layout.margin.t + drawn.layout.margin.b + ROW * len(groups) + 10)
    drawn.update_xaxes(gridcolor="#E6E6E6")
    drawn.update_yaxes(
        range=[len(groups) - 0.4, -0.6], tickvals=list(range(len(groups))), showgrid=False, tickfont={"size": 10},
        ticktext=[html.escape(_named(table, name), quote=False) for name in groups],
    )  # fmt: skip
    return drawn


def _named(table: pd.DataFrame, group: str) -> str:
    """A group as its line is named: `train-react, 6 steps, seeds 0 1 2: 0.14 → 0.35`."""
    row = table[table["group"] == group].iloc[-1]
    seeds = "" if pd.isna(row["seeds"]) else f", seed{'s' if ' ' in str(row['seeds']) else ''} {row['seeds']}"
    return f"{group}{seeds}, {row['last_step']} steps: {row['before']:.2f} → {row['after']:.2f}"
