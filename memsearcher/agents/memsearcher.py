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

from dataclasses import dataclass, field
from pathlib import Path

from memsearcher.agents.parsing import ActReply, parse_act, parse_memory
from memsearcher.agents.protocol import Act, Generate, Play, Reply
from memsearcher.prompts import Filling, Prompts, load_prompts
from memsearcher.trajectory import Conversation, Limits, Observation, Segment, Step, Task, Trajectory, Turn

SLOTS = {
    "system": ("tool",),
    "turn": ("question", "memory"),
    "last_turn": ("question", "memory"),
    "remember": ("observation",),
    "bad_call": (),
}


@dataclass(frozen=True)
class MemSearcher:
    """The agent; `prompts` names a built-in set or a folder with one's own."""

    limits: Limits = field(default_factory=Limits)
    prompts: str | Path = "memsearcher"
    tool: str = "search"
    name: str = "memsearcher"
    texts: Prompts = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "texts", load_prompts(self.prompts, SLOTS))

    @property
    def fingerprint(self) -> dict[str, str]:
        return {"prompts": self.texts.folder, "prompts_sha256": self.texts.sha256, "tool": self.tool}

    def play(self, trajectory: Trajectory) -> Play:
        """Attempt `trajectory.task`.

        Raises:
            ValueError: the question is empty.
        """
        if not trajectory.task.question.strip():
            raise ValueError("the question is empty")
        memory = ""
        for number in range(1, self.limits.turns + 1):
            last = number == self.limits.turns
            turn = trajectory.begin_turn(memory)
            talk = trajectory.converse(self._context(trajectory.task, memory, last))

            reply = yield from Generate(talk, self.limits.call_tokens, ("</tool_call>",))
            act = self._read(reply, turn)
            if act.answer is not None:
                trajectory.answer = act.answer
                return
            if last:
                turn.event("turn_limit", f"no answer within {self.limits.turns} turns")
                return

            seen = None
            if act.action:
                if act.action in trajectory.actions:
                    turn.event("duplicate_query", act.action.arguments["query"])
                turn.steps.append(step := Step(act.action))
                step.observation = seen = yield from Act(act.action)
            talk.tell(self._ask_for_memory(seen))
            reply = yield from Generate(talk, self.limits.memory_tokens, ("</memory>",), "remember")
            remembered = self._remember(reply, turn)
            if remembered is None:
                return
            memory = turn.memory_after = remembered

    def _context(self, task: Task, memory: str, last: bool) -> Conversation:
        """All that the model sees at the start of a turn."""
        limits = self.limits
        system = self.texts["system"].fill("system", "system", {"tool": [Filling("system", self.tool)]})
        # A memory is already bounded when it is sampled; the bound here is for one that takes
        # more tokens when it is encoded as plain text.
        slots = {
            "question": [Filling("question", task.question, limits.question_tokens)],
            "memory": [Filling("memory", memory, 2 * limits.memory_tokens)],
        }
        return Conversation.start(
            system, self.texts["last_turn" if last else "turn"].fill("user", "instruction", slots)
        )

    def _read(self, reply: Reply, turn: Turn) -> ActReply:
        act = parse_act(reply.text, self.tool)
        turn.thought = act.thought
        if reply.finish == "length":
            turn.event("call_cut", f"at {self.limits.call_tokens} tokens")
        turn.events += act.events
        return act

    def _ask_for_memory(self, seen: Observation | None) -> list[Segment]:
        """The second message of a turn: what came back, and the request to write the memory anew."""
        if seen is None:
            shown = [Filling("instruction", self.texts["bad_call"].text)]
        elif not seen.passages:
            shown = [Filling("observation", seen.text, self.limits.passage_tokens)]
        else:
            shown = []
            for passage in seen.passages[: self.limits.passages]:
                text = f"[{passage.rank}] {passage.title}\n{passage.text}"
                shown += [Filling("observation", text, self.limits.passage_tokens), Filling("instruction", "\n")]
            shown.pop()
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
