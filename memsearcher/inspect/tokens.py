"""What a context is made of, in tokens: the longest one of each turn, beside a history that was kept."""

from __future__ import annotations

from typing import Any

from memsearcher.trajectory import Call, Part, Trajectory, Turn

KINDS: dict[Part, str] = {
    "template": "prompt",
    "system": "prompt",
    "instruction": "prompt",
    "question": "question",
    "memory": "memory",
    "history": "history",
    "observation": "passages",
    "reply": "reply",
}
"""How the parts of a context are told apart for a reader: our own text is one kind, the prompt."""


def contexts(trajectory: Trajectory) -> list[dict[str, Any]]:
    """The longest context of each turn, its reply included.

    `total` is the engine's count and `kinds` the tokens of each of `KINDS`; each is None where it
    is not known. `react` is the counterfactual ReAct context after the turn (see
    `Trajectory.react_tokens`); None too where the trajectory is one conversation of several turns,
    a history that was kept and has no counterfactual.
    """
    kept = len(trajectory.conversations) == 1 and len(trajectory.turns) > 1
    counted = not kept and any(turn.calls for turn in trajectory.turns)
    react = trajectory.react_tokens if counted else None
    return [
        {"total": turn.context_tokens, "kinds": _kinds(trajectory, turn), "react": react[number] if react else None}
        for number, turn in enumerate(trajectory.turns)
    ]


def _kinds(trajectory: Trajectory, turn: Turn) -> dict[str, int] | None:
    if not turn.calls:
        return None
    longest = max(turn.calls, key=_length)
    counts = dict.fromkeys(KINDS.values(), 0)
    for segment in trajectory.conversations[longest.conversation].segments[: longest.segment + 1]:
        if segment.token_ids is None:
            return None
        counts[KINDS[segment.part]] += len(segment.token_ids)
    return counts


def _length(call: Call) -> int:
    return (call.context_tokens or 0) + (call.sampled_tokens or 0)
