"""The inspector in a notebook: one anywidget, linked to Python by `trajectory` and `turn`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anywidget
import traitlets

from memsearcher.inspect.collection import Collection, Source
from memsearcher.trajectory import Trajectory

PAGE = Path(__file__).parent / "page"
SCRIPT = "\n".join(
    (PAGE / f"{name}.js").read_text(encoding="utf-8") for name in ("dom", "list", "tokens", "turn", "compare", "widget")
)
"""One ES module, kept in parts that are put one behind the other; there is no other building."""

STYLE = (PAGE / "widget.css").read_text(encoding="utf-8")


class Inspector(anywidget.AnyWidget):
    """The trajectories of `sources` (see `inspect`).

    Attributes:
        trajectory: the place of the one that is shown, from 0.
        turn: the turn that is shown, from 1.

    Both follow what is chosen in the page, and what they are set to is shown. The page is sent
    `index`, the summaries; a view and the hits of a search are sent when it asks for them.
    """

    _esm = SCRIPT
    _css = STYLE
    index = traitlets.Dict().tag(sync=True)
    trajectory = traitlets.Int(0).tag(sync=True)
    turn = traitlets.Int(1).tag(sync=True)

    def __init__(self, *sources: Source, trajectory: int = 0, turn: int = 1) -> None:
        self.collection = Collection(*sources)
        super().__init__(index=self.collection.index, trajectory=trajectory, turn=turn)
        self.on_msg(self._answer)

    @property
    def selected(self) -> Trajectory:
        """The trajectory that is shown."""
        return self.collection.trajectories[self.trajectory]

    @traitlets.validate("trajectory")
    def _within(self, proposal: Any) -> int:
        place: int = proposal["value"]
        if not 0 <= place < len(self.collection):
            raise traitlets.TraitError(f"trajectory must be from 0 to {len(self.collection) - 1}, not {place}")
        return place

    @traitlets.validate("turn")
    def _at_least_first(self, proposal: Any) -> int:
        turn: int = proposal["value"]
        if turn < 1:
            raise traitlets.TraitError(f"turns are counted from 1, so turn cannot be {turn}")
        return turn

    @traitlets.observe("trajectory")
    def _begin(self, change: Any) -> None:
        self.turn = min(self.turn, max(1, len(self.selected.turns)))

    def _answer(self, _widget: Any, message: Any, _buffers: Any) -> None:
        """Send what the page asks for, or why it cannot be had."""
        kind, number = message["kind"], message["id"]
        if kind == "view":
            self.send({"id": number, "content": self.collection.view(message["trajectory"])})
        else:
            self.send({"id": number, "content": self.collection.search(message["query"])})

    def _repr_mimebundle_(self, **options: Any) -> Any:
        """The widget, and what is shown where there is none: the selected trajectory as a card, or as text."""
        widget = super()._repr_mimebundle_(**options)
        assert widget is not None  # it is None where a widget has no view
        return {**widget[0], "text/plain": self.selected.card().text()}, widget[1]


def inspect(*sources: Source, trajectory: int = 0, turn: int = 1) -> Inspector:
    """Look into trajectories, in a notebook.

    Args:
        sources: run folders, files of trajectories, `Run`s, or trajectories; each is a run of its own,
            so that two can be compared.
        trajectory: the place of the one to show first, from 0.
        turn: its turn to show first, from 1.

    Raises:
        NothingToInspect: a source that holds no trajectory.
    """
    return Inspector(*sources, trajectory=trajectory, turn=turn)
