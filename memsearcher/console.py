"""How trajectories and tables look in a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from memsearcher.runs import mean_of
from memsearcher.trajectory import Trajectory, Turn

SHOWN_PASSAGE = 160
SCORES = ("em", "f1", "cover_em", "success")


def show(console: Console, trajectory: Trajectory) -> None:
    """Print a trajectory turn by turn: memory in, thought, query, passages, memory out, tokens."""
    console.print(Panel(plain(trajectory.task.question), title="question", title_align="left"))
    counterfactual = trajectory.react_tokens
    for number, turn in enumerate(trajectory.turns, 1):
        react = counterfactual[number - 1] if counterfactual else None
        show_turn(console, number, turn, react)
    if trajectory.error:
        console.print(Text("failed: ", "bold red") + plain(trajectory.error))
    elif trajectory.outcome:
        parts = ", ".join(f"{name}: {value}" for name, value in trajectory.outcome.parts.items())
        console.print(Text(f"outcome: {trajectory.outcome.reward:.3f}  ", "bold green") + plain(parts, "dim"))
    else:
        answer = plain(trajectory.answer) if trajectory.answer is not None else Text("none", "dim")
        golds = plain(f"   (gold: {' | '.join(trajectory.task.golds)})" if trajectory.task.golds else "", "dim")
        console.print(Text("answer: ", "bold green") + answer + golds)
    console.print()


def show_turn(console: Console, number: int, turn: Turn, react: int | None) -> None:
    """Print one turn; `react` is the counterfactual length of a ReAct context after it."""
    tokens = f"{turn.context_tokens} tokens in context" if turn.context_tokens is not None else "tokens not counted"
    beside = f", {react} if it kept its history" if react is not None else ""
    console.rule(f"turn {number} · {tokens}{beside}", align="left", style="dim")
    if turn.memory_before is not None:
        console.print(Text("memory   ", "bold cyan") + plain(turn.memory_before or "(empty)"))
    if turn.thought:
        console.print(Text("thought  ", "bold") + plain(turn.thought))
    for step in turn.steps:
        console.print(Text(f"{step.action.name:<9}", "bold yellow") + plain(str(step.action.arguments.get("query"))))
        for passage in step.observation.passages if step.observation else ():
            score = "" if passage.score is None else f"[{passage.score:.2f}]  "
            line = f"  {passage.rank}. {passage.title}  {score}{passage.text}"
            console.print(plain(line[:SHOWN_PASSAGE].replace("\n", " "), "dim"))
        if step.observation and step.observation.text:
            console.print(Text("  ") + plain(step.observation.text))
    for event in turn.events:
        console.print(Text(f"event    {event.name}  ", "bold magenta") + plain(event.detail))
    if turn.memory_after is not None and turn.memory_after != turn.memory_before:
        console.print(Text("memory → ", "bold cyan") + plain(turn.memory_after))


def plain(text: str, style: str = "") -> Text:
    """Text from outside as it is: no markup in it counts, control characters are shown."""
    return Text("".join(c if c.isprintable() or c == "\n" else f"\\x{ord(c):02x}" for c in text), style)


def summary(rows: Sequence[dict[str, Any]], title: str) -> Table:
    """A table of means with 95% bootstrap intervals over questions; failed ones are counted apart."""
    failed = sum(row["error"] is not None for row in rows)
    table = Table(title=escape(title), title_justify="left")
    for column in ("", "mean", "95% interval", "n"):
        table.add_column(column)
    for name in (*SCORES, "score", "turns", "searches", "steps", "peak_tokens", "sampled_tokens", "seconds"):
        values = [row for row in rows if row.get(name) is not None and row["error"] is None]
        interval = mean_of(values, name)
        if interval:
            digits = 3 if name in SCORES else 1
            low_high = f"{interval.low:.{digits}f} – {interval.high:.{digits}f}"
            table.add_row(name, f"{interval.mean:.{digits}f}", low_high, str(len(values)))
    if failed:
        table.add_row("failed (not scored)", str(failed), "", str(len(rows)))
    return table
