"""What an environment is: it carries out actions in batches and knows no agent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from memsearcher.trajectory import Action, Observation, Task


@dataclass(frozen=True, slots=True)
class ActRequest:
    """An action of one episode.

    Environments with state keep it by `episode`, the trajectory's id. That comes back when a task
    is attempted again, so the action with `number` 1 begins the episode anew.
    """

    episode: str
    task: Task
    action: Action
    number: int = 1


class EnvironmentFailure(RuntimeError):
    """An action that could not be carried out, with its cause as `__cause__`."""


class Environment(Protocol):
    @property
    def fingerprint(self) -> dict[str, str]:
        """What binds a record to this environment: corpus, index, retriever."""
        ...

    def act(self, requests: Sequence[ActRequest]) -> list[Observation | EnvironmentFailure]:
        """Carry out every action, in order. One that fails does not fail the others."""
        ...
