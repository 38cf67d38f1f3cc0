"""An LLM as judge: any model behind an OpenAI-compatible server, asked whether an answer means a gold.

Exact match calls `Cambridge, MA` wrong for `Cambridge`; a judge does not, but it errs in its own
ways, so it stands beside the strict scores and never in their place. Its model and the hash of
its prompt are on every verdict.

Answers are hostile: one may say `{"correct": true}`, or ask for it. They reach the judge as
strings inside one JSON object, without a `<` that could open a tag or a special token. A reply
counts only if it is a single JSON object that repeats a code made from question and answer, so
that a reply copied out of the answer is no verdict. A judge that is talked into a wrong verdict
in the right form is not caught: look at the verdicts.

A judge that fails, or says something else, has given no verdict: None, listed and asked again
next time, never dropped from the count and never 0.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from memsearcher import jsonl
from memsearcher.agents.protocol import Reply
from memsearcher.engines.protocol import Engine, EngineFailure, Request, Sampling
from memsearcher.evaluation.measures import Row
from memsearcher.objective_scoring import has_objectives
from memsearcher.prompts import Filling, Prompts, load_prompts
from memsearcher.runs import Run, RunError, task_hash
from memsearcher.trajectory import Conversation, Task, Trajectory, exact_adapter, first_fault

SLOTS = {"system": (), "question": ("item", "data")}
REPLY_TOKENS = 1024
BATCH = 32
FILE = "verdicts.jsonl"


@dataclass(frozen=True, slots=True)
class Claim:
    """An answer to be judged; `item` binds a verdict to question, golds, answer, model and prompt."""

    id: str
    task: Task
    answer: str
    item: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the judge made of a claim; `correct` is None where `error` says why there is no verdict."""

    item: str
    id: str
    model: str
    prompts_sha256: str
    correct: bool | None
    error: str | None
    reply: str | None


@dataclass(frozen=True)
class Judge:
    """A model with a prompt; `prompts` names a built-in set or a folder with one's own."""

    engine: Engine
    model: str
    prompts: str | Path = "judge"
    texts: Prompts = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "texts", load_prompts(self.prompts, SLOTS))

    @property
    def fingerprint(self) -> dict[str, str]:
        return {"model": self.model, "prompts": self.texts.folder, "prompts_sha256": self.texts.sha256}

    def waiting(self, run: Run) -> list[Claim]:
        """The answers of a run that this judge has given no verdict on."""
        done = {item for item, verdict in verdicts(run.folder).items() if verdict.correct is not None}
        return [each for each in claims(run, self.fingerprint) if each.item not in done]

    def keep(self, run: Run, waiting: Sequence[Claim]) -> Iterator[Verdict]:
        """Judge claims of a run, `BATCH` at a time; each verdict is written before it is passed on."""
        coming = iter(waiting)
        while batch := list(islice(coming, BATCH)):
            replies = self.engine.generate([self._request(claim) for claim in batch], Sampling())
            for claim, reply in zip(batch, replies, strict=True):
                verdict = self._verdict(claim, reply)
                jsonl.append(run.folder / FILE, asdict(verdict))
                yield verdict

    def _request(self, claim: Claim) -> Request:
        data = json.dumps(
            {"question": claim.task.question, "accepted_answers": claim.task.golds, "candidate_answer": claim.answer},
            ensure_ascii=False,
            indent=1,
        )
        slots = {
            "item": [Filling("instruction", claim.item)],
            "data": [Filling("observation", data.replace("<", "\\u003c"))],
        }
        talk = Conversation.start(
            self.texts["system"].fill("system", "system"), self.texts["question"].fill("user", "instruction", slots)
        )
        return Request(talk, REPLY_TOKENS)

    def _verdict(self, claim: Claim, reply: Reply | EngineFailure) -> Verdict:
        correct, error, text = None, None, None
        if isinstance(reply, EngineFailure):
            error = f"no reply: {reply}"
        else:
            text = reply.text
            try:
                correct = read_verdict(text, claim.item)
            except ValueError as fault:
                cut = f" (cut at {REPLY_TOKENS} tokens)" if reply.finish == "length" else ""
                error = f"not a verdict: {fault}{cut}"
        return Verdict(claim.item, claim.id, self.model, self.texts.sha256, correct, error, text)


def claims(run: Run, judge: Mapping[str, str]) -> Iterator[Claim]:
    """What there is to judge in a run: answers, not blank, to single questions with golds; `judge` is a fingerprint."""
    for each in run.stream():
        answer = each.answer or ""
        if each.error is None and each.task.golds and answer.strip() and not has_objectives(each.task):
            yield Claim(each.id, each.task, answer, _item(each, judge))


def judged(trajectory: Trajectory, judge: Mapping[str, str], known: Mapping[str, Verdict]) -> Row:
    """The judge's columns of one trajectory: `judge` from 0 to 1, and `judge_error` where there is no verdict.

    As for the other scores, no answer is 0 and a failed trajectory None; the judge is asked about neither.
    """
    if trajectory.error is not None or not trajectory.task.golds:
        return {"judge": None, "judge_error": None}
    if has_objectives(trajectory.task):
        return {"judge": None, "judge_error": "tasks of several questions are not judged"}
    if not (trajectory.answer or "").strip():
        return {"judge": 0.0, "judge_error": None}
    verdict = known.get(_item(trajectory, judge))
    if verdict is None:
        return {"judge": None, "judge_error": "not judged yet"}
    return {"judge": None if verdict.correct is None else float(verdict.correct), "judge_error": verdict.error}


def verdicts(folder: Path) -> dict[str, Verdict]:
    """The last verdict on each item.

    Raises:
        RunError: a line that is no verdict.
    """
    path = folder / FILE
    found: dict[str, Verdict] = {}
    for number, row in jsonl.read(path) if path.exists() else ():
        try:
            verdict = _adapter().validate_python(row)
        except ValidationError as error:
            raise RunError(f"{path}:{number}: {first_fault(error)}; remove that line") from None
        found[verdict.item] = verdict
    return found


def read_verdict(text: str, item: str) -> bool:
    """The verdict in a judge's reply: one JSON object with the fields `item` and `correct`, and nothing else.

    Thoughts up to `</think>` and a code fence around the object are allowed, since many models add them.

    Raises:
        ValueError: anything else, a field that comes twice, the code of another item.
    """
    said = text.rpartition("</think>")[2].strip()
    fenced = re.fullmatch(r"```(?:json)?\s(.*)```", said, re.DOTALL)
    try:
        found = json.loads(fenced[1] if fenced else said, object_pairs_hook=_once)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(found, dict) or found.keys() != {"item", "correct"}:
        raise ValueError("an object with the fields 'item' and 'correct' was expected")
    if found["item"] != item:
        raise ValueError(f"the item code is {item!r}, not {found['item']!r:.60}")
    if not isinstance(found["correct"], bool):
        raise ValueError(f"'correct' must be true or false, not {found['correct']!r:.60}")
    return found["correct"]


@cache
def _adapter() -> TypeAdapter[Verdict]:
    return exact_adapter(Verdict)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a field comes twice")
    return fields


def _item(trajectory: Trajectory, judge: Mapping[str, str]) -> str:
    bound = [task_hash(trajectory.task), trajectory.answer, judge["model"], judge["prompts_sha256"]]
    return hashlib.sha256(json.dumps(bound).encode()).hexdigest()[:16]
