"""Drives many agents at once over one engine and one environment.

`Episode` is one agent at work: it holds what the agent waits for and writes each model
call on the record. An episode that ends makes room for the next task.

In lockstep (`drive`) every pending model call of the batch is collected, the engine asked
once, the replies sent back, then the same is done with actions: what engines that answer
in batches need. Running free (`drive_freely`), each episode advances on its own, so that
a slow one holds nobody up and the engine is kept full. The records are the same.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from queue import SimpleQueue
from typing import Any

from memsearcher.agents.protocol import Act, Agent, Generate, Reply
from memsearcher.engines.protocol import ContinuousEngine, Engine, EngineFailure, Request, Sampling
from memsearcher.environments.protocol import ActRequest, Environment, EnvironmentFailure
from memsearcher.trajectory import Call, Conversation, Observation, Segment, Task, Trajectory

CUT_EVENTS = {
    "question": "question_cut",
    "memory": "memory_cut",
    "history": "history_cut",
    "observation": "passage_cut",
}


class Episode:
    """One agent at work on one task.

    `pending` is what the agent waits for, None once it has ended. Whatever goes wrong in it,
    a failed call or an exception of the agent, becomes `trajectory.error`.
    """

    def __init__(
        self, agent: Agent, task: Task, sample: int = 0, seed: int = 0, provenance: dict[str, str] | None = None
    ) -> None:
        self.trajectory = Trajectory(task, agent.name, agent.limits, sample, seed, provenance=dict(provenance or {}))
        self.pending: Generate | Act | None = None
        self.acts = 0
        self._play = agent.play(self.trajectory)
        self._started = time.perf_counter()
        self._resume(None)

    @property
    def request(self) -> Request:
        """The pending model call. Its seed depends on task, sample and call alone."""
        assert isinstance(self.pending, Generate)
        trajectory = self.trajectory
        number = sum(1 for _ in trajectory.calls)
        seed = call_seed(trajectory.seed or 0, trajectory.id, number)
        return Request(self.pending.talk, self.pending.limit, self.pending.stop, seed)

    def send(self, answer: Reply | Observation | EngineFailure | EnvironmentFailure) -> None:
        """Answer what is pending and let the agent go on to its next wish."""
        if isinstance(answer, Exception):
            self._end(answer)
        else:
            self._resume(answer)

    def _record(self, reply: Reply) -> None:
        """Append the reply to its conversation and the call to its turn."""
        assert isinstance(self.pending, Generate)
        talk, turn = self.pending.talk, self.trajectory.turns[-1]
        conversation = self._number(talk)
        earlier = max(
            (call.segment + 1 for call in self.trajectory.calls if call.conversation == conversation), default=0
        )
        for segment in talk.segments[earlier:]:
            if segment.dropped:
                turn.event(CUT_EVENTS[segment.part], f"{segment.dropped} tokens left out")
        call = Call(
            self.pending.purpose,
            conversation,
            len(talk.segments),
            reply.finish,
            reply.context_tokens,
            reply.sampled_tokens,
        )
        turn.calls.append(call)
        talk.segments.append(
            Segment(
                "assistant", "reply", reply.text, reply.token_ids, reply.logprobs, trained=reply.token_ids is not None
            )
        )

    def _number(self, talk: Conversation) -> int:
        """The place of a conversation on the record; equal ones are told apart."""
        for number, each in enumerate(self.trajectory.conversations):
            if each is talk:
                return number
        raise ValueError("the agent asked about a conversation that it did not put on its record (Trajectory.converse)")

    def _resume(self, answer: Reply | Observation | None) -> None:
        try:
            if isinstance(answer, Reply):
                self._record(answer)
            wish = self._play.send(answer)
            if not isinstance(wish, Generate | Act):
                raise TypeError(f"the agent yielded {wish!r:.80}; it can ask for Generate and Act only")
            self.pending = wish
            self.acts += isinstance(wish, Act)
        except StopIteration:
            self._end(None)
        except Exception as error:  # noqa: BLE001 - one trajectory's error is its own and goes on its record
            self._end(error)

    def _end(self, error: Exception | None) -> None:
        self._play.close()
        self.pending = None
        self.trajectory.seconds = time.perf_counter() - self._started
        if error:
            self.trajectory.error = describe(error)


def rollout(
    agent: Agent,
    environment: Environment,
    engine: Engine,
    attempts: Iterable[tuple[Task, int]],
    *,
    sampling: Sampling | None = None,
    seed: int = 0,
    width: int = 32,
    lockstep: bool = False,
) -> Iterator[Trajectory]:
    """Make every attempt and yield each trajectory as it ends.

    Args:
        agent, environment, engine: who decides, acts and writes.
        attempts: tasks with the number of the attempt (0 to G - 1 in a group of GRPO), read as
            they are needed; may be a stream.
        sampling: greedy where it is None.
        seed: with the task's id, the attempt and the call it seeds every draw.
        width: episodes at work at the same time.
        lockstep: batch by batch also where the engine is a `ContinuousEngine`; with one, episodes
            run free otherwise.

    Trajectories come in the order in which they end. What has been yielded is the caller's:
    stopping the iteration, or Ctrl-C, loses only those still at work.

    Raises:
        ValueError: `width` below 1.
    """
    sampling = sampling or Sampling()
    bound = {**agent.fingerprint, **engine.fingerprint, **environment.fingerprint}
    episodes = (Episode(agent, task, sample, seed, bound) for task, sample in attempts)
    if isinstance(engine, ContinuousEngine) and not lockstep:
        return drive_freely(episodes, lambda request: engine.submit(request, sampling), environment, width)
    return drive(episodes, lambda waiting: generate_pending(waiting, engine, sampling), environment, width)


def drive(
    episodes: Iterable[Episode],
    answer_calls: Callable[[Sequence[Episode]], None],
    environment: Environment,
    width: int,
) -> Iterator[Trajectory]:
    """Run episodes in lockstep, `width` at a time, and yield each trajectory as it ends.

    `answer_calls` is given the episodes that wait for the model and sends each its reply.

    Raises:
        ValueError: `width` below 1.
    """
    _check_width(width)
    coming = iter(episodes)
    at_work: list[Episode] = []
    while True:
        at_work += islice(coming, width - len(at_work))
        if not at_work:
            return
        if asking := [episode for episode in at_work if isinstance(episode.pending, Generate)]:
            answer_calls(asking)
        act_pending(at_work, environment)
        yield from (episode.trajectory for episode in at_work if episode.pending is None)
        at_work = [episode for episode in at_work if episode.pending is not None]


def drive_freely(
    episodes: Iterable[Episode],
    submit: Callable[[Request], Future[Reply | EngineFailure]],
    environment: Environment,
    width: int,
) -> Iterator[Trajectory]:
    """Let each episode advance on its own, `width` at a time, and yield each trajectory as it ends.

    A model call is submitted as soon as its episode wants it. Actions are carried out in a thread
    of their own, one batch at a time: what comes up meanwhile is the next batch.

    Raises:
        ValueError: `width` below 1.
    """
    _check_width(width)
    coming = iter(episodes)
    at_work = 0
    calls: dict[Future[Reply | EngineFailure], Episode] = {}
    acting: list[Episode] = []
    waiting: list[Episode] = []
    done: SimpleQueue[Future[Any]] = SimpleQueue()
    actor = ThreadPoolExecutor(1, thread_name_prefix="environment")
    moved: list[Episode] = []
    try:
        while True:
            fresh = list(islice(coming, width - at_work))
            at_work += len(fresh)
            if not at_work:
                return
            ended = []
            for episode in moved + fresh:
                if isinstance(episode.pending, Generate):
                    call = submit(episode.request)
                    calls[call] = episode
                    call.add_done_callback(done.put)
                elif isinstance(episode.pending, Act):
                    waiting.append(episode)
                else:
                    ended.append(episode)
            if waiting and not acting:
                acting, waiting = waiting, []
                actor.submit(act_pending, acting, environment).add_done_callback(done.put)
            at_work -= len(ended)
            yield from (episode.trajectory for episode in ended)
            moved = []
            if ended:
                continue  # what takes their places is asked for before anything is waited for
            for answer in _ready(done):
                if answer in calls:
                    episode = calls.pop(answer)
                    episode.send(answer.result())
                    moved.append(episode)
                else:
                    answer.result()
                    moved += acting
                    acting = []
    finally:
        for call in calls:
            call.cancel()
        actor.shutdown(wait=False, cancel_futures=True)


def _ready(done: SimpleQueue[Future[Any]]) -> Iterator[Future[Any]]:
    """Wait until one is done, and give all that are."""
    yield done.get()
    while not done.empty():
        yield done.get()


def _check_width(width: int) -> None:
    if width < 1:
        raise ValueError(f"width is how many episodes are at work at once, at least 1, not {width}")


def generate_pending(asking: Sequence[Episode], engine: Engine, sampling: Sampling) -> None:
    """One engine call for all episodes that wait for the model."""
    replies = engine.generate([episode.request for episode in asking], sampling)
    for episode, reply in zip(asking, replies, strict=True):
        episode.send(reply)


def act_pending(episodes: Sequence[Episode], environment: Environment) -> None:
    """One environment call for all episodes that wait for an action."""
    acting = [(episode, episode.pending) for episode in episodes if isinstance(episode.pending, Act)]
    if acting:
        requests = [ActRequest(each.trajectory.id, each.trajectory.task, act.action, each.acts) for each, act in acting]
        for (episode, _), seen in zip(acting, environment.act(requests), strict=True):
            episode.send(seen)


def call_seed(seed: int, trajectory: str, call: int) -> int:
    """A 63-bit seed for one model call, the same on every machine and in every batch."""
    digest = hashlib.sha256(f"{seed}\0{trajectory}\0{call}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def describe(error: BaseException) -> str:
    """An error and its causes in one line."""
    parts = []
    current: BaseException | None = error
    while current:
        parts.append(f"{type(current).__name__}: {current}")
        current = current.__cause__
    return " <- ".join(parts)
