"""Tokens a second inside the rollout loop, beside the bare engine on the same prompts.

    python benchmarks/rollout.py [--n 32] [--recipe pocket] [--out rollout.json]

The loop plays held-out questions with the recipe's agent and environment. Every model call is
kept, and the same prompts are then given to the engine alone, in the batches in which the loop
asked them and all at once: the first says what the loop costs around the engine, the second
what waiting for each other (lockstep) costs on top, less what later contexts take over from
earlier ones. The last rows are the loop once more over an engine that keeps no attention states,
and over one that guesses no tokens.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

from rich.console import Console
from rich.table import Table

from memsearcher.agents.protocol import Reply
from memsearcher.assemble import adapter_path, make_agent, make_environment
from memsearcher.engines import decoding
from memsearcher.engines.protocol import Engine, EngineFailure, Request, Sampling
from memsearcher.engines.transformers import TransformersEngine
from memsearcher.recipe import load_recipe
from memsearcher.rollout import rollout
from memsearcher.tasks import factbook
from memsearcher.trajectory import Trajectory

GREEDY = Sampling()


class RecordingEngine:
    """Passes calls on to an engine and keeps a copy of each batch."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.batches: list[list[Request]] = []

    @property
    def fingerprint(self) -> dict[str, str]:
        return self.engine.fingerprint

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Reply | EngineFailure]:
        self.batches.append([replace(each, conversation=copy.deepcopy(each.conversation)) for each in requests])
        return self.engine.generate(requests, sampling)


def timed_bare(engine: TransformersEngine, batches: Sequence[Sequence[Request]]) -> tuple[int, float]:
    """Sampled tokens and seconds of the engine alone on `batches`."""
    engine.forget()
    fresh = copy.deepcopy(batches)
    tokens, started = 0, time.perf_counter()
    for batch in fresh:
        for reply in engine.generate(batch, GREEDY):
            if isinstance(reply, EngineFailure):
                raise reply
            tokens += reply.sampled_tokens or 0
    return tokens, time.perf_counter() - started


def sampled_tokens(played: Sequence[Trajectory]) -> int:
    return sum(each.sampled_tokens or 0 for each in played)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=32, help="questions")
    parser.add_argument("--repeats", type=int, default=2, help="rounds; the fastest of each way counts")
    parser.add_argument("--recipe", default="pocket")
    parser.add_argument("--set", action="append", default=[], help="KEY=VALUE in the recipe")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    arguments = parser.parse_args()

    recipe = load_recipe(arguments.recipe, arguments.set)
    agent, environment = make_agent(recipe), make_environment(recipe)
    engine = TransformersEngine.load(recipe.model.name, adapter_path(recipe), batch_size=recipe.model.batch_size)
    forgetful = TransformersEngine(engine.model, engine.tokenizer, batch_size=engine.batch_size, prefix_tokens=0)
    tasks = factbook.load("dev", shape="chain", hops=2, n=arguments.n)
    best: dict[str, tuple[int, float]] = {}
    context = 0

    def timed_loop(engine: Engine) -> tuple[list[Trajectory], float]:
        started = time.perf_counter()
        played = list(rollout(agent, environment, engine, [(task, 0) for task in tasks], width=recipe.width))
        return played, time.perf_counter() - started

    for _ in range(arguments.repeats):
        engine.forget()
        recorder = RecordingEngine(engine)
        played, seconds = timed_loop(recorder)
        loop = (sampled_tokens(played), seconds)
        played, seconds = timed_loop(forgetful)
        context = sum(call.context_tokens or 0 for each in played for call in each.calls)
        rounds = {
            "inside the loop": loop,
            "bare engine, same batches": timed_bare(engine, recorder.batches),
            "bare engine, all at once": timed_bare(engine, [[each for batch in recorder.batches for each in batch]]),
            "inside the loop, no states kept": (sampled_tokens(played), seconds),
        }
        engine.forget()
        with patch.object(decoding, "guesses_at", lambda rows, device: 0):
            played, seconds = timed_loop(engine)
        rounds["inside the loop, nothing guessed"] = (sampled_tokens(played), seconds)
        for name, measured in rounds.items():
            best[name] = min(best.get(name, measured), measured, key=lambda pair: pair[1])

    tokens, seconds = best["inside the loop"]
    table = Table(title=f"{arguments.n} two-hop dev questions, {context} context and {tokens} sampled tokens, greedy")
    for column in ("way", "seconds", "sampled tokens/s", "loop / this"):
        table.add_column(column)
    rows = []
    for name, (count, spent) in best.items():
        ratio = (tokens / seconds) / (count / spent)
        rows.append(
            {"way": name, "tokens": count, "seconds": spent, "tokens_per_second": count / spent, "ratio": ratio}
        )
        table.add_row(name, f"{spent:.1f}", f"{count / spent:.1f}", f"{ratio:.3f}")
    Console().print(table)
    if arguments.out:
        arguments.out.write_text(json.dumps({"n": arguments.n, "engine": engine.fingerprint, "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
