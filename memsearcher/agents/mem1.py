"""MEM1: an agent that sees the task, its last internal state and action, and what that brought back.

Each turn is a conversation of one call (arXiv 2506.15841): the model thinks, which rewrites its
internal state, and then searches or answers. The next turn shows it the prompt, this reply as it
was sampled, token by token, and what came back, with a hint how many turns are left. Whatever
the state leaves out is gone. The tags are those of the official code (the paper writes `<IS>`,
`<query>`, `<info>`).

Departures from the official code: a reply without an internal state is named, and the one
before stays in sight by default (`Limits.on_bad_memory`); every oddity is an event.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from memsearcher.agents.base import SearchAgent, Slots
from memsearcher.agents.protocol import Generate, Play, Reply
from memsearcher.agents.tags import STOPS, parse_tags
from memsearcher.prompts import Filling
from memsearcher.trajectory import Conversation, Observation, Segment, Task, Trajectory


@dataclass(frozen=True)
class MEM1(SearchAgent):
    """The agent. A turn's memory on the record is the internal state, the text of its thought."""

    slots: ClassVar[Slots] = {
        "system": (),
        "question": ("question",),
        "observation": ("observation", "hint"),
        "turns_left": ("turns",),
        "last_turn": (),
        "bad_call": (),
    }

    prompts: str | Path = "mem1"
    name: str = "mem1"

    def play(self, trajectory: Trajectory) -> Play:
        """Attempt `trajectory.task`.

        Raises:
            ValueError: the question is empty.
        """
        self._check(trajectory.task)
        memory = ""
        state: Reply | None = None
        told = self._note("last_turn") if self.limits.turns == 1 else []
        for number in range(1, self.limits.turns + 1):
            turn = trajectory.begin_turn(memory)
            talk = trajectory.converse(self._context(trajectory.task, state, told))

            reply = yield from Generate(talk, self.limits.call_tokens, STOPS)
            act = self._read(reply, parse_tags(reply.text, self.tool), turn)
            if act.thought is not None:
                memory, state = act.thought, reply
            else:
                turn.event("missing_memory", self.limits.on_bad_memory)
                if self.limits.on_bad_memory == "wipe":
                    memory, state = "", None
            turn.memory_after = memory
            if act.answer is not None:
                trajectory.answer = act.answer
                return
            if number == self.limits.turns:
                turn.event("turn_limit", f"no answer within {self.limits.turns} turns")
                return
            if act.thought is None and self.limits.on_bad_memory == "end":
                return

            seen = (yield from self._search(act.action, trajectory)) if act.action else None
            if trajectory.outcome is not None:
                return
            told = self._tell(seen, self.limits.turns - number)

    def _context(self, task: Task, state: Reply | None, told: list[Segment]) -> Conversation:
        """All that the model sees in a turn."""
        question = self.texts["question"].fill("user", "instruction", {"question": [self._question(task)]})
        talk = Conversation.start(self._system(), question)
        if state:
            ids = None if state.token_ids is None else list(state.token_ids)
            talk.tell([Segment("assistant", "reply", state.text, ids)])
        return talk.tell(told)

    def _tell(self, seen: Observation | None, turns: int) -> list[Segment]:
        """What came back, or that the turn could not be carried out, with the hint."""
        shown = [Filling("instruction", self.texts["bad_call"].text)] if seen is None else self._show(seen)
        hint = [Filling("instruction", each.text) for each in self._hint(turns)]
        return self.texts["observation"].fill("user", "instruction", {"observation": shown, "hint": hint})

    def _hint(self, turns: int) -> list[Segment]:
        """How many turns are left; at the last one, that the answer is due."""
        if turns == 1:
            return self._note("last_turn")
        return self.texts["turns_left"].fill("user", "instruction", {"turns": [Filling("instruction", str(turns))]})
