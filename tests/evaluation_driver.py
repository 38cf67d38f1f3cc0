"""Plays a small evaluation with scripted parts, slowly enough to be killed in the middle; see test_evaluation_kill.py.

python -m tests.evaluation_driver FOLDER PAUSE
"""

from __future__ import annotations

import hashlib
import sys
import time
from pathlib import Path
from types import SimpleNamespace

from memsearcher import rollout as rollout_module
from memsearcher.agents.memsearcher import MemSearcher
from memsearcher.agents.protocol import Reply
from memsearcher.engines.protocol import EngineFailure
from memsearcher.evaluation.judge import Judge
from memsearcher.evaluation.run import Evaluation
from memsearcher.evaluation.table import Arm
from memsearcher.recipe import Recipe
from memsearcher.rollout import rollout
from memsearcher.trajectory import Limits, Task
from tests.scripted import ScriptedEngine, ScriptedEnvironment, answer, memory, passage, search

TASKS = [
    Task(f"t{number}", f"Question {number}?", ("kip", "dong"), {"supporting_ids": ["p1", f"p{number}"]})
    for number in range(40)
]
RECIPES = {"bold": Recipe(width=3, seed=1), "shy": Recipe(width=4, limits=Limits(turns=2), seed=2)}
ARMS = {name: Arm(name, "questions", "", len(TASKS)) for name in RECIPES}


def write(request, pause, agent):
    """A reply that depends on what the model is shown and on nothing else."""
    time.sleep(pause)
    shown = "".join(segment.text for segment in request.conversation.segments)
    dice = hashlib.sha256(f"{agent}{shown}".encode()).digest()[0]
    if dice < 6:
        return EngineFailure("the server is gone")
    remembering = len(request.conversation.segments) > 8
    said = memory(f"note {dice}") if remembering else answer("kip") if dice % 3 else search(f"query {dice % 4}")
    return Reply(said, "eos", context_tokens=len(shown), sampled_tokens=len(said))


def judge(request, pause):
    time.sleep(pause)
    item = request.conversation.segments[2].text
    if int(item[:2], 16) < 24:
        return "I cannot say"
    return f'{{"item": "{item}", "correct": {"true" if int(item[2], 16) % 2 else "false"}}}'


def main(folder, pause):
    # A clock that stands still: seconds are measured, so they alone would differ from run to run.
    rollout_module.time = SimpleNamespace(perf_counter=lambda: 0.0)
    books = {f"query {number}": [passage(number, "text"), passage(1, "text")] for number in range(4)}
    grader = Judge(ScriptedEngine(lambda request: judge(request, pause)), "grader")
    print("ready", flush=True)
    evaluation = Evaluation.open(folder, list(ARMS.values()), grader.fingerprint)
    for name, recipe in RECIPES.items():
        attempts = evaluation.start(ARMS[name], recipe, TASKS)
        engine = ScriptedEngine(lambda request, name=name: write(request, pause, name))
        agent = MemSearcher(recipe.limits)
        played = rollout(agent, ScriptedEnvironment(books), engine, attempts, seed=recipe.seed, width=recipe.width)
        for _ in evaluation.run(ARMS[name]).keep(played):
            pass
    for arm in ARMS.values():
        run = evaluation.run(arm)
        for _ in grader.keep(run, grader.waiting(run)):
            pass
    evaluation.report()


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
