"""A trajectory in a line of the list: what one filters and sorts by; and what one searches in."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, Literal

from memsearcher.inspect.golds import Golds, golds_finder
from memsearcher.inspect.text import visible
from memsearcher.objective_scoring import golds_of, has_objectives, score_objectives
from memsearcher.scoring import score_trajectory
from memsearcher.trajectory import Event, Trajectory, Turn

LONGEST_QUESTION, LONGEST_ANSWER = 160, 80
"""Characters of a question and of an answer that the list holds; the view has the whole."""

GoldEvent = Literal["gold_found", "gold_entered", "gold_lost"]
GOLD_EVENTS: dict[GoldEvent, str] = {
    "gold_found": "a passage of this turn holds a gold answer for the first time",
    "gold_entered": "the memory holds a gold answer and did not before",
    "gold_lost": "the memory held a gold answer and does not any more",
}
"""Events that no record holds: they follow from golds, passages and memories."""


def row(trajectory: Trajectory, run: int = 0) -> dict[str, Any]:
    """The line of a trajectory; `run` numbers the run it is from. What is not known is None."""
    gold_events = find_gold_events(trajectory, golds_finder(golds_of(trajectory.task)))
    names = [event.name for turn in trajectory.turns for event in events_of(turn)] + [name for _, name in gold_events]
    return {
        "id": visible(trajectory.id),
        "task": visible(trajectory.task.id),
        "run": run,
        "agent": visible(trajectory.agent),
        "sample": trajectory.sample,
        "question": _cut(trajectory.task.question, LONGEST_QUESTION),
        "answer": None if trajectory.answer is None else _cut(trajectory.answer, LONGEST_ANSWER),
        "em": em(trajectory),
        "reward": finite(trajectory.reward),
        "advantage": finite(trajectory.advantage),
        "outcome": finite(trajectory.outcome.reward) if trajectory.outcome else None,
        "failed": trajectory.error is not None,
        "turns": len(trajectory.turns),
        "peak": trajectory.peak_tokens,
        "events": sorted({visible(name) for name in names}),
    }


def em(trajectory: Trajectory) -> float | None:
    """Exact match of the answer, the mean over the questions where there are several.

    None where the attempt failed, and where the golds are such that nothing can be scored by them.
    """
    try:
        if has_objectives(trajectory.task):
            scores = score_objectives(trajectory)
            return None if scores is None else scores.mean("em")
        single = score_trajectory(trajectory)
        return None if single is None else single.em
    except ValueError:
        return None


def finite(value: float | None) -> float | None:
    """A number as JSON can hold it: None for what is not finite."""
    return value if value is not None and math.isfinite(value) else None


def find_gold_events(trajectory: Trajectory, golds: Golds) -> list[tuple[int, GoldEvent]]:
    """When a gold answer was found, entered the memory and was lost from it, as (turn, event)."""
    events: list[tuple[int, GoldEvent]] = []
    found = False
    for number, turn in enumerate(trajectory.turns, 1):
        seen = [step.observation for step in turn.steps if step.observation]
        if not found and any(golds.spans(each.text) for one in seen for each in one.passages):
            found = True
            events.append((number, "gold_found"))
        if turn.memory_after is not None:
            before, after = golds.spans(turn.memory_before or ""), golds.spans(turn.memory_after)
            if after and not before:
                events.append((number, "gold_entered"))
            if before and not after:
                events.append((number, "gold_lost"))
    return events


def events_of(turn: Turn) -> list[Event]:
    """The events of a turn, those of what came back too."""
    seen = [step.observation for step in turn.steps if step.observation]
    return [*turn.events, *(event for each in seen for event in each.events if event not in turn.events)]


def searchable(trajectory: Trajectory) -> list[str]:
    """All text of a trajectory that a search looks through: what belongs to no turn, then turn by turn."""
    head = [trajectory.id, trajectory.agent, trajectory.task.question, *golds_of(trajectory.task)]
    head += [each for each in (trajectory.answer, trajectory.error) if each is not None]
    texts = ["\n".join(head)]
    for turn in trajectory.turns:
        lines = [turn.thought or "", turn.memory_after or ""]
        for step in turn.steps:
            lines += [str(value) for value in step.action.arguments.values()]
            if step.observation:
                lines.append(step.observation.text)
                lines += [f"{each.title}\n{each.text}" for each in step.observation.passages]
        lines += [f"{event.name} {event.detail}" for event in events_of(turn)]
        texts.append("\n".join(lines))
    return [visible(text) for text in texts]


def hits(texts: Iterable[str], query: str) -> list[int]:
    """How often `query` stands in each text, capitals aside."""
    wanted = query.lower()
    return [text.lower().count(wanted) for text in texts]


def groups(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The attempts of one agent at one question in one run, where there are two or more.

    `members` are places in `rows`. `mean` is that of the rewards that are there; `gradient` is False
    where they are all equal, so that GRPO learns nothing from the group, and both are None where
    fewer than two attempts have a reward.
    """
    members: dict[tuple[Any, ...], list[int]] = {}
    for number, each in enumerate(rows):
        members.setdefault((each["run"], each["agent"], each["task"]), []).append(number)
    made = []
    for numbers in members.values():
        rewards = [reward for number in numbers if (reward := rows[number]["reward"]) is not None]
        known = len(rewards) > 1
        if len(numbers) > 1:
            made.append(
                {
                    "members": numbers,
                    "mean": sum(rewards) / len(rewards) if known else None,
                    "gradient": any(a != b for a, b in pairwise(rewards)) if known else None,
                }
            )
    return made


def _cut(text: str, longest: int) -> str:
    return visible(text if len(text) <= longest else text[: longest - 1] + "…")
