"""A trajectory as a page shows it: pure, from the record alone, whatever the agent.

`view` gives JSON types. Texts are runs (see `text.runs`); a passage stands once and is named by its
number in `passages`, the source of a sentence by its number in `sources`; `conversations` are the
contexts as the model saw them. An agent without a memory has None for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from memsearcher.inspect.diff import diff
from memsearcher.inspect.golds import Golds, golds_finder
from memsearcher.inspect.provenance import Seen, Source, Sources
from memsearcher.inspect.summary import GOLD_EVENTS, events_of, find_gold_events, finite, row
from memsearcher.inspect.text import GOLD, SOURCE, UNSEEN, Run, Span, runs, sentences, visible
from memsearcher.inspect.tokens import contexts
from memsearcher.objective_scoring import golds_of
from memsearcher.scoring import MALFORMED, normalize_unicode
from memsearcher.trajectory import Action, Event, Outcome, Passage, Segment, Step, Trajectory, Turn

_HEAD = 48
"""Characters at the start of a passage by which it is found in what the model was shown."""


def view(trajectory: Trajectory, run: int = 0) -> dict[str, Any]:
    """All that a page shows of a trajectory."""
    golds = golds_finder(golds_of(trajectory.task))
    shelf = _Shelf(trajectory, golds)
    tokens = contexts(trajectory)
    gold_events = find_gold_events(trajectory, golds)
    turns = []
    for number, turn in enumerate(trajectory.turns, 1):
        steps = [_step(step, shelf, number, golds) for step in turn.steps]
        derived = [Event(name, GOLD_EVENTS[name]) for where, name in gold_events if where == number]
        turns.append(
            {
                "memory": _memory(turn, shelf, golds),
                "thought": _marked(turn.thought, golds),
                "steps": steps,
                "asked": [asked(step.action) for step in turn.steps],
                "events": _events(derived, derived=True) + _events(events_of(turn)),
                "tokens": tokens[number - 1],
                "calls": [
                    {
                        "purpose": call.purpose,
                        "conversation": call.conversation,
                        "segment": call.segment,
                        "finish": call.finish,
                        "context": call.context_tokens,
                        "sampled": call.sampled_tokens,
                    }
                    for call in turn.calls
                ],
            }
        )
    return {
        **row(trajectory, run),
        "question": runs(trajectory.task.question),
        "golds": [visible(gold) for gold in golds_of(trajectory.task)],
        "answer": _marked(trajectory.answer, golds),
        "error": None if trajectory.error is None else visible(trajectory.error),
        "seconds": finite(trajectory.seconds),
        "provenance": {visible(key): visible(value) for key, value in trajectory.provenance.items()},
        "passages": shelf.passages,
        "sources": shelf.sources,
        "conversations": [[_segment(each) for each in talk.segments] for talk in trajectory.conversations],
        "turns": turns,
    }


def asked(action: Action) -> str:
    """What tells one action from another: the tool and its arguments, in the scorer's normal form."""
    arguments = json.dumps(action.arguments, sort_keys=True, ensure_ascii=False)
    return visible(f"{action.name} {normalize_unicode(arguments)}")


def first_divergence(first: dict[str, Any], second: dict[str, Any]) -> int | None:
    """The first turn in which two views ask differently, also where only one asks; None where none does."""
    longest = max(len(first["turns"]), len(second["turns"]))
    for number in range(longest):
        if _asked_in(first, number) != _asked_in(second, number):
            return number + 1
    return None


def _asked_in(view: dict[str, Any], number: int) -> list[str]:
    asked_by_turn: list[list[str]] = [turn["asked"] for turn in view["turns"]]
    return asked_by_turn[number] if number < len(asked_by_turn) else []


@dataclass(slots=True)
class _Shelf:
    """The passages of a trajectory that the model has seen so far, each once, and what was taken from them."""

    trajectory: Trajectory
    golds: Golds
    passages: list[dict[str, Any]] = field(default_factory=list)
    sources: list[dict[str, Any]] = field(default_factory=list)
    _seen: list[Seen] = field(default_factory=list)
    _numbers: dict[Passage, int] = field(default_factory=dict)
    _places: dict[tuple[int, Span | None], int] = field(default_factory=dict)

    def put(self, passage: Passage, turn: int) -> int:
        """The number of a passage that `turn` brought back."""
        same = Passage(passage.id, passage.title, passage.text, 0, 0)
        if same not in self._numbers:
            number = self._numbers[same] = len(self.passages)
            shown = _shown(passage, self._told(turn))
            marks = [(start, end, GOLD) for start, end in self.golds.spans(passage.text)]
            marks += [(shown, len(passage.text), UNSEEN)] if shown < len(passage.text) else []
            title = [(start, end, GOLD) for start, end in self.golds.spans(passage.title)]
            self.passages.append(
                {"id": visible(passage.id), "title": runs(passage.title, title), "text": runs(passage.text, marks)}
            )
            self._seen.append(Seen(number, turn, passage.rank, passage.title, passage.text[:shown]))
        return self._numbers[same]

    def sources_of(self, memory: str) -> list[dict[str, Any] | None]:
        """For each sentence, the number of its source in `sources` and its score; None where it is unsupported."""
        sources = Sources(self._seen)
        found = (sources.of(memory[start:end]) for start, end in sentences(memory))
        return [None if each is None else {"number": self._put_source(each), "score": each.score} for each in found]

    def _put_source(self, source: Source) -> int:
        seen, span = source.seen, source.span
        if (seen.passage, span) not in self._places:
            self._places[seen.passage, span] = len(self.sources)
            text = runs(seen.text, [(*span, SOURCE)] if span else ())
            self.sources.append({"passage": seen.passage, "turn": seen.turn, "rank": seen.rank, "text": text})
        return self._places[seen.passage, span]

    def _told(self, turn: int) -> list[Segment]:
        """The observations in the contexts of a turn and of the next, which may be the first to show them."""
        turns = self.trajectory.turns[turn - 1 : turn + 1]
        numbers = {call.conversation for each in turns for call in each.calls}
        talks = [self.trajectory.conversations[number] for number in sorted(numbers)]
        return [each for talk in talks for each in talk.segments if each.part == "observation"]


