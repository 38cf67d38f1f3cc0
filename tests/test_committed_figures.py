"""The figures in `figures/` are what their tables give, and each says what its numbers are."""

import shutil
from pathlib import Path

import pytest

from memsearcher.figures.draw import FIGURES, draw
from memsearcher.figures.files import read_source

FOLDER = Path(__file__).parent.parent / "figures"
COMMITTED = [each for each in FIGURES if (FOLDER / f"{each.id}.csv").is_file()]


def test_every_figure_of_the_paper_is_there():
    assert {"anatomy", "group", "context", "cache", "training"} <= {each.id for each in COMMITTED}
    tables = {path.stem for path in FOLDER.glob("*.csv")}
    assert tables == {each.id for each in COMMITTED}


@pytest.mark.parametrize("committed", COMMITTED, ids=lambda each: each.id)
def test_a_committed_figure_is_what_its_table_gives(committed, tmp_path, monkeypatch):
    """To the byte in plotly's own format; what SVG and PDF look like is also up to the browser and its fonts."""
    monkeypatch.setattr("memsearcher.figures.files.shutil.which", lambda name: None)
    for path in FOLDER.glob(f"{committed.id}.*"):
        shutil.copy(path, tmp_path)
    list(draw([committed], tmp_path))
    plot = f"{committed.id}.json"
    assert (tmp_path / plot).read_bytes() == (FOLDER / plot).read_bytes()
    kind = read_source(FOLDER / f"{committed.id}.source.json", FOLDER / f"{committed.id}.csv").kind
    assert f">{kind}<" in (FOLDER / f"{committed.id}.svg").read_text()
    assert (FOLDER / f"{committed.id}.pdf").read_bytes().startswith(b"%PDF")
