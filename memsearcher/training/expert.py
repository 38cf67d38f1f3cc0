"""A scripted expert that plays every agent's own protocol, for the warm start.

It knows the steps that lead to a task's answer (`task.metadata["steps"]`) and nothing of
the corpus: it searches through the real environment, reads what the agent would be
shown, cut as the agent's is, and asks again in other words where the fact it needs is
not there. What it writes follows from the question and from what is in the context alone,
a memory, a state or what is left of the history, so that a model can learn it. Each fact is
noted once it is read: in the memory or summary, in the state, or in the next thought. A thought
begins with the last note, or with all of the state, and then says what is missing: a model this
small decides better with the fact before its eyes. What was read is spelled as it stands there:
a small model copies "Taavi ROIVAS" letter by letter, and errs when it has to write the name in
small letters.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from memsearcher.agents.protocol import Agent, Generate, Reply
from memsearcher.engines.chat import ChatFormat
from memsearcher.environments.protocol import Environment
from memsearcher.objective_scoring import golds_of, has_objectives, objectives_of
from memsearcher.rollout import Episode, call_seed, drive
from memsearcher.scoring import normalize
from memsearcher.trajectory import Conversation, Task, Trajectory


@dataclass(frozen=True, slots=True)
class Step:
    """One fact on the way: what to search for, what is to be found, and how to note it.

    Attributes:
        objective: the number of the question that the fact answers, in a task of several.
    """

    ask: str
    subject: str
    queries: tuple[str, ...]
    answers: tuple[str, ...]
    passage_id: str
    fact: str
    objective: int | None = None

    @classmethod
    def of(cls, data: dict[str, Any], careless: bool, objective: int | None = None) -> Step:
        """From a task's metadata; a careless searcher first gives the bare name."""
        noun = data["relation"].removesuffix("^-1").replace("_", " ")
        queries = [data["ask"], f"{data['subject']} {noun}", f"{noun} {data['subject']} country"]
        if careless:
            queries.insert(0, data["subject"])
        return cls(
            data["ask"],
            data["subject"],
            tuple(queries),
            tuple(data["answers"]),
            data["passage_id"],
            data["fact"],
            objective,
        )

    @property
    def answer(self) -> str:
        """The answer that the fact names; empty where it names none."""
        return next((each for each in self.answers if each in self.fact), "")

    @property
    def short(self) -> str:
        """The fact as the answer to a numbered question; empty where it is none."""
        return f"({self.objective}) {self.answer}." if self.objective and self.answer else ""

    def noted(self, text: str) -> bool:
        """Whether a text has the fact, in full or in short."""
        return holds(text, self.fact) or bool(self.short and holds(text, self.short))


@dataclass(frozen=True, slots=True)
class Hand:
    """How an agent's replies are written.

    Attributes:
        search: the action, with `{query}`, and `{json}` for the query as a JSON string.
        answer: with `{answer}`.
        thinks: what a thought begins with: the `note` of what was just read, the `last` note in the memory of an
            agent that reads at the end of a turn, or the whole `state`.
        remember: the reply that writes the memory, with `{memory}`.
    """

    search: str
    answer: str
    thinks: Literal["note", "last", "state"]
    remember: str = ""

    def act(self, query: str, tool: str) -> str:
        """The action that asks `tool` for `query`."""
        name, quoted = (json.dumps(text, ensure_ascii=False) for text in (tool, query))
        return self.search.format(query=query, tool=name, json=quoted)


_CALL = '<tool_call>{{"name": {tool}, "arguments": {{"query": {json}}}}}</tool_call>'
_BOX = "\\boxed{{{answer}}}"
_TAG = "<search>{query}</search>"
HANDS: dict[str, Hand] = {
    "memsearcher": Hand(_CALL, _BOX, "last", remember="<memory>{memory}</memory>"),
    "summarize": Hand(_CALL, _BOX, "last", remember="{memory}"),
    "truncate": Hand(_CALL, _BOX, "note"),
    "react": Hand(_TAG, f"<answer>{_BOX}</answer>", "note"),
    "search-r1": Hand(_TAG, "<answer>{answer}</answer>", "note"),
    "mem1": Hand(_TAG, "<answer>{answer}</answer>", "state"),
}
"""By the agent's name on the record."""

