"""The figures by name: which table each has, how that is made and drawn, and what its numbers are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import plotly.graph_objects as go

from memsearcher.figures import plots, tables
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
from memsearcher.figures.style import Kind
from memsearcher.figures.tables import Log, Records, Rows


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure.

    Attributes:
        id: the stem of its files.
        shows: for the list of figures.
        columns: what its table must have.
        collect: the table from records and logs; empty where they have nothing for it.
        plot: the table drawn.
        kind: what its numbers always are, where that does not depend on the runs.
    """

    id: str
    shows: str
    columns: tuple[str, ...]
    collect: Callable[[Sequence[Records], Sequence[Log]], Rows]
    plot: Callable[[pd.DataFrame, Kind], go.Figure]
    kind: Kind | None = None


FIGURES = (
    Figure(
        "context",
        "tokens in the context per turn (figure 3)",
        ("series", "measured", "turn", "n", "tokens", "low", "high"),
        lambda records, logs: tables.context(records),
        plots.context,
    ),
    Figure(
        "memory",
        "length of the memory per turn",
        ("series", "turn", "n", "tokens", "low", "high"),
        lambda records, logs: tables.memory(records),
        plots.memory,
    ),
    Figure(
        "accuracy",
        "exact match by agent and kind of question",
        ("agent", "questions", "n", "failed", "em", "low", "high"),
        lambda records, logs: tables.accuracy(records),
        plots.accuracy,
    ),
    Figure(
        "training",
        "reward and validation (figure 5)",
        ("run", "series", "step", "value"),
        lambda records, logs: tables.training(logs),
        plots.training,
    ),
    Figure(
        "cache",
        "key-value cache per turn and model (after figure 4)",
        ("model", "series", "turn", "n", "mb"),
        lambda records, logs: tables.cache(records),
        plots.cache,
        kind="computed",
    ),
    Figure(
        "reported",
        "exact match as papers report it",
        ("method", "model", "dataset", "em", "source"),
        lambda records, logs: tables.reported(),
        plots.reported,
        kind="paper-reported",
    ),
)
IDS = tuple(each.id for each in FIGURES)


def collect(figures: Sequence[Figure], runs: Sequence[Path], kind: Kind, folder: Path) -> list[Figure]:
    """Make the tables of `figures` from runs, with their sidecars; returns those that the runs have numbers for.

    Raises:
        FigureError: see `read_runs`.
        RecordError: a record that cannot be read.
    """
    records, logs = tables.read_runs(runs)
    digests = {run.name: run.sha256 for run in records} | {log.name: log.sha256 for log in logs}
    made = []
    for each in figures:
        if rows := each.collect(records, logs):
            path = folder / f"{each.id}.csv"
            write_table(pd.DataFrame(rows), path)
            paper = each.kind == "paper-reported"
            note = "; ".join(sorted({row["source"] for row in rows})) if paper else ""
            source = Source(each.kind or kind, {} if paper else digests, note=note)
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
