"""What a step's trajectories and losses come to, in numbers that do not depend on processes or chunks."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from memsearcher.scoring import MALFORMED, has_goal, score_outcome, score_trajectory
from memsearcher.trajectory import Trajectory


def measure(trajectory: Trajectory) -> dict[str, Any]:
    """The facts of one trajectory that go into a step's metrics; a failed one is only counted."""
    if trajectory.error is not None:
        return {"failed": 1.0}
    scores = score_trajectory(trajectory) if trajectory.task.golds else None
    outcome = score_outcome(trajectory) if has_goal(trajectory.task) else None
    memories = [call.sampled_tokens or 0 for call in trajectory.calls if call.purpose == "remember"]
    facts = {
        "em": scores and scores.em,
        "f1": scores and scores.f1,
        "outcome": outcome,
        "success": None if outcome is None else float(outcome == 1),
        "answered": float(trajectory.answer is not None),
        "turns": float(len(trajectory.turns)),
        "conversations": float(len(trajectory.conversations)),
        "searches": float(len(trajectory.actions)),
        "sampled_tokens": float(trajectory.sampled_tokens or 0),
        "context_peak": float(trajectory.peak_tokens or 0),
        "memory_tokens": sum(memories) / len(memories) if memories else None,
    }
    events = {event.name for _, event in trajectory.events}
    return {"failed": 0.0, **facts, "events": events}


def transcript(trajectory: Trajectory) -> str:
    """All that the model wrote, for TRL's table of completions."""
    return "\n".join(each.text for talk in trajectory.conversations for each in talk.segments if each.trained)


def summarize(measured: Sequence[dict[str, Any]], known_events: set[str]) -> dict[str, float]:
    """Means over the trajectories that did not fail, the longest context, and of each event how many had it.

    Args:
        measured: what `measure` gave for each trajectory of every process.
        known_events: events seen so far, which have a rate also where it is 0; grows in place.
    """
    values: dict[str, list[float]] = defaultdict(list)
    for facts in measured:
        for name, value in facts.items():
            if name != "events" and value is not None:
                values[name].append(value)
    whole = [facts["events"] for facts in measured if not facts["failed"]]
    known_events |= MALFORMED.union(*whole)
    means = {f"trajectories/{name}": math.fsum(each) / len(each) for name, each in values.items()}
    if whole:
        means["trajectories/context_peak_max"] = max(values["context_peak"])
        means |= {
            f"events/{name}": sum(name in events for events in whole) / len(whole) for name in sorted(known_events)
        }
    return means


class Alone:
    """An accelerator whose gather and reduce stay with this process; everything else is the accelerator's.

    TRL's loss gathers its metrics from all processes as it goes, row by row. The chunks of two
    processes hold different numbers of rows, so that cannot work there; `ChunkMetrics` does it
    once, for all chunks.
    """

    def __init__(self, accelerator: Any) -> None:
        self._accelerator = accelerator

    def __getattr__(self, name: str) -> Any:
        return getattr(self._accelerator, name)

    def gather(self, tensor: Tensor) -> Tensor:
        return tensor

    def reduce(self, tensor: Tensor, reduction: str = "sum") -> Tensor:
        return tensor


@dataclass(slots=True)
class ChunkMetrics:
    """Puts together what TRL's loss logs for each chunk of rows.

    TRL logs means over the tokens of a chunk, weighted by the loss mask, whose sum it takes
    for at least 1. `merge` undoes that, so that the step has one number: the mean over its
    tokens on all processes. Names that end with min or max keep their extreme.
    """

    weight: float = 0.0
    values: dict[str, float] = field(default_factory=dict)

    def collect(self, logged: dict[str, list[float]], before: dict[str, int], weight: float) -> None:
        """Take out of TRL's metrics what one chunk put there; `weight` is the sum of its mask."""
        self.weight += weight
        for name in list(logged):
            for value in logged[name][before.get(name, 0) :]:
                self._add(name, value, weight)
            del logged[name][before.get(name, 0) :]

    def _add(self, name: str, value: float, weight: float) -> None:
        if name.endswith("_min"):
            self.values[name] = min(self.values.get(name, math.inf), math.inf if math.isnan(value) else value)
        elif name.endswith("_max"):
            self.values[name] = max(self.values.get(name, -math.inf), -math.inf if math.isnan(value) else value)
        else:
            self.values[name] = self.values.get(name, 0.0) + value * max(weight, 1.0)

    def merge(self, gather: Callable[[Tensor], Tensor]) -> dict[str, float]:
        """The step's numbers, the same on every process; `gather` stacks vectors of all processes end to end."""
        names = sorted(self.values)
        mine = torch.tensor([self.weight, *(self.values[name] for name in names)], dtype=torch.float32)
        everyone = gather(mine).view(-1, len(names) + 1)
        total = max(float(everyone[:, 0].sum()), 1e-12)
        merged = {}
        for column, name in enumerate(names, 1):
            values = everyone[:, column]
            if name.endswith("_min"):
                merged[name] = float(values.min())
            elif name.endswith("_max"):
                merged[name] = float(values.max())
            else:
                merged[name] = float(values.sum()) / total
        return {name: value for name, value in merged.items() if math.isfinite(value)}
