"""Trajectories as data frames: a row a trajectory, a turn, a passage.

What is missing is missing (`pd.NA`) and never 0: the reward of a failed attempt, tokens that were not counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd

from memsearcher.inspect.diff import diff
from memsearcher.inspect.golds import golds_finder
from memsearcher.inspect.summary import em, events_of, find_gold_events
from memsearcher.inspect.tokens import KINDS, contexts
from memsearcher.objective_scoring import golds_of
from memsearcher.trajectory import Trajectory

CHANGES = ("kept", "moved", "edited", "added", "dropped")

TRAJECTORY_COLUMNS = {
    "id": "string[python]",
    "task": "string[python]",
    "sample": "Int64",
    "agent": "string[python]",
    "question": "string[python]",
    "golds": "object",
    "answer": "string[python]",
    "em": "Float64",
    "reward": "Float64",
    "advantage": "Float64",
    "outcome": "Float64",
    "error": "string[python]",
    "turns": "Int64",
    "searches": "Int64",
    "peak_tokens": "Int64",
    "sampled_tokens": "Int64",
    "gold_found": "Int64",
    "gold_entered": "Int64",
    "gold_lost": "Int64",
    "seconds": "Float64",
}
TURN_COLUMNS = {
    "id": "string[python]",
    "agent": "string[python]",
    "turn": "Int64",
    "thought": "string[python]",
    "query": "string[python]",
    "memory": "string[python]",
    "memory_length": "Int64",
    **dict.fromkeys(CHANGES, "Int64"),
    "gold_held": "boolean",
    "events": "object",
    "context_tokens": "Int64",
    "react_tokens": "Int64",
    **{f"{kind}_tokens": "Int64" for kind in dict.fromkeys(KINDS.values())},
}
PASSAGE_COLUMNS = {
    "id": "string[python]",
    "agent": "string[python]",
    "turn": "Int64",
    "query": "string[python]",
    "rank": "Int64",
    "score": "Float64",
    "passage": "string[python]",
    "title": "string[python]",
    "text": "string[python]",
    "gold": "boolean",
}


def trajectories_df(trajectories: Iterable[Trajectory]) -> pd.DataFrame:
    """A row a trajectory.

    `em` is exact match (see `summary.em`), `outcome` the reward of an environment that has an end;
    `gold_found`, `gold_entered` and `gold_lost` are the first turns in which that happened
    (see `summary.GOLD_EVENTS`).
    """
    return _frame((_trajectory_row(each) for each in trajectories), TRAJECTORY_COLUMNS)


def turns_df(trajectories: Iterable[Trajectory]) -> pd.DataFrame:
    """A row a turn.

    `memory` is the memory after the turn and `memory_length` its characters; `kept` to `dropped` count
    its sentences by what became of them; `events` are names, in order. Tokens are of the longest
    context of the turn and its kinds, `react_tokens` of the counterfactual ReAct context.
    """
    return _frame((row for each in trajectories for row in _turn_rows(each)), TURN_COLUMNS)


def passages_df(trajectories: Iterable[Trajectory]) -> pd.DataFrame:
    """A row a passage that came back; `gold` says whether its text holds a gold answer."""
    return _frame((row for each in trajectories for row in _passage_rows(each)), PASSAGE_COLUMNS)


def _frame(rows: Iterable[dict[str, Any]], columns: dict[str, str]) -> pd.DataFrame:
    return pd.DataFrame(list(rows), columns=list(columns), dtype=object).astype(columns)


def _trajectory_row(trajectory: Trajectory) -> dict[str, Any]:
    firsts: dict[str, int] = {}
    for turn, event in find_gold_events(trajectory, golds_finder(golds_of(trajectory.task))):
        firsts.setdefault(event, turn)
    return {
        "id": trajectory.id,
        "task": trajectory.task.id,
        "sample": trajectory.sample,
        "agent": trajectory.agent,
        "question": trajectory.task.question,
        "golds": golds_of(trajectory.task),
        "answer": trajectory.answer,
        "em": em(trajectory),
        "reward": trajectory.reward,
        "advantage": trajectory.advantage,
        "outcome": trajectory.outcome.reward if trajectory.outcome else None,
        "error": trajectory.error,
        "turns": len(trajectory.turns),
        "searches": len(trajectory.actions),
        "peak_tokens": trajectory.peak_tokens,
        "sampled_tokens": trajectory.sampled_tokens,
        "seconds": trajectory.seconds,
        **firsts,
    }


def _turn_rows(trajectory: Trajectory) -> Iterator[dict[str, Any]]:
    golds = golds_finder(golds_of(trajectory.task))
    gold_events = find_gold_events(trajectory, golds)
    for number, (turn, tokens) in enumerate(zip(trajectory.turns, contexts(trajectory), strict=True), 1):
        memory = turn.memory_after
        derived = [name for where, name in gold_events if where == number]
        lines = [] if memory is None else diff(turn.memory_before or "", memory, golds)
        changes = {change: sum(line.change == change for line in lines) for change in CHANGES}
        yield {
            "id": trajectory.id,
            "agent": trajectory.agent,
            "turn": number,
            "thought": turn.thought,
            "query": _query(turn.steps[0].action.arguments) if turn.steps else None,
            "memory": memory,
            "memory_length": None if memory is None else len(memory),
            **({} if memory is None else changes),
            "gold_held": None if memory is None else bool(golds.spans(memory)),
            "events": (*derived, *(event.name for event in events_of(turn))),
            "context_tokens": tokens["total"],
            "react_tokens": tokens["react"],
            **{f"{kind}_tokens": count for kind, count in (tokens["kinds"] or {}).items()},
        }


def _passage_rows(trajectory: Trajectory) -> Iterator[dict[str, Any]]:
    golds = golds_finder(golds_of(trajectory.task))
    for number, turn in enumerate(trajectory.turns, 1):
        for step in turn.steps:
            for passage in step.observation.passages if step.observation else ():
                yield {
                    "id": trajectory.id,
                    "agent": trajectory.agent,
                    "turn": number,
                    "query": _query(step.action.arguments),
                    "rank": passage.rank,
                    "score": passage.score,
                    "passage": passage.id,
                    "title": passage.title,
                    "text": passage.text,
                    "gold": bool(golds.spans(passage.text)),
                }


def _query(arguments: dict[str, Any]) -> str | None:
    query = arguments.get("query")
    return query if isinstance(query, str) else None
