"""Trajectories out of other programs' records: FlashRAG's `intermediate_data.json`.

FlashRAG writes it for every method it runs, Search-R1 and R1-Searcher among them; ReSearch, ReCall
and the official MemSearcher code evaluate with copies of FlashRAG and write it too. It is a JSON
list of items `{"id", "question", "golden_answers", "metadata", "output"}`. What `output` holds beside
the answer, `pred`, depends on the method:

- `retrieval_results`, `{"0": {"query", "docs"}, …}`, and `prompt`, all that was shown and written;
- `final_response`, the text of the conversation (of the official MemSearcher, only the last one);
- `retrieval_result`, the passages that one search for the question brought back;
- nothing else.

Where the record holds a text, thoughts and queries are read only behind the question: what stands
before it is the prompt, whose examples are in tags too. Words that a template writes between the
question and the model's first one cannot be told from the model's. Tokens were not recorded, so
ids, counts and log-probabilities are None, and so are scores of passages where there are none. How
a call ended was not recorded either; each is written down as stopped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memsearcher.tasks.files import TaskError, make_task
from memsearcher.trajectory import Action, Call, Conversation, Limits, Observation, Passage, Segment, Step, Trajectory

Tags = Sequence[tuple[str, str]]

QUERY_TAGS: Tags = (
    ("<search>", "</search>"),
    ("<|begin_of_query|>", "<|end_of_query|>"),
    ("<|begin_search_query|>", "<|end_search_query|>"),
    ("<tool_call>", "</tool_call>"),
)
SEEN_TAGS: Tags = (
    ("<information>", "</information>"),
    ("<result>", "</result>"),
    ("<documents>", "</documents>"),
    ("<|begin_of_documents|>", "<|end_of_documents|>"),
    ("<|begin_search_result|>", "<|end_search_result|>"),
    ("<tool_response>", "</tool_response>"),
)
NO_ANSWER = "No valid answer found"
OUT_OF_SEARCHES = "Reach max retrieval number"

_ANSWER = re.compile(r"<answer>|\\boxed\{")
_MARKERS = re.compile(r"<\|im_start\|>\w*|<\|im_end\|>|<\|endoftext\|>|</?think>")
_MEMORY = re.compile(r"\s*</question>\s*<memory>(.*?)</memory>", re.DOTALL)


class ForeignError(ValueError):
    """A record that cannot be imported; the message names file, item, field and remedy."""


@dataclass(frozen=True, slots=True)
class Imported:
    """What came out of a file: trajectories, and one error for each item that is none."""

    trajectories: list[Trajectory]
    faults: list[ForeignError]


@dataclass(frozen=True, slots=True)
class _Search:
    """A search in a text: its query from `begin` to `end`, tags included, and what it told until `seen`."""

    query: str
    observation: Observation
    begin: int
    end: int
    seen: int


def read_flashrag(path: Path, agent: str = "flashrag", limits: Limits | None = None) -> Imported:
    """Read FlashRAG's `intermediate_data.json`.

    Args:
        path: the file.
        agent: the name on the trajectories.
        limits: those it ran under, which the record does not hold; the defaults where it is None.

    An answer that FlashRAG puts in for one that never came ("No valid answer found") is none. An
    empty response is how the official MemSearcher code records a run that raised an exception: the
    trajectory then has an `error`, and no score.

    Raises:
        ForeignError: the file is no JSON list; what is wrong with an item is among the `faults`.
        OSError: the file cannot be read.
    """
    try:
        items = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ForeignError(f"{path}: not JSON ({error}); give the intermediate_data.json of a FlashRAG run") from None
    if not isinstance(items, list):
        raise ForeignError(f"{path}: a list of items was expected; give the intermediate_data.json of a FlashRAG run")
    done: dict[str, Trajectory] = {}
    faults = []
    for number, item in enumerate(items):
        try:
            trajectory = _trajectory(item, str(number), agent, limits or Limits(), path.name)
            if trajectory.id in done:
                raise ForeignError(f"id {trajectory.task.id!r} is there twice; take one of them out")
        except (TaskError, ForeignError) as error:
            faults.append(ForeignError(f"{path}: item {number}: {error}"))
        else:
            done[trajectory.id] = trajectory
    return Imported(list(done.values()), faults)


def _trajectory(item: Any, number: str, agent: str, limits: Limits, source: str) -> Trajectory:
    task = make_task(item, default_id=number)
    output = item.get("output")
    if not isinstance(output, dict):
        raise ForeignError("field 'output' must be an object; was the run evaluated to its end?")
    provenance = {"imported_from": source, "format": "flashrag"}
    if "metric_score" in output:
        provenance["metric_score"] = json.dumps(output["metric_score"])
    trajectory = Trajectory(task, agent, limits, provenance=provenance)
    answer = _text(output, "pred").strip()
    if answer and answer != NO_ANSWER:
        trajectory.answer = answer
    _write_turns(trajectory, output, answer)
    reason = output.get("finish_reason")
    if reason == OUT_OF_SEARCHES:
        trajectory.turns[-1].event("turn_limit", reason)
    elif trajectory.answer is None and isinstance(reason, str):
        trajectory.turns[-1].event("no_answer", reason)
    played = output.get("turns")
    if isinstance(played, int) and played > len(trajectory.turns):
        trajectory.turns[0].event("turns_lost", f"of {played} turns, {len(trajectory.turns)} are on the record")
    if output.get("final_response") == "":
        trajectory.error = "the run raised an exception, which its record does not hold"
    return trajectory


def _write_turns(trajectory: Trajectory, output: dict[str, Any], answer: str) -> None:
    """Write conversation and turns from what there is."""
    question = trajectory.task.question
    if "retrieval_results" in output:
        text = _text(output, "prompt")
        start = _behind(text, question, "prompt")
        _write_text(trajectory, text, _known_searches(_results(output["retrieval_results"]), text, start))
    elif output.get("final_response"):
        text = _text(output, "final_response")
        _write_text(trajectory, text, _found_searches(text, _behind(text, question, "final_response")))
    else:
        talk = trajectory.converse(Conversation([Segment("user", "question", question)]))
        step = None
        if "retrieval_result" in output:
            passages = _passages(output["retrieval_result"], "retrieval_result")
            talk.tell([Segment("user", "observation", "\n".join(each.text for each in passages))])
            step = Step(_search(question), Observation(passages=passages))
        _write_turn(trajectory, talk, answer, None, step)


def _write_text(trajectory: Trajectory, text: str, searches: Sequence[_Search]) -> None:
    """Write a growing conversation: what stands before the model's words, its searches, its last reply."""
    question = trajectory.task.question
    start = text.find(question)
    before = [Segment("user", "instruction", text[:start])] if start else []
    talk = trajectory.converse(Conversation([*before, Segment("user", "question", question)]))
    position = start + len(question)
    memory = _MEMORY.match(text, position)
    if memory:
        talk.tell([Segment("user", "memory", memory.group())])
        position = memory.end()
    for search in searches:
        step = Step(_search(search.query), search.observation)
        _write_turn(trajectory, talk, text[position : search.end], _plain(text[position : search.begin]), step)
        if search.seen > search.end:
            talk.tell([Segment("user", "observation", text[search.end : search.seen])])
        position = search.seen
    reply = text[position:]
    if not searches or _plain(reply):
        found = _ANSWER.search(reply)
        _write_turn(trajectory, talk, reply, _plain(reply[: found.start()] if found else reply))
    if memory:
        trajectory.turns[0].memory_before = trajectory.turns[0].memory_after = memory[1].strip()


