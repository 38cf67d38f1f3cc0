"""Rewards of whole trajectories: by name, or functions of one's own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from memsearcher.scoring import REWARDS, check_golds
from memsearcher.scoring import reward as score_by_name
from memsearcher.trajectory import Task, Trajectory

Reward = Callable[..., Sequence[float | None]]
"""`reward(trajectories, trainer_state=…, log_metric=…)` gives one number a trajectory, or None
for one that it cannot judge. It never sees a failed trajectory."""


def as_functions(reward: str | Reward | Sequence[str | Reward]) -> list[Reward]:
    """Rewards as functions of trajectories.

    Raises:
        ValueError: an unknown name, or no reward at all.
    """
    listed = [reward] if isinstance(reward, str) or callable(reward) else list(reward)
    if not listed:
        raise ValueError(f"a reward is needed: a function of trajectories, or one of {', '.join(REWARDS)}")
    return [_by_name(each) if isinstance(each, str) else each for each in listed]


def reward_table(functions: Sequence[Reward], trajectories: Sequence[Trajectory], **context: Any) -> Tensor:
    """Rewards `[trajectories, functions]` in float64, NaN where there is none.

    Raises:
        ValueError: a function that does not give one number, or None, a trajectory.
    """
    table = torch.full((len(trajectories), len(functions)), math.nan, dtype=torch.float64)
    alive = [number for number, each in enumerate(trajectories) if each.error is None]
    for column, function in enumerate(functions if alive else ()):
        values = function([trajectories[number] for number in alive], **context)
        if not isinstance(values, Sequence) or len(values) != len(alive):
            raise ValueError(f"reward {function} must give a list of {len(alive)} numbers, one for each trajectory")
        numbers = [math.nan if value is None else float(value) for value in values]
        table[alive, column] = torch.tensor(numbers, dtype=torch.float64)
    return table


def check_tasks(tasks: Sequence[Task], reward: str | Reward | Sequence[str | Reward]) -> None:
    """Refuse tasks that cannot be played, or not be judged where a reward goes by name.

    Raises:
        ValueError: an empty question, or golds that nothing can be compared with; names the task.
    """
    by_name = isinstance(reward, str) or (not callable(reward) and any(isinstance(each, str) for each in reward))
    for task in tasks:
        try:
            if not task.question.strip():
                raise ValueError("the question is empty")
            if by_name:
                check_golds(task.golds)
        except ValueError as error:
            raise ValueError(f"task {task.id!r}: {error}") from None


def _by_name(name: str) -> Reward:
    if name not in REWARDS:
        raise ValueError(f"unknown reward {name!r}; there are: {', '.join(REWARDS)}")

    def rule(trajectories: Sequence[Trajectory], **context: Any) -> list[float | None]:
        return [score_by_name(name, each) for each in trajectories]

    rule.__name__ = name
    return rule
