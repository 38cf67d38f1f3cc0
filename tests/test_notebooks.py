"""The notebooks: as they are committed, and run from a fresh kernel."""

import json
import os
import re

import nbformat
import plotly.graph_objects as go
import pytest
from plotly.offline import get_plotlyjs

from memsearcher.figures.files import PLOTLY_JS
from scripts.notebooks import PLOT, WIDGET, execute, lessons, page, tagged, without_widgets
from tests.browser import chromium, tab

LESSONS = pytest.mark.parametrize("lesson", lessons(), ids=lambda lesson: lesson.path.stem)
OUTWARD = re.compile(r"^\s*[%!]|pip install|https?://(?!127\.0\.0\.1)", re.MULTILINE)
PARAMETERS = ("QUICK", "SEED", "MODEL", "OUT")

# Run a second time, to compare tables: those that ran for less than 40 s on a busy core. The others took 80 to 450 s.
TWICE = ("04_reading_traces", "10_figures")


@LESSONS
def test_a_notebook_is_committed_stripped(lesson):
    notebook = lesson.notebook
    assert set(notebook.metadata) <= {"kernelspec", "language_info"}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None


@LESSONS
def test_a_notebook_opens_with_its_claim_and_ends_with_its_limits(lesson):
    first, text = lesson.notebook.cells[0].source, "\n".join(cell.source for cell in lesson.notebook.cells)
    assert first.startswith("# ")
    for heading in ("**Claim.**", "**You will", "**Time"):
        assert heading in first, heading
    for heading in ("## Exercise", "## Limitations"):
        assert heading in text, heading


@LESSONS
def test_a_notebook_has_one_cell_of_each_role(lesson):
    notebook = lesson.notebook
    for tag in ("parameters", "exercise", "check", "solution", "result", "control"):
        assert len(tagged(notebook, tag)) == 1, tag
    first_code = next(place for place, cell in enumerate(notebook.cells) if cell.cell_type == "code")
    assert tagged(notebook, "parameters") == [first_code]
    for name in PARAMETERS:
        assert re.search(rf"^{name} = ", notebook.cells[first_code].source, re.MULTILINE), name


@LESSONS
def test_cells_are_short_and_stand_alone(lesson):
    for cell in lesson.notebook.cells:
        if cell.cell_type == "code":
            assert len(cell.source.splitlines()) <= 25, cell.source
            assert not re.search(r"^\s*[%!]|pip install|https?://(?!127\.0\.0\.1)", cell.source, re.MULTILINE), (
                cell.source
            )


@LESSONS
def test_formulas_are_text_that_needs_no_script(lesson):
    for cell in lesson.notebook.cells:
        if cell.cell_type == "markdown":
            text = re.sub(r"```.*?```|`[^`\n]*`", "", cell.source, flags=re.DOTALL)
            assert not re.search(r"\$[^$\n]+\$|\\[(\[]|\\begin", text), cell.source


def tables(folder):
    """The tables that a notebook wrote; not the sidecars, which hash records and with them how long those took."""
    files = (path for path in folder.iterdir() if path.suffix in (".csv", ".json"))
    return {path.name: path.read_bytes() for path in files if not path.name.endswith(".source.json")}


@LESSONS
def test_a_notebook_runs_and_its_exercise_can_be_solved(lesson, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(lesson.path.parent.parent)]))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    notebook = execute(lesson, tmp_path, QUICK=True)
    declared = set(re.findall(r"`figures/([\w.-]+)`", notebook.cells[0].source))
    out = tmp_path / "figures"
    assert {path.name for path in out.iterdir()} == declared if out.exists() else not declared
    if lesson.path.stem in TWICE:
        execute(lesson, tmp_path / "again", solve=False, QUICK=True)
        assert tables(out) == tables(tmp_path / "again" / "figures")


def test_on_a_page_a_widget_shows_its_text():
    shown = {
        "Inspector(index={})": "Inspector: a widget",
        "interactive(children=(Dropdown(description='name',\n options=('a', '…": "interactive: a widget",
        "What?\nanswer: Paris (sure)": "What?\nanswer: Paris (sure)",
    }
    cell = nbformat.v4.new_code_cell("x")
    cell.outputs = [
        nbformat.v4.new_output("display_data", {WIDGET: {"model_id": "1"}, "text/plain": text}) for text in shown
    ]
    cell.outputs.append(nbformat.v4.new_output("stream", text="f(x)"))
    without_widgets(nbformat.v4.new_notebook(cells=[cell, nbformat.v4.new_markdown_cell("y")]))
    for output, text in zip(cell.outputs, shown.values(), strict=False):
        assert WIDGET not in output.data
        assert output.data["text/plain"].startswith(text)


def test_a_page_asks_for_nothing_but_the_script_beside_it(tmp_path):
    plot = json.loads(go.Figure(go.Scatter(y=[1, 2])).to_json())
    cell = nbformat.v4.new_code_cell("x")
    cell.outputs = [nbformat.v4.new_output("display_data", {PLOT: plot}) for _ in range(2)]
    cell.outputs.append(
        nbformat.v4.new_output("display_data", {WIDGET: {"model_id": "1"}, "text/plain": "Text(value='…"})
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# A page"), cell])
    notebook.metadata["widgets"] = {"application/vnd.jupyter.widget-state+json": {"state": {}}}
    path = tmp_path / "page.html"
    path.write_text(page(notebook), encoding="utf-8")
    tags = re.findall(r"<(?:script|link|img|iframe)\b[^>]*>", path.read_text(encoding="utf-8"))
    assert [found for tag in tags for found in re.findall(r'(?:src|href)="([^"]*)"', tag)] == [PLOTLY_JS]
    (tmp_path / PLOTLY_JS).write_text(get_plotlyjs(), encoding="utf-8")
    with chromium() as browser, tab(browser) as opened:
        opened.goto(path.as_uri())
        opened.wait_for_selector("#plot-1 .main-svg")
        assert opened.faults == []
        assert opened.asked == [path.as_uri(), (tmp_path / PLOTLY_JS).as_uri()]
