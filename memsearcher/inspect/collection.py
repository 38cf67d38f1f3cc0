"""Trajectories of one or several runs, as the inspector takes them: an index first, a view when it is asked for."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from memsearcher.inspect.summary import groups, hits, row, searchable
from memsearcher.inspect.text import visible
from memsearcher.inspect.view import view
from memsearcher.runs import Run
from memsearcher.trajectory import Trajectory, read_trajectories

Source = str | Path | Run | Trajectory | Iterable[Trajectory]
"""A run folder, a file of trajectories, or the trajectories themselves."""

KEPT_VIEWS = 64


class NothingToInspect(ValueError):
    """A source without trajectories; the message names it."""


class Collection:
    """The trajectories of `sources`, each source a run of its own.

    Raises:
        NothingToInspect: no source, or one that holds no trajectory.
        RecordError: a file that cannot be read as trajectories.
    """

    def __init__(self, *sources: Source) -> None:
        if not sources:
            raise NothingToInspect("name a run folder, a file of trajectories, or give trajectories")
        self.runs: list[str] = []
        self.trajectories: list[Trajectory] = []
        self._run_of: list[int] = []
        for number, source in enumerate(sources):
            name, found = _read(source, f"run {number + 1}")
            if not found:
                raise NothingToInspect(f"{name}: there are no trajectories")
            self.runs.append(f"{name} ({number + 1})" if name in self.runs else name)
            self.trajectories += found
            self._run_of += [number] * len(found)
        self.view = lru_cache(maxsize=KEPT_VIEWS)(self._view)

    def __len__(self) -> int:
        return len(self.trajectories)

    @cached_property
    def index(self) -> dict[str, Any]:
        """What a page begins with: a row a trajectory, the groups among them, the names of the runs."""
        rows = [row(each, run) for each, run in zip(self.trajectories, self._run_of, strict=True)]
        return {"rows": rows, "groups": groups(rows), "runs": [visible(name) for name in self.runs]}

    def search(self, query: str) -> list[tuple[int, list[int]]]:
        """Where `query` stands: the places of trajectories with their hits, before the turns and then turn by turn."""
        found = ((place, hits(texts, query)) for place, texts in enumerate(self._texts))
        return [(place, counts) for place, counts in found if any(counts)]

    @cached_property
    def _texts(self) -> list[list[str]]:
        return [searchable(each) for each in self.trajectories]

    def _view(self, place: int) -> dict[str, Any]:
        return view(self.trajectories[place], self._run_of[place])


def _read(source: Source, name: str) -> tuple[str, list[Trajectory]]:
    """A name for a source and its trajectories."""
    if isinstance(source, Trajectory):
        return name, [source]
    if isinstance(source, str | Path | Run):
        path = source.folder if isinstance(source, Run) else Path(source)
        file = Run(path).path if path.is_dir() else path
        if not file.is_file():
            raise NothingToInspect(f"{path}: no run folder and no file of trajectories")
        return path.resolve().stem if path.is_file() else path.resolve().name, list(read_trajectories(file))
    return name, list(source)
