"""Two processes: the same gradient as one, no mispaired replies, no process that waits for ever."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from peft import LoraConfig

from memsearcher.training import resume
from memsearcher.training.grpo import MultiContextGRPOTrainer
from tests import grpo_reference
from tests.grpo_world import GROUP, make, saved_model, tasks
from tests.test_grpo_exactness import groups_of, reference_gradient

CASES = {
    "2 ranks, token": {},
    "2 ranks, conversation, chunks": {"average": "conversation", "tokens_per_chunk": 300},
    "2 ranks, trajectory, off-policy, KL": {
        "average": "trajectory",
        "beta": 0.1,
        "num_iterations": 2,
        "tokens_per_chunk": 500,
    },
    "2 ranks, one without signal": {"tokens_per_chunk": 300},
    "2 ranks, rows apart, chunks": {"share_beginnings": False, "tokens_per_chunk": 300},
}


def uneven_tasks(silent=False):
    """The first half of a batch has many more conversations than the second; one attempt fails.

    `silent` leaves the second half without a group whose rewards differ.
    """
    made = tasks(4)
    for number, counts in enumerate([[5, 4, 1, 3], [2, 5, 5, 3], [1, 1, 1, 1], [1, 1, 2, 1]]):
        made[number].metadata["conversations"] = counts
    made[1].metadata["fails"] = [2]
    for each in made[2:] if silent else ():
        each.metadata["rewards"] = [0.5] * GROUP
    return made


def worker(folder):
    """What one process of `test_two_processes` does."""
    torch.set_num_threads(1)
    for name, changes in CASES.items():
        iterations = changes.get("num_iterations", 1)
        train = uneven_tasks(silent="without signal" in name)
        options = {"train": train, "learning_rate": 3e-3, "shuffle_dataset": False, "max_steps": iterations}
        trainer, keep = make(Path(folder) / name, processes=2, **options, **changes)
        trainer.train()
        if trainer.accelerator.is_main_process:
            torch.save({"gradients": keep.gradients, "weights": keep.weights}, Path(folder) / name / "kept.pt")
        mine, theirs = everyone((trainer.calls, len(trainer._rows)))
        assert mine == theirs
    train_with_real_generation(Path(folder) / "real")
    refuse_different_settings(Path(folder) / "real")
    torch.distributed.destroy_process_group()  # left to the interpreter's end, gloo's threads may abort the process


def train_with_real_generation(folder):
    """TRL's own `generate` under DDP with unequal episodes, an adapter, chunks, and evaluation of three questions."""
    adapter = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    options = {"train": uneven_tasks(), "eval_dataset": tasks(3, seed=5), "per_device_eval_batch_size": 1}
    changes = {"max_steps": 2, "tokens_per_chunk": 300, "eval_strategy": "steps", "eval_steps": 2, "beta": 0.1}
    trainer, _ = make(
        folder,
        processes=2,
        trainer=MultiContextGRPOTrainer,
        peft_config=adapter,
        learning_rate=0.01,
        **options,
        **changes,
    )
    trainer.train()
    first, second = everyone([each.detach().clone() for each in trainer.model.parameters() if each.requires_grad])
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True)) and any(each.any() for each in first)
    ours, theirs = everyone([row for row in trainer.state.log_history if "eval_reward" in row])
    assert [row["eval_reward"] for row in ours] == [row["eval_reward"] for row in theirs]


def refuse_different_settings(folder):
    rank = int(os.environ["RANK"])
    with pytest.raises(ValueError, match="processes have different settings: epsilon, train_dataset"):
        make(folder, processes=2, train=tasks(4, seed=rank) if rank else tasks(4)[::-1], epsilon=0.1 * (rank + 1))


def everyone(mine):
    """What both processes have."""
    gathered = [None, None]
    torch.distributed.all_gather_object(gathered, mine)
    return gathered


def launch(first, module="tests.test_grpo_ranks", *arguments, **variables):
    """Run `python -m module first arguments` in two processes; their output."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--rdzv-backend=c10d"]
    command += ["--rdzv-endpoint=localhost:0", "-m", module]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", **variables}
    return subprocess.run(
        [*command, str(first), *arguments], capture_output=True, text=True, timeout=300, env=environment, check=False
    )


def run(folder):
    """Both processes' work in a folder."""
    for name in (*CASES, "real"):
        (folder / name).mkdir()
        saved_model(folder / name)
    done = launch(folder)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("ranks")
    run(folder)
    return folder


def test_two_processes_generate_train_and_evaluate(ranks):
    """See `train_with_real_generation`: it came to its end, and every attempt and question is on disk once."""
    played = [(step, each.id) for step, each in resume.read_steps(ranks / "real" / "run")]
    assert len(played) == len(set(played)) == 2 * 4 * GROUP
    assert sorted(each.id for _, each in resume.read_steps(ranks / "real" / "run", "eval")) == ["q0#0", "q1#0", "q2#0"]


@pytest.mark.parametrize("case", CASES)
def test_two_processes(case, ranks):
    assert error_of(case, ranks) < 1e-5


def error_of(case, folder):
    """The worst relative error of the two processes' gradient."""

    class Kept:
        gradients, weights = torch.load(folder / case / "kept.pt").values()

    changes = CASES[case]
    iterations = changes.get("num_iterations", 1)
    settings = {"average": changes.get("average", "token"), "beta": changes.get("beta", 0.0)}
    assert sum(len(group) for group in groups_of(folder / case)) == 4 * GROUP
    policy, _, _ = reference_gradient(folder / case, Kept, iterations=iterations, **settings)
    return grpo_reference.worst_error(Kept.gradients[iterations - 1], policy)


if __name__ == "__main__":
    worker(sys.argv[1])
