"""What a shopper sees: pages, and how they are put into words for an agent.

An observation starts with what can be done, so that an agent that cuts it at the end loses
none of that, and then gives the visible texts of the page from top to bottom, joined by
" [SEP] " as WebShop's text mode does. Buttons and options are not said twice, and the
instruction is left out: the agent has it as its question.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Literal

PageName = Literal["search", "results", "item", "description", "features", "reviews", "attributes", "done"]
Part = Literal["title", "text"]


@dataclass(frozen=True, slots=True)
class Cuts:
    """The most that each part of an observation may take, so that the whole is bounded.

    Attributes:
        title: characters of a product's title.
        text: characters of a description, a bullet or an attribute.
        lines: bullets or attributes shown.
        options: options shown, with their values.
        values: values shown of each option. What is not shown can still be clicked.
        value: characters of a value. A value can be clicked as it is shown and in full.
        query: characters of a query; the rest is not searched for.
    """

    title: int = 100
    text: int = 400
    lines: int = 10
    options: int = 6
    values: int = 24
    value: int = 48
    query: int = 500

    def __post_init__(self) -> None:
        for each in fields(self):
            if getattr(self, each.name) < 1:
                raise ValueError(f"Cuts.{each.name} must be at least 1, not {getattr(self, each.name)!r}")


@dataclass(frozen=True, slots=True)
class Line:
    """One visible text, whole, and the part of the page that it belongs to."""

    text: str
    part: Part = "text"


@dataclass(frozen=True, slots=True)
class Page:
    """A page, whole; `options` are those of the item, `chosen` what was chosen of them."""

    name: PageName
    lines: tuple[Line, ...]
    buttons: tuple[str, ...] = ()
    options: dict[str, tuple[str, ...]] = field(default_factory=dict)
    chosen: dict[str, str] = field(default_factory=dict)

    def text(self, cuts: Cuts) -> str:
        """The observation, each part within its cut."""
        return f"{self._can(cuts)}\n{' [SEP] '.join(self._shown(cuts))}"

    def _can(self, cuts: Cuts) -> str:
        if self.name == "done":
            return "The shop is closed."
        if not self.buttons:
            return "You can search."
        can = "You can search, or click: " + " ".join(f"[{label}]" for label in self.buttons)
        for name, labels in list(self.options.items())[: cuts.options]:
            shown = " ".join(f"[{cut(label, cuts.value)}]" for label in labels[: cuts.values])
            more = f" and {len(labels) - cuts.values} more" if len(labels) > cuts.values else ""
            can += f"; {cut(name, cuts.value)}: {shown}{more}"
        return can

    def _shown(self, cuts: Cuts) -> list[str]:
        lines = self.lines
        if self.name in ("features", "attributes") and len(lines) > cuts.lines:
            lines = (*lines[: cuts.lines], Line(f"and {len(lines) - cuts.lines} more"))
        shown = [cut(line.text, cuts.title if line.part == "title" else cuts.text) for line in lines]
        if self.chosen:
            pairs = (f"{cut(name, cuts.value)}: {cut(value, cuts.value)}" for name, value in self.chosen.items())
            shown.append("Chosen: " + ", ".join(pairs))
        return shown


def cut(text: str, most: int) -> str:
    """A text on one line and of at most `most` characters, the last one an ellipsis where some are missing."""
    # More words than characters cannot be shown; a text of a megabyte is not split for nothing.
    line = " ".join(text.split(None, most + 1)[: most + 1])
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"