def _write_turn(
    trajectory: Trajectory, talk: Conversation, reply: str, thought: str | None, step: Step | None = None
) -> None:
    turn = trajectory.begin_turn()
    turn.thought = thought
    turn.calls.append(Call("act", 0, len(talk.segments), "stop", None, None))
    talk.tell([Segment("assistant", "reply", reply)])
    if step is not None:
        turn.steps.append(step)


def _known_searches(results: Sequence[tuple[str, tuple[Passage, ...]]], text: str, position: int) -> list[_Search]:
    """Searches that are on the record, found again in the text behind `position`.

    What was told reaches to the last closing tag before the next search: a passage may hold such tags.
    """
    places = []
    for number, (query, _) in enumerate(results):
        found = _next(text, position, QUERY_TAGS)
        while found and found[2] != query.strip():
            found = _next(text, found[0] + 1, QUERY_TAGS)
        if found is None:
            raise ForeignError(
                f"field 'output.retrieval_results.{number}.query' does not stand in field 'output.prompt', "
                "in tags that are known here"
            )
        places.append(found[:2])
        position = found[1]
    searches = []
    for number, ((query, passages), (begin, end)) in enumerate(zip(results, places, strict=True), 1):
        limit = places[number][0] if number < len(places) else len(text)
        closed = [at + len(tag) for _, tag in SEEN_TAGS if (at := text.rfind(tag, end, limit)) >= 0]
        searches.append(_Search(query, Observation(passages=passages), begin, end, max(closed, default=end)))
    return searches


