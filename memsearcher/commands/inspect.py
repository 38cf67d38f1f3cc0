"""`memsearcher inspect`: the trajectories of runs as one HTML file that needs no server."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from memsearcher.commands.common import one_clear_error, out, progress_bar


def inspect(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, or JSONL files of trajectories.")],
    page: Annotated[Path, typer.Option("--out", help="The HTML file to write.")] = Path("traces.html"),
) -> None:
    """Write trajectories as an HTML file to look into: turns, memory, sources, tokens, groups, comparison."""
    from memsearcher.inspect.collection import Collection
    from memsearcher.inspect.export import write_page

    def track(places: Iterable[int]) -> Iterable[int]:
        return progress.track(places, total=len(collection), description="trajectories")

    with one_clear_error():
        collection = Collection(*runs)
        with progress_bar() as progress:
            write_page(page, collection, track)
        size = page.stat().st_size / 2**20
        out.print(
            f"{page}: trajectories {len(collection)}, {size:.1f} MiB; open it in a browser",
            soft_wrap=True,
            markup=False,
        )
