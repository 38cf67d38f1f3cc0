"""Execute the notebooks and build HTML pages of them with an index: `python -m scripts.notebooks [NN …]`.

Every notebook runs from a fresh kernel in a folder of its own. Its exercise is tried twice: as
committed, where the check has to say "not yet", and with the solution that the notebook shows, where
it has to say "right". Pages, and the figures and tables that notebooks write, go to `build/notebooks`.
A page asks for nothing but the one script beside it that draws plots; so notebooks write formulas as text.
"""

from __future__ import annotations

import argparse
import html
import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import plotly.io
from nbclient import NotebookClient
from nbconvert import HTMLExporter
from plotly.offline import get_plotlyjs
from rich.console import Console

from memsearcher.figures.files import PLOTLY_JS
from memsearcher.lesson import NOT_YET, RIGHT

ROOT = Path(__file__).parent.parent
NOTEBOOKS = ROOT / "notebooks"
BUILD = ROOT / "build" / "notebooks"
TIMEOUT = 600
WIDGET = "application/vnd.jupyter.widget-view+json"
PLOT = "application/vnd.plotly.v1+json"

# nbconvert's page without the scripts that it takes from the web: require.js, MathJax and Mermaid.
PAGE = """
{%- extends "lab/index.html.j2" -%}
{%- block html_head_js -%}{%- endblock -%}
{%- block html_head_js_mathjax -%}{%- endblock -%}
{%- block html_head_js_mermaidjs -%}{%- endblock -%}
"""


