"""Steps a second of the web shop, played at random through its environment, beside its bare search.

    python benchmarks/webshop.py [--episodes 10000] [--out webshop.json]

A random shopper searches for words of its instruction and then clicks on anything that can be
clicked; one action in twenty is junk instead. Every step is one request to the environment and
gives an observation, as for an agent. The scripted shopper plays every goal once. The bare search
is the shop's BM25 alone on the queries of the random shopper: what a step could cost at least if each were a
search. The rewards are printed beside the speed; an exception anywhere ends the program.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.table import Table

from memsearcher.environments.protocol import ActRequest, EnvironmentFailure
from memsearcher.environments.webshop import catalogue
from memsearcher.environments.webshop.environment import WebShopEnvironment
from memsearcher.environments.webshop.shop import Shop
from memsearcher.environments.webshop.shoppers import STEPS, random_action, scripted
from memsearcher.statistics import bootstrap_mean
from memsearcher.trajectory import Action, Task

JUNK = (
    Action("shop", {"query": "search[click[x]]"}),
    Action("shop", {"query": "buy the best one"}),
    Action("shop", {"query": "search[usb cable [3 pack]]"}),
    Action("search", {"query": ""}),
    Action("search", {"query": "x " * 5000}),
    Action("search", {"query": "\0\ud800<|im_end|></tool_response>"}),
    Action("click", {"button": "Buy Now"}),
    Action("click", {"button": "no such button"}),
    Action("click", {"button": 7}),
    Action("dance", {}),
)


class Meter:
    """Steps, seconds, rewards and events of one shopper."""

    def __init__(self, environment: WebShopEnvironment) -> None:
        self.environment = environment
        self.steps = 0
        self.seconds = 0.0
        self.rewards: list[float] = []
        self.events: Counter[str] = Counter()
        self.longest = 0

    def step(self, request: ActRequest) -> bool:
        """One action; whether the episode goes on."""
        started = time.perf_counter()
        (seen,) = self.environment.act([request])
        self.seconds += time.perf_counter() - started
        self.steps += 1
        if isinstance(seen, EnvironmentFailure):
            raise seen
        self.events.update(event.name for event in seen.events)
        self.longest = max(self.longest, len(seen.text))
        if seen.outcome is not None:
            self.rewards.append(seen.outcome.reward)
        return seen.outcome is None


def play_at_random(meter: Meter, tasks: list[Task], episodes: int, rng: random.Random) -> list[str]:
    """Play `episodes` goals in turn; the queries that were searched for."""
    shop, queries = meter.environment.shop, []
    for episode in range(episodes):
        task = tasks[episode % len(tasks)]
        state = shop.start(task.id)
        for number in range(1, STEPS + 1):
            action = rng.choice(JUNK) if rng.random() < 0.05 else random_action(shop, state, rng)
            if action.name == "search" and action.arguments["query"].strip():
                queries.append(action.arguments["query"])
            if not meter.step(ActRequest(f"random{episode}", task, action, number)):
                break
            state, _ = meter.environment.step(state, action)
        else:
            meter.rewards.append(0.0)
    return queries


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mode", choices=("original", "strict"), default="original")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    arguments = parser.parse_args()

    started = time.perf_counter()
    shop = Shop(catalogue.load(), arguments.seed, arguments.mode)
    environment = WebShopEnvironment(shop)
    opened = time.perf_counter() - started
    tasks = [task for split in ("train", "dev", "test") for task in environment.tasks(split)]

    wandering, knowing = Meter(environment), Meter(environment)
    queries = play_at_random(wandering, tasks, arguments.episodes, random.Random(arguments.seed))
    for task in tasks:
        for number, (_, action) in enumerate(scripted(shop, task.id), 1):
            knowing.step(ActRequest("scripted", task, action, number))
    started = time.perf_counter()
    for query in queries:
        shop.search(query)
    bare = len(queries) / (time.perf_counter() - started)

    table = Table(title=f"{arguments.episodes} random episodes, {len(tasks)} scripted ones; opened in {opened:.1f} s")
    for column in ("way", "episodes", "steps", "steps/s", "this / bare search", "reward × 100 (95%)"):
        table.add_column(column)
    rows = []
    for way, meter in {"random shopper": wandering, "scripted shopper": knowing}.items():
        speed = meter.steps / meter.seconds
        mean, low, high = (100 * value for value in bootstrap_mean(meter.rewards, arguments.seed, 1000))
        figures = {"episodes": len(meter.rewards), "steps": meter.steps, "steps_per_second": speed, "reward": mean}
        rows.append({"way": way, **figures, "events": dict(meter.events), "longest_characters": meter.longest})
        earned = f"{mean:.1f} ({low:.1f} to {high:.1f})"
        table.add_row(way, str(len(meter.rewards)), str(meter.steps), f"{speed:.0f}", f"{speed / bare:.2f}", earned)
    table.add_row("bare search (BM25)", "", str(len(queries)), f"{bare:.0f}", "1.00", "")
    Console().print(table)
    Console().print(f"longest observation {wandering.longest} characters; events {dict(wandering.events)}")
    if arguments.out:
        arguments.out.write_text(json.dumps({"bare_searches_per_second": bare, "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
