"""How every figure looks: one template, one colour, dash and marker a series, the kind of number on the plot.

White, 9 pt, single-column width. Series differ by dash and marker besides the colour (Okabe and
Ito's palette), so that a figure survives a grey print and colour-blind eyes.
"""

from __future__ import annotations

import html
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import plotly.graph_objects as go

Kind = Literal["reproduced at pocket scale", "reproduced", "paper-reported", "computed", "demo"]
"""What a number is. It is written on the plot; all but the reproduced ones in a warning colour."""

WIDTH, HEIGHT = 360, 260
"""In px: 3.75 in at 96 px an inch, one column of a paper; names beside the plot come on top."""

LINE = 12
"""In px, of a name or a line of a caption."""

INK, GREY, WARNING = "#000000", "#595959", "#B34700"
FONT = "Helvetica, Arial, Liberation Sans, sans-serif"


@dataclass(frozen=True, slots=True)
class Look:
    """How one series is drawn."""

    colour: str
    dash: str = "solid"
    symbol: str = "circle"

    def faint(self, alpha: float = 0.18) -> str:
        """The colour with that much ink, for bands and raw traces."""
        red, green, blue = (int(self.colour[start : start + 2], 16) for start in (1, 3, 5))
        return f"rgba({red},{green},{blue},{alpha})"


LOOKS = (
    Look("#0072B2", "solid", "circle"),
    Look("#D55E00", "dash", "square"),
    Look("#009E73", "dot", "diamond"),
    Look("#CC79A7", "dashdot", "triangle-up"),
    Look("#E69F00", "longdash", "cross"),
    Look("#56B4E9", "longdashdot", "x"),
    Look("#4D4D4D", "solid", "triangle-down"),
)
_AGENTS = ("memsearcher", "react", "mem1", "truncate", "summarize", "search-r1")


def look_of(name: str, place: int = 0) -> Look:
    """The look of an agent, the same in every figure; of any other series by its place."""
    return LOOKS[_AGENTS.index(name) if name in _AGENTS else place % len(LOOKS)]


def figure(kind: Kind, caption: str, *, x: str, y: str, **layout: Any) -> go.Figure:
    """An empty figure with its axes named, and with the kind of its numbers and a caption on it.

    Args:
        kind: what the numbers are.
        caption: n, seed, interval and whatever else a reader has to know; `<br>` breaks lines.
        x, y: titles of the axes, with units.
    """
    lines = caption.count("<br>") + 1
    axis = {"showline": True, "linecolor": INK, "ticks": "outside", "tickcolor": INK, "zeroline": False,
        "automargin": False,  # margins are as they are set, so that names can be placed by them
    }  # fmt: skip
    drawn = go.Figure(
        layout={
            "width": WIDTH,
            "height": HEIGHT + LINE * lines,
            "margin": {"l": 62, "r": 12, "t": 22, "b": 46 + LINE * lines},
            "font": {"family": FONT, "size": 12, "color": INK},
            "paper_bgcolor": "white",
            "plot_bgcolor": "white",
            "showlegend": False,
            "xaxis": {**axis, "title": {"text": x, "standoff": 6}},
            "yaxis": {**axis, "title": {"text": y, "standoff": 6}, "gridcolor": "#E6E6E6"},
        }
    )
    drawn.update_layout(**layout)  # merges into what is there: {"margin": {"r": 80}} leaves the other margins
    colour = GREY if kind.startswith("reproduced") else WARNING
    note = {"showarrow": False, "xref": "paper", "align": "left", "xanchor": "left"}
    drawn.add_annotation(
        text=f"<b>{kind}</b>", x=0, yref="paper", y=1, yanchor="bottom", font={"size": 10, "color": colour}, **note
    )
    drawn.add_annotation(
        text=caption, x=0, xshift=6 - drawn.layout.margin.l, yref="paper", y=0, yshift=-42, yanchor="top",
        font={"size": 9, "color": GREY}, **note,
    )  # fmt: skip
    return drawn


def label(drawn: go.Figure, text: str, x: Any, y: float, look: Look, shift: int = 0) -> None:
    """Name a series at its last point instead of in a legend; `shift` moves the name up, in px.

    Where several names may meet, `name_ends` keeps them apart.
    """
    drawn.add_annotation(
        text=text, x=x, y=y, xshift=5, yshift=shift, xanchor="left", showarrow=False,
        font={"size": 10, "color": look.colour},
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class End:
    """The last point of a series, in units of its axes (on a logarithmic one the exponent), and its name."""

    name: str
    x: float
    y: float
    look: Look


def name_ends(drawn: go.Figure, ends: Sequence[End], axes: Literal["", "2"] = "") -> None:
    """Name series in the right margin, each beside where it ends, instead of in a legend.

    Names that would overlap are moved apart, up and down; a thin line leads from a series to its name.
    The ranges of both axes must be set.
    """
    layout = drawn.layout
    width = layout.width - layout.margin.l - layout.margin.r
    height = layout.height - layout.margin.t - layout.margin.b
    across, up = layout[f"xaxis{axes}"], layout[f"yaxis{axes}"]
    left, right = across.domain or (0, 1)
    to_px = (right - left) * width / (across.range[1] - across.range[0])
    heights = [(each.y - up.range[0]) / (up.range[1] - up.range[0]) * height for each in ends]
    for each, own, moved in zip(ends, heights, spread(heights, LINE, height), strict=True):
        drawn.add_annotation(
            text=html.escape(each.name, quote=False), font={"size": 10, "color": each.look.colour}, xanchor="left",
            x=each.x, y=each.y, xref=f"x{axes}", yref=f"y{axes}", ax=(across.range[1] - each.x) * to_px + 14,
            ay=own - moved, showarrow=True, arrowhead=0, arrowwidth=0.8, arrowcolor=each.look.faint(0.5), standoff=5,
        )  # fmt: skip


def spread(places: Sequence[float], gap: float, height: float) -> list[float]:
    """Places moved as little as may be (in the sum of squares), so that any two are `gap` apart.

    Their order stays; they stay between half a gap and `height` less that, as long as there is room.
    """
    order = sorted(range(len(places)), key=lambda each: places[each])
    # Less its share of the gaps, each place must not be below the one before: an isotonic regression,
    # which pools neighbours that are out of order at their mean.
    pools: list[tuple[float, int]] = []
    for rank, each in enumerate(order):
        mean, size = places[each] - rank * gap, 1
        while pools and pools[-1][0] > mean:
            before, count = pools.pop()
            mean, size = (before * count + mean * size) / (count + size), count + size
        pools.append((mean, size))
    lowest, highest = gap / 2, height - gap / 2 - (len(places) - 1) * gap
    free = [max(lowest, min(highest, mean)) for mean, size in pools for _ in range(size)]
    moved = {each: place + rank * gap for rank, (each, place) in enumerate(zip(order, free, strict=True))}
    return [moved[each] for each in range(len(places))]


def printable(text: str, longest: int = 200) -> str:
    """Text from outside for a table: one line of printable characters, cut after so many."""
    line = " ".join("".join(each if each.isprintable() else " " for each in text[: 4 * longest]).split())
    return line if len(line) <= longest else f"{line[: longest - 1].rstrip()}…"


def wrapped(text: str, width: int) -> str:
    """Text from outside for a plot, in lines of at most `width` characters; none of it is read as markup."""
    return "<br>".join(html.escape(line, quote=False) for line in textwrap.wrap(text, width))