class NotebookError(ValueError):
    """A notebook that is not as it has to be; the message names it."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """A notebook on disk."""

    path: Path

    @property
    def notebook(self) -> Any:
        return nbformat.read(self.path, as_version=4)  # type: ignore[no-untyped-call]

    @property
    def title(self) -> str:
        return str(re.sub(r"^#\s*", "", self.notebook.cells[0].source.splitlines()[0]))


def lessons(numbers: list[str] | None = None) -> list[Lesson]:
    """The notebooks in their order, or those whose two digits are named.

    Raises:
        NotebookError: there is none of that number.
    """
    found = {path.name[:2]: Lesson(path) for path in sorted(NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))}
    if unknown := set(numbers or ()) - set(found):
        raise NotebookError(f"no notebook {min(unknown)}; there are: {', '.join(found)}")
    return [lesson for number, lesson in found.items() if not numbers or number in numbers]


def tagged(notebook: Any, tag: str) -> list[int]:
    """The places of the cells that carry a tag."""
    return [place for place, cell in enumerate(notebook.cells) if tag in cell.metadata.get("tags", [])]


def with_parameters(notebook: Any, values: Mapping[str, Any]) -> None:
    """Set parameters behind the cell tagged `parameters`, as papermill does."""
    (place,) = tagged(notebook, "parameters")
    lines = "\n".join(f"{name} = {value!r}" for name, value in values.items())
    notebook.cells.insert(place + 1, nbformat.v4.new_code_cell(lines))  # type: ignore[no-untyped-call]


def with_solution(notebook: Any) -> int:
    """Put the solution and the check again behind the check of the exercise; returns the place of the first check."""
    (check,), (solution,) = tagged(notebook, "check"), tagged(notebook, "solution")
    code = re.search(r"```python\n(.*?)```", notebook.cells[solution].source, re.DOTALL)
    if code is None:
        raise NotebookError("the cell tagged solution has no ```python block")
    again = [code.group(1), notebook.cells[check].source]
    notebook.cells[check + 1 : check + 1] = map(nbformat.v4.new_code_cell, again)
    return check


def printed(cell: Any) -> str:
    """What a cell wrote to standard output."""
    return "".join(output.text for output in cell.outputs if output.output_type == "stream")


def without_widgets(notebook: Any) -> None:
    """Put what widgets show as text in their place: a page has no kernel that they could ask."""
    notebook.metadata.pop("widgets", None)
    for data in _shown(notebook):
        # A widget's own text stays; one that has none shows its `repr`, which ipywidgets cuts when it is long.
        if data.pop(WIDGET, None) and re.fullmatch(r"\w+\(.*[)…]", text := data["text/plain"], re.DOTALL):
            data["text/plain"] = f"{text.partition('(')[0]}: a widget to play with, in the notebook itself"


def with_plots(notebook: Any) -> None:
    """Put plots as HTML in the place of their data; the first one of a page loads the script that draws them."""
    plots = [data for data in _shown(notebook) if PLOT in data]
    for number, data in enumerate(plots):
        data["text/html"] = plotly.io.to_html(
            data.pop(PLOT),
            config={"displaylogo": False},
            include_plotlyjs=False if number else "directory",
            full_html=False,
            div_id=f"plot-{number}",
            validate=False,
        )


def page(notebook: Any) -> str:
    """An executed notebook as a page that asks for nothing from outside."""
    without_widgets(notebook)
    with_plots(notebook)
    # Not embed_images: it reads every piece of HTML for itself, so that <details> would hold nothing.
    text, _ = HTMLExporter(raw_template=PAGE).from_notebook_node(notebook)
    return str(text)


def _shown(notebook: Any) -> Iterator[dict[str, Any]]:
    """What the cells of a notebook show, each in several forms."""
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if "data" in output:
                yield output.data


def execute(lesson: Lesson, folder: Path, *, solve: bool = True, **parameters: Any) -> Any:
    """Run a notebook from a fresh kernel with `folder` as its working directory; returns it with its outputs.

    Raises:
        NotebookError: its exercise's check passes on the stub or fails on the solution.
        nbclient.exceptions.CellExecutionError: a cell fails.
    """
    notebook = lesson.notebook
    check = with_solution(notebook) if solve else None
    with_parameters(notebook, parameters)
    folder.mkdir(parents=True, exist_ok=True)
    client = NotebookClient(notebook, timeout=TIMEOUT, kernel_name="python3", resources={"metadata": {"path": folder}})
    # Without the front end's part that nbclient plays for Output widgets: it writes to the socket on which a cell's
    # reply is waited for, and pyzmq then may not see the reply that is there until TIMEOUT is over.
    client.widget_registry = {}
    client.execute()
    if check is not None:
        # The parameters' cell stands before the check and has moved it by one.
        stub, solved = printed(notebook.cells[check + 1]), printed(notebook.cells[check + 3])
        if not stub.startswith(NOT_YET):
            raise NotebookError(f"{lesson.path.name}: the check says {stub!r} to the stub")
        if not solved.startswith(RIGHT):
            raise NotebookError(f"{lesson.path.name}: the check says {solved!r} to the solution")
    return notebook


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("numbers", nargs="*", metavar="NN", help="only these notebooks")
    parser.add_argument("--full", action="store_true", help="the full size instead of the quick one")
    arguments = parser.parse_args()
    os.environ["PLOTLY_RENDERER"] = "plotly_mimetype"
    console = Console()
    rows = []
    for lesson in lessons(arguments.numbers):
        started = time.perf_counter()
        notebook = execute(lesson, BUILD / lesson.path.stem, solve=False, QUICK=not arguments.full)
        seconds = time.perf_counter() - started
        (BUILD / f"{lesson.path.stem}.html").write_text(page(notebook), encoding="utf-8")
        console.print(f"{lesson.path.name}: {seconds:.0f} s")
        rows.append(f'<li><a href="{lesson.path.stem}.html">{html.escape(lesson.title)}</a> ({seconds:.0f} s)</li>')
    index = f"<!doctype html><meta charset=utf-8><title>Notebooks</title><h1>Notebooks</h1><ul>{''.join(rows)}</ul>"
    (BUILD / "index.html").write_text(index, encoding="utf-8")
    (BUILD / PLOTLY_JS).write_text(get_plotlyjs(), encoding="utf-8")
    console.print(f"pages: {BUILD / 'index.html'}", soft_wrap=True)


if __name__ == "__main__":
    main()
