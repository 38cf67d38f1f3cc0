"""ReAct: an agent that sees its whole history, in one conversation that only grows.

Two dialects, as data: ReSearch's (arXiv 2503.19470) and Search-R1's (arXiv 2503.09516).
Both think in `<think>`, search with `<search>query</search>` and end with `<answer>`.

Departures from the official codes: sampled tokens are kept, and sampling ends at a closing tag,
where theirs cut the text afterwards and encode it again. What comes back is a message of its
own, as chat models and their servers know it, where theirs write it into the model's. Each
passage is cut on its own, and the tag around them is always closed. The context is never cut:
where it surely holds no more than an answer, that is asked for, and no turn is begun that might
not fit (Search-R1 cuts from the left, the question first). An answer without its box is taken.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from memsearcher.agents.base import SearchAgent, Slots
from memsearcher.agents.protocol import Generate, Play, Reply
from memsearcher.agents.tags import STOPS, parse_tags
from memsearcher.trajectory import Conversation, Observation, Segment, Trajectory

TEMPLATE_TOKENS = 64  # more than any chat template writes around the two messages of a turn


@dataclass(frozen=True, slots=True)
class Dialect:
    """What differs between families of ReAct checkpoints.

    Attributes:
        name: of the prompts, which hold the tags around what comes back, and on the record.
        passage: how a passage is laid out.
        boxed: the answer stands in a `\\boxed{}` inside its tag.
        context_tokens: the published limit, which holds where `Limits.context_tokens` is None.
    """

    name: str
    passage: str
    boxed: bool
    context_tokens: int


RESEARCH = Dialect("react", "[{rank}] {title}\n{text}", boxed=True, context_tokens=8192)
SEARCH_R1 = Dialect("search-r1", 'Doc {rank}(Title: "{title}") {text}', boxed=False, context_tokens=4096)


@dataclass(frozen=True)
class ReAct(SearchAgent):
    """The agent. Prompts and name are the dialect's where none are given."""

    slots: ClassVar[Slots] = {
        **dict.fromkeys(("system", "bad_call", "last_turn"), ()),
        "question": ("question",),
        "observation": ("observation",),
    }

    dialect: Dialect = RESEARCH

    def __post_init__(self) -> None:
        object.__setattr__(self, "prompts", self.prompts or self.dialect.name)
        object.__setattr__(self, "name", self.name or self.dialect.name)
        super().__post_init__()

    def play(self, trajectory: Trajectory) -> Play:
        """Attempt `trajectory.task`.

        Raises:
            ValueError: the question is empty.
        """
        self._check(trajectory.task)
        question = self.texts["question"].fill("user", "instruction", {"question": [self._question(trajectory.task)]})
        talk = trajectory.converse(Conversation.start(self._system(), question))
        shown, bare = self._turn_tokens()
        full = False
        for number in range(1, self.limits.turns + 1):
            turn = trajectory.begin_turn()
            last = full or number == self.limits.turns
            if last:
                talk.tell(self._note("last_turn"))

            reply = yield from Generate(talk, self.limits.call_tokens, STOPS)
            act = self._read(reply, parse_tags(reply.text, self.tool, self.dialect.boxed), turn)
            if act.answer is not None:
                trajectory.answer = act.answer
                return
            if number == self.limits.turns:
                turn.event("turn_limit", f"no answer within {number} turns")
                return
            room = self._room(reply)
            if full or room < bare:
                turn.event("context_limit", "no answer")
                return
            if full := room < shown + 2 * bare:
                turn.event("context_limit", "the next turn must answer")
            fits = room >= shown + bare  # else what comes back would leave no room for an answer
            seen = (yield from self._search(act.action, trajectory)) if act.action and fits else None
            if trajectory.outcome is not None:
                return
            talk.tell(self._tell(seen))

    def _tell(self, seen: Observation | None) -> list[Segment]:
        """What came back, or that the turn could not be carried out."""
        if seen is None:
            return self._note("bad_call")
        shown = self._show(seen, self.dialect.passage)
        return self.texts["observation"].fill("user", "instruction", {"observation": shown})

    def _turn_tokens(self) -> tuple[int, int]:
        """The most tokens of what comes back in a turn, and of the rest of it, where our words count a token a byte."""
        words = sum(len(self.texts[name].text.encode()) for name in ("observation", "bad_call", "last_turn"))
        shown = self.limits.passages * (self.limits.passage_tokens + 1)
        return shown, words + TEMPLATE_TOKENS + self.limits.call_tokens

    def _room(self, reply: Reply) -> float:
        """Tokens that the context has left behind a reply; no end of them where the engine does not count."""
        if reply.context_tokens is None or reply.sampled_tokens is None:
            return math.inf
        return (self.limits.context_tokens or self.dialect.context_tokens) - reply.context_tokens - reply.sampled_tokens