def _found_searches(text: str, position: int) -> list[_Search]:
    """Searches read off the text: each query in its tags, and what stands in tags between it and the next."""
    searches = []
    while query := _next(text, position, QUERY_TAGS):
        begin, end, asked = query
        told, seen = _told(text, end)
        searches.append(_Search(_asked(asked), Observation(told), begin, end, seen))
        position = seen
    return searches


def _next(text: str, position: int, tags: Tags) -> tuple[int, int, str] | None:
    """The first closed tag: where its pair begins and ends, and what stands between it and the last opening one."""
    found = []
    for opening, closing in tags:
        end = text.find(closing, position)
        while end >= 0 and (begin := text.rfind(opening, position, end)) < 0:
            end = text.find(closing, end + 1)
        if end >= 0:
            found.append((begin, end + len(closing), text[begin + len(opening) : end].strip()))
    return min(found, key=lambda each: each[1], default=None)


def _told(text: str, position: int) -> tuple[str, int]:
    """What a search that ends at `position` told, and where that ends; nothing where the next search comes first."""
    following = _next(text, position, QUERY_TAGS)
    begins = [(text.find(opening, position), opening, closing) for opening, closing in SEEN_TAGS]
    begin, opening, closing = min((each for each in begins if each[0] >= 0), default=(-1, "", ""))
    end = text.find(closing, begin) if opening else -1
    if end < 0 or (following and following[0] < begin):
        return "", position
    return text[begin + len(opening) : end].strip(), end + len(closing)


def _behind(text: str, question: str, field: str) -> int:
    """Where the model's words may begin."""
    start = text.find(question)
    if start < 0:
        raise ForeignError(
            f"field 'output.{field}' does not hold the question, so what the model wrote cannot be told from its prompt"
        )
    return start + len(question)


def _asked(call: str) -> str:
    """The query of a search: the text in the tag, or the argument of a tool call."""
    try:
        query = json.loads(call)["arguments"]["query"]
    except (ValueError, RecursionError, TypeError, KeyError):
        return call
    return query if isinstance(query, str) else call


def _plain(text: str) -> str | None:
    return _MARKERS.sub("", text).strip() or None


def _search(query: str) -> Action:
    return Action("search", {"query": query})


def _results(results: Any) -> list[tuple[str, tuple[Passage, ...]]]:
    """Queries with what they brought back, in order."""
    where = "output.retrieval_results"
    if not isinstance(results, dict) or not all(name.isdecimal() for name in results):
        raise ForeignError(f"field '{where}' must be an object of numbered searches")
    found = []
    for name in sorted(results, key=int):
        search = results[name]
        if not isinstance(search, dict) or not isinstance(search.get("query"), str):
            raise ForeignError(f"field '{where}.{name}.query' must be a text")
        found.append((search["query"], _passages(search.get("docs"), f"retrieval_results.{name}.docs")))
    return found


def _passages(docs: Any, where: str) -> tuple[Passage, ...]:
    if not isinstance(docs, list):
        raise ForeignError(f"field 'output.{where}' must be a list of passages")
    return tuple(_passage(doc, rank, f"output.{where}.{rank - 1}") for rank, doc in enumerate(docs, 1))


def _passage(doc: Any, rank: int, where: str) -> Passage:
    """A passage of FlashRAG's: title and text in `contents`, with a line break between, or apart."""
    if not isinstance(doc, dict):
        raise ForeignError(f"field '{where}' must be an object")
    contents, score = doc.get("contents"), doc.get("score")
    title, text = doc.get("title", ""), doc.get("text")
    if isinstance(contents, str):
        head, newline, rest = contents.partition("\n")
        title, text = (re.sub(r'^"(.*)"$', r"\1", head), rest) if newline else ("", contents)
    if not isinstance(title, str) or not isinstance(text, str):
        raise ForeignError(f"field '{where}' must hold contents, or title and text, as texts")
    return Passage(str(doc.get("id", "")), title, text, float(score) if isinstance(score, int | float) else None, rank)


def _text(output: dict[str, Any], field: str) -> str:
    value = output.get(field)
    if not isinstance(value, str):
        raise ForeignError(f"field 'output.{field}' must be a text, not {value!r:.60}")
    return value