_NEED = "I need the "


class Demonstrator(Protocol):
    """Who plays in the model's place."""

    def turns(self, task: Task) -> int:
        """The turns that it needs for a task, the last one included."""
        ...

    def reply(self, trajectory: Trajectory, call: Generate) -> str:
        """The text of the next reply of `trajectory`, whose pending call is `call`."""
        ...


@dataclass(frozen=True, slots=True)
class Expert:
    """Writes the replies of any agent in `HANDS`; `tool` is the name of its search.

    A share `careless` of the steps starts with a query that is too short, so that the traces
    hold searches that fail and what to do then. Which steps those are follows from the task.
    A share `wordy` of the tasks is answered with the whole fact that the answer stands in, as a sentence:
    right, but not what exact match asks for. Which those are follows from the task, too.
    With `frugal`, a memory, summary or state drops what no later step needs: facts that were
    used up, searches that failed before one that did not, and of the answer to a numbered question
    all but number and answer, as in "(3) Vientiane."

    Raises:
        KeyError: a task without `steps` in its metadata, or an agent that is not in `HANDS`.
    """

    careless: float = 0.0
    tool: str = "search"
    frugal: bool = False
    wordy: float = 0.0

    def turns(self, task: Task) -> int:
        """A turn for each step, and one to answer; a search that fails takes one more."""
        return len(task.metadata["steps"]) + 1

    def reply(self, trajectory: Trajectory, call: Generate) -> str:
        """The text of the next reply of `trajectory`, whose pending call is `call`."""
        hand = HANDS[trajectory.agent]
        steps = [
            Step.of(data, _drawn(trajectory.task, place, self.careless), objective)
            for place, (data, objective) in enumerate(_numbered(trajectory.task))
        ]
        noted = " ".join(each.text for each in call.talk.segments if each.part in ("memory", "history", "reply"))
        note = _read(trajectory, call.talk, steps, noted)
        memory = trajectory.turns[-1].memory_before or ""
        if hand.thinks == "state":
            memory = memory.rpartition(_NEED)[0]
        whole = " ".join(filter(None, (memory.strip(), note)))
        if self.frugal:
            whole = _needed(trajectory.task, steps, whole)
        if call.purpose == "remember":
            return hand.remember.format(memory=whole)
        lead = {"note": note, "last": _last(steps, noted), "state": whole}[hand.thinks]
        seen = f"{noted} {note}"
        missing = _next(steps, seen)
        if missing is None:
            fact, answer = as_in(seen, steps[-1].fact), as_in(seen, trajectory.task.golds[0])
            if _drawn(trajectory.task, len(steps), self.wordy) and holds(fact, answer):
                answer = fact
            return f"<think>{lead} That answers the question.</think>\n{hand.answer.format(answer=answer)}"
        tried = sum(f"{query} - not found" in seen for query in missing.queries)
        query = missing.queries[min(tried, len(missing.queries) - 1)]
        return f"<think>{f'{lead} {_NEED}'.lstrip()}{missing.ask}.</think>\n{hand.act(query, self.tool)}"


def _drawn(task: Task, place: int, share: float) -> bool:
    """Whether a place of a task is of the share of all places that do something, the same in every run."""
    return call_seed(0, task.id, place) < share * 2**63


def _numbered(task: Task) -> Iterator[tuple[dict[str, Any], int | None]]:
    """The steps of a task, in their order, with the number of the question that each answers, from 1, or None."""
    asked = [set(each.golds) for each in objectives_of(task)] if has_objectives(task) else []
    number = 0
    for data in task.metadata["steps"]:
        answers = len(asked) > 1 and number < len(asked) and asked[number] == set(data["answers"])
        number += answers
        yield data, number if answers else None


def _next(steps: Sequence[Step], noted: str) -> Step | None:
    """The first step whose fact is still needed: neither noted, nor used up by a later one that is."""
    settled = _settled(steps, noted)
    return next((step for step in steps if step not in settled), None)


