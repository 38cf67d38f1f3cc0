"""A scripted expert that plays the agents' own protocol, for the warm start.

It knows the steps that lead to a task's answer (`task.metadata["steps"]`) and nothing of
the corpus: it searches through the real environment, reads what the agent would be
shown, cut as the agent's is, and asks again in other words where the fact it needs is
not there. What it writes follows from the question and the memory alone, so that a model
can learn it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from memsearcher.agents.protocol import Agent, Generate, Reply
from memsearcher.engines.chat import ChatFormat
from memsearcher.environments.protocol import Environment
from memsearcher.rollout import Episode, call_seed, drive
from memsearcher.scoring import normalize
from memsearcher.trajectory import Conversation, Task, Trajectory


@dataclass(frozen=True, slots=True)
class Step:
    """One fact on the way: what to search for, what is to be found, and how to note it."""

    ask: str
    queries: tuple[str, ...]
    answers: tuple[str, ...]
    passage_id: str
    fact: str

    @classmethod
    def of(cls, data: dict[str, Any], careless: bool) -> Step:
        """From a task's metadata; a careless searcher first gives the bare name."""
        noun = data["relation"].removesuffix("^-1").replace("_", " ")
        queries = [data["ask"], f"{data['subject']} {noun}", f"{noun} {data['subject']} country"]
        if careless:
            queries.insert(0, data["subject"])
        return cls(data["ask"], tuple(queries), tuple(data["answers"]), data["passage_id"], data["fact"])


@dataclass(frozen=True, slots=True)
class Expert:
    """Writes MemSearcher's replies; `tool` is the name of its search.

    A share `careless` of the steps starts with a query that is too short, so that the traces
    hold searches that fail and what to do then. Which steps those are follows from the task.

    Raises:
        KeyError: a task without `steps` in its metadata.
    """

    careless: float = 0.0
    tool: str = "search"

    def reply(self, trajectory: Trajectory, call: Generate) -> str:
        """The text of the next reply of `trajectory`, whose pending call is `call`."""
        memory = trajectory.turns[-1].memory_before or ""
        steps = [
            Step.of(data, call_seed(0, trajectory.task.id, number) < self.careless * 2**63)
            for number, data in enumerate(trajectory.task.metadata["steps"])
        ]
        missing = next((step for step in steps if step.fact not in memory), None)
        if call.purpose == "remember":
            assert missing is not None
            return self._remember(trajectory, call.talk, memory, missing)
        if missing is None:
            return f"<think>The memory has the answer. {steps[-1].fact}</think>\n\\boxed{{{trajectory.task.golds[0]}}}"
        tried = sum(f"{query} - not found" in memory for query in missing.queries)
        query = missing.queries[min(tried, len(missing.queries) - 1)]
        tool_call = json.dumps({"name": self.tool, "arguments": {"query": query}}, ensure_ascii=False)
        return f"<think>I need the {missing.ask}.</think>\n<tool_call>{tool_call}</tool_call>"

    def _remember(self, trajectory: Trajectory, talk: Conversation, memory: str, step: Step) -> str:
        action = trajectory.turns[-1].steps[-1]
        assert action.observation is not None
        shown = [segment.text for segment in talk.segments if segment.part == "observation"]
        found = any(
            passage.id == step.passage_id and any(normalize(answer) in normalize(text) for answer in step.answers)
            for passage, text in zip(action.observation.passages, shown, strict=False)
        )
        note = step.fact if found else f"{action.action.arguments['query']} - not found."
        return f"<memory>{memory} {note}</memory>" if memory else f"<memory>{note}</memory>"


def demonstrate(
    agent: Agent, environment: Environment, expert: Expert, chat: ChatFormat, tasks: Iterable[Task], width: int = 64
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
