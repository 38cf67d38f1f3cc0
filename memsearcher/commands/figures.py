"""`memsearcher figures`: the figures from runs, or again from the tables that are there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from memsearcher.commands.common import err, one_clear_error, out


def figures(
    ids: Annotated[list[str] | None, typer.Argument(help="Figures by name; all that there are numbers for.")] = None,
    runs: Annotated[
        list[Path] | None, typer.Option("--runs", help="A run, evaluation or training run; may be given often.")
    ] = None,
    folder: Annotated[Path, typer.Option("--out", help="Where tables and figures lie.")] = Path("figures"),
    question: Annotated[
        str | None, typer.Option(help="The id of the question that figures of single trajectories show.")
    ] = None,
    demo: Annotated[bool, typer.Option(help="Mark the numbers of these runs as a demo.")] = False,
) -> None:
    """Make the tables of the figures from runs and draw them; without runs, draw the tables that are there."""
    from memsearcher.figures.draw import choose, collect, draw
    from memsearcher.figures.style import Kind

    with one_clear_error():
        wanted = choose(ids or ())
        if runs:
            kind: Kind = "demo" if demo else "reproduced at pocket scale"
            made = collect(wanted, runs, kind, folder, question)
            for each in wanted:
                if each not in made:
                    err.print(f"{each.id}: not drawn; it needs {each.needs}", soft_wrap=True)
            wanted = made
        elif not ids:
            wanted = [each for each in wanted if (folder / f"{each.id}.csv").is_file()]
        if not wanted:
            raise ValueError(f"{folder}: there are no tables, and no runs with numbers for them; name some with --runs")
        for each, files in draw(wanted, folder):
            err.print(f"{each.id}: {each.shows}", soft_wrap=True)
            for path in files:
                out.print(path, soft_wrap=True, markup=False)
