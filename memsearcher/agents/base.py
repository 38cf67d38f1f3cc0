"""What the search agents share: limits, prompts, the search, and how what it brings back is shown."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from memsearcher.agents.parsing import ActReply
from memsearcher.agents.protocol import Act, Reply
from memsearcher.prompts import Filling, Prompts, load_prompts
from memsearcher.trajectory import Action, Limits, Observation, Segment, Step, Task, Trajectory, Turn

Slots = Mapping[str, tuple[str, ...]]
"""The prompts that an agent needs, each with the slots its text must have."""


@dataclass(frozen=True)
class SearchAgent:
    """An agent with one tool, a search, and prompts of its own.

    `prompts` names a built-in set or a folder with one's own; `slots` is what the set must
    hold. A subclass gives both, the `name` on the record, and `play`.
    """

    slots: ClassVar[Slots]

    limits: Limits = field(default_factory=Limits)
    prompts: str | Path = ""
    tool: str = "search"
    name: str = ""
    texts: Prompts = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "texts", load_prompts(self.prompts, self.slots))

    @property
    def fingerprint(self) -> dict[str, str]:
        return {"prompts": self.texts.folder, "prompts_sha256": self.texts.sha256, "tool": self.tool}

    def _check(self, task: Task) -> None:
        """See that there is a question.

        Raises:
            ValueError: it is empty.
        """
        if not task.question.strip():
            raise ValueError("the question is empty")

    def _system(self) -> list[Segment]:
        return self.texts["system"].fill("system", "system", {"tool": [Filling("system", self.tool)]})

    def _question(self, task: Task) -> Filling:
        return Filling("question", task.question, self.limits.question_tokens)

    def _note(self, name: str) -> list[Segment]:
        """A prompt without slots, as a part of the user's message."""
        return self.texts[name].fill("user", "instruction")

    def _read(self, reply: Reply, act: ActReply, turn: Turn) -> ActReply:
        """Put what was parsed of a turn's first reply on the record."""
        turn.thought = act.thought
        if reply.finish == "length":
            turn.event("call_cut", f"at {self.limits.call_tokens} tokens")
        turn.events += act.events
        return act

    def _search(self, action: Action, trajectory: Trajectory) -> Generator[Act, Any, Observation]:
        """Carry out an action and put it on the record; an event says so where it brought back the same again."""
        turn = trajectory.turns[-1]
        before = [step.observation for each in trajectory.turns for step in each.steps if step.action == action]
        turn.steps.append(step := Step(action))
        step.observation = seen = yield from Act(action)
        if seen in before:
            turn.event("duplicate_query", action.arguments["query"])
        turn.events += seen.events
        return seen

    def _show(self, seen: Observation, layout: str = "[{rank}] {title}\n{text}") -> list[Filling]:
        """What came back, each passage cut on its own and on lines of its own."""
        limit = self.limits.passage_tokens
        if not seen.passages:
            return [Filling("observation", seen.text, limit)]
        shown: list[Filling] = []
        for passage in seen.passages[: self.limits.passages]:
            text = layout.format(rank=passage.rank, title=passage.title, text=passage.text)
            shown += [Filling("observation", text, limit), Filling("instruction", "\n")]
        return shown[:-1]
