"""Episodes in lockstep over TRL's own generation, on any number of processes.

All processes make the same calls with equally many prompts, until no episode of any of
them waits for the model: server mode and sharded models take a call for a collective one,
and would otherwise mispair prompts and replies, or wait forever. One call has one token
limit and one set of stop strings. What a backend returns is read token by token and cut
behind the token that completes the first stop string, so no later token is ever trained.

With `shared_decoding`, the loop of `TransformersEngine` takes the place of TRL's `generate`:
what contexts have in common is computed once, and replies that have ended leave the batch.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from accelerate.utils import DistributedType, gather_object
from transformers import GenerationConfig, StoppingCriteria, StoppingCriteriaList

from memsearcher.agents.protocol import Act, Agent, Generate, Reply
from memsearcher.engines.chat import ChatFormat, ChatFormatError, EncodingError
from memsearcher.engines.protocol import EngineFailure, Request, Sampling
from memsearcher.engines.row import Row
from memsearcher.engines.transformers import TransformersEngine
from memsearcher.environments.protocol import Environment
from memsearcher.rollout import Episode, act_pending
from memsearcher.training.adapter import folded_in
from memsearcher.trajectory import Conversation, Task

SHARDING = (DistributedType.DEEPSPEED, DistributedType.FSDP)


class Kind(NamedTuple):
    """What the calls of one round have in common."""

    limit: int
    stop: tuple[str, ...]


@dataclass(slots=True)
class Clock:
    """Seconds that this process spent waiting for the model and for the environment."""

    generate: float = 0.0
    environment: float = 0.0


class Policy:
    """The model under training, as the one who answers episodes.

    Args:
        trainer: a `GRPOTrainer`; its `_generate_single_turn` is what generates.
        chat: the chat format of its tokenizer.
        longest: tokens that a context and its reply may take together.
    """

    def __init__(self, trainer: Any, chat: ChatFormat, longest: int) -> None:
        if trainer.args.shared_decoding and trainer.accelerator.distributed_type in SHARDING:
            raise ValueError(
                "shared_decoding needs a model that each process has whole; leave it out with DeepSpeed or FSDP"
            )
        self.trainer = trainer
        self.chat = replace(chat, end_ids=chat.end_ids | frozenset(trainer.eos_token_ids))
        self.longest = longest

    def check_start(self, agent: Agent, task: Task) -> None:
        """See whether an agent can make its first call.

        Raises:
            ValueError: it fails before, does not ask the model first, or with a context that is too long.
        """
        episode = Episode(agent, task)
        wish = episode.pending
        if not isinstance(wish, Generate):
            why = episode.trajectory.error or "it does not ask the model first"
            raise ValueError(f"agent {agent.name!r} cannot start on task {task.id!r}: {why}")
        if failure := self._encode(wish):
            raise ValueError(f"the first turn of agent {agent.name!r}: {failure}")

    def play(self, episodes: Sequence[Episode], environment: Environment, greedy: bool = False) -> Clock:
        """Play every episode to its end. All processes must call this together, also with no episodes."""
        clock = Clock()
        with self._engine() as engine:
            while True:
                self._act(episodes, environment, clock)
                asking: dict[Kind, list[Episode]] = {}
                for episode in episodes:
                    if isinstance(episode.pending, Generate):
                        asking.setdefault(Kind(episode.pending.limit, episode.pending.stop), []).append(episode)
                rounds = most_of_any_process(Counter({kind: len(waiting) for kind, waiting in asking.items()}))
                if not rounds:
                    return clock
                for kind in sorted(rounds):
                    self._answer(asking.get(kind, []), kind, rounds[kind], greedy, clock, engine)

    def _act(self, episodes: Sequence[Episode], environment: Environment, clock: Clock) -> None:
        """Carry out actions until every episode waits for the model or has ended; encode what it is to read."""
        started = time.perf_counter()
        waiting = [episode for episode in episodes if episode.pending is not None]
        while waiting:
            act_pending(waiting, environment)
            for episode in waiting:
                if isinstance(episode.pending, Generate) and (failure := self._encode(episode.pending)):
                    episode.send(failure)
            waiting = [episode for episode in waiting if isinstance(episode.pending, Act)]
        clock.environment += time.perf_counter() - started

    def _encode(self, wish: Generate) -> EngineFailure | None:
        """Encode a context in place; a failure if the model cannot continue it."""
        try:
            self.chat.encode(wish.talk)
        except (ChatFormatError, EncodingError) as error:
            failure = EngineFailure(str(error))
            failure.__cause__ = error
            return failure
        return self._misfit(wish.talk, wish.limit)

    def _misfit(self, talk: Conversation, limit: int) -> EngineFailure | None:
        """Why an encoded context cannot be continued by `limit` tokens, or None."""
        length = len(talk.token_ids or ())
        if length + limit > self.longest:
            return EngineFailure(
                f"a context of {length} tokens and a reply of up to {limit} do not fit the model's {self.longest}"
            )
        if self.chat.ended(talk):
            return EngineFailure("the conversation ends with a finished reply; there is nothing to answer")
        return None

    @contextmanager
    def _engine(self) -> Iterator[TransformersEngine | None]:
        """The engine of one play, in which the weights stay as they are; None where TRL generates."""
        if not self.trainer.args.shared_decoding:
            yield None
            return
        model = self.trainer.accelerator.unwrap_model(self.trainer.model_wrapped)
        with folded_in(model):
            yield TransformersEngine(model, self.trainer._tokenizer, chat=self.chat)

    def _answer(
        self,
        waiting: Sequence[Episode],
        kind: Kind,
        count: int,
        greedy: bool,
        clock: Clock,
        engine: TransformersEngine | None,
    ) -> None:
        """One call of the backend for `count` prompts, those of no episode included."""
        started = time.perf_counter()
        if engine is not None:
            for episode, reply in zip(waiting, self._decode(engine, waiting, kind, greedy), strict=True):
                episode.send(reply)
            clock.generate += time.perf_counter() - started
            return
        contexts = [_context(episode) for episode in waiting]
        dummies = [[self.trainer._tokenizer.pad_token_id]] * (count - len(contexts))
        with call_settings(self.trainer, self.chat, kind, greedy):
            ids, logprobs = self.trainer._generate_single_turn([*contexts, *dummies], None, {}, num_generations=1)
        for number, episode in enumerate(waiting):
            episode.send(self._read(episode, ids[number], None if logprobs is None else logprobs[number]))
        clock.generate += time.perf_counter() - started

    def _decode(
        self, engine: TransformersEngine, waiting: Sequence[Episode], kind: Kind, greedy: bool
    ) -> list[Reply | EngineFailure]:
        """Replies by the engine's own loop, drawn by seeds from this process's random numbers."""
        trainer = self.trainer
        sampling = Sampling() if greedy else Sampling(trainer.temperature, trainer.top_p, trainer.top_k)
        seeds = torch.randint(1 << 62, (len(waiting),)).tolist()
        requests = [
            Request(episode.pending.talk, kind.limit, kind.stop, seed)
            for episode, seed in zip(waiting, seeds, strict=True)
            if isinstance(episode.pending, Generate)
        ]
        # Without log-probabilities, as TRL gives none for transformers.
        replies = engine.generate(requests, sampling)
        return [replace(reply, logprobs=None) if isinstance(reply, Reply) else reply for reply in replies]

    def _read(self, episode: Episode, ids: list[int], logprobs: list[float | None] | None) -> Reply | EngineFailure:
        """A reply of at most the wanted tokens, cut behind its first stop string or end token."""
        assert isinstance(episode.pending, Generate)
        request = Request(episode.pending.talk, episode.pending.limit, episode.pending.stop)
        row = Row(request, _context(episode))
        for token, logprob in zip(ids, logprobs or [0.0] * len(ids), strict=True):
            # vLLM gives None for a log-probability that is not a number; TRL then corrects nothing there.
            row.take(token, float("nan") if logprob is None else logprob, self.chat)
            if row.done:
                break
        if not row.ids:
            return EngineFailure("the backend returned a reply without a token")
        return Reply(
            text=row.text(self.chat),
            finish=row.finish or "length",
            token_ids=row.ids,
            logprobs=None if logprobs is None else row.logprobs,
            context_tokens=len(row.context),
            sampled_tokens=len(row.ids),
        )


def most_of_any_process(counts: Counter[Kind]) -> dict[Kind, int]:
    """Of each kind of call, the most prompts that any process has; the same on every process."""
    most: Counter[Kind] = Counter()
    for one in gather_object([dict(counts)]):
        most |= Counter(one)
    return dict(most)


def call_settings(trainer: Any, chat: ChatFormat, kind: Kind, greedy: bool) -> AbstractContextManager[None]:
    """Have TRL's next generation follow a call's limit and stop strings, and draw or not."""
    ends = sorted(chat.end_ids)
    if trainer.use_vllm:
        return _vllm_settings(trainer.vllm_generation, ends, kind, greedy)
    return _transformers_settings(trainer, chat, ends, kind, greedy)


@contextmanager
def _vllm_settings(vllm: Any, ends: list[int], kind: Kind, greedy: bool) -> Iterator[None]:
    before = vllm.max_completion_length, vllm.generation_kwargs, vllm.temperature
    vllm.max_completion_length = kind.limit
    vllm.generation_kwargs = {**(before[1] or {}), "stop_token_ids": ends, "skip_special_tokens": False}
    if kind.stop:
        vllm.generation_kwargs |= {"stop": list(kind.stop), "include_stop_str_in_output": True}
    if greedy:
        vllm.temperature = 0.0
    try:
        yield
    finally:
        vllm.max_completion_length, vllm.generation_kwargs, vllm.temperature = before


@contextmanager
def _transformers_settings(trainer: Any, chat: ChatFormat, ends: list[int], kind: Kind, greedy: bool) -> Iterator[None]:
    before = trainer.generation_config, trainer.generation_kwargs
    settings = {**before[1], "max_new_tokens": kind.limit, "eos_token_id": ends, "do_sample": not greedy}
    if greedy:
        settings |= dict.fromkeys(("temperature", "top_p", "top_k", "min_p"))
    trainer.generation_kwargs = settings
    trainer.generation_config = GenerationConfig(**settings, disable_compile=True)
    # TRL calls `generate` without a stopping criterion and has no option for one.
    model = trainer.accelerator.unwrap_model(trainer.model_wrapped)
    if kind.stop:
        criteria = StoppingCriteriaList([StopStrings(chat, kind.stop)])
        model.generate = partial(model.generate, stopping_criteria=criteria)
    try:
        yield
    finally:
        trainer.generation_config, trainer.generation_kwargs = before
        if kind.stop:
            del model.generate


class StopStrings(StoppingCriteria):
    """Ends a row of `generate` when the tokens it wrote spell a stop string; the prompt does not count."""

    def __init__(self, chat: ChatFormat, stop: tuple[str, ...]) -> None:
        self.chat = chat
        self.stop = stop
        # A token is a byte at least; four more for a character torn at the left.
        self.reach = max(len(text.encode()) for text in stop) + 4
        self.start: int | None = None

    def __call__(self, input_ids: torch.Tensor, scores: Any, **options: Any) -> torch.Tensor:
        if self.start is None:
            self.start = input_ids.shape[1] - 1
        tails = input_ids[:, max(self.start, input_ids.shape[1] - self.reach) :].tolist()
        texts = [self.chat.encoder.decode(tail) for tail in tails]
        return torch.tensor([any(stop in text for stop in self.stop) for text in texts], device=input_ids.device)


def _context(episode: Episode) -> list[int]:
    assert isinstance(episode.pending, Generate)
    ids = episode.pending.talk.token_ids
    assert ids is not None
    return ids
