"""The settings of a training run: TRL's `GRPOConfig`, fields of ours, and what is refused."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from transformers.trainer_utils import SaveStrategy
from trl import GRPOConfig

AVERAGES = ("token", "conversation", "trajectory", "trajectory_token")
PAPER_BATCH = 256 * 5
"""Trajectories of one step in the paper: 256 questions, five attempts at each."""

_WANTED: dict[str, tuple[Any, str]] = {
    "loss_type": (
        "dapo",
        "the others divide by what is in a row or a micro-batch, so the update would depend on how rows are packed",
    ),
    "importance_sampling_level": ("token", "a row's mean ratio would be weighted by the row's weight"),
    "top_entropy_quantile": (1.0, "the quantile would be taken in each chunk of rows for itself"),
    "entropy_coef": (0.0, "the bonus is a mean over each chunk of rows, so it would depend on how rows are packed"),
    "use_adaptive_entropy": (False, "the bonus is a mean over each chunk of rows"),
    "router_aux_loss_coef": (None, "the load-balancing loss is a mean over each chunk of rows"),
    "off_policy_mask_threshold": (None, "a row's mean divergence would be weighted by the row's weight"),
    "pad_to_multiple_of": (None, "rows are cut to the length of their chunk"),
    "use_transformers_continuous_batching": (False, "its calls cannot end at an agent's stop strings"),
    "num_generations_eval": (1, "evaluation is greedy, so every attempt at a question would be the same"),
}
"""Fields with the one value that works, and why no other does."""

_OF_A_PROCESS = frozenset({"local_rank", "output_dir", "logging_dir", "run_name", "hub_token"})


@dataclass
class MultiContextGRPOConfig(GRPOConfig):
    """`trl.GRPOConfig` with what several conversations in a trajectory need.

    A step takes `per_device_train_batch_size * gradient_accumulation_steps` trajectories a
    process. Memory does not depend on it but on `tokens_per_chunk`, so leave
    `gradient_accumulation_steps` at 1 and put all trajectories into the batch size.

    `max_completion_length` does nothing: each model call is bounded by the agent's limits.
    `eval_steps` counts optimizer steps, `per_device_eval_batch_size` is how many evaluation
    questions a process plays at once.

    Attributes:
        average: what the loss is a mean over, with m_ij trained tokens in conversation j of
            the n_i conversations of trajectory i. `token` (the paper): every token counts
            the same. `conversation`: every conversation does, a token 1/m_ij. `trajectory`:
            every trajectory does, and in it every conversation, a token 1/(n_i m_ij).
            `trajectory_token`: every trajectory does, and in it every token, 1/sum_j m_ij. The
            first two weigh long trajectories more, so a group's advantages no longer cancel.
        train_memory: train the calls that write a memory; False gives credit to the calls that act alone.
        share_beginnings: run what conversations of a chunk begin with in common once
            (`training/tree.py`). Where a model cannot (sliding windows, attention other than
            `sdpa`), and with False, they are rows side by side, padded to the longest.
        tokens_per_chunk: tokens of one forward and backward pass, without those that are
            shared or with the padding; a single longer conversation runs alone.
        shared_decoding: sample with the loop of `TransformersEngine` instead of TRL's `generate`;
            it computes what contexts have in common once, which saves a CPU most of the prefill, and guesses.
        skip_without_advantage: leave rows out of the update that add nothing to it: those of
            groups whose rewards are all the same, where beta is 0. Entropy and clip ratios are
            then means over the rest.
        max_skipped_steps: so many steps in a row with a loss or gradient that is not finite
            end the run; each is skipped.
        log_trajectories: write every trajectory, all conversations of it, to
            `output_dir/trajectories`.

    Raises:
        ValueError: a setting that cannot work, or whose result would depend on how rows are
            packed; the message says why.
    """

    num_generations_eval: int | None = 1
    average: str = field(default="token", metadata={"help": f"Mean over: {', '.join(AVERAGES)}."})
    train_memory: bool = field(default=True, metadata={"help": "Train the calls that write a memory."})
    share_beginnings: bool = field(default=True, metadata={"help": "Run common beginnings once."})
    tokens_per_chunk: int = field(default=16_384, metadata={"help": "Tokens of one forward pass."})
    shared_decoding: bool = field(default=False, metadata={"help": "Compute what contexts share once."})
    skip_without_advantage: bool = field(default=True, metadata={"help": "Leave out rows that add nothing."})
    max_skipped_steps: int = field(default=5, metadata={"help": "Skipped steps in a row after which a run ends."})
    log_trajectories: bool = field(default=True, metadata={"help": "Write all trajectories to output_dir."})

    def __post_init__(self) -> None:
        if self.average not in AVERAGES:
            raise ValueError(f"average must be one of {', '.join(AVERAGES)}, not {self.average!r}")
        for name in ("tokens_per_chunk", "max_skipped_steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)!r}")
        if self.num_generations is None or self.num_generations < 2:
            raise ValueError(
                f"num_generations must be at least 2, not {self.num_generations!r}: "
                "an advantage compares a trajectory with the others of its group"
            )
        super().__post_init__()
        for name, (wanted, reason) in _WANTED.items():
            if getattr(self, name) != wanted:
                raise ValueError(f"{name} must be {wanted!r}, not {getattr(self, name)!r}: {reason}")
        if self.shared_decoding and (
            self.use_vllm or self.min_p or self.repetition_penalty != 1 or self.generation_kwargs
        ):
            raise ValueError(
                "shared_decoding knows temperature, top_p and top_k, and goes with transformers, not with vLLM"
            )
        if self.scale_rewards not in ("group", "batch", "none"):
            raise ValueError(f"scale_rewards must be group, batch or none, not {self.scale_rewards!r}")
        if self.steps_per_generation != self.gradient_accumulation_steps:
            raise ValueError(
                f"steps_per_generation ({self.steps_per_generation}) must equal gradient_accumulation_steps "
                f"({self.gradient_accumulation_steps}): conversations of one trajectory would otherwise be spread "
                "over several optimizer steps"
            )
        if self.save_strategy == SaveStrategy.STEPS and (self.save_steps < 1 or self.save_steps % self.num_iterations):
            raise ValueError(
                f"save_steps ({self.save_steps}) must be a multiple of num_iterations ({self.num_iterations}): a "
                "checkpoint between two updates from the same trajectories could not be resumed"
            )

    def shared(self) -> dict[str, str]:
        """The settings that every process must have alike, as text."""
        return {name: str(value) for name, value in self.to_dict().items() if name not in _OF_A_PROCESS}

    @classmethod
    def memsearcher(cls, output_dir: str, **changes: Any) -> Self:
        """The published settings of MemSearcher (arXiv 2511.02805 and its code).

        256 questions with five trajectories each in a step, spread over the processes that
        are running (`WORLD_SIZE`); one epoch at a constant 1e-6; clip 0.2, dual clip 3.0,
        KL 0.001, token mean.

        Not followed: the entropy bonus of 0.001 (a mean over each micro-batch, so it would
        depend on packing), the code's token mean inside each micro-batch, its several
        optimizer steps a batch, and its 1e-6 in the advantage's denominator (TRL has 1e-4).
        """
        processes = int(os.environ.get("WORLD_SIZE", "1"))
        published: dict[str, Any] = {
            "num_generations": 5,
            "per_device_train_batch_size": PAPER_BATCH // processes,
            "learning_rate": 1e-6,
            "lr_scheduler_type": "constant",
            "num_train_epochs": 1,
            "max_grad_norm": 1.0,
            "temperature": 1.0,
            "top_p": 0.99,
            "epsilon": 0.2,
            "delta": 3.0,
            "beta": 0.001,
            "use_bias_correction_kl": False,
            "scale_rewards": "group",
            "average": "token",
        }
        return cls(output_dir=output_dir, **{**published, **changes})


def differences(settings: Sequence[dict[str, str]]) -> list[str]:
    """The names of settings that are not the same in all of several sets."""
    names = {name for each in settings for name in each}
    return sorted(name for name in names if len({each.get(name) for each in settings}) > 1)
