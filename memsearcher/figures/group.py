"""A group of multi-context GRPO: the trajectories of one question, their conversations, rewards and advantages.

Figure 2 of the paper, drawn from a recorded step of training: every conversation is an optimization
target of its own, and all of a trajectory carry its one advantage.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import groupby

import pandas as pd
import plotly.graph_objects as go

from memsearcher.figures.runs import Records
from memsearcher.figures.style import GREY, INK, WIDTH, Kind, figure, printable, wrapped
from memsearcher.figures.tables import Rows

SHADES = {
    "advantage above 0": ("#0072B2", ""),
    "advantage below 0": ("#D55E00", "/"),
    "no gradient": ("#8C8C8C", "."),
}
"""The colour of trained tokens and its pattern, by what their advantage does to them."""

ROW = 30


def group(groups: Iterable[Records]) -> Rows:
    """Stretches of tokens that are trained or not: `run, question, trajectory, conversation, trained, tokens,
    reward, advantage`.

    A row a stretch, in the order of the context; `trajectory` and `conversation` count from 1. Reward and
    advantage are empty for a trajectory that failed. Of several training runs the first is taken.
    """
    rows: Rows = []
    for run in list(groups)[:1]:
        for number, each in enumerate(run.trajectories, 1):
            about = {"run": printable(run.name), "question": printable(each.task.question), "trajectory": number}
            stretches = [
                (place, bool(trained), sum(1 for _ in stretch))
                for place, conversation in enumerate(each.conversations, 1)
                for trained, stretch in groupby(conversation.loss_mask or ())
            ]
            for place, trained, tokens in stretches or [(1, False, 0)]:  # it failed before anything was encoded
                row = {"conversation": place, "trained": trained, "tokens": tokens}
                rows.append({**about, **row, "reward": each.reward, "advantage": each.advantage})
    return rows


def plot(table: pd.DataFrame, kind: Kind) -> go.Figure:
    """A row a trajectory, its conversations framed one behind the other, trained tokens shaded."""
    each = table.drop_duplicates("trajectory")
    first = table.iloc[0]
    caption = (
        f"{wrapped(str(first['run']), 60)}: the {len(each)} trajectories of one question:<br>"
        f"{wrapped(str(first['question']), 120)}<br>"
        "Frames: their conversations, numbered; coloured: sampled tokens, which are trained.<br>"
        f"All conversations of a trajectory share its advantage. {_rewards(each['reward'])}"
    )
    margin = {"l": 78, "t": 50, "r": 128}
    drawn = figure(kind, caption, x="tokens of all conversations", y="", width=2 * WIDTH, margin=margin)
    end = 1.01 * int(table.groupby("trajectory")["tokens"].sum().max())
    starts = table.groupby("trajectory")["tokens"].cumsum() - table["tokens"]
    shades = table["advantage"].map(_shade)
    _blocks(drawn, table, starts, ~table["trained"], "context", "#E3E3E3", "")
    for name, (colour, pattern) in SHADES.items():
        if (mine := table["trained"] & (shades == name)).any():
            _blocks(drawn, table, starts, mine, f"trained, {name}", colour, pattern)
    frames = table.groupby(["trajectory", "conversation"], as_index=False)["tokens"].sum()
    drawn.add_bar(
        orientation="h", x=frames["tokens"].tolist(), y=frames["trajectory"].tolist(), width=0.6, showlegend=False,
        base=(frames.groupby("trajectory")["tokens"].cumsum() - frames["tokens"]).tolist(),
        text=frames["conversation"].tolist(), textposition="inside", insidetextanchor="start", textangle=0,
        textfont={"size": 10, "color": INK},
        marker={"color": "rgba(0,0,0,0)", "line": {"color": INK, "width": 1}},
    )  # fmt: skip
    columns = (("reward", 14, each["reward"].map(_reward)), ("advantage", 70, each["advantage"].map(_advantage)))
    for name, shift, texts in columns:
        cells = [(0.4, name, GREY), *zip(each["trajectory"], texts, [INK] * len(each), strict=True)]
        for y, text, colour in cells:
            drawn.add_annotation(
                text=text, xref="paper", x=1, xshift=shift, y=y, xanchor="left", showarrow=False,
                font={"size": 10, "color": colour},
            )  # fmt: skip
    drawn.update_layout(
        height=drawn.layout.margin.t + drawn.layout.margin.b + ROW * len(each) + 10, barmode="overlay", showlegend=True,
        legend={"orientation": "h", "x": 1, "xanchor": "right", "yref": "container", "y": 1, "yanchor": "top",
                "font": {"size": 10}},
    )  # fmt: skip
    drawn.update_xaxes(range=[0, end])
    drawn.update_yaxes(
        range=[len(each) + 0.5, 0.2], tickvals=each["trajectory"].tolist(), showgrid=False, ticks="", showline=False,
        ticktext=[f"trajectory {number}" for number in each["trajectory"]], tickfont={"size": 10},
    )  # fmt: skip
    return drawn


def _blocks(
    drawn: go.Figure, table: pd.DataFrame, starts: pd.Series[int], mine: pd.Series[bool], name: str, colour: str,
    pattern: str,
) -> None:  # fmt: skip
    rows = table[mine]
    drawn.add_bar(
        name=name, orientation="h", x=rows["tokens"].tolist(), base=starts[mine].tolist(),
        y=rows["trajectory"].tolist(), width=0.6,
        marker={"color": colour, "line": {"width": 0},
                "pattern": {"shape": pattern, "fgcolor": "white", "fgopacity": 0.5, "size": 4}},
    )  # fmt: skip


def _shade(advantage: float) -> str:
    return (
        "no gradient"
        if not advantage or math.isnan(advantage)
        else f"advantage {'above' if advantage > 0 else 'below'} 0"
    )


def _rewards(rewards: pd.Series[float]) -> str:
    """The mean and spread of the group, which the advantages follow from."""
    known = rewards.dropna()
    if known.nunique() < 2:
        return "Rewards do not differ: no gradient."
    return f"Rewards: mean {known.mean():.3g}, standard deviation {known.std():.3g} (n − 1)."


def _reward(value: float) -> str:
    return "failed" if math.isnan(value) else f"{value:.3g}"


def _advantage(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:+.2f}".replace("-", "−")
