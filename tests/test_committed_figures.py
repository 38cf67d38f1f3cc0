"""The figures in `figures/` are what their tables give, and each says what its numbers are."""

import shutil
from pathlib import Path

import pytest

from memsearcher.figures.draw import FIGURES, draw
from memsearcher.figures.files import read_source

FOLDER = Path(__file__).parent.parent / "figures"
COMMITTED = [each for each in FIGURES if (FOLDER / f"{each.id}.csv").is_file()]
EARLY, POCKET = FOLDER / "early", FOLDER / "pocket"
DRAWN = [
    (folder, each) for folder in (FOLDER, EARLY, POCKET) for each in FIGURES if (folder / f"{each.id}.csv").is_file()
]


def test_every_figure_of_the_paper_is_there():
    assert {"anatomy", "group", "context", "cache", "training"} <= {each.id for each in COMMITTED}
    tables = {path.stem for path in FOLDER.glob("*.csv")}
    assert tables == {each.id for each in COMMITTED}


@pytest.mark.parametrize(
    ("folder", "committed"), DRAWN, ids=lambda each: each.name if isinstance(each, Path) else each.id
)
def test_a_committed_figure_is_what_its_table_gives(folder, committed, tmp_path, monkeypatch):
    """To the byte in plotly's own format; what SVG and PDF look like is also up to the browser and its fonts."""
    monkeypatch.setattr("memsearcher.figures.files.shutil.which", lambda name: None)
    for path in folder.glob(f"{committed.id}.*"):
        shutil.copy(path, tmp_path)
    list(draw([committed], tmp_path))
    plot = f"{committed.id}.json"
    assert (tmp_path / plot).read_bytes() == (folder / plot).read_bytes()
    kind = read_source(folder / f"{committed.id}.source.json", folder / f"{committed.id}.csv").kind
    assert f">{kind}<" in (folder / f"{committed.id}.svg").read_text()
    assert (folder / f"{committed.id}.pdf").read_bytes().startswith(b"%PDF")
