"""The figures by name: which table each has, how that is made and drawn, and what its numbers are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import plotly.graph_objects as go

from memsearcher.figures import anatomy, group, plots, rise, tables
from memsearcher.figures.files import (
    FigureError,
    Source,
    browser,
    read_source,
    read_table,
    write_plot,
    write_source,
    write_table,
)
from memsearcher.figures.runs import Runs, read_runs
from memsearcher.figures.style import Kind
from memsearcher.figures.tables import Rows


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure.

    Attributes:
        id: the stem of its files.
        shows: for the list of figures.
        columns: what its table must have.
        needs: the runs that its numbers come from, for where there are none.
        collect: the table from runs; empty where they have nothing for it.
        plot: the table drawn.
        kind: what its numbers always are, where that does not depend on the runs.
    """

    id: str
    shows: str
    columns: tuple[str, ...]
    needs: str
    collect: Callable[[Runs], Rows]
    plot: Callable[[pd.DataFrame, Kind], go.Figure]
    kind: Kind | None = None


COUNTED = "a run with an engine that counts tokens"
FIGURES = (
    Figure(
        "anatomy",
        "what the contexts of one question are made of, MemSearcher's and ReAct's (figure 1)",
        ("question", "agent", "em", "turn", "part", "tokens"),
        "a run of memsearcher and one of react with token ids, on one question (that of --question, if given)",
        anatomy.anatomy,
        anatomy.plot,
    ),
    Figure(
        "group",
        "a group of multi-context GRPO (figure 2)",
        ("run", "question", "trajectory", "conversation", "trained", "tokens", "reward", "advantage"),
        "a training run with its trajectories (on the question of --question, if given)",
        lambda runs: group.group(runs.groups),
        group.plot,
    ),
    Figure(
        "context",
        "tokens in the context per turn (figure 3)",
        ("series", "measured", "turn", "n", "tokens", "low", "high"),
        COUNTED,
        lambda runs: tables.context(runs.records),
        plots.context,
    ),
    Figure(
        "memory",
        "length of the memory per turn",
        ("series", "turn", "n", "tokens", "low", "high"),
        "a run of an agent that writes a memory",
        lambda runs: tables.memory(runs.records),
        plots.memory,
    ),
    Figure(
        "accuracy",
        "exact match by agent and kind of question",
        ("agent", "questions", "n", "failed", "em", "low", "high"),
        "a run on questions with golds",
        lambda runs: tables.accuracy(runs.records),
        plots.accuracy,
    ),
    Figure(
        "objectives",
        "exact match and peak tokens by questions in a task",
        ("agent", "measure", "objectives", "n", "failed", "value", "low", "high"),
        "runs on tasks of several questions (evaluate --objectives)",
        lambda runs: tables.objectives(runs.records),
        plots.objectives,
    ),
    Figure(
        "training",
        "reward and validation (figure 5)",
        ("run", "seed", "series", "step", "value"),
        "a training run",
        lambda runs: tables.training(runs.logs),
        plots.training,
    ),
    Figure(
        "rise",
        "what training adds to EM on validation, run by run",
        ("run", "group", "last_step", "n", "before", "after", "rise", "low", "high"),
        "a training run that was evaluated twice",
        lambda runs: rise.rise(runs.logs),
        rise.plot,
    ),
    Figure(
        "cache",
        "key-value cache per turn and model (after figure 4)",
        ("model", "series", "turn", "n", "mb"),
        COUNTED,
        lambda runs: tables.cache(runs.records),
        plots.cache,
        kind="computed",
    ),
    Figure(
        "reported",
        "exact match as papers report it",
        ("method", "model", "dataset", "em", "source"),
        "nothing",
        lambda runs: tables.reported(),
        plots.reported,
        kind="paper-reported",
    ),
)
IDS = tuple(each.id for each in FIGURES)


def collect(
    figures: Sequence[Figure], runs: Sequence[Path], kind: Kind, folder: Path, question: str | None = None
) -> list[Figure]:
    """Make the tables of `figures` from runs, with their sidecars; returns those that the runs have numbers for.

    Args:
        question: the id of the question that figures of single trajectories show; None leaves it to them.

    Raises:
        FigureError: see `read_runs`.
        RecordError: a record that cannot be read.
    """
    read = read_runs(runs, question)
    made = []
    for each in figures:
        if rows := each.collect(read):
            path = folder / f"{each.id}.csv"
            write_table(pd.DataFrame(rows), path)
            paper = each.kind == "paper-reported"
            note = "; ".join(sorted({row["source"] for row in rows})) if paper else ""
            source = Source(each.kind or kind, {} if paper else read.digests, note=note)
            write_source(source, path, folder / f"{each.id}.source.json")
            made.append(each)
    return made


def draw(figures: Sequence[Figure], folder: Path) -> Iterator[tuple[Figure, list[Path]]]:
    """Draw `figures` from the tables in `folder` alone; yields each with the files that were written.

    Raises:
        FigureError: a table or sidecar is missing, broken, or not the one that belongs to the other.
    """
    with browser() as render:
        for each in figures:
            path = folder / f"{each.id}.csv"
            table = read_table(path, each.columns)
            source = read_source(folder / f"{each.id}.source.json", path)
            yield each, write_plot(each.plot(table, source.kind), folder / each.id, render)


def choose(ids: Sequence[str]) -> list[Figure]:
    """Figures by id; all where none is named.

    Raises:
        FigureError: an unknown id.
    """
    if unknown := [name for name in ids if name not in IDS]:
        raise FigureError(f"there is no figure {unknown[0]!r}; there are: {', '.join(IDS)}")
    return [each for each in FIGURES if not ids or each.id in ids]
