"""The engine that runs a model in vLLM: many requests at once, prefixes computed once, adapters beside the model.

vLLM is given token ids and gives token ids back; what a reply is, where it ends and what its text
is are read off the ids as with every engine on tokens (`Row`). It takes up new requests at every
step, so this engine is a `ContinuousEngine`: one thread hands requests in, lets vLLM step and hands
the finished ones out.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Self

import vllm
from vllm import LLM, SamplingParams, TokensPrompt
from vllm.lora.request import LoRARequest
from vllm.platforms import current_platform
from vllm.sampling_params import RequestOutputKind

from memsearcher.agents.protocol import Reply
from memsearcher.engines.chat import ChatFormat
from memsearcher.engines.models import ModelError, adapter_label, load_tokenizer, model_source
from memsearcher.engines.protocol import ContinuousEngine, EngineFailure, Request, Sampling, failure
from memsearcher.engines.row import Row

LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""The ranks that vLLM makes room for; an adapter takes the next one up."""

Answer = Future[Reply | EngineFailure]


@dataclass(frozen=True, slots=True)
class _Job:
    """A request on its way through vLLM."""

    name: str
    row: Row
    params: Any
    answer: Answer


class VLLMEngine(ContinuousEngine):
    """Answers model calls with an `LLM` of vLLM.

    A log-probability is that of the token under what it was drawn from, as `logprobs_mode`
    "processed_logprobs" gives it: after the temperature and, unlike `TransformersEngine`'s, after
    top-k and top-p; greedy draws use temperature 1. Draws are vLLM's own: its reply to a seed is not
    that of another engine.

    Args:
        llm: the model, made with `logprobs_mode="processed_logprobs"`; `load` makes one.
        chat: the chat format of its tokenizer.
        name: the model's name on the record.
        adapter: the folder of a LoRA adapter to answer with; `llm` must have been made with room for it.
    """

    def __init__(self, llm: LLM, chat: ChatFormat, name: str, adapter: Path | None = None) -> None:
        self.llm = llm
        self.chat = chat
        self._name = name
        self._adapter = adapter_label(adapter)
        self._lora = None if adapter is None else LoRARequest(self._adapter, 1, str(adapter))
        self._inbox: SimpleQueue[_Job | None] = SimpleQueue()
        self._count = 0
        self._pump = threading.Thread(target=self._run, name="vllm", daemon=True)
        self._pump.start()

    @classmethod
    def load(
        cls,
        name: str | Path = "smollm2",
        adapter: str | Path | None = None,
        dtype: str = "auto",
        batch_size: int = 32,
        **options: Any,
    ) -> Self:
        """Load a model by name (see `models.load_model`) and put an engine around it.

        Args:
            name: "smollm2" for the built-in model, a folder, or a hub id; safetensors only.
            adapter: a folder with a LoRA adapter that peft has saved.
            dtype: "auto" is float32 on a CPU and bfloat16 elsewhere.
            batch_size: requests in one step of vLLM, at most.
            options: further arguments of `vllm.LLM`, such as `max_model_len` or `tensor_parallel_size`.

        Raises:
            ModelError: an adapter that is none, or has a rank that vLLM has no room for.
        """
        source = model_source(name)
        folder = None if adapter is None else Path(adapter)
        settings: dict[str, Any] = {
            "dtype": ("float32" if current_platform.is_cpu() else "bfloat16") if dtype == "auto" else dtype,
            "load_format": "safetensors",
            "generation_config": "vllm",  # not the model's defaults for temperature and the like
            "logprobs_mode": "processed_logprobs",
            "enable_prefix_caching": True,
            "max_num_seqs": batch_size,
        }
        if folder is not None:
            settings |= {"enable_lora": True, "max_lora_rank": _room_for(folder)}
        llm = LLM(str(source), **settings | options)
        return cls(llm, ChatFormat.from_tokenizer(load_tokenizer(name)), str(name), folder)

    @property
    def fingerprint(self) -> dict[str, str]:
        return {
            "engine": "vllm",
            "model": self._name,
            "adapter": self._adapter,
            "dtype": str(self.llm.model_config.dtype).removeprefix("torch."),
            "device": current_platform.device_type,
            "vllm": vllm.__version__,
        }

    def close(self) -> None:
        """Let what is under way fail, and stop vLLM. Nothing may be submitted any more."""
        self._inbox.put(None)
        self._pump.join()
        self.llm.llm_engine.engine_core.shutdown()

    def submit(self, request: Request, sampling: Sampling) -> Answer:
        """Take up a request; it fails alone where it cannot be run (see `TransformersEngine.generate`).

        Raises:
            RuntimeError: the engine was closed.
        """
        if not self._pump.is_alive():
            raise RuntimeError("the engine was closed")
        answer: Answer = Future()
        row = Row.start(request, self.chat, self.llm.model_config.max_model_len)
        if isinstance(row, EngineFailure):
            answer.set_result(row)
            return answer
        self._count += 1
        self._inbox.put(_Job(str(self._count), row, self._params(request, sampling), answer))
        return answer

    def _params(self, request: Request, sampling: Sampling) -> SamplingParams:
        greedy = sampling.temperature == 0
        return SamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            seed=None if greedy else request.seed & (2**63 - 1),
            max_tokens=request.limit,
            stop=list(request.stop),
            include_stop_str_in_output=True,
            stop_token_ids=sorted(self.chat.end_ids),
            ignore_eos=True,  # the tokenizer's end of text is among end_ids where it ends replies
            skip_special_tokens=False,
            spaces_between_special_tokens=False,
            logprobs=0,  # of the sampled token alone
            output_kind=RequestOutputKind.FINAL_ONLY,
        )

    def _run(self) -> None:
        """Hand requests in, step, and hand finished ones out, until a None comes in."""
        engine = self.llm.llm_engine
        jobs: dict[str, _Job] = {}
        while True:
            while not jobs or not self._inbox.empty():
                job = self._inbox.get()
                if job is None:
                    _give_up(jobs.values(), EngineFailure("the engine was closed"))
                    return
                try:
                    engine.add_request(
                        job.name, TokensPrompt(prompt_token_ids=job.row.context), job.params, lora_request=self._lora
                    )
                    jobs[job.name] = job
                except Exception as error:  # noqa: BLE001 - whatever vLLM finds wrong with a request is that request's
                    _give_up([job], failure(f"vLLM does not take the request: {error}", error))
            try:
                if dropped := [name for name, job in jobs.items() if job.answer.cancelled()]:
                    engine.abort_request(dropped)
                    for name in dropped:
                        del jobs[name]
                finished = [output for output in engine.step() if output.finished] if jobs else []
            except Exception as error:  # noqa: BLE001 - vLLM may fail in any way; it costs what is under way
                _give_up(jobs.values(), failure(f"vLLM failed on {len(jobs)} requests: {error}", error))
                jobs.clear()
                continue
            for output in finished:
                job = jobs.pop(output.request_id)
                _answer(job, self._read(job.row, output.outputs[0]))

    def _read(self, row: Row, output: Any) -> Reply | EngineFailure:
        """The reply in what vLLM sampled, which may run on behind its end."""
        for token, top in zip(output.token_ids, output.logprobs, strict=True):
            logprob = top[token].logprob
            if logprob != logprob:
                return EngineFailure(f"the model's logits are not finite at token {len(row.ids) + 1} of a reply")
            row.take(token, logprob, self.chat)
            if row.done:
                return row.reply(self.chat)
        return EngineFailure(f"vLLM ended the reply with {output.finish_reason!r} after {len(row.ids)} tokens")


def _answer(job: _Job, answer: Reply | EngineFailure) -> None:
    if job.answer.set_running_or_notify_cancel():
        job.answer.set_result(answer)


def _give_up(jobs: Iterable[_Job], why: EngineFailure) -> None:
    for job in jobs:
        _answer(job, why)


def _room_for(adapter: Path) -> int:
    """The `max_lora_rank` that holds an adapter.

    Raises:
        ModelError: no adapter_config.json with a rank, or one that is too large.
    """
    path = adapter / "adapter_config.json"
    try:
        rank = json.loads(path.read_bytes())["r"]
        return next(room for room in LORA_RANKS if rank <= room)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{path} is not the configuration of a LoRA adapter: {error}") from error
    except StopIteration:
        raise ModelError(f"{path}: rank {rank}; vLLM runs adapters of at most {LORA_RANKS[-1]}") from None
