"""How fast the inspector opens 1,000 trajectories of 20 turns, and how much it sends.

    python benchmarks/inspector.py [--trajectories 1000] [--turns 20] [--out inspector.json]

The page is opened in Debian's Chromium from a file. *Usable* is the time from navigation until the first
trajectory is drawn. The peer is the same page with each trajectory as plain JSON that is parsed before
anything is drawn, which is what a page does that does not unpack on demand.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from playwright.sync_api import sync_playwright
from rich.console import Console
from rich.table import Table

from memsearcher import jsonl
from memsearcher.data import data_folder
from memsearcher.inspect.collection import Collection
from memsearcher.inspect.export import write_page
from memsearcher.inspect.widget import Inspector
from memsearcher.retrieval.corpus import Corpus
from memsearcher.trajectory import (
    Action,
    Call,
    Conversation,
    Limits,
    Observation,
    Passage,
    Segment,
    Step,
    Task,
    Trajectory,
)

REPEATS = 5
READY = "() => document.querySelector('.ms-header') && performance.now()"


def made_up(number: int, turns: int, corpus: Corpus) -> Trajectory:
    """A trajectory over passages of the built-in corpus, three a turn, whose memory keeps the last five titles."""
    task = Task(f"q{number // 8}", f"Question {number // 8}: which of these is it?", ("Accra",))
    trajectory = Trajectory(task, "memsearcher", Limits(turns=turns), number % 8, reward=number % 3 / 2, advantage=0.1)
    memory = ""
    for turn in range(turns):
        now = trajectory.begin_turn(memory)
        rows = [(number * 31 + turn * 7 + rank) % len(corpus) for rank in range(3)]
        documents = [corpus.passage(row) for row in rows]
        found = tuple(
            Passage(each.id, each.title, each.text, 9.0 - rank, rank) for rank, each in enumerate(documents, 1)
        )
        query = found[0].title.lower()
        now.thought = f"I need {query}."
        now.steps.append(Step(Action("search", {"query": query}), Observation(passages=found)))
        memory = " ".join([*memory.split(". ")[-4:], f"It is about {found[0].title}."])
        parts = [("system", "system", "Answer."), ("user", "question", task.question), ("user", "memory", memory)]
        shown = [("assistant", "reply", now.thought), *(("user", "observation", each.text) for each in found)]
        segments = [Segment(role, part, text, [0] * len(text.split())) for role, part, text in [*parts, *shown]]  # type: ignore[arg-type]
        trajectory.converse(Conversation(segments))
        now.calls.append(Call("act", turn, 3, "stop", 60, 9))
        now.memory_after = memory
    return trajectory


def opening(page_file: Path, browser: Any) -> float:
    """Seconds until the first trajectory is drawn, the median of several openings in fresh contexts."""
    times = []
    for _ in range(REPEATS):
        context = browser.new_context(bypass_csp=True)
        page = context.new_page()
        page.goto(page_file.as_uri(), wait_until="commit")
        times.append(page.wait_for_function(READY, polling=5).json_value() / 1000)
        context.close()
    return median(times)


def plain(collection: Collection, path: Path) -> None:
    """The peer: all views as one JSON text, parsed first, the first question drawn then."""
    views = json.dumps([collection.view(place) for place in range(len(collection))]).replace("<", "\\u003c")
    script = (
        "const all = JSON.parse(document.getElementById('all').textContent); const e = document.createElement('p');"
    )
    script += "e.className = 'ms-header'; e.textContent = all[0].question.join(''); document.body.append(e);"
    text = f"<!doctype html><body><script type=application/json id=all>{views}</script><script>{script}</script>"
    path.write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trajectories", type=int, default=1000)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--out", type=Path, help="write the row as JSON")
    arguments = parser.parse_args()
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("this needs Chromium: apt-get install -y chromium")
    corpus = Corpus(data_folder() / "factbook" / "corpus.jsonl")
    collection = Collection([made_up(number, arguments.turns, corpus) for number in range(arguments.trajectories)])
    started = time.perf_counter()
    state = len(json.dumps(Inspector(collection.trajectories).get_state()).encode())
    indexed = time.perf_counter() - started
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        packed, flat = Path(folder) / "packed.html", Path(folder) / "flat.html"
        started = time.perf_counter()
        write_page(packed, collection)
        written = time.perf_counter() - started
        plain(collection, flat)
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        row = {
            "trajectories": arguments.trajectories,
            "turns": arguments.turns,
            "widget state, bytes": state,
            "widget index, s": round(indexed, 2),
            "page written, s": round(written, 1),
            "page, MiB": round(packed.stat().st_size / 2**20, 1),
            "plain page, MiB": round(flat.stat().st_size / 2**20, 1),
            "usable, s": round(opening(packed, browser), 3),
            "plain page usable, s": round(opening(flat, browser), 3),
        }
        browser.close()
    row["ratio"] = round(row["plain page usable, s"] / row["usable, s"], 2)
    table = Table("", "")
    for name, value in row.items():
        table.add_row(name, f"{value:,}")
    Console().print(table)
    if arguments.out:
        jsonl.replace(arguments.out, json.dumps(row, indent=1).encode())


if __name__ == "__main__":
    main()
