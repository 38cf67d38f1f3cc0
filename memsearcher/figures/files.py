"""A figure on disk: its table, the plot made from that table alone, and where the numbers are from.

`ID.csv` (the table), `ID.json` (the plot, plotly's own format), `ID.svg`, `ID.pdf`, `ID.html`,
and `ID.source.json` (kind, runs, hash of the table, version, seed). The same table gives the
same bytes: names that plotly draws at random and the dates in PDF files are set.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import logging
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from io import StringIO
from pathlib import Path

import pandas as pd
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from memsearcher import __version__, jsonl
from memsearcher.figures.style import Kind

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
PLOTLY_JS = "plotly.min.js"

logger = logging.getLogger(__name__)


class FigureError(ValueError):
    """A table or a figure that cannot be used; the message names the file and the column."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where the numbers of a figure come from.

    Attributes:
        kind: what they are.
        runs: by the name of each run, the SHA-256 of the file of records it was read from.
        seed: of the questions drawn and of the bootstrap.
        note: sources of numbers that no run gave.
    """

    kind: Kind
    runs: dict[str, str] = field(default_factory=dict)
    seed: int = 0
    note: str = ""


def write_table(table: pd.DataFrame, path: Path) -> None:
    """Write a table as CSV, whole or not at all; floats to six digits, so that it reads back the same."""
    text = StringIO()
    table.to_csv(text, index=False, float_format="%.6g", lineterminator="\n")
    jsonl.replace(path, text.getvalue().encode())


def read_table(path: Path, columns: tuple[str, ...]) -> pd.DataFrame:
    """Read a table back.

    Raises:
        FigureError: no such file, not CSV, no rows, or a column is missing.
    """
    try:
        # Empty is missing, and nothing else is: a question may be "NA".
        table = pd.read_csv(path, keep_default_na=False, na_values=[""])
    except FileNotFoundError:
        raise FigureError(f"{path}: no such table; make it from runs with `memsearcher figures --runs RUN`") from None
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise FigureError(f"{path}: not CSV ({error})") from None
    if missing := [name for name in columns if name not in table.columns]:
        raise FigureError(f"{path}: the column {missing[0]!r} is missing")
    if table.empty:
        raise FigureError(f"{path}: there are no rows")
    return table


def write_source(source: Source, table: Path, path: Path) -> None:
    """Write the sidecar, which binds the figure to its table."""
    digest = hashlib.sha256(table.read_bytes()).hexdigest()
    data = {**asdict(source), "table_sha256": digest, "memsearcher": __version__}
    jsonl.replace(path, (json.dumps(data, indent=1) + "\n").encode())


def read_source(path: Path, table: Path) -> Source:
    """Read a sidecar.

    Raises:
        FigureError: it is missing or broken, or its table has changed since.
    """
    try:
        data = json.loads(path.read_bytes())
        digest, _ = data.pop("table_sha256"), data.pop("memsearcher")
        source = Source(**data)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise FigureError(f"{path}: no sidecar that can be read ({error}); make the figure from its runs") from None
    if digest != hashlib.sha256(table.read_bytes()).hexdigest():
        raise FigureError(f"{table}: changed since {path.name} was written; make the figure from its runs again")
    return source


def write_plot(drawn: go.Figure, stem: Path, render: bool) -> list[Path]:
    """Write a plot beside `stem` as JSON and HTML, and as SVG and PDF where `render` says that a browser is there.

    Call it within `browser`, which says so. HTML files share one copy of plotly's script, so none asks the network.
    """
    for number, trace in enumerate(drawn.data):
        trace.uid = f"{stem.name}-{number}"
    files = {".json": drawn.to_json().encode() + b"\n"}
    html = drawn.to_html(div_id=stem.name, include_plotlyjs="directory", config={"displaylogo": False})
    files[".html"] = html.encode()
    if render:
        import kaleido

        size = {"width": drawn.layout.width, "height": drawn.layout.height}
        for form, settle in (("svg", _settle_svg), ("pdf", _settle_pdf)):
            files[f".{form}"] = settle(kaleido.calc_fig_sync(drawn, opts={"format": form, **size}))
    script = stem.parent / PLOTLY_JS
    if not script.exists():
        jsonl.replace(script, get_plotlyjs().encode())
    written = []
    for ending, data in files.items():
        written.append(path := stem.parent / f"{stem.name}{ending}")
        jsonl.replace(path, data)
    return written


@contextmanager
def browser() -> Iterator[bool]:
    """A browser that draws all plots of the block; False, with one warning, where there is none."""
    if not any(map(shutil.which, BROWSERS)) or importlib.util.find_spec("kaleido") is None:
        logger.warning("no browser: SVG and PDF are left out; install Chromium (apt-get install chromium) and kaleido")
        yield False
        return
    import kaleido

    kaleido.start_sync_server(silence_warnings=True, mathjax=False)  # it would be asked for on the web
    try:
        yield True
    finally:
        kaleido.stop_sync_server(silence_warnings=True)


def _settle_svg(data: bytes) -> bytes:
    """Plotly names clip paths and gradients after a random number a figure; here it is 0."""
    found = re.search(rb'id="defs-([0-9a-f]{6})"', data)
    return data.replace(found.group(1), b"000000") if found else data


def _settle_pdf(data: bytes) -> bytes:
    """Dates of as many characters, so that the offsets within the file stay right."""
    return re.sub(rb"(?<=Date \(D:)\d{14}", b"2" + b"0" * 13, data)
