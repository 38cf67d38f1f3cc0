"""The trainer's gradient against the reference's. `python -m tests.test_grpo_exactness` prints the table."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from pathlib import Path

import pytest
import torch

from memsearcher.training import resume
from tests import grpo_reference
from tests.grpo_world import GROUP, ScriptedTrainer, ServedTrainer, float64_model, make, tasks


def mixed_tasks():
    """Some groups with rewards that are all the same."""
    made = tasks(4)
    made[1].metadata["rewards"] = [0.3] * GROUP
    made[3].metadata["rewards"] = [1.0] * GROUP
    return made


def failing_tasks():
    """A failed attempt, a group with one left, a group with none left."""
    made = tasks(4)
    for number, fails in enumerate([[1], [0, 1, 2], [0, 1, 2, 3], []]):
        made[number].metadata["fails"] = fails
        made[number].metadata["conversations"] = [2, 3, 2, 4]
    return made


CASES = {
    "average=token": {},
    "average=conversation": {"average": "conversation"},
    "average=trajectory": {"average": "trajectory"},
    "average=trajectory_token": {"average": "trajectory_token"},
    "qwen3": {"kind": "qwen3"},
    "llama": {"kind": "llama"},
    "chunks of 1 row": {"tokens_per_chunk": 1},
    "chunks of about 3 rows": {"tokens_per_chunk": 3 * 100},
    "chunks of about 8 rows": {"tokens_per_chunk": 8 * 100},
    "rows apart": {"share_beginnings": False},
    "rows apart, chunks of 1 row": {"share_beginnings": False, "tokens_per_chunk": 1},
    "rows apart, about 3 rows, off-policy, KL, qwen3": {
        "share_beginnings": False,
        "tokens_per_chunk": 3 * 100,
        "num_iterations": 2,
        "beta": 0.1,
        "kind": "qwen3",
    },
    "rows apart, about 8 rows, llama": {"share_beginnings": False, "tokens_per_chunk": 8 * 100, "kind": "llama"},
    "2 steps of accumulation": {"per_device_train_batch_size": 2 * GROUP, "gradient_accumulation_steps": 2},
    "scale_rewards=batch": {"scale_rewards": "batch"},
    "scale_rewards=none": {"scale_rewards": "none"},
    "zero-variance groups": {"train": mixed_tasks},
    "zero-variance groups, KL, batch": {"train": mixed_tasks, "beta": 0.1, "scale_rewards": "batch"},
    "zero-variance groups, all rows run": {"train": mixed_tasks, "skip_without_advantage": False},
    "zero-variance groups, off-policy, chunks": {"train": mixed_tasks, "num_iterations": 2, "tokens_per_chunk": 300},
    "failed trajectories": {"train": failing_tasks},
    "failed trajectories, KL, trajectory": {"train": failing_tasks, "beta": 0.1, "average": "trajectory"},
    "mask_truncated_completions": {"mask_truncated_completions": True},
    "mask_truncated_completions, trajectory": {"mask_truncated_completions": True, "average": "trajectory"},
    "mask_truncated_completions, trajectory_token": {
        "mask_truncated_completions": True,
        "average": "trajectory_token",
    },
    "off-policy": {"num_iterations": 2},
    "off-policy, conversation, about 3 rows": {
        "num_iterations": 2,
        "average": "conversation",
        "tokens_per_chunk": 3 * 100,
    },
    "off-policy, delta=1.1, llama": {"num_iterations": 2, "delta": 1.1, "kind": "llama"},
    "KL": {"num_iterations": 2, "beta": 0.1},
    "KL, uncorrected, trajectory, qwen3": {
        "num_iterations": 2,
        "beta": 0.1,
        "use_bias_correction_kl": False,
        "average": "trajectory",
        "kind": "qwen3",
    },
    "sampling correction, tokens": {"vllm_importance_sampling_mode": "token_truncate"},
    "sampling correction, rows, KL, trajectory": {
        "vllm_importance_sampling_mode": "sequence_mask",
        "num_iterations": 2,
        "beta": 0.1,
        "average": "trajectory",
    },
    "gradient checkpointing": {"gradient_checkpointing": True, "tokens_per_chunk": 3 * 100},
    "rows apart, gradient checkpointing": {"share_beginnings": False, "gradient_checkpointing": True},
}


def groups_of(folder, step=1):
    """The trajectories of a step as they are on disk, by question and in order."""
    by_task = defaultdict(list)
    for number, trajectory in resume.read_steps(Path(folder) / "run"):
        if number == step:
            by_task[trajectory.task.id].append(trajectory)
    return [sorted(group, key=lambda each: each.sample) for group in by_task.values()]


def reference_gradient(folder, keep, kind="qwen2", iterations=1, beta=0.0, **settings):
    """The reference model with its gradient at the weights of the last step, and the clipped share."""
    policy = float64_model(folder, kind, keep.weights[iterations - 1])
    loss, clipped = grpo_reference.reference_loss(
        groups_of(folder),
        policy,
        old=float64_model(folder, kind, keep.weights[0]),
        reference=float64_model(folder, kind) if beta else None,
        beta=beta,
        **settings,
    )
    loss.backward()
    return policy, loss.item(), clipped


def run(case, folder):
    """The worst relative error of a case, its clipped share, and the loss of both sides."""
    changes = dict(CASES[case])
    kind, iterations = changes.pop("kind", "qwen2"), changes.get("num_iterations", 1)
    train = changes.pop("train", tasks)()
    # A large first step, so that many ratios leave the clip range in the second one.
    correction = changes.get("vllm_importance_sampling_mode")
    changes["trainer"] = ServedTrainer if correction else ScriptedTrainer
    trainer, keep = make(folder, kind=kind, train=train, max_steps=iterations, learning_rate=3e-3, **changes)
    trainer.train()
    settings = {
        "average": changes.get("average", "token"),
        "scale": changes.get("scale_rewards", "group"),
        "delta": changes.get("delta"),
        "correct_kl": changes.get("use_bias_correction_kl", True),
        "leave_out_cut": changes.get("mask_truncated_completions", False),
        "correction": correction,
    }
    policy, loss, clipped = reference_gradient(folder, keep, kind, iterations, changes.get("beta", 0.0), **settings)
    return grpo_reference.worst_error(keep.gradients[iterations - 1], policy), clipped, loss, trainer


@pytest.mark.parametrize("case", CASES)
def test_gradient(case, tmp_path):
    error, clipped, loss, trainer = run(case, tmp_path)
    assert error < 1e-5
    assert trainer._shares == CASES[case].get("share_beginnings", True)
    assert trainer.state.log_history[CASES[case].get("num_iterations", 1) - 1]["loss"] == pytest.approx(loss, abs=2e-4)
    if "num_iterations" in CASES[case]:
        assert 0.05 < clipped < 0.95


@pytest.mark.parametrize("wrong", [{"average": "conversation"}, {"scale": "none"}, {"leave_out_cut": True}])
def test_the_reference_tells_other_settings_apart(wrong, tmp_path):
    trainer, keep = make(tmp_path)
    trainer.train()
    policy, _, _ = reference_gradient(tmp_path, keep, **wrong)
    assert grpo_reference.worst_error(keep.gradients[0], policy) > 0.05


def print_table():
    from tests import test_grpo_ranks

    print(f"{'case':42} worst error  clipped")
    for each in CASES:
        with tempfile.TemporaryDirectory() as folder:
            error, clipped, _, _ = run(each, folder)
        print(f"{each:42} {error:11.1e}  {clipped:7.2f}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        test_grpo_ranks.run(Path(folder))
        for each in test_grpo_ranks.CASES:
            print(f"{each:42} {test_grpo_ranks.error_of(each, Path(folder)):11.1e}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    print_table()
