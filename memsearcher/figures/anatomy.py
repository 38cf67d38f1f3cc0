"""What the contexts of one question are made of, turn by turn: MemSearcher's beside ReAct's (figure 1 of the paper).

Drawn from a recorded pair, an attempt of each agent at the same question. Both stand on one axis of
tokens, so that a growing context is seen to grow.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import groupby

import pandas as pd
import plotly.graph_objects as go

from memsearcher.figures.runs import Records, Runs
from memsearcher.figures.style import INK, WIDTH, Kind, figure, printable, wrapped
from memsearcher.figures.tables import Rows
from memsearcher.objective_scoring import has_objectives
from memsearcher.scoring import score_trajectory
from memsearcher.trajectory import Part, Trajectory, Turn

NAMES = {"memsearcher": "MemSearcher", "react": "ReAct"}

KINDS: dict[Part, str] = {
    "template": "prompt",
    "system": "prompt",
    "instruction": "prompt",
    "question": "question",
    "memory": "memory",
    "history": "memory",
    "observation": "observation",
    "reply": "response",
}
WRITTEN = "new memory"
"""The reply that rewrites the memory, told apart from the one that acts."""

COLOURS = {
    "prompt": ("#D9D9D9", INK, ""),
    "question": ("#0072B2", "#FFFFFF", ""),
    "memory": ("#009E73", "#FFFFFF", ""),
    "response": ("#CC79A7", INK, ""),
    "observation": ("#F0E442", INK, ""),
    WRITTEN: ("#009E73", "#FFFFFF", "/"),
}
"""By part: its colour, that of the number on it, and its pattern; in the order within a message."""

ROW = 22


def anatomy(runs: Runs) -> Rows:
    """The parts of every turn's longest context, in their order: `question, agent, em, turn, part, tokens`.

    Of the questions that both agents attempted without failing, with token ids on record: one that both
    answered right, before others; then the one with the most turns; then the first id. Tasks of several
    questions are left out. `runs.question` names another. Within a message the tokens of a part are put together.
    """
    first, second = (_attempts(runs.records, agent) for agent in NAMES)
    both = [(first[key], second[key]) for key in sorted(first.keys() & second.keys())]
    pairs = [
        pair for pair in both
        if (not has_objectives(pair[0].task) if runs.question is None else pair[0].task.id == runs.question)
    ]  # fmt: skip
    if not pairs:
        return []
    chosen = min(pairs, key=lambda pair: (not all(map(_em, pair)), -sum(len(each.turns) for each in pair)))
    return [
        {"question": printable(each.task.question), "agent": each.agent, "em": _em(each), "turn": number,
         "part": part, "tokens": tokens}
        for each in chosen
        for number, turn in enumerate(each.turns, 1)
        for part, tokens in _parts(each, turn)
    ]  # fmt: skip


def plot(table: pd.DataFrame, kind: Kind) -> go.Figure:
    """A row a turn and a block a part, as wide as it has tokens; numbers stand where there is room."""
    question = wrapped(str(table["question"].iloc[0]), 120)
    caption = (
        f"Question: {question}<br>Each row: the longest context of a turn, its reply included; at its end the tokens "
        "in it.<br>New memory: the reply that rewrites the memory, which the next turn is shown."
    )
    drawn = figure(kind, caption, x="tokens in the context", y="", width=2 * WIDTH, margin={"l": 56, "t": 44, "r": 16})
    places, titles = _places(table)
    totals = table.groupby(["agent", "turn"], sort=False)["tokens"].sum()
    end = 1.07 * int(totals.max())
    to_px = (drawn.layout.width - drawn.layout.margin.l - drawn.layout.margin.r) / end
    starts = table.groupby(["agent", "turn"], sort=False)["tokens"].cumsum() - table["tokens"]
    for part, (colour, ink, pattern) in COLOURS.items():
        mine = table["part"] == part
        tokens = table[mine]["tokens"].tolist()
        if not tokens:
            continue
        drawn.add_bar(
            name=part, orientation="h", x=tokens, base=starts[mine].tolist(), width=0.78,
            y=[places[key] for key in zip(table[mine]["agent"], table[mine]["turn"], strict=True)],
            text=[str(n) if n * to_px > 8 + 6 * len(str(n)) else "" for n in tokens], textposition="inside",
            insidetextanchor="middle", textangle=0, textfont={"size": 9, "color": ink},
            marker={"color": colour, "line": {"color": "white", "width": 0.5},
                    "pattern": {"shape": pattern, "fgcolor": "white", "fgopacity": 0.45, "size": 5}},
        )  # fmt: skip
    drawn.add_scatter(
        x=totals.tolist(), y=[places[key] for key in totals.index], text=[f" {total}" for total in totals], mode="text",
        textposition="middle right", textfont={"size": 10}, showlegend=False,
    )  # fmt: skip
    for agent, place in titles.items():
        rows = table[table["agent"] == agent]
        text = f"<b>{NAMES[agent]}</b>: peak {totals[agent].max()} tokens{_verdict(float(rows['em'].iloc[0]))}"
        drawn.add_annotation(text=text, x=0, y=place, xanchor="left", showarrow=False, font={"size": 11})
    slots = max(places.values()) + 1
    drawn.update_layout(
        height=drawn.layout.margin.t + drawn.layout.margin.b + ROW * slots, barmode="overlay", showlegend=True,
        legend={"orientation": "h", "x": 1, "xanchor": "right", "yref": "container", "y": 1, "yanchor": "top",
                "traceorder": "normal", "font": {"size": 10}},
    )  # fmt: skip
    drawn.update_xaxes(range=[0, end], gridcolor="#E6E6E6")
    drawn.update_yaxes(
        range=[slots - 0.5, -0.5], tickvals=list(places.values()), ticktext=[f"turn {turn}" for _, turn in places],
        showgrid=False, ticks="", showline=False, tickfont={"size": 10},
    )  # fmt: skip
    return drawn


def _attempts(records: Iterable[Records], agent: str) -> dict[tuple[str, str], Trajectory]:
    """The first attempt of an agent at each question of which every token is on record."""
    found: dict[tuple[str, str], Trajectory] = {}
    for each in (each for run in records for each in run.whole if each.agent == agent):
        counted = all(conversation.token_ids is not None for conversation in each.conversations)
        if counted and each.turns and all(turn.calls for turn in each.turns):
            found.setdefault((each.task.id, each.task.question), each)
    return found


def _em(trajectory: Trajectory) -> float | None:
    scored = score_trajectory(trajectory) if trajectory.task.golds else None
    return scored.em if scored else None


def _parts(trajectory: Trajectory, turn: Turn) -> Sequence[tuple[str, int]]:
    """What the context of a turn's last call is made of, its reply included, message by message."""
    last = turn.calls[-1]
    calls = [call for call in trajectory.calls if call.conversation == last.conversation]
    written = {call.segment for call in calls if call.purpose == "remember"}
    parts: list[tuple[str, int]] = []
    segments = enumerate(trajectory.conversations[last.conversation].segments[: last.segment + 1])
    for _, message in groupby(segments, key=lambda each: each[1].role):
        counts = dict.fromkeys(COLOURS, 0)
        for place, segment in message:
            part = WRITTEN if place in written else KINDS[segment.part]
            counts[part] += len(segment.token_ids or ())
        for part, tokens in counts.items():
            if parts and parts[-1][0] == part:
                parts[-1] = (part, parts[-1][1] + tokens)
            elif tokens:
                parts.append((part, tokens))
    return parts


def _places(table: pd.DataFrame) -> tuple[dict[tuple[str, int], int], dict[str, int]]:
    """Where the rows of the turns stand, and the titles over them; agents a little apart."""
    places: dict[tuple[str, int], int] = {}
    titles = {}
    slot = 0
    for agent in table["agent"].unique():
        titles[str(agent)] = slot
        for turn in table[table["agent"] == agent]["turn"].unique():
            slot += 1
            places[str(agent), int(turn)] = slot
        slot += 1
    return places, titles


def _verdict(em: float) -> str:
    return "" if math.isnan(em) else f", answer {'right' if em == 1 else 'wrong'}"
