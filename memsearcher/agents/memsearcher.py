"""MemSearcher: an agent that sees the question and a memory, never its history.

A turn is a fresh conversation of two model calls (arXiv 2511.02805, section 3): *act*
thinks and then searches or answers, *remember* reads what came back and rewrites the
memory as a whole. The memory is all that reaches the next turn, so the context stays as
long as it was, however many turns there are.

Departures from the official code: a malformed memory keeps the old one by default
(`Limits.on_bad_memory`); the last turn is announced; a call at the last turn is not
carried out, since nobody would read its result; every oddity is an event.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from memsearcher.agents.base import SearchAgent, Slots
from memsearcher.agents.parsing import CALL_END, parse_act, parse_memory
from memsearcher.agents.protocol import Generate, Play, Reply
from memsearcher.prompts import Filling
from memsearcher.trajectory import Conversation, Observation, Segment, Task, Trajectory, Turn


@dataclass(frozen=True)
class MemSearcher(SearchAgent):
    """The agent."""

    slots: ClassVar[Slots] = {
        "system": ("tool",),
        "turn": ("question", "memory"),
        "last_turn": ("question", "memory"),
        "remember": ("observation",),
        "bad_call": (),
    }

    prompts: str | Path = "memsearcher"
    name: str = "memsearcher"

    def play(self, trajectory: Trajectory) -> Play:
        """Attempt `trajectory.task`.

        Raises:
            ValueError: the question is empty.
        """
        self._check(trajectory.task)
        memory = ""
        for number in range(1, self.limits.turns + 1):
            last = number == self.limits.turns
            turn = trajectory.begin_turn(memory)
            talk = trajectory.converse(self._context(trajectory.task, memory, last))

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
            talk.tell(self._ask_for_memory(seen))
            reply = yield from Generate(talk, self.limits.memory_tokens, ("</memory>",), "remember")
            remembered = self._remember(reply, turn)
            if remembered is None:
                return
            memory = turn.memory_after = remembered

    def _context(self, task: Task, memory: str, last: bool) -> Conversation:
        """All that the model sees at the start of a turn."""
        # A memory is already bounded when it is sampled; the bound here is for one that takes
        # more tokens when it is encoded as plain text.
        shown = Filling("memory", memory, 2 * self.limits.memory_tokens)
        slots = {"question": [self._question(task)], "memory": [shown]}
        turn = self.texts["last_turn" if last else "turn"]
        return Conversation.start(self._system(), turn.fill("user", "instruction", slots))

    def _ask_for_memory(self, seen: Observation | None) -> list[Segment]:
        """The second message of a turn: what came back, and the request to write the memory anew."""
        shown = [Filling("instruction", self.texts["bad_call"].text)] if seen is None else self._show(seen)
        return self.texts["remember"].fill("user", "instruction", {"observation": shown})

    def _remember(self, reply: Reply, turn: Turn) -> str | None:
        """The new memory; None where the policy for a malformed one is to end."""
        memory, closed = parse_memory(reply.text)
        if memory is not None and closed:
            if memory == turn.memory_before and turn.steps:
                turn.event("memory_unchanged")
            return memory
        if memory is not None and reply.finish == "length":
            turn.event("memory_cut", f"at {self.limits.memory_tokens} tokens")
            return memory
        turn.event("missing_memory" if memory is None else "unclosed_memory", self.limits.on_bad_memory)
        if self.limits.on_bad_memory == "end":
            return None
        return turn.memory_before if self.limits.on_bad_memory == "keep" else ""
