"""FSDP2 over gloo in two processes: the weights are in pieces, the gradient is the reference's.

accelerate takes FSDP for something that CPUs do not do, and would quietly use DDP. Nothing in
PyTorch's or in ours forbids it, so the processes here say they were of another kind while
accelerate decides; that the model is then sharded is asserted.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from accelerate import PartialState
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedType
from peft import LoraConfig
from safetensors.torch import load_file
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from memsearcher.recipe import Recipe
from memsearcher.training import resume
from memsearcher.training import run as training_run
from memsearcher.training.grpo import MultiContextGRPOTrainer
from tests import grpo_world, test_grpo_ranks
from tests.grpo_world import GROUP, MultiContextGRPOConfig, make, saved_model
from tests.test_grpo_ranks import error_of, launch, uneven_tasks

CASES = ("2 ranks, token", "2 ranks, trajectory, off-policy, KL")
FSDP = {
    "ACCELERATE_USE_FSDP": "true",
    "FSDP_VERSION": "2",
    "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
    "FSDP_STATE_DICT_TYPE": "FULL_STATE_DICT",
    "FSDP_CPU_RAM_EFFICIENT_LOADING": "false",
}


def worker(folder):
    """What each of the two processes does."""
    torch.set_num_threads(1)
    grpo_world.MultiContextGRPOConfig = pretending_config
    for name in CASES:
        changes = test_grpo_ranks.CASES[name]
        options = {"train": uneven_tasks(), "learning_rate": 3e-3, "shuffle_dataset": False}
        steps = changes.get("num_iterations", 1)
        trainer, keep = make(folder / name, processes=2, max_steps=steps, **options, **changes)
        trainer.train()
        assert_sharded(trainer)
        kept = {
            "gradients": [whole(each) for each in keep.gradients],
            "weights": [whole(each) for each in keep.weights],
        }
        if trainer.accelerator.is_main_process:
            torch.save(kept, folder / name / "kept.pt")
    train_an_adapter(folder / "adapter")
    torch.distributed.destroy_process_group()


def train_an_adapter(folder):
    """TRL's own `generate` on sharded weights, chunks, evaluation, a checkpoint, and the adapter put together."""
    trainer, _ = make(
        folder,
        processes=2,
        trainer=MultiContextGRPOTrainer,
        peft_config=LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"),
        train=uneven_tasks(),
        tokens_per_chunk=300,
        learning_rate=0.01,
        eval_dataset=uneven_tasks()[:3],
        per_device_eval_batch_size=1,
        eval_strategy="steps",
        eval_steps=1,
        save_strategy="steps",
        save_steps=1,
    )
    trainer.train()
    assert_sharded(trainer)
    training_run._save(trainer, Recipe(), folder / "run" / "adapter")


def pretending_config(**settings):
    """The settings; afterwards the two processes are, to accelerate, such that FSDP takes."""
    args = MultiContextGRPOConfig(**settings)
    AcceleratorState._reset_state()
    PartialState._shared_state["distributed_type"] = DistributedType.MULTI_XPU
    return args


def assert_sharded(trainer):
    """Every weight is in two pieces, and the model gathers them itself."""
    assert trainer.accelerator.is_fsdp2 and isinstance(trainer.model_wrapped, FSDPModule)
    assert trainer.accelerator.device.type == "cpu" and torch.distributed.get_backend() == "gloo"
    for each in trainer.model_wrapped.parameters():
        assert isinstance(each, DTensor) and each.placements[0].is_shard()
        assert each.to_local().numel() < each.numel() or each.shape[0] == 1


def whole(pieces):
    return {name: each.full_tensor() for name, each in pieces.items()}


@pytest.fixture(scope="module")
def sharded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fsdp")
    for name in (*CASES, "adapter"):
        (folder / name).mkdir()
        saved_model(folder / name)
    done = launch(folder, "tests.test_grpo_fsdp", **FSDP)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.mark.parametrize("case", CASES)
def test_the_gradient_of_sharded_weights(case, sharded):
    assert error_of(case, sharded) < 1e-5


def test_an_adapter_on_sharded_weights_is_trained_and_saved_whole(sharded):
    run = sharded / "adapter" / "run"
    saved = load_file(run / "adapter" / "adapter_model.safetensors")
    checkpoint = load_file(run / "checkpoint-1" / "adapter_model.safetensors")
    assert saved.keys() == checkpoint.keys() and len(saved) == 2 * 2 * 2
    assert all(torch.equal(each, checkpoint[name]) and 4 in each.shape for name, each in saved.items())
    assert any(each.any() for name, each in saved.items() if "lora_B" in name)
    assert len(list(resume.read_steps(run))) == 4 * GROUP and len(list(resume.read_steps(run, "eval"))) == 3


if __name__ == "__main__":
    worker(Path(sys.argv[1]))
