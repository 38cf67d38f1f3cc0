"""The record: what an agent was shown, what it wrote, what came back.

Every other part of the project reads or writes this one format. A `Trajectory`
is one attempt at one `Task`. It holds `Conversation`s (what the model saw, token
by token) and `Turn`s (what that meant: thought, actions, passages, memory,
events). Only facts are stored; what follows from them (peak tokens, context
tokens a turn, the counterfactual ReAct length) is a property.

No tokenizer and no model is needed to read or write it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal, Self, TypeVar, get_args

from pydantic import ConfigDict, TypeAdapter, ValidationError

from memsearcher import jsonl

SCHEMA_VERSION = 1

Role = Literal["system", "user", "assistant"]
Part = Literal["template", "system", "instruction", "question", "memory", "observation", "reply"]
"""What a segment is made of, which also says who wrote it: `template` is the chat
template's markers, `system` and `instruction` are our prompts, `question`,
`memory` and `observation` are text from outside, `reply` was sampled."""

OUTSIDE: frozenset[str] = frozenset({"question", "memory", "observation"})
Purpose = Literal["act", "remember"]
Finish = Literal["stop", "eos", "length"]
BadMemoryPolicy = Literal["keep", "wipe", "end"]


T = TypeVar("T")


class RecordError(ValueError):
    """A record that cannot be read; the message names the file, line and field."""


@dataclass(frozen=True, slots=True)
class Task:
    """A question with its accepted answers (`golds`) and free metadata."""

    id: str
    question: str
    golds: tuple[str, ...] = ()
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Limits:
    """What an agent may use. Token limits are in tokens of the policy's tokenizer.

    Attributes:
        turns: model turns, the one that answers included.
        call_tokens: sampled tokens of one model call.
        memory_tokens: sampled tokens of one memory, tags included.
        question_tokens: the question is cut after this many tokens (an event says so).
        passages: passages an action may bring back, also when the model asks for more.
        passage_tokens: each passage is cut after this many tokens.
        on_bad_memory: a malformed memory leaves the old one (`keep`, ours), an empty one
            (`wipe`, the official inference) or ends the trajectory (`end`, the official training).
    """

    turns: int = 5
    call_tokens: int = 512
    memory_tokens: int = 512
    question_tokens: int = 512
    passages: int = 5
    passage_tokens: int = 256
    on_bad_memory: BadMemoryPolicy = "keep"

    def __post_init__(self) -> None:
        for name in ("turns", "call_tokens", "memory_tokens", "question_tokens", "passages", "passage_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"Limits.{name} must be at least 1, not {getattr(self, name)!r}")
        if self.on_bad_memory not in get_args(BadMemoryPolicy):
            raise ValueError(f"Limits.on_bad_memory must be keep, wipe or end, not {self.on_bad_memory!r}")


@dataclass(slots=True)
class Segment:
    """A run of text of one origin inside a message.

    `token_ids` is None until an engine that works on tokens has encoded it (a server
    that takes text never does). `logprobs` are those under which a reply was sampled,
    one a token. `limit` caps a segment from outside at so many tokens when it is
    encoded; `dropped` says how many tokens that cost, and `text` is then what is left.
    """

    role: Role
    part: Part
    text: str
    token_ids: list[int] | None = None
    logprobs: list[float] | None = None
    trained: bool = False
    limit: int | None = None
    dropped: int = 0


@dataclass(slots=True)
class Conversation:
    """One context, growing only at its end: segments are added, never encoded again.

    Neighbouring segments of one role are one message.
    """

    segments: list[Segment] = field(default_factory=list)

    @classmethod
    def start(cls, system: Iterable[Segment], user: Iterable[Segment]) -> Self:
        """A fresh context: a system message and the first user message."""
        return cls([*system, *user])

    def tell(self, segments: Iterable[Segment]) -> Self:
        """Extend the context by another message, behind what is there."""
        self.segments.extend(segments)
        return self

    def messages(self) -> list[dict[str, str]]:
        """The context as chat messages, for servers that take text."""
        merged: list[dict[str, str]] = []
        for segment in self.segments:
            if segment.part == "template":
                continue
            if merged and merged[-1]["role"] == segment.role:
                merged[-1]["content"] += segment.text
            else:
                merged.append({"role": segment.role, "content": segment.text})
        return merged

    @property
    def token_ids(self) -> list[int] | None:
        """All token ids in order, or None where any segment has none."""
        ids: list[int] = []
        for segment in self.segments:
            if segment.token_ids is None:
                return None
            ids.extend(segment.token_ids)
        return ids

    @property
    def loss_mask(self) -> list[int] | None:
        """1 for each trained token, 0 for every other; same length as `token_ids`."""
        mask: list[int] = []
        for segment in self.segments:
            if segment.token_ids is None:
                return None
            mask.extend([int(segment.trained)] * len(segment.token_ids))
        return mask


@dataclass(frozen=True, slots=True)
class Action:
    """What the agent asked of its environment: a tool's name and its arguments."""

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Passage:
    """A retrieved passage; `rank` starts at 1, a higher `score` is better."""

    id: str
    title: str
    text: str
    score: float
    rank: int


