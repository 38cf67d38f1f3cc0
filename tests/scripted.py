"""A scripted engine and a scripted environment: what the model writes and what comes back, word for word."""

from __future__ import annotations

import json

from memsearcher.agents.protocol import Reply
from memsearcher.environments.protocol import EnvironmentFailure
from memsearcher.trajectory import Observation, Passage


class ScriptedEngine:
    """Answers with texts in their order, or with what a function makes of each request.

    A text is a reply that stopped by itself; a `Reply` or an `EngineFailure` is given as it is.
    With a `ChatFormat` it works on tokens, without one on text, as a server does.
    """

    def __init__(self, script, chat=None):
        self._texts = iter(()) if callable(script) else iter(script)
        self.script = script if callable(script) else lambda request: next(self._texts)
        self.chat = chat
        self.batches = []
        self.samplings = []

    @property
    def fingerprint(self):
        return {"engine": "scripted"}

    @property
    def requests(self):
        return [request for batch in self.batches for request in batch]

    def generate(self, requests, sampling):
        self.batches.append(list(requests))
        self.samplings.append(sampling)
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        if self.chat is not None:
            self.chat.encode(request.conversation)
        said = self.script(request)
        if not isinstance(said, str):
            return said
        if self.chat is None:
            return Reply(said, "eos")
        ids = self.chat.encode_reply(said, end=True)
        return Reply(said, "eos", ids, [-0.5] * len(ids), len(request.conversation.token_ids), len(ids))


class ScriptedEnvironment:
    """Finds `books[query]`, a list of passages, a text or a failure; else what `books[None]` says."""

    def __init__(self, books=None):
        self.books = {None: "No passages found.", **(books or {})}
        self.batches = []

    @property
    def fingerprint(self):
        return {"environment": "scripted"}

    def act(self, requests):
        self.batches.append(list(requests))
        return [self._find(request.action.arguments["query"]) for request in requests]

    def _find(self, query):
        found = self.books.get(query, self.books[None])
        if isinstance(found, EnvironmentFailure):
            return found
        return Observation(found) if isinstance(found, str) else Observation(passages=tuple(found))


def passage(number, text, title="Title", score=1.0):
    return Passage(f"p{number}", title, text, score, number)


def search(query, thought="Search.", tool="search", **arguments):
    call = json.dumps({"name": tool, "arguments": {"query": query, **arguments}})
    return f"<think>{thought}</think>\n<tool_call>{call}</tool_call>"


def answer(text, thought="Known."):
    return f"<think>{thought}</think>\n\\boxed{{{text}}}"


def memory(text):
    return f"<memory>{text}</memory>"


def names(trajectory):
    """The events of a trajectory as (turn, name)."""
    return [(number, event.name) for number, event in trajectory.events]
