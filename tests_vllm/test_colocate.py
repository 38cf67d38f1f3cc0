"""The trainer over TRL's colocated vLLM: replies come from it, a step is made, and its weights follow.

vLLM's CPU backend packs the weights of linear layers and takes no new ones; here, and only here,
they are left as they are. TRL has no option for eager mode, so its `LLM` is given it here.
"""

from __future__ import annotations

from functools import partial

import pytest
import torch
import vllm
from trl.generation import vllm_generation
from vllm.model_executor.layers import utils

from memsearcher.training import resume
from memsearcher.training.grpo import MultiContextGRPOTrainer
from tests.grpo_world import LIMIT, Rewriter, make
from tests_vllm.conftest import ROUNDING


def unpacked(layer, remove_weight):
    """`dispatch_cpu_unquantized_gemm` without the packing."""
    layer.cpu_linear = torch.nn.functional.linear


@pytest.fixture
def plain_weights(monkeypatch):
    monkeypatch.setattr(utils, "dispatch_cpu_unquantized_gemm", unpacked)
    monkeypatch.setattr(vllm_generation, "LLM", partial(vllm.LLM, enforce_eager=True, dtype="float32"))
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)


def weights_of(trainer):
    """The weights that vLLM generates with, by its own names (some are of several layers at once)."""
    model = trainer.vllm_generation.llm.llm_engine.model_executor.driver_worker.get_model()
    return {name: each.detach().clone() for name, each in model.named_parameters()}


def say(trainer, prompt):
    trainer.vllm_generation.temperature = 0.0
    ids, logprobs = trainer._generate_single_turn([prompt], None, {}, num_generations=1)
    return ids[0], logprobs[0]


def test_a_step_with_colocated_vllm(plain_weights, model_folder, tmp_path):
    trainer, keep = make(
        tmp_path,
        model=str(model_folder),
        trainer=MultiContextGRPOTrainer,
        agent=Rewriter(stop=("e", "ar")),
        use_vllm=True,
        vllm_mode="colocate",
        vllm_max_model_length=512,
        max_steps=2,
        learning_rate=0.02,
    )
    chat = trainer.policy.chat
    prompt = chat.encoder.markers("<|im_start|>user\nWhat is known?<|im_end|>\n<|im_start|>assistant\n")
    before, started = say(trainer, prompt), weights_of(trainer)
    trainer.train()
    assert trainer.state.global_step == 2

    finishes = set()
    for _, trajectory in resume.read_steps(tmp_path / "run"):
        assert trajectory.error is None
        for call in trajectory.calls:
            segment = trajectory.conversations[call.conversation].segments[call.segment]
            finishes.add(call.finish)
            assert 1 <= len(segment.token_ids) == len(segment.logprobs) == call.sampled_tokens <= LIMIT
            assert all(-30 < logprob <= 0 for logprob in segment.logprobs)
            assert not any(stop in chat.encoder.decode(segment.token_ids[:-1]) for stop in ("e", "ar"))
    assert {"stop", "length"} <= finishes
    assert len(keep.gradients) == 2
    assert all(any(each.abs().max() > 0 for each in gradients.values()) for gradients in keep.gradients)

    # The second step was generated with what the first one made of the weights; the third would be with the second's.
    ended = weights_of(trainer)
    norm = "model.norm.weight"
    assert torch.equal(ended[norm], keep.weights[1][norm]) and not torch.equal(ended[norm], started[norm])
    trainer.vllm_generation.sync_weights()
    ids, logprobs = say(trainer, prompt)
    assert (ids, logprobs) != before
    with torch.no_grad():
        logits = trainer.model(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1]
    wanted = logits.log_softmax(-1).gather(1, torch.tensor(ids)[:, None])[:, 0].tolist()
    assert wanted == pytest.approx(logits.log_softmax(-1).max(-1).values.tolist(), abs=ROUNDING)
    assert logprobs == pytest.approx(wanted, abs=ROUNDING)