def _settled(steps: Sequence[Step], noted: str) -> list[Step]:
    """The steps whose fact is noted, or used up by a later one that is settled, from the last to the first.

    What answers a question has to be noted.
    """
    settled: list[Step] = []
    for step in reversed(steps):
        if step.noted(noted) or (step.objective is None and any(_uses(later, step) for later in settled)):
            settled.append(step)
    return settled


def _uses(later: Step, step: Step) -> bool:
    """Whether a step asks about what another one found."""
    return later.subject in step.answers


def _needed(task: Task, steps: Sequence[Step], memory: str) -> str:
    """A memory without facts that were used up and answer nothing, and without failed searches for what is settled.

    Facts that answer a numbered question are in short.
    """
    golds = set(golds_of(task))
    settled = _settled(steps, memory)
    for place, step in enumerate(settled):
        gone = [f"{query} - not found." for query in step.queries]
        if golds.isdisjoint(step.answers) and any(_uses(later, step) for later in settled[:place]):
            gone.append(step.fact)
        for sentence in gone:
            memory = re.sub(rf" ?{re.escape(sentence)}", "", memory, flags=re.IGNORECASE)
        fact, shorts = as_in(memory, step.fact), [each.short for each in steps if each.fact == step.fact]
        if all(shorts):
            memory = memory.replace(fact, " ".join(shorts).replace(step.answer, as_in(fact, step.answer)))
    return memory.strip()


def _last(steps: Sequence[Step], memory: str) -> str:
    """The note that stands last in a memory, as it stands there; empty where there is none."""
    notes = [each for step in steps for each in (step.fact, step.short) if each]
    notes += [f"{query} - not found." for step in steps for query in step.queries]
    ends = {memory.casefold().rfind(each.casefold()) + len(each): each for each in notes if holds(memory, each)}
    return as_in(memory, ends[max(ends)]) if ends else ""


def _read(trajectory: Trajectory, talk: Conversation, steps: Sequence[Step], noted: str) -> str:
    """The note on what the last action brought back: its fact, or that it is not there; empty where nothing is new."""
    own = max((place for place, each in enumerate(talk.segments) if each.part == "reply"), default=-1)
    shown = [each.text for each in talk.segments[own + 1 :] if each.part == "observation"]
    if not shown:
        return ""
    last = [step for turn in trajectory.turns for step in turn.steps][-1]
    assert last.observation is not None
    query = last.action.arguments["query"]
    asked = next(step for step in steps if query in step.queries and not step.noted(noted))
    for passage, text in zip(last.observation.passages, shown, strict=False):
        if passage.id == asked.passage_id and any(normalize(answer) in normalize(text) for answer in asked.answers):
            return asked.fact.replace(asked.answer, as_in(text, asked.answer)) if asked.answer else asked.fact
    return f"{query} - not found."


def holds(text: str, phrase: str) -> bool:
    """Whether a text has a phrase, in capitals or not."""
    return phrase.casefold() in text.casefold()


def as_in(text: str, phrase: str) -> str:
    """A phrase as a text spells it: as it is where the text has it so, or not at all, else with its capitals."""
    found = None if phrase in text else re.search(re.escape(phrase), text, re.IGNORECASE)
    return found[0] if found else phrase


def demonstrate(
    agent: Agent,
    environment: Environment,
    expert: Demonstrator,
    chat: ChatFormat,
    tasks: Iterable[Task],
    width: int = 64,
) -> Iterator[Trajectory]:
    """Play tasks with the expert in the model's place; replies are encoded and marked as trained."""

    def answer(asking: Sequence[Episode]) -> None:
        for episode in asking:
            call = episode.pending
            assert isinstance(call, Generate)
            chat.encode(call.talk)
            context = call.talk.token_ids
            assert context is not None
            text = expert.reply(episode.trajectory, call)
            ids = chat.encode_reply(text, end=True)
            episode.send(Reply(text, "eos", ids, None, len(context), len(ids)))

    provenance = {**agent.fingerprint, **environment.fingerprint, "engine": "scripted expert"}
    return drive((Episode(agent, task, provenance=provenance) for task in tasks), answer, environment, width)
