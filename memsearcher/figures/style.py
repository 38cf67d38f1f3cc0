"""How every figure looks: one template, one colour, dash and marker a series, the kind of number on the plot.

White, 9 pt, single-column width. Series differ by dash and marker besides the colour (Okabe and
Ito's palette), so that a figure survives a grey print and colour-blind eyes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import plotly.graph_objects as go

Kind = Literal["reproduced at pocket scale", "reproduced", "paper-reported", "computed", "demo"]
"""What a number is. It is written on the plot; all but the reproduced ones in a warning colour."""

WIDTH, HEIGHT = 360, 260
"""In px: 3.75 in at 96 px an inch, one column of a paper."""

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
    axis = {"showline": True, "linecolor": INK, "ticks": "outside", "tickcolor": INK, "zeroline": False}
    drawn = go.Figure(
        layout={
            "width": WIDTH,
            "height": HEIGHT + 12 * lines,
            "margin": {"l": 48, "r": 12, "t": 22, "b": 46 + 12 * lines},
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
        text=caption, x=0, xshift=-42, yref="paper", y=0, yshift=-42, yanchor="top",
        font={"size": 9, "color": GREY}, **note,
    )  # fmt: skip
    return drawn


def label(drawn: go.Figure, text: str, x: Any, y: float, look: Look, shift: int = 0) -> None:
    """Name a series at its last point instead of in a legend; `shift` moves the name up, in px."""
    drawn.add_annotation(
        text=text, x=x, y=y, xshift=5, yshift=shift, xanchor="left", showarrow=False,
        font={"size": 10, "color": look.colour},
    )  # fmt: skip
