"""What an agent is: a generator over a task that yields what it needs.

`reply = yield from Generate(…)` asks for a model call, `seen = yield from Act(…)` for an
action of the environment: each yields itself and returns what it was sent. The agent
writes what happens on the `Trajectory` it is given and ends by setting
`trajectory.answer`, or without an answer at a limit. Who answers, how many agents run
at once and in what batches is none of its business (see `rollout.py`).
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Protocol

from memsearcher.trajectory import Action, Conversation, Finish, Limits, Observation, Purpose, Trajectory


@dataclass(frozen=True, slots=True)
class Generate:
    """Ask for a model call on `talk`. Whoever answers appends the reply to `talk`.

    `limit` is the most tokens to sample; sampling ends behind the first of the `stop`
    strings (kept in the reply) or at the end-of-message token.
    """

    talk: Conversation
    limit: int
    stop: tuple[str, ...] = ()
    purpose: Purpose = "act"

    def __iter__(self) -> Generator[Generate, Reply, Reply]:
        return (yield self)


@dataclass(frozen=True, slots=True)
class Act:
    """Ask the environment to carry out `action`."""

    action: Action

    def __iter__(self) -> Generator[Act, Observation, Observation]:
        return (yield self)


@dataclass(frozen=True, slots=True)
class Reply:
    """What the model wrote. `text` is the reply without the end-of-message token.

    `token_ids` holds every sampled token, the end-of-message token too, and `logprobs`
    the log-probability of each under the distribution it was sampled from; both are
    None from engines that do not give them. Counts are None where they are unknown.
    """

    text: str
    finish: Finish
    token_ids: list[int] | None = None
    logprobs: list[float] | None = None
    context_tokens: int | None = None
    sampled_tokens: int | None = None


Play = Generator[Generate | Act, Any, None]


class Agent(Protocol):
    """A rule for what the model gets to see."""

    @property
    def name(self) -> str:
        """The name on the record."""
        ...

    @property
    def limits(self) -> Limits: ...

    @property
    def fingerprint(self) -> dict[str, str]:
        """What binds a record to this agent: its prompts' hash and its options."""
        ...

    def play(self, trajectory: Trajectory) -> Play:
        """Attempt `trajectory.task` and write it on `trajectory`."""
        ...
