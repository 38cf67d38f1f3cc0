"""Rewards of whole trajectories: by name, or functions of one's own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from memsearcher import scoring
from memsearcher.objective_scoring import objectives_of, score_objectives
from memsearcher.scoring import check_golds, has_goal
from memsearcher.trajectory import Task, Trajectory

Reward = Callable[..., Sequence[float | None]]
"""`reward(trajectories, trainer_state=…, log_metric=…)` gives one number a trajectory, or None
for one that it cannot judge. It never sees a failed trajectory."""


def reward_objectives(trajectory: Trajectory) -> float | None:
    """MEM1's reward of a task of several questions: the exact matches by position, from 0 to their number.

    At a wrong number of answers it is 0. None for a trajectory that failed.

    Raises:
        ValueError: see `score_objectives`.
    """
    scores = score_objectives(trajectory)
    return None if scores is None else scores.total("em", strict=True)


_NAMED: dict[str, Callable[[Trajectory], float | None]] = {
    **{name: partial(scoring.reward, name) for name in scoring.REWARDS},
    "objectives": reward_objectives,
}
REWARDS: tuple[str, ...] = tuple(_NAMED)
"""Those of `scoring`, and `objectives` (see `reward_objectives`)."""


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


def compare(table: Tensor, weights: Tensor, group: int, mine: slice) -> tuple[Tensor, Tensor]:
    """Of each trajectory, whether it takes part in the update, and whether its group's rewards are all the same.

    A trajectory takes part if it was judged, and another of its group was. The mean of equal
    rewards may miss them by a rounding error in float32, which the division by a deviation of
    almost 0 would turn into an advantage, and Adam into a step: there the advantage is 0.

    Args:
        table: rewards of all processes `[trajectories, functions]`, NaN where there is none.
        weights: of the functions.
        group: trajectories of a group, which follow each other.
        mine: the part of the trajectories that is wanted.
    """
    totals = (table * weights.to(table)).nansum(1).masked_fill(table.isnan().all(1), math.nan).view(-1, group)
    judged = ~totals.isnan()
    counted = judged & (judged.sum(1, keepdim=True) >= 2)
    level = totals.nan_to_num(nan=-math.inf).amax(1) == totals.nan_to_num(nan=math.inf).amin(1)
    return counted.flatten()[mine], level.repeat_interleave(group)[mine]


def check_tasks(tasks: Sequence[Task], reward: str | Reward | Sequence[str | Reward]) -> None:
    """Refuse tasks that cannot be played, or not be judged where a reward goes by name.

    Raises:
        ValueError: an empty question, golds that nothing can be compared with, no goal where the reward is the
            `outcome`, no questions where it is that of `objectives`; names the task.
    """
    listed = [reward] if isinstance(reward, str) or callable(reward) else reward
    names = {each for each in listed if isinstance(each, str)}
    for task in tasks:
        parts = objectives_of(task) if "objectives" in names else []
        try:
            if not task.question.strip():
                raise ValueError("the question is empty")
            if "outcome" in names and not has_goal(task):
                raise ValueError("the reward outcome is for goals of an environment with an end, as the web shop")
            for part in parts:
                check_golds(part.golds)
            if names - {"outcome", "objectives"}:
                check_golds(task.golds)
        except ValueError as error:
            raise ValueError(f"task {task.id!r}: {error}") from None


def _by_name(name: str) -> Reward:
    if name not in REWARDS:
        raise ValueError(f"unknown reward {name!r}; there are: {', '.join(REWARDS)}")

    def rule(trajectories: Sequence[Trajectory], **context: Any) -> list[float | None]:
        return [_NAMED[name](each) for each in trajectories]

    rule.__name__ = name
    return rule
