"""The record: what an agent was shown, what it wrote, what came back.

Every other part of the project reads or writes this one format. A `Trajectory`
is one attempt at one `Task`. It holds `Conversation`s (what the model saw, token
by token) and `Turn`s (what that meant: thought, actions, passages, memory,
events). Only facts are stored; what follows from them (peak tokens, context
tokens a turn, the counterfactual ReAct length) is a property.

No tokenizer and no model is needed to read or write it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal, Self, TypeVar, get_args

from pydantic import ConfigDict, TypeAdapter, ValidationError

from memsearcher import jsonl
from memsearcher.card import Card, Line

SCHEMA_VERSION = 1

Role = Literal["system", "user", "assistant"]
Part = Literal["template", "system", "instruction", "question", "memory", "history", "observation", "reply"]
"""What a segment is made of, which also says who wrote it: `template` is the chat
template's markers, `system` and `instruction` are our prompts, `question`, `memory`,
`history` and `observation` are text from outside, `reply` was sampled: by the call whose
segment it is, or by an earlier one whose words are shown again."""

OUTSIDE: frozenset[str] = frozenset({"question", "memory", "history", "observation"})
_REACT: frozenset[str] = frozenset({"template", "system", "instruction", "question", "observation"})
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
        context_tokens: of a context that grows with every turn, replies included (ReAct); None is the
            agent's own limit.
        history_tokens: of what the turns before leave behind, the last so many tokens are shown (Truncate).
    """

    turns: int = 5
    call_tokens: int = 512
    memory_tokens: int = 512
    question_tokens: int = 512
    passages: int = 5
    passage_tokens: int = 256
    on_bad_memory: BadMemoryPolicy = "keep"
    context_tokens: int | None = None
    history_tokens: int = 512

    def __post_init__(self) -> None:
        for name in (each.name for each in fields(self) if each.name != "on_bad_memory"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ValueError(f"Limits.{name} must be at least 1, not {getattr(self, name)!r}")
        if self.on_bad_memory not in get_args(BadMemoryPolicy):
            raise ValueError(f"Limits.on_bad_memory must be keep, wipe or end, not {self.on_bad_memory!r}")


@dataclass(slots=True)
class Segment:
    """A run of text of one origin inside a message.

    `token_ids` is None until an engine that works on tokens has encoded it (a server
    that takes text never does). `logprobs` are those under which a reply was sampled,
    one a token. `limit` caps a segment from outside at so many tokens when it is encoded,
    the first ones, of a history the last ones; `dropped` says how many tokens that cost, and
    `text` is then what is left.
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
        return self.mask_without(())

    def mask_without(self, left_out: Container[int]) -> list[int] | None:
        """The loss mask, with 0 also for the tokens of the segments that are left out, by their place."""
        mask: list[int] = []
        for place, segment in enumerate(self.segments):
            if segment.token_ids is None:
                return None
            mask.extend([int(segment.trained and place not in left_out)] * len(segment.token_ids))
        return mask


@dataclass(frozen=True, slots=True)
class Action:
    """What the agent asked of its environment: a tool's name and its arguments."""

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Passage:
    """A retrieved passage; `rank` starts at 1, a higher `score` is better, None where it is not known."""

    id: str
    title: str
    text: str
    score: float | None
    rank: int


@dataclass(frozen=True, slots=True)
class Event:
    """Something out of the ordinary, by name; `detail` is for people."""

    name: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an episode came out in an environment that has an end: its reward, and what that is made of."""

    reward: float
    parts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Observation:
    """What the environment answered: passages, or a plain `text` where there are none.

    `events` says what was odd about the action. With an `outcome` the episode is over: nothing
    that is done in it afterwards counts.
    """

    text: str = ""
    passages: tuple[Passage, ...] = ()
    events: tuple[Event, ...] = ()
    outcome: Outcome | None = None


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

    def lines(self) -> list[Line]:
        """What the turn did, a labelled line each."""
        lines: list[Line] = [("thought", self.thought)] if self.thought else []
        for step in self.steps:
            lines.append((step.action.name, ", ".join(str(value) for value in step.action.arguments.values())))
            if step.observation is None:
                lines.append(("found", "nothing: the environment failed"))
            else:
                titles = "\n".join(f"{each.rank}. {each.title}" for each in step.observation.passages)
                lines.append(("found", titles or step.observation.text))
        lines += [("memory", self.memory_after)] if self.memory_after is not None else []
        lines += [("event", f"{event.name} {event.detail}".strip()) for event in self.events]
        return lines


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
    def outcome(self) -> Outcome | None:
        """How the episode came out; None in an environment without an end, or before it."""
        seen = (step.observation for turn in self.turns for step in turn.steps)
        return next((each.outcome for each in seen if each is not None and each.outcome is not None), None)

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

        The same trajectory as one growing history: the first prompt without a memory, then
        every act reply and every observation, each counted once. What only serves the agent's
        way of remembering (memory, history and states shown again, the requests for them, the
        replies that write them, prompts repeated) is left out. Of an agent that keeps all in one
        conversation it is the context itself. Otherwise not a measured ReAct run; None where
        there are no token ids.
        """
        lengths: list[int] = []
        total = 0
        read: dict[int, int] = {}
        for turn in self.turns:
            for call in turn.calls:
                segments = self.conversations[call.conversation].segments
                shown, reply = segments[read.get(call.conversation, 0) : call.segment], segments[call.segment]
                read[call.conversation] = call.segment + 1
                if reply.token_ids is None:
                    return None
                act = call.purpose == "act"
                total += len(reply.token_ids) if act else 0
                kept = _REACT if act and call.conversation == 0 else {"observation"}
                for segment in shown:
                    if segment.part in kept:
                        if segment.token_ids is None:
                            return None
                        total += len(segment.token_ids)
            lengths.append(total)
        return lengths

    def card(self) -> Card:
        """The trajectory for a reader: the question, how it ended, and what each turn did."""
        about: list[Line] = [("answer", "none" if self.answer is None else self.answer)]
        about += [("gold", " | ".join(self.task.golds))] if self.task.golds else []
        about += [("outcome", f"{self.outcome.reward:.3g}")] if self.outcome is not None else []
        about += [("reward", f"{self.reward:.3g}")] if self.reward is not None else []
        about += [("agent", self.agent)]
        about += [("peak", f"{self.peak_tokens} tokens")] if self.peak_tokens is not None else []
        about += [("failed", self.error)] if self.error is not None else []
        return Card(self.task.question, about, [(f"Turn {n}", turn.lines()) for n, turn in enumerate(self.turns, 1)])

    def _repr_html_(self) -> str:
        return self.card().html()

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(self.card().text())

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
    world = (Task, Limits, Segment, Conversation, Action, Passage, Event, Outcome, Observation)
    return exact_adapter(Trajectory, *world, Step, Call, Turn)


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
