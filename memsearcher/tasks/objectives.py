"""Tasks of several questions, to be answered in one go: MEM1's multi-objective tasks.

MEM1 (arXiv 2506.15841) joins N neighboring questions of one data set. Here N may also change
from task to task, the questions may be shuffled, come from several data sets, or build on each
other: in a dependent task a question asks about the answer to an earlier one. Departures: MEM1
drops the questions that are left over, here they make a smaller task; questions are numbered
and not joined by semicolons, and the prompt says how to write an answer that holds one.

A task keeps its questions in `metadata["objectives"]`; `objective_scoring.py` scores them by
position. Its `golds` hold one text, the first accepted answer of each, as an expert would write
them. Many questions make a long text, and `limits.question_tokens` cuts the last ones (the record
then says so): 16 of HotpotQA's take up to 530 tokens of SmolLM2's, 16 of the built-in world's 573.
"""

from __future__ import annotations

import hashlib
import logging
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import cycle, islice
from typing import Any

from memsearcher.objective_scoring import write_answers
from memsearcher.prompts import Filling, load_prompts
from memsearcher.trajectory import Task

MOST = 16

# What is joined into one list where every question of a task has it.
_JOINED = ("steps", "supporting_ids", "supporting_titles")

# A fact of the built-in world as a question about {}, a country or the answer to another question.
_ASK = {
    "area": "What is the total area of {}?",
    "anthem": "What is the national anthem of {}?",
    "calling_code": "What is the telephone country code of {}?",
    "capital": "What is the capital of {}?",
    "chief_of_state": "Who is the chief of state of {}?",
    "currency": "What is the currency of {}?",
    "export_partner": "Which country takes the largest share of the exports of {}?",
    "head_of_government": "Who is the head of government of {}?",
    "highest_point": "What is the highest point of {}?",
    "import_partner": "Which country supplies the largest share of the imports of {}?",
    "independence": "On what date did {} become independent?",
    "internet_code": "What is the internet country code of {}?",
    "longest_border": "Which country has the longest land border with {}?",
    "national_holiday": "On what day of the year is the national holiday of {}?",
    "national_symbol": "What is the national symbol of {}?",
    "nationality": "What is the nationality adjective of {}?",
    "official_language": "What is the official language of {}?",
    "only_neighbor": "Which is the only country that borders {}?",
    "population": "What is the population of {}?",
    "shortest_border": "Which country has the shortest land border with {}?",
}

logger = logging.getLogger(__name__)


def compose(
    tasks: Sequence[Task], sizes: Sequence[int], *, seed: int | None = None, within: bool = False
) -> list[Task]:
    """Tasks of several questions each, with every question of `tasks` in exactly one of them.

    Args:
        tasks: the questions.
        sizes: how many go into a task, each from 1 to 16; of several sizes, the first task gets
            the first, the next the second, and so on, over and over.
        seed: neighbors go together where it is None; else the questions are shuffled by it first.
        within: only questions of one data set (`metadata["benchmark"]`) go together; the data sets
            follow each other in the order of their first question.

    What is left over at the end, or at the end of a data set, makes a smaller task; this is logged
    as a warning. A task of one question is that question as it was.

    Raises:
        ValueError: a size out of range, or two questions of one id.
    """
    _check(tasks, sizes)
    groups: dict[str, list[Task]] = {}
    for task in tasks:
        groups.setdefault(str(task.metadata.get("benchmark", "")) if within else "", []).append(task)
    composed = []
    for group in groups.values():
        if seed is not None:
            random.Random(seed).shuffle(group)
        coming, wanted = iter(group), cycle(sizes)
        while chosen := list(islice(coming, size := next(wanted))):
            composed.append(_join(chosen, [_objective(each) for each in chosen]))
            if len(chosen) < size:
                logger.warning("a task has %d of %d questions: no more were left", len(chosen), size)
    return composed