def _shown(passage: Passage, told: Sequence[Segment]) -> int:
    """How many characters of a passage the model was shown; all of them where no cut is on the record."""
    whole, cut = len(passage.text), False
    for segment in told:
        start = segment.text.find(passage.text[:_HEAD])
        if start >= 0:
            return _common(passage.text, segment.text[start:]) if segment.dropped else whole
        cut |= segment.dropped > 0
    if not cut:
        return whole
    heads = range(min(_HEAD, whole), 0, -1)
    return next((length for length in heads if any(each.text.endswith(passage.text[:length]) for each in told)), 0)


def _common(text: str, other: str) -> int:
    """The length of the longest common start."""
    pairs = enumerate(zip(text, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(text), len(other)))


def _step(step: Step, shelf: _Shelf, turn: int, golds: Golds) -> dict[str, Any]:
    seen = step.observation
    return {
        "name": visible(step.action.name),
        "arguments": {visible(name): visible(str(value)) for name, value in step.action.arguments.items()},
        "failed": seen is None,
        "text": _marked(seen.text, golds) if seen and seen.text else None,
        "outcome": _outcome(seen.outcome) if seen and seen.outcome else None,
        "passages": [
            {"passage": shelf.put(each, turn), "rank": each.rank, "score": finite(each.score)}
            for each in (seen.passages if seen else ())
        ],
    }


def _outcome(outcome: Outcome) -> dict[str, Any]:
    return {
        "reward": finite(outcome.reward),
        "parts": {visible(name): visible(value) for name, value in _parts(outcome)},
    }


def _parts(outcome: Outcome) -> Iterator[tuple[str, str]]:
    """What an outcome is made of, in lines of name and value; a part that has parts has a line for each."""
    for name, value in outcome.parts.items():
        lines = (
            {f"{name}: {inner}": each for inner, each in value.items()} if isinstance(value, dict) else {name: value}
        )
        for line, each in lines.items():
            yield line, ("yes" if each else "no") if isinstance(each, bool) else str(each)


def _memory(turn: Turn, shelf: _Shelf, golds: Golds) -> dict[str, Any] | None:
    """The memory before and after a turn, and the lines of the latter with their sources."""
    if turn.memory_before is None and turn.memory_after is None:
        return None
    before, after = turn.memory_before or "", turn.memory_after or ""
    found = shelf.sources_of(after)
    lines = [
        {"change": line.change, "text": line.text, "source": None if line.new is None else found[line.new]}
        for line in diff(before, after, golds)
    ]
    return {
        "before": _marked(before, golds),
        "after": _marked(after, golds),
        "length": len(after),
        "held": bool(golds.spans(after)),
        "lines": lines,
    }


def _events(events: Iterable[Event], derived: bool = False) -> list[dict[str, Any]]:
    """Events by name, with how often and with what details; `kind` is good, bad or plain."""
    details: dict[str, list[str]] = {}
    for event in events:
        details.setdefault(event.name, []).append(visible(event.detail))
    return [
        {"name": visible(name), "kind": _kind(name), "count": len(each), "details": each, "derived": derived}
        for name, each in details.items()
    ]


def _kind(name: str) -> str:
    if name in MALFORMED or name in ("gold_lost", "turn_limit"):
        return "bad"
    return "good" if name == "gold_entered" else "plain"


def _segment(segment: Segment) -> dict[str, Any]:
    return {
        "role": segment.role,
        "part": segment.part,
        "text": visible(segment.text),
        "tokens": None if segment.token_ids is None else len(segment.token_ids),
        "dropped": segment.dropped,
        "trained": segment.trained,
    }


def _marked(text: str | None, golds: Golds) -> list[Run] | None:
    return None if text is None else runs(text, [(start, end, GOLD) for start, end in golds.spans(text)])
