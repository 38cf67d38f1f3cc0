"""Episodes that run free: the same records as in lockstep, whatever comes first."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait

import pytest

from memsearcher.agents.memsearcher import MemSearcher
from memsearcher.engines.chat import ChatFormat
from memsearcher.engines.protocol import ContinuousEngine, EngineFailure, Sampling
from memsearcher.environments.protocol import EnvironmentFailure
from memsearcher.rollout import Episode, rollout
from memsearcher.trajectory import Limits, Task
from tests.scripted import ScriptedEngine, ScriptedEnvironment, answer, memory, passage, search
from tests.test_rollout import Babble, Counter, run, stripped, tasks
from tests.tiny import tiny_tokenizer

PATIENCE = 10
"""Seconds until a test that waits for something has failed."""


class Threaded(ContinuousEngine):
    """A scripted engine whose replies take their time: `delay(request)` seconds, or what it waits for."""

    def __init__(self, script, chat=None, delay=lambda request: None, threads=64):
        self.scripted = ScriptedEngine(script, chat)
        self.delay = delay
        self.pool = ThreadPoolExecutor(threads)
        self.futures = []
        self.now = self.most = 0
        self.lock = threading.Lock()

    @property
    def fingerprint(self):
        return {"engine": "threaded"}

    def submit(self, request, sampling):
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        self.futures.append(self.pool.submit(self._answer, request, sampling))
        return self.futures[-1]

    def close(self):
        self.pool.shutdown()

    def _answer(self, request, sampling):
        self.delay(request)
        with self.lock:
            self.now -= 1
            (reply,) = self.scripted.generate([request], sampling)
        return reply


def question(request):
    return request.conversation.segments[0].text


def wait_for(event):
    assert event.wait(PATIENCE)


def echo(request):
    """A reply that depends on all that the model was shown."""
    return f"{random.Random(repr(request.conversation.messages())).randrange(10**6)}"


@pytest.mark.parametrize("width", [1, 3, 32])
@pytest.mark.parametrize("seed", range(3))
def test_records_are_those_of_lockstep_whatever_comes_first(seed, width):
    draw = random.Random(seed)
    chat = ChatFormat.from_tokenizer(tiny_tokenizer())
    environment = ScriptedEnvironment({None: [passage(1, "the capital of Italy is Rome")]})
    attempts = [(Task(f"t{number}", f"Number {number}?"), number % 2) for number in range(12)]
    engine = Threaded(echo, chat, lambda request: time.sleep(draw.uniform(0, 0.01)))

    def play(order, **options):
        ended = rollout(Babble(), environment, engine, order, sampling=Sampling(1.0), seed=5, width=width, **options)
        return {each.id: stripped(each) for each in ended}

    free, bound = play(attempts), play(attempts[::-1], lockstep=True)
    assert free == bound
    assert len(free) == 12
    assert {each.error for each in free.values()} == {None}
    assert set(engine.scripted.samplings) == {Sampling(1.0)}


def test_a_real_agent_and_its_seeds():
    def script(request):
        text = "".join(segment.text for segment in request.conversation.segments if segment.part != "template")
        if request.stop == ("</memory>",):
            return memory("known: Rome")
        return answer("Rome") if "known: Rome" in text else search("Italy")

    environment = ScriptedEnvironment({"Italy": [passage(1, "the capital of Italy is Rome")]})
    played = {}
    for lockstep in (True, False):
        engine = Threaded(script)
        ended = run(engine, tasks(*[1] * 5), MemSearcher(Limits(turns=3)), environment, lockstep=lockstep, seed=3)
        played[lockstep] = {each.id: stripped(each) for each in ended}
        seeds = {request.seed for request in engine.scripted.requests}
        played[lockstep]["seeds"] = seeds
        assert [each.answer for each in ended] == ["Rome"] * 5
        assert len(seeds) == 15
    assert played[True] == played[False]


def test_a_slow_reply_holds_nobody_up():
    others = threading.Event()
    engine = Threaded(lambda request: "x", delay=lambda request: wait_for(others) if question(request) == "1" else None)
    ended = []
    for each in rollout(Counter(), ScriptedEnvironment(), engine, tasks(1, 5, 2, 3), width=2):
        ended.append(each.task.id)
        if len(ended) == 3:
            others.set()
    assert ended == ["t1", "t2", "t3", "t0"]


def test_a_slow_action_holds_up_only_those_that_act():
    others = threading.Event()

    class Slow(ScriptedEnvironment):
        def act(self, requests):
            wait_for(others)
            return super().act(requests)

    engine = Threaded(lambda request: "act" if question(request) == "1" else "x")
    ended = []
    for each in rollout(Counter(), Slow(), engine, tasks(1, 5, 2, 3)):
        ended.append(each.task.id)
        if len(ended) == 3:
            others.set()
    assert ended[-1] == "t0"


def test_actions_that_come_up_meanwhile_are_the_next_batch():
    started = threading.Event()

    class Slow(ScriptedEnvironment):
        """Takes over the first action, and as long as it takes for all replies to be there."""

        def act(self, requests):
            started.set()
            wait(engine.futures, PATIENCE)
            time.sleep(0.1)
            return super().act(requests)

    engine = Threaded(lambda request: "act", delay=lambda request: question(request) == "1" or wait_for(started))
    environment = Slow()
    attempts = [(Task("first", "1"), 0), *((Task(f"t{number}", "01"), 0) for number in range(5))]
    ended = run(engine, attempts, environment=environment)
    assert [len(batch) for batch in environment.batches] == [1, 5]
    assert [each.error for each in ended] == [None] * 6


def test_width_bounds_what_is_at_work_and_the_engine_is_kept_full():
    full = threading.Barrier(4)

    engine = Threaded(lambda request: "x", delay=lambda request: full.wait(PATIENCE))
    ended = run(engine, tasks(*[1] * 12), width=4)
    assert engine.most == 4
    assert len(ended) == 12


def test_attempts_are_read_as_they_are_needed():
    taken = []

    def stream():
        for task, sample in tasks(*[1] * 10):
            taken.append(task.id)
            yield task, sample

    running = rollout(Counter(), ScriptedEnvironment(), Threaded(lambda request: "x"), stream(), width=2)
    next(running)
    assert len(taken) <= 3
    running.close()


def test_attempts_without_a_call_and_no_attempts():
    assert [each.answer for each in run(Threaded([]), tasks(0, 0, 0), width=1)] == ["done"] * 3
    assert run(Threaded([]), []) == []
    with pytest.raises(ValueError, match="width is how many episodes are at work at once, at least 1"):
        run(Threaded([]), [], width=0)


@pytest.mark.parametrize("what", ["agent", "engine", "environment"])
def test_one_failure_is_nobody_elses(what):
    def script(request):
        mine = question(request) == "3"
        return {"agent": "break", "engine": EngineFailure("down"), "environment": "act"}[what] if mine else "x"

    environment = ScriptedEnvironment({"3": EnvironmentFailure("no index")})
    ended = run(Threaded(script), tasks(2, 3, 2), environment=environment)
    want = {
        "agent": "RuntimeError: the agent broke <- ValueError: its cause",
        "engine": "EngineFailure: down",
        "environment": "EnvironmentFailure: no index",
    }
    assert {each.task.question: each.error for each in ended} == {"2": None, "3": want[what]}


def test_an_environment_that_breaks_its_word_ends_the_rollout():
    class Broken(ScriptedEnvironment):
        def act(self, requests):
            raise LookupError("a bug")

    with pytest.raises(LookupError, match="a bug"):
        run(Threaded(lambda request: "act"), tasks(1), environment=Broken())


def test_ctrl_c_keeps_what_was_yielded_and_gives_up_the_rest():
    class Held(Threaded):
        """Answers questions "1"; keeps the others waiting and is interrupted at the last."""

        def submit(self, request, sampling):
            if question(request) == "9":
                raise KeyboardInterrupt
            if question(request) == "1":
                return super().submit(request, sampling)
            self.futures.append(Future())
            return self.futures[-1]

    engine, kept = Held(lambda request: "x"), []
    with pytest.raises(KeyboardInterrupt):
        for each in rollout(Counter(), ScriptedEnvironment(), engine, tasks(1, 2, 3, 1, 9), width=3):
            kept.append(each.task.id)  # noqa: PERF401
    assert kept == ["t0", "t3"]
    assert [future.cancelled() for future in engine.futures] == [False, True, True, False]


def test_stopping_the_iteration_gives_up_the_rest():
    engine = Threaded(lambda request: "x", threads=1)
    running = rollout(Counter(), ScriptedEnvironment(), engine, tasks(*[1] * 40))
    next(running)
    running.close()
    assert all(future.done() or future.running() for future in engine.futures)


def test_generate_answers_in_order_and_gives_up_when_interrupted():
    everybody = threading.Barrier(3)
    engine = Threaded(question, delay=lambda request: everybody.wait(PATIENCE))
    requests = [Episode(Counter(), task).request for task, _ in tasks(1, 2, 3)]
    assert [reply.text for reply in engine.generate(requests, Sampling())] == ["1", "2", "3"]

    class Interrupted(Future):
        def result(self, timeout=None):
            raise KeyboardInterrupt

    first, second = futures = [Interrupted(), Future()]
    engine.submit = lambda request, sampling: futures.pop(0)
    with pytest.raises(KeyboardInterrupt):
        engine.generate(requests[:2], Sampling())
    assert first.cancelled() and second.cancelled()
