"""A card: a heading, a few facts, and parts of labelled lines, as HTML or as plain text.

It stands by itself: no script, no style sheet, nothing to load, so a notebook, a mail or GitHub can show it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

Line = tuple[str, str]
"""A label and a text."""

LONGEST = 600
"""Characters of a text that a card shows."""

_INDENT = "\n" + " " * 12

# Opacity and not a colour: a card is read in light and in dark surroundings.
_DIM = "opacity:.7"
_FRAME = "max-width:60em;padding:.8em 1em;border:1px solid rgba(128,128,128,.4);border-radius:4px;line-height:1.5"
_LABEL = f"flex:none;width:6.5em;text-align:right;{_DIM}"
_TEXT = "white-space:pre-wrap;overflow-wrap:anywhere;unicode-bidi:isolate"


@dataclass(frozen=True, slots=True)
class Card:
    """What is shown; all of it may be text from outside."""

    heading: str
    facts: Sequence[Line]
    parts: Sequence[tuple[str, Sequence[Line]]]

    def html(self) -> str:
        """The card as an HTML fragment; every text in it is escaped."""
        facts = " &nbsp; ".join(f'<span style="{_DIM}">{_html(name)}</span> {_html(text)}' for name, text in self.facts)
        parts = "".join(
            f'<div style="margin-top:.7em;font-weight:600">{_html(title)}</div>{"".join(map(_html_line, lines))}'
            for title, lines in self.parts
        )
        return (
            f'<div style="{_FRAME}">'
            f'<div style="font-size:1.15em;font-weight:600;{_TEXT}">{_html(self.heading)}</div>'
            f'<div style="margin-top:.2em;{_TEXT}">{facts}</div>{parts}</div>'
        )

    def text(self) -> str:
        """The card as plain text."""
        lines = [_shown(self.heading), "   ".join(f"{_shown(name)} {_shown(text)}" for name, text in self.facts)]
        for title, part in self.parts:
            lines += ["", _shown(title)]
            lines += [f"{_shown(name):>10}  {_shown(text)}".replace("\n", _INDENT) for name, text in part]
        return "\n".join(lines)


def _html_line(line: Line) -> str:
    name, text = line
    return (
        f'<div style="display:flex;gap:.8em"><span style="{_LABEL}">{_html(name)}</span>'
        f'<span style="{_TEXT}">{_html(text)}</span></div>'
    )


def _html(text: str) -> str:
    return escape(_shown(text))


def _shown(text: str) -> str:
    """A text cut at its limit, with characters that cannot be seen, or would turn the line around, spelled out."""
    cut = text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text)} characters)"
    return "".join(c if c.isprintable() or c == "\n" else f"\\x{ord(c):02x}" for c in cut)