def compose_dependent(tasks: Sequence[Task], size: int) -> list[Task]:
    """Tasks of questions that need each other's answers, made of chain questions of the built-in world.

    A chain of h steps becomes h questions: the first asks for the fact it starts from, each later one
    about the answer to the one before, which it names by its number (and in `needs`, from 1). Chains
    that follow each other share a task as long as they fit into `size` questions; a chain is never
    broken, so a task may be smaller, which is logged as a warning.

    Raises:
        ValueError: a size out of range, two questions of one id, a question that is no chain, or a
            chain longer than `size`.
    """
    _check(tasks, [size])
    composed = []
    for chosen in _pack(tasks, size):
        objectives: list[dict[str, Any]] = []
        for task in chosen:
            objectives += _links(task, len(objectives))
        composed.append(_join(chosen, objectives))
        if len(objectives) < size:
            logger.warning("a task has %d of %d questions: no further chain fits", len(objectives), size)
    return composed


def _check(tasks: Sequence[Task], sizes: Sequence[int]) -> None:
    if not sizes or not all(1 <= size <= MOST for size in sizes):
        raise ValueError(f"a task holds from 1 to {MOST} questions, not {list(sizes)}")
    seen: set[str] = set()
    for task in tasks:
        if task.id in seen:
            raise ValueError(f"two questions have the id {task.id!r}; give those of different files different ids")
        seen.add(task.id)


def _objective(task: Task) -> dict[str, Any]:
    return {"id": task.id, "question": task.question, "golds": list(task.golds)}


def _pack(tasks: Sequence[Task], size: int) -> Iterator[list[Task]]:
    """Chains, as they follow each other, in groups of at most `size` steps."""
    group: list[Task] = []
    room = size
    for task in tasks:
        if task.metadata.get("shape") != "chain":
            raise ValueError(
                f"task {task.id} is no chain; dependent questions are made of the built-in chain questions"
            )
        steps = len(task.metadata["steps"])
        if steps > size:
            raise ValueError(f"task {task.id} is a chain of {steps} questions; at most {size} go into a task")
        if steps > room:
            yield group
            group, room = [], size
        group.append(task)
        room -= steps
    if group:
        yield group


def _links(task: Task, before: int) -> Iterator[dict[str, Any]]:
    """The steps of a chain as objectives that stand behind `before` others."""
    for number, step in enumerate(task.metadata["steps"]):
        name, golds = f"{task.id}.{number + 1}", list(step["answers"])
        if number == 0:
            yield {"id": name, "question": f"Which is the {step['ask']}?", "golds": golds}
        else:
            needs = before + number
            question = _ASK[step["relation"]].format(f"the answer to question {needs}")
            yield {"id": name, "question": question, "golds": golds, "needs": needs}


def _join(tasks: list[Task], objectives: list[dict[str, Any]]) -> Task:
    """One task of `objectives`, which are made of `tasks`."""
    if len(objectives) == 1:
        return replace(tasks[0], metadata={**tasks[0].metadata, "objectives": objectives})
    metadata: dict[str, Any] = {"objectives": objectives}
    for key in _JOINED:
        if all(isinstance(task.metadata.get(key), list) for task in tasks):
            metadata[key] = [each for task in tasks for each in task.metadata[key]]
    benchmark = tasks[0].metadata.get("benchmark")
    if benchmark is not None and all(task.metadata.get("benchmark") == benchmark for task in tasks):
        metadata["benchmark"] = benchmark
    names = "\0".join(each["id"] for each in objectives)
    digest = hashlib.sha256(names.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    scored = all(each["golds"] for each in objectives)
    golds = (write_answers([each["golds"][0] for each in objectives]),) if scored else ()
    return Task(f"{len(objectives)}-in-1-{digest}", _text(objectives), golds, metadata)


def _text(objectives: list[dict[str, Any]]) -> str:
    """The questions as the model is asked them: numbered, one a line."""
    lines = [f"{number}. {' '.join(each['question'].split())}" for number, each in enumerate(objectives, 1)]
    slots = {
        "count": [Filling("question", str(len(lines)))],
        "questions": [Filling("question", "\n".join(lines))],
    }
    prompt = load_prompts("objectives", {"task": tuple(slots)})["task"]
    return "".join(segment.text for segment in prompt.fill("user", "question", slots))
