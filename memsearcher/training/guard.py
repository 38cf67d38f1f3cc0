"""Keeps a step whose numbers are not finite from reaching the weights."""

from __future__ import annotations

from typing import Any

import torch
from accelerate import Accelerator
from accelerate.logging import get_logger
from accelerate.utils import DistributedType
from torch import Tensor
from transformers import TrainerCallback

logger = get_logger(__name__)


class FiniteGuard(TrainerCallback):
    """Skips an optimizer step whose loss or gradient is not finite, on all processes, and says so.

    Args:
        most: so many skipped steps in a row end the run.
    """

    def __init__(self, accelerator: Accelerator, most: int) -> None:
        self.accelerator = accelerator
        self.most = most
        self.skipped = 0
        self._bad = False

    def saw(self, loss: Tensor) -> None:
        """Take note of a loss of the coming step.

        Raises:
            FloatingPointError: it is not finite, and with DeepSpeed nothing can be skipped: accelerate has it
                take the step together with the backward pass.
        """
        self._bad |= not bool(torch.isfinite(loss))
        if self.accelerator.distributed_type == DistributedType.DEEPSPEED and self._anyone(self._bad):
            raise FloatingPointError("the loss is not finite; go on from a checkpoint with a lower learning_rate")

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any, **rest: Any) -> None:
        """Drop the gradients if anything of the step is not finite.

        Raises:
            FloatingPointError: `most` steps in a row were skipped.
        """
        gradients = [each.grad for each in model.parameters() if each.grad is not None]
        bad = self._bad or not all(bool(torch.isfinite(each).all()) for each in gradients)
        self._bad = False
        # A process that shards the model sees only its own part.
        if not self._anyone(bad):
            self.skipped = 0
            return
        # Optimizers pass over parameters without a gradient; zeros would still move them by momentum and decay.
        model.zero_grad(set_to_none=True)
        self.skipped += 1
        message = f"step {state.global_step + 1} is skipped: its loss or gradient is not finite"
        logger.warning(f"{message} ({self.skipped} in a row)")
        if self.skipped >= self.most:
            raise FloatingPointError(
                f"{message}, and so were the {self.skipped - 1} before it; go on from an earlier checkpoint with a "
                "lower learning_rate or in float32"
            )

    def _anyone(self, bad: bool) -> bool:
        """Whether it is so on any process."""
        return bool(self.accelerator.gather(torch.tensor([float(bad)], device=self.accelerator.device)).any())
