"""Plots of the figures: a table in, a `go.Figure` out. Nothing is read or computed beside the table."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from memsearcher.figures.style import LOOKS, WIDTH, Kind, Look, figure, label, look_of

SPAN = 10
"""Steps that the moving average of a training curve spans: each point weighs 2 / (SPAN + 1)."""

POINTS = "95% bootstrap interval over questions"


def context(table: pd.DataFrame, kind: Kind) -> go.Figure:
    """Tokens in the context against the turn (figure 3 of the paper), with how many trajectories are alive."""
    caption = (
        f"Mean over trajectories still alive; bars: {POINTS}.<br>"
        f"Dotted: counterfactual, the same trajectories with their history kept.<br>{_alive(table)}"
    )
    drawn = figure(kind, caption, x="turn", y="tokens in the context", margin={"r": 100}, width=WIDTH + 80)
    for place, (name, rows) in enumerate(_series(table)):
        measured = bool(rows["measured"].iloc[0])
        look = look_of(name.partition(",")[0], place)
        look = look if measured else Look(look.colour, "dot", f"{look.symbol}-open")
        _line(drawn, rows, "turn", "tokens", look)
        label(drawn, name.replace(", ", ",<br>"), rows["turn"].iloc[-1], rows["tokens"].iloc[-1], look)
    drawn.update_yaxes(rangemode="tozero")
    _turns(drawn, table)
    return drawn


def memory(table: pd.DataFrame, kind: Kind) -> go.Figure:
    """Tokens the model wrote as its memory against the turn."""
    caption = f"Mean over trajectories that wrote one; bars: {POINTS}.<br>{_alive(table)}"
    drawn = figure(kind, caption, x="turn", y="memory, sampled tokens", margin={"r": 84}, width=WIDTH + 40)
    for place, (name, rows) in enumerate(_series(table)):
        look = look_of(name, place)
        _line(drawn, rows, "turn", "tokens", look)
        label(drawn, name, rows["turn"].iloc[-1], rows["tokens"].iloc[-1], look)
    drawn.update_yaxes(rangemode="tozero")
    _turns(drawn, table)
    return drawn


def accuracy(table: pd.DataFrame, kind: Kind) -> go.Figure:
    """EM by kind of question, agents side by side."""
    failed = int(table["failed"].sum())
    caption = f"Bars: {POINTS}; n under the points.<br>Failed and left out: {failed}."
    drawn = figure(kind, caption, x="", y="exact match", margin={"r": 84}, width=WIDTH + 40)
    kinds = sorted(table["questions"].unique())
    agents = list(table["agent"].unique())
    for place, agent in enumerate(agents):
        rows = table[table["agent"] == agent]
        look = look_of(agent, place)
        # Side by side within a step of 1 on the axis.
        x = [kinds.index(name) + (place - (len(agents) - 1) / 2) * 0.16 for name in rows["questions"]]
        drawn.add_scatter(
            x=x, y=rows["em"].tolist(), mode="markers+text", name=agent, text=[f"n={n}" for n in rows["n"]],
            textposition="bottom center", textfont={"size": 8, "color": look.colour},
            marker={"color": look.colour, "symbol": look.symbol, "size": 8}, error_y=_bars(rows, "em", look),
        )  # fmt: skip
        label(drawn, agent, x[-1], rows["em"].iloc[-1], look)
    drawn.update_xaxes(tickvals=list(range(len(kinds))), ticktext=kinds, range=[-0.5, len(kinds) - 0.5])
    drawn.update_yaxes(range=[-0.08, 1])
    return drawn


def training(table: pd.DataFrame, kind: Kind) -> go.Figure:
    """Training reward and validation EM against the step (figure 5 of the paper)."""
    caption = (
        f"Line: reward, debiased exponential moving average over {SPAN} steps; faint: each step.<br>"
        "Points: EM on the fixed validation questions. One line a run."
    )
    drawn = figure(kind, caption, x="optimizer step", y="reward, exact match", margin={"r": 96}, width=WIDTH + 60)
    for place, run in enumerate(table["run"].unique()):
        look = LOOKS[place % len(LOOKS)]
        rows = table[table["run"] == run]
        reward, dev = (rows[rows["series"] == name] for name in ("reward", "validation EM"))
        if not reward.empty:
            steps, smooth = reward["step"].tolist(), _smooth(reward["value"].tolist())
            drawn.add_scatter(x=steps, y=reward["value"].tolist(), mode="lines", line={"color": look.faint(0.3)})
            drawn.add_scatter(x=steps, y=smooth, mode="lines", name=run, line={"color": look.colour})
            label(drawn, run, steps[-1], smooth[-1], look)
        if not dev.empty:
            x, y = dev["step"].tolist(), dev["value"].tolist()
            marker = {"color": look.colour, "symbol": look.symbol, "size": 7}
            drawn.add_scatter(x=x, y=y, mode="markers+lines", marker=marker, line={"color": look.colour, "dash": "dot"})
            label(drawn, "validation EM", x[-1], y[-1], look)
    drawn.update_xaxes(range=[0, int(table["step"].max()) * 1.02])
    drawn.update_yaxes(range=[0, 1])
    return drawn


def cache(table: pd.DataFrame, kind: Kind) -> go.Figure:
    """The key-value cache of one trajectory against the turn, a line a model and series (after figure 4)."""
    caption = (
        "Mean context of the pocket runs × bytes a token takes (16 bits).<br>"
        "Dotted: counterfactual, history kept. Not a measurement of a GPU."
    )
    drawn = figure(kind, caption, x="turn", y="key-value cache, MB", margin={"r": 96}, width=WIDTH + 60)
    models = list(table["model"].unique())
    for (model, series), rows in table.groupby(["model", "series"], sort=False):
        look = LOOKS[models.index(model) % len(LOOKS)]
        kept = "kept" in str(series)
        drawn.add_scatter(
            x=rows["turn"].tolist(), y=rows["mb"].tolist(), mode="lines", name=f"{model}, {series}",
            line={"color": look.colour, "dash": "dot" if kept else "solid"},
        )  # fmt: skip
        if kept or table["series"].nunique() == 1:
            label(drawn, str(model), rows["turn"].iloc[-1], _log10(rows["mb"].iloc[-1]), look)
    drawn.update_yaxes(type="log", dtick=1)
    _turns(drawn, table)
    return drawn


def reported(table: pd.DataFrame, kind: Kind) -> go.Figure:
    """EM that papers report, by method and benchmark."""
    sources = "<br>".join(table["source"].unique())
    drawn = figure(kind, f"7B models; means as published, no intervals.<br>{sources}", x="exact match", y="",
                   width=2 * WIDTH, height=420, margin={"l": 150})  # fmt: skip
    best = table.groupby(["method", "model"], sort=False)["em"].mean().sort_values()
    names = [f"{method} ({model[8:]})" for method, model in best.index]
    for place, dataset in enumerate(table["dataset"].unique()):
        rows = table[table["dataset"] == dataset]
        look = LOOKS[place % len(LOOKS)]
        methods = [f"{method} ({model[8:]})" for method, model in zip(rows["method"], rows["model"], strict=True)]
        marker = {"color": look.colour, "symbol": look.symbol, "size": 8}
        drawn.add_scatter(x=rows["em"].tolist(), y=methods, mode="markers", name=dataset, marker=marker)
    drawn.update_layout(showlegend=True, legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0.12})
    drawn.update_yaxes(categoryorder="array", categoryarray=names)
    drawn.update_xaxes(range=[0, 0.8], gridcolor="#E6E6E6")
    return drawn


def _turns(drawn: go.Figure, table: pd.DataFrame) -> None:
    """Whole turns on the axis, and the names of the series in the margin behind it."""
    drawn.update_xaxes(dtick=1, range=[0.7, int(table["turn"].max()) + 0.3])


def _line(drawn: go.Figure, rows: pd.DataFrame, x: str, y: str, look: Look) -> None:
    drawn.add_scatter(
        x=rows[x].tolist(), y=rows[y].tolist(), mode="lines+markers", name=str(rows["series"].iloc[0]),
        line={"color": look.colour, "dash": look.dash}, marker={"symbol": look.symbol, "size": 6},
        error_y=_bars(rows, y, look),
    )  # fmt: skip


def _bars(rows: pd.DataFrame, y: str, look: Look) -> dict[str, Any]:
    above, below = (rows["high"] - rows[y]).tolist(), (rows[y] - rows["low"]).tolist()
    return {"type": "data", "array": above, "arrayminus": below, "color": look.colour, "thickness": 1, "width": 2}


def _series(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    for name in table["series"].unique():
        yield str(name), table[table["series"] == name]


def _alive(table: pd.DataFrame) -> str:
    """How many trajectories there are in each turn, for each series that was measured."""
    measured = table[table["measured"]] if "measured" in table else table
    return "<br>".join(f"n, {name}: {', '.join(map(str, rows['n']))}" for name, rows in _series(measured))


def _smooth(values: list[float]) -> list[float]:
    """The exponential moving average, divided by the weight it has so far, so that it does not start at 0."""
    decay, total, weight, smooth = 1 - 2 / (SPAN + 1), 0.0, 0.0, []
    for value in values:
        total, weight = decay * total + (1 - decay) * value, decay * weight + (1 - decay)
        smooth.append(total / weight)
    return smooth


def _log10(value: float) -> float:
    """Where a value stands on a logarithmic axis, which is how plotly wants the place of a label there."""
    return math.log10(value)
