"""Summarize: an agent that sees the question and a summary of its history.

The plain baseline of a context that is condensed: a turn is a conversation of two calls. The
first acts, with replies as MemSearcher's; then the model is shown what came back and asked to
sum up all that it has seen. That summary, the whole reply and no part in tags, stands for the
history in the next turn. The request does not say what a searcher should keep.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from memsearcher.agents.base import SearchAgent, Slots
from memsearcher.agents.parsing import CALL_END, parse_act
from memsearcher.agents.protocol import Generate, Play, Reply
from memsearcher.prompts import Filling
from memsearcher.trajectory import Conversation, Observation, Segment, Task, Trajectory, Turn


@dataclass(frozen=True)
class Summarize(SearchAgent):
    """The agent. A turn's memory on the record is the summary."""

    slots: ClassVar[Slots] = {
        "system": ("tool",),
        "turn": ("question", "summary"),
        "last_turn": (),
        "summarize": ("observation",),
        "bad_call": (),
    }

    prompts: str | Path = "summarize"
    name: str = "summarize"

    def play(self, trajectory: Trajectory) -> Play:
        """Attempt `trajectory.task`.

        Raises:
            ValueError: the question is empty.
        """
        self._check(trajectory.task)
        summary = ""
        for number in range(1, self.limits.turns + 1):
            last = number == self.limits.turns
            turn = trajectory.begin_turn(summary)
            talk = trajectory.converse(self._context(trajectory.task, summary))
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
            talk.tell(self._ask(seen))
            reply = yield from Generate(talk, self.limits.memory_tokens, purpose="remember")
            summary = turn.memory_after = self._sum_up(reply, turn)
            if not summary and self.limits.on_bad_memory == "end":
                return

    def _context(self, task: Task, summary: str) -> Conversation:
        """All that the model sees at the start of a turn."""
        # Already bounded when it is sampled; the bound here is for one that takes more tokens as plain text.
        shown = Filling("memory", summary, 2 * self.limits.memory_tokens)
        slots = {"question": [self._question(task)], "summary": [shown]}
        return Conversation.start(self._system(), self.texts["turn"].fill("user", "instruction", slots))

    def _ask(self, seen: Observation | None) -> list[Segment]:
        """What came back, or that the turn could not be carried out, and the request for a summary."""
        shown = [Filling("instruction", self.texts["bad_call"].text)] if seen is None else self._show(seen)
        return self.texts["summarize"].fill("user", "instruction", {"observation": shown})

    def _sum_up(self, reply: Reply, turn: Turn) -> str:
        """The new summary; of a reply without one, what the policy says."""
        if reply.finish == "length":
            turn.event("memory_cut", f"at {self.limits.memory_tokens} tokens")
        if summary := reply.text.strip():
            return summary
        turn.event("missing_memory", self.limits.on_bad_memory)
        return turn.memory_before or "" if self.limits.on_bad_memory == "keep" else ""
