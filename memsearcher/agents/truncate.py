"""Truncate: an agent that sees the question and the end of its history.

The plain baseline of a context that must not grow: each turn is a conversation of one call,
with the question, the last `Limits.history_tokens` tokens of everything that came before, as
plain text, and in full what the last action brought back. What falls out at the front is gone,
and a `history_cut` event says how many tokens that were. Replies are as MemSearcher's.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from memsearcher.agents.base import SearchAgent, Slots
from memsearcher.agents.parsing import CALL_END, parse_act
from memsearcher.agents.protocol import Generate, Play
from memsearcher.prompts import Filling
from memsearcher.trajectory import Conversation, Observation, Segment, Trajectory


@dataclass(frozen=True)
class Truncate(SearchAgent):
    """The agent."""

    slots: ClassVar[Slots] = {
        "system": ("tool",),
        "turn": ("question", "history"),
        "observation": ("observation",),
        "bad_call": (),
        "last_turn": (),
    }

    prompts: str | Path = "truncate"
    name: str = "truncate"

    def play(self, trajectory: Trajectory) -> Play:
        """Attempt `trajectory.task`.

        Raises:
            ValueError: the question is empty.
        """
        self._check(trajectory.task)
        history = ""
        told: list[Segment] = []
        for number in range(1, self.limits.turns + 1):
            last = number == self.limits.turns
            turn = trajectory.begin_turn()
            past = Filling("history", history, self.limits.history_tokens)
            slots = {"question": [self._question(trajectory.task)], "history": [past]}
            shown = [*self.texts["turn"].fill("user", "instruction", slots), *told]
            talk = trajectory.converse(Conversation.start(self._system(), shown))
            if last:
                talk.tell(self._note("last_turn"))

            reply = yield from Generate(talk, self.limits.call_tokens, (CALL_END,))
            act = self._read(reply, parse_act(reply.text, self.tool), turn)
            if act.answer is not None:
                trajectory.answer = act.answer
                return
            if last:
                turn.event("turn_limit", f"no answer within {self.limits.turns} turns")
                return

            seen = (yield from self._search(act.action, trajectory)) if act.action else None
            if trajectory.outcome is not None:
                return
            # As it was shown: the history without what was cut, passages as far as they were read.
            kept = [each for each in shown if each.part == "history"]
            before = "".join(each.text for each in [*kept, *told])
            history = f"{before}\n{reply.text}" if before else reply.text
            told = self._tell(seen)

    def _tell(self, seen: Observation | None) -> list[Segment]:
        """What came back, or that the turn could not be carried out."""
        if seen is None:
            return self._note("bad_call")
        return self.texts["observation"].fill("user", "instruction", {"observation": self._show(seen)})
