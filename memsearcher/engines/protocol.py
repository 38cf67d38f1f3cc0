"""What an engine is: it answers model calls in batches and knows no agent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from memsearcher.agents.protocol import Reply
from memsearcher.trajectory import Conversation


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn. `temperature` 0 is greedy, and the other fields then do nothing."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0

    def __post_init__(self) -> None:
        if self.temperature < 0 or not 0 < self.top_p <= 1 or self.top_k < 0:
            raise ValueError(f"temperature >= 0, 0 < top_p <= 1 and top_k >= 0 are needed, not {self}")


@dataclass(frozen=True, slots=True)
class Request:
    """One model call: continue `conversation` by at most `limit` tokens.

    `seed` makes the draw of this request its own: the same seed gives the same reply,
    whatever else is in the batch (up to floating point).
    """

    conversation: Conversation
    limit: int
    stop: tuple[str, ...] = ()
    seed: int = 0


class EngineFailure(RuntimeError):
    """A call that could not be answered, with its cause as `__cause__`."""


def failure(message: str, cause: BaseException) -> EngineFailure:
    """A failure with its cause, to return and not to raise."""
    made = EngineFailure(message)
    made.__cause__ = cause
    return made


class Engine(Protocol):
    @property
    def fingerprint(self) -> dict[str, str]:
        """What binds a record to this engine: its kind, model, adapter and versions."""
        ...

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Reply | EngineFailure]:
        """Answer every request, in order. One that fails does not fail the others.

        Segments that are not yet encoded are encoded in place, where the engine works on
        tokens; the reply is returned and not appended: that is the caller's.
        """
        ...


class ContinuousEngine(ABC):
    """An engine that takes up a request at any time, beside those under way, and batches continuously."""

    @property
    @abstractmethod
    def fingerprint(self) -> dict[str, str]:
        """See `Engine.fingerprint`."""

    @abstractmethod
    def submit(self, request: Request, sampling: Sampling) -> Future[Reply | EngineFailure]:
        """Take up a request and return at once; its future gets the answer as soon as it is there.

        Until then the conversation is the engine's. Cancelling the future gives the request up.
        """

    @abstractmethod
    def close(self) -> None:
        """Let what is under way fail and give back what the engine holds. Nothing may be submitted any more."""

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Reply | EngineFailure]:
        """See `Engine.generate`."""
        answers = [self.submit(request, sampling) for request in requests]
        try:
            return [answer.result() for answer in answers]
        finally:
            for answer in answers:
                answer.cancel()