@dataclass(frozen=True, slots=True)
class Observation:
    """What the environment answered: passages, or a plain `text` where there are none."""

    text: str = ""
    passages: tuple[Passage, ...] = ()


@dataclass(slots=True)
class Step:
    """An action and what came back; `observation` is None where the environment failed."""

    action: Action
    observation: Observation | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """One model call. Its context is `conversations[conversation].segments[:segment]`.

    `context_tokens` and `sampled_tokens` are the engine's count, None where it has none.
    """

    purpose: Purpose
    conversation: int
    segment: int
    finish: Finish
    context_tokens: int | None
    sampled_tokens: int | None


@dataclass(frozen=True, slots=True)
class Event:
    """Something out of the ordinary, by name; `detail` is for people."""

    name: str
    detail: str = ""


@dataclass(slots=True)
class Turn:
    """What one turn meant. Memory is None for agents that have none."""

    memory_before: str | None = None
    memory_after: str | None = None
    thought: str | None = None
    calls: list[Call] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def event(self, name: str, detail: str = "") -> None:
        self.events.append(Event(name, detail))

    @property
    def context_tokens(self) -> int | None:
        """The longest context of the turn, reply included, in tokens; None if not counted."""
        lengths: list[int] = []
        for call in self.calls:
            if call.context_tokens is None or call.sampled_tokens is None:
                return None
            lengths.append(call.context_tokens + call.sampled_tokens)
        return max(lengths, default=None)


