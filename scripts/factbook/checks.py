"""What must hold of every question, checked on the written files alone."""

import re
import string
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

_PUNCTUATION = str.maketrans("", "", string.punctuation)
SHAPES = ("chain", "comparison", "intersection")

Row = dict[str, Any]


def normalize(text: str) -> str:
    """SQuAD's answer normalization."""
    text = text.lower().translate(_PUNCTUATION)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def holds(text: str, part: str) -> bool:
    """Whether a text holds a part as whole words, both normalized."""
    return f" {normalize(part)} " in f" {normalize(text)} "


def question_faults(row: Row, passages: dict[str, str]) -> list[str]:
    """What is wrong with one question; empty when nothing is."""
    faults = []
    question, golds, meta = row["question"], row["golden_answers"], row["metadata"]
    steps = meta["steps"]
    if not golds or not all(normalize(gold) for gold in golds):
        faults.append("a gold that normalizes to nothing")
    faults += [f"the question holds its gold {gold!r}" for gold in golds if holds(question, gold)]
    faults += [
        f"the question names the bridge {country!r}" for country in meta["countries"] if holds(question, country)
    ]
    if meta["shape"] not in SHAPES:
        faults.append(f"unknown shape {meta['shape']!r}")
    if meta["hops"] != len(steps) or meta["relations"] != [step["relation"] for step in steps]:
        faults.append("hops, relations and steps disagree")
    if meta["supporting_ids"] != list(dict.fromkeys(step["passage_id"] for step in steps)):
        faults.append("supporting ids and steps disagree")
    for number, step in enumerate(steps, 1):
        faults += [f"step {number}: {fault}" for fault in _step_faults(step, passages)]
    if meta["shape"] == "chain":
        for before, after in pairwise(steps):
            if after["subject"] != before["answer"]:
                faults.append(f"{after['subject']!r} is not the answer before it")
    if meta["shape"] == "comparison":
        found = [gold for gold in golds if gold in (steps[0]["answer"], steps[1]["answer"])]
        if not found or _number(steps[2]["answer"]) == _number(steps[3]["answer"]):
            faults.append("the comparison does not come out")
    elif steps[-1]["answers"] != golds:
        faults.append("the last step does not answer the question")
    if steps[0]["subject"] not in question:
        faults.append("the question does not hold its first subject")
    return faults


def _step_faults(step: Row, passages: dict[str, str]) -> Iterable[str]:
    passage = passages.get(step["passage_id"])
    if passage is None:
        yield f"no passage {step['passage_id']!r}"
        return
    if not any(holds(passage, answer) for answer in step["answers"]):
        yield f"{step['answer']!r} does not stand in {step['passage_id']}"
    if step["relation"].endswith("^-1") and not holds(passage, step["subject"]):
        yield f"{step['subject']!r} does not stand in {step['passage_id']}"
    if step["answer"] != step["answers"][0]:
        yield "the answer is not the first of its aliases"
    if len(step["fact"].split()) > 20:
        yield "the fact is longer than 20 words"
    if step["answer"] not in step["fact"]:
        yield "the fact does not hold the answer"
    if step["subject"] not in step["ask"]:
        yield "the ask does not hold its subject"


def inverse_faults(rows: Iterable[Row]) -> list[str]:
    """Inverse steps that lead to two countries from one subject."""
    targets: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        for step in row["metadata"]["steps"]:
            if step["relation"].endswith("^-1"):
                key = (step["relation"], normalize(step["subject"]))
                targets.setdefault(key, set()).add(step["answer"])
    return [f"{key} leads to {sorted(found)}" for key, found in targets.items() if len(found) > 1]


def set_faults(splits: dict[str, list[Row]]) -> list[str]:
    """What is wrong across questions and splits: doubles, shared countries, leaked pairs."""
    faults = inverse_faults(row for rows in splits.values() for row in rows)
    every = [row for rows in splits.values() for row in rows]
    for field in ("id", "question"):
        counts = Counter(normalize(row[field]) if field == "question" else row[field] for row in every)
        faults += [f"{field} {value!r} stands {n} times" for value, n in counts.items() if n > 1]
    homes: dict[str, str] = {}
    for split, rows in splits.items():
        for country in {country for row in rows for country in row["metadata"]["countries"]}:
            if homes.setdefault(country, split) != split:
                faults.append(f"{country} is to be found in {homes[country]} and in {split}")
    held_out = {pair(row) for row in every if row["metadata"]["held_out_pair"]}
    faults += [f"train holds the held-out pair {pair(row)}" for row in splits.get("train", []) if pair(row) in held_out]
    return faults


def pair(row: Row) -> tuple[str, str]:
    """The first and the last relation of a question."""
    relations = row["metadata"]["relations"]
    return relations[0], relations[-1]


def _number(text: str) -> float:
    return float(re.sub(r"[^\d.]", "", text.split(" sq")[0]))
