"""Plots of the figures: a table in, a `go.Figure` out. Nothing is read or computed beside the table."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle
from typing import Any, Literal

import pandas as pd
import plotly.graph_objects as go

from memsearcher.figures.runs import stem
from memsearcher.figures.style import LOOKS, WIDTH, End, Kind, Look, figure, look_of, name_ends, wrapped

SPAN = 10
"""Steps that the moving average of a training curve spans: each point weighs 2 / (SPAN + 1)."""

DASHES = ("solid", "dash", "dashdot", "longdash")
"""Of agents, where colours tell models apart; dotted is what was not measured."""

POINTS = "95% bootstrap interval over questions"


def context(table: pd.DataFrame, kind: Kind) -> go.Figure:
    """Tokens in the context against the turn (figure 3 of the paper), with how many trajectories are alive."""
    caption = (
        f"Mean over trajectories still alive; bars: {POINTS}.<br>"
        f"Dotted: counterfactual, the same trajectories with their history kept.<br>{_alive(table)}"
    )
    drawn = figure(kind, caption, x="turn", y="tokens in the context", margin={"r": 150}, width=WIDTH + 130)
    ends = []
    for place, (name, rows) in enumerate(_series(table)):
        measured = bool(rows["measured"].iloc[0])
        look = look_of(name.partition(",")[0], place)
        look = look if measured else Look(look.colour, "dot", f"{look.symbol}-open")
        _line(drawn, rows, "turn", "tokens", look)
        ends.append(_end(name, rows, "turn", "tokens", look))
    _from_zero(drawn, table["high"])
    _turns(drawn, table)
    name_ends(drawn, ends)
    return drawn


def memory(table: pd.DataFrame, kind: Kind) -> go.Figure:
    """Tokens the model wrote as its memory against the turn."""
    caption = f"Mean over trajectories that wrote one; bars: {POINTS}.<br>{_alive(table)}"
    drawn = figure(kind, caption, x="turn", y="memory, sampled tokens", margin={"r": 90}, width=WIDTH + 50)
    ends = []
    for place, (name, rows) in enumerate(_series(table)):
        look = look_of(name, place)
        _line(drawn, rows, "turn", "tokens", look)
        ends.append(_end(name, rows, "turn", "tokens", look))
    _from_zero(drawn, table["high"])
    _turns(drawn, table)
    name_ends(drawn, ends)
    return drawn


def accuracy(table: pd.DataFrame, kind: Kind) -> go.Figure:
    """EM by kind of question, agents side by side."""
    failed = int(table["failed"].sum())
    kinds = sorted(table["questions"].unique())
    agents = list(table["agent"].unique())
    counts = _counts({name: _along(table[table["agent"] == name], "questions", kinds) for name in agents})
    caption = f"Bars: {POINTS}. Failed and left out: {failed}.<br>{counts}"
    # Names of kinds stand level, side by side: more kinds take more room.
    width = WIDTH + 60 + 60 * max(0, len(kinds) - 3)
    drawn = figure(kind, caption, x="", y="exact match", margin={"r": 100}, width=width)
    for place, agent in enumerate(agents):
        rows = table[table["agent"] == agent]
        look = look_of(agent, place)
        # Side by side within a step of 1 on the axis.
        x = [kinds.index(name) + (place - (len(agents) - 1) / 2) * 0.14 for name in rows["questions"]]
        drawn.add_scatter(
            x=x, y=rows["em"].tolist(), mode="markers", name=agent, error_y=_bars(rows, "em", look),
            marker={"color": look.colour, "symbol": look.symbol, "size": 8}, cliponaxis=False,
        )  # fmt: skip
    # Not by name at their ends: with points side by side, lines to the names would cross the other points.
    drawn.update_layout(showlegend=True, legend={"x": 1, "y": 1, "font": {"size": 10}})
    drawn.update_xaxes(tickvals=list(range(len(kinds))), ticktext=kinds, range=[-0.5, len(kinds) - 0.5])
    drawn.update_yaxes(range=[-0.02, 1.02])
    return drawn


def objectives(table: pd.DataFrame, kind: Kind) -> go.Figure:
    """EM and peak tokens against the number of questions in a task, an agent a line."""
    ems = table[table["measure"] == "em"]
    sizes = sorted(table["objectives"].unique().tolist())
    counts = _counts({str(agent): _along(rows, "objectives", sizes) for agent, rows in ems.groupby("agent")})
    caption = (
        "Means over tasks, where the EM of a task is the mean over its questions; bars: 95% bootstrap interval over "
        f"tasks.<br>Failed and left out: {int(ems['failed'].sum())}.<br>{counts}"
    )
    drawn = figure(kind, caption, x="questions in a task", y="exact match", margin={"r": 90}, width=2 * WIDTH)
    drawn.update_layout(xaxis={"domain": [0, 0.34]}, xaxis2=drawn.layout.xaxis, yaxis2=drawn.layout.yaxis)
    drawn.update_layout(
        xaxis2={"domain": [0.66, 1], "anchor": "y2"},
        yaxis2={"anchor": "x2", "title": {"text": "peak tokens in the context"}},
    )
    drawn.update_xaxes(
        type="log", tickvals=sizes, ticktext=sizes, range=[math.log10(sizes[0]) - 0.1, math.log10(sizes[-1]) + 0.1]
    )
    drawn.update_yaxes(range=[-0.02, 1.02])
    panels: tuple[tuple[str, Literal["", "2"]], ...] = (("em", ""), ("peak tokens", "2"))
    for measure, axes in panels:
        shown = table[table["measure"] == measure]
        if axes and not shown.empty:
            drawn.update_layout(yaxis2={"range": [0, 1.05 * max(1.0, float(shown["high"].max()))]})
        ends = []
        for place, (agent, rows) in enumerate(shown.groupby("agent")):
            look = look_of(str(agent), place)
            _line(drawn, rows.rename(columns={"agent": "series"}), "objectives", "value", look, axes)
            end = _end(str(agent), rows, "objectives", "value", look)
            ends.append(replace(end, x=math.log10(end.x)))
        name_ends(drawn, ends, axes)
    return drawn


def training(table: pd.DataFrame, kind: Kind) -> go.Figure:
    """Training reward and validation EM against the step (figure 5 of the paper).

    Runs whose names differ in nothing but the seed at their end are one line, their mean as far as all came.
    """
    caption = (
        f"Line: reward, debiased exponential moving average over {SPAN} steps; dotted, with points: EM on the<br>"
        "fixed validation questions. Faint: each step, or each seed where a line is the mean over several.<br>"
    )
    runs_seeds = zip(table["run"], table["seed"], strict=True)
    stems = [stem(run, None if pd.isna(seed) else int(seed)) for run, seed in runs_seeds]
    groups = {str(name): _runs(rows) for name, rows in table.groupby(stems, sort=False)}
    seeds = {name: ", ".join(str(int(seed)) for seed, _ in runs) for name, runs in groups.items() if len(runs) > 1}
    caption += "; ".join(f"{name}: seeds {each}" for name, each in seeds.items()) or "One line a run."
    drawn = figure(kind, caption, x="optimizer step", y="reward, exact match", margin={"r": 130}, width=WIDTH + 100)
    ends = []
    for place, (name, runs) in enumerate(groups.items()):
        look = LOOKS[place % len(LOOKS)]
        rewards = [reward for _, rows in runs if not (reward := _curve(rows, "reward")).empty]
        if rewards:
            smooth = [pd.Series(_smooth(each.tolist()), each.index) for each in rewards]
            for each in smooth if len(smooth) > 1 else rewards:
                _trace(drawn, each, {"color": look.faint(0.3)}, "lines")
            line = _mean(smooth)
            _trace(drawn, line, {"color": look.colour}, "lines" if len(line) > 1 else "markers", name=name)
            ends.append(End(name, line.index[-1], line.iloc[-1], look))
        evaluated = [ems for _, rows in runs if not (ems := _curve(rows, "validation EM")).empty]
        if evaluated:
            for each in evaluated if len(evaluated) > 1 else ():
                _trace(drawn, each, {"color": look.faint(0.3), "dash": "dot"}, "lines")
            line, marker = _mean(evaluated), {"color": look.colour, "symbol": look.symbol, "size": 7}
            _trace(drawn, line, {"color": look.colour, "dash": "dot"}, "markers+lines", marker=marker)
            ends.append(End("validation EM", line.index[-1], line.iloc[-1], look))
    last = max(1, int(table["step"].max()))
    drawn.update_xaxes(range=[0, last * 1.02], dtick=1 if last < 10 else None)
    drawn.update_yaxes(range=[0, 1.02])
    name_ends(drawn, ends)
    return drawn


def _runs(rows: pd.DataFrame) -> list[tuple[Any, pd.DataFrame]]:
    """Each run of some rows, with its seed, if that is known."""
    return [(each["seed"].iloc[0], each) for _, each in rows.groupby("run", sort=False)]


def _curve(rows: pd.DataFrame, series: str) -> pd.Series[float]:
    """The values of one series of a run, by step."""
    return rows[rows["series"] == series].set_index("step")["value"]


def _mean(curves: list[pd.Series[float]]) -> pd.Series[float]:
    """The mean of some curves over the steps that all of them have; the longest where they share none."""
    together = pd.concat(curves, axis=1).dropna().mean(axis=1)
    return together if len(together) else max(curves, key=len)


def _trace(drawn: go.Figure, curve: pd.Series[float], line: dict[str, Any], mode: str, **more: Any) -> None:
    drawn.add_scatter(x=curve.index.tolist(), y=curve.tolist(), mode=mode, line=line, **more)


def cache(table: pd.DataFrame, kind: Kind) -> go.Figure:
    """The key-value cache of one trajectory against the turn, a line a model and series (after figure 4)."""
    agents = [name for name in map(str, table["series"].unique()) if "kept" not in name]
    dashes = dict(zip(agents, cycle(DASHES), strict=False))
    lines = "; ".join(f"{dash}: {name}" for name, dash in dashes.items())
    caption = (
        "Mean context of the runs × bytes a token takes (16 bits). Not a measurement of a GPU.<br>"
        f"{lines.capitalize()}; dotted: counterfactual, history kept."
    )
    drawn = figure(kind, caption, x="turn", y="key-value cache, MB", margin={"r": 110}, width=WIDTH + 80)
    ends = []
    for place, model in enumerate(table["model"].unique()):
        look = LOOKS[place % len(LOOKS)]
        lasts = []
        for series, rows in table[table["model"] == model].groupby("series", sort=False):
            dash = dashes.get(str(series), "dot")
            drawn.add_scatter(
                x=rows["turn"].tolist(), y=rows["mb"].tolist(), mode="lines", name=f"{model}, {series}",
                line={"color": look.colour, "dash": dash},
            )  # fmt: skip
            lasts.append(_end(str(model), rows, "turn", "mb", look))
        highest = max(lasts, key=lambda end: end.y)
        ends.append(replace(highest, y=math.log10(highest.y)))
    low, high = math.log10(table["mb"].min()), math.log10(table["mb"].max())
    drawn.update_yaxes(type="log", dtick=1, range=[math.floor(low), high + 0.1])
    _turns(drawn, table)
    name_ends(drawn, ends)
    return drawn


def reported(table: pd.DataFrame, kind: Kind) -> go.Figure:
    """EM that papers report, by method and benchmark."""
    sources = "<br>".join(table["source"].unique())
    drawn = figure(kind, f"7B models; means as published, no intervals.<br>{sources}", x="exact match", y="",
                   width=2 * WIDTH, height=420, margin={"l": 200})  # fmt: skip
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


def _from_zero(drawn: go.Figure, highest: pd.Series[float]) -> None:
    drawn.update_yaxes(range=[0, 1.05 * max(1.0, float(highest.max()))])


def _end(name: str, rows: pd.DataFrame, x: str, y: str, look: Look) -> End:
    return End(name, float(rows[x].iloc[-1]), float(rows[y].iloc[-1]), look)


def _line(drawn: go.Figure, rows: pd.DataFrame, x: str, y: str, look: Look, axes: str = "") -> None:
    drawn.add_scatter(
        x=rows[x].tolist(), y=rows[y].tolist(), mode="lines+markers", name=str(rows["series"].iloc[0]),
        line={"color": look.colour, "dash": look.dash}, marker={"symbol": look.symbol, "size": 6},
        error_y=_bars(rows, y, look), xaxis=f"x{axes}", yaxis=f"y{axes}",
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
    return _counts({name: rows["n"].tolist() for name, rows in _series(measured)})


def _along(rows: pd.DataFrame, axis: str, places: list[Any]) -> list[int]:
    """The n of each place on an axis, 0 where there is no point."""
    known = dict(zip(rows[axis], rows["n"], strict=True))
    return [int(known.get(place, 0)) for place in places]


def _counts(counts: dict[str, list[int]]) -> str:
    """The n of each point, series by series; series of the same counts share a line."""
    named: dict[str, list[str]] = {}
    for name, each in counts.items():
        named.setdefault(", ".join(map(str, each)), []).append(name)
    return "<br>".join(wrapped(f"n, {', '.join(names)}: {each}", 90) for each, names in named.items())


def _smooth(values: list[float]) -> list[float]:
    """The exponential moving average, divided by the weight it has so far, so that it does not start at 0."""
    decay, total, weight, smooth = 1 - 2 / (SPAN + 1), 0.0, 0.0, []
    for value in values:
        total, weight = decay * total + (1 - decay) * value, decay * weight + (1 - decay)
        smooth.append(total / weight)
    return smooth