@dataclass(slots=True)
class Trajectory:
    """One attempt at a task, from the first turn to an answer, a limit or an error.

    `reward` and `advantage` are None until given, and stay None for a failed attempt.
    `sample` numbers the attempts at one task. `provenance` binds the record to what made
    it: engine, model, adapter, prompts, retriever and package versions.
    """

    task: Task
    agent: str
    limits: Limits
    sample: int = 0
    seed: int | None = None
    conversations: list[Conversation] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    answer: str | None = None
    reward: float | None = None
    advantage: float | None = None
    error: str | None = None
    seconds: float | None = None
    provenance: dict[str, str] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return attempt_id(self.task, self.sample)

    def begin_turn(self, memory: str | None = None) -> Turn:
        """Open the next turn; until it says otherwise, memory stays as it was."""
        self.turns.append(Turn(memory_before=memory, memory_after=memory))
        return self.turns[-1]

    def converse(self, conversation: Conversation) -> Conversation:
        """Put a new context on the record and give it back."""
        self.conversations.append(conversation)
        return conversation

    @property
    def events(self) -> list[tuple[int, Event]]:
        """All events with the number of their turn, which starts at 1."""
        return [(number, event) for number, turn in enumerate(self.turns, 1) for event in turn.events]

    @property
    def actions(self) -> list[Action]:
        """All actions in order."""
        return [step.action for turn in self.turns for step in turn.steps]

    @property
    def calls(self) -> Iterator[Call]:
        return (call for turn in self.turns for call in turn.calls)

    @property
    def context_tokens(self) -> list[int | None]:
        """The longest context of each turn in tokens, everything in it counted."""
        return [turn.context_tokens for turn in self.turns]

    @property
    def peak_tokens(self) -> int | None:
        """The longest context of the trajectory in tokens; None if any turn was not counted."""
        counts = [count for count in self.context_tokens if count is not None]
        return max(counts) if counts and len(counts) == len(self.turns) else None

    @property
    def sampled_tokens(self) -> int | None:
        """Tokens the model wrote in all calls; None if any call was not counted."""
        counts = [call.sampled_tokens for call in self.calls]
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else None

    @property
    def react_tokens(self) -> list[int] | None:
        """The counterfactual ReAct context after each turn, in tokens.

        The same trajectory as one growing history: the first turn's prompt without
        its memory, then every act reply and every observation. What only serves the
        memory (the memory itself, the request for it, the replies that write it) is
        left out. Not a measured ReAct run; None where there are no token ids.
        """
        lengths: list[int] = []
        total = 0
        for number, turn in enumerate(self.turns):
            for call in turn.calls:
                conversation = self.conversations[call.conversation]
                reply = conversation.segments[call.segment]
                if reply.token_ids is None:
                    return None
                kept: tuple[str, ...] = ("observation",)
                if call.purpose == "act":
                    total += len(reply.token_ids)
                    kept = ("template", "system", "instruction", "question") if number == 0 else ()
                for segment in conversation.segments[: call.segment]:
                    if segment.part in kept:
                        if segment.token_ids is None:
                            return None
                        total += len(segment.token_ids)
            lengths.append(total)
        return lengths

    def to_json(self) -> dict[str, Any]:
        """The record as JSON types, with its schema version."""
        # Not pydantic's dump, which alters lone surrogates in keys or fails at them.
        return {"schema": SCHEMA_VERSION, **asdict(self)}

    @classmethod
    def from_json(cls, data: Any) -> Trajectory:
        """Read a record back.

        Raises:
            RecordError: another schema version, a missing, unknown or ill-typed field.
        """
        if not isinstance(data, dict) or "schema" not in data:
            raise RecordError("not a trajectory: an object with a field 'schema' was expected")
        if data["schema"] != SCHEMA_VERSION:
            raise RecordError(f"schema version {data['schema']!r}; this program reads version {SCHEMA_VERSION}")
        try:
            return _adapter().validate_python({key: value for key, value in data.items() if key != "schema"})
        except ValidationError as error:
            raise RecordError(first_fault(error)) from None


def attempt_id(task: Task, sample: int) -> str:
    """The id of the trajectory of one attempt."""
    return f"{task.id}#{sample}"


def exact_adapter(kind: type[T], *parts: type) -> TypeAdapter[T]:
    """Reads dataclasses of `kind`, made of `parts`; a field that one does not have is an error, not a loss."""
    for each in (kind, *parts):
        setattr(each, "__pydantic_config__", ConfigDict(extra="forbid"))  # noqa: B010
    return TypeAdapter(kind)


def first_fault(error: ValidationError) -> str:
    """The first thing that is wrong, with the path of its field."""
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"field {place}: {first['msg']}"


@cache
def _adapter() -> TypeAdapter[Trajectory]:
    world = (Task, Limits, Segment, Conversation, Action, Passage, Observation)
    return exact_adapter(Trajectory, *world, Step, Call, Event, Turn)


def write_trajectory(path: Path, trajectory: Trajectory) -> None:
    """Append a trajectory to a JSONL file, whole or not at all (see `jsonl.append`)."""
    jsonl.append(path, trajectory.to_json())


def read_trajectories(path: Path) -> Iterator[Trajectory]:
    """Read a JSONL file of trajectories as a stream; a torn last line is left out.

    Raises:
        RecordError: anything else that is wrong, with file and line.
    """
    for number, data in jsonl.read(path):
        try:
            yield Trajectory.from_json(data)
        except RecordError as error:
            raise RecordError(f"{path}:{number}: {error}") from None
