"""What a run leaves on disk, and where a killed one goes on.

Checkpoints are the Trainer's. Trajectories lie in `trajectories/`, a file a step and
process, each put there in one piece. A run that goes on from step n plays the steps behind
it anew and puts their files in place of those that the killed one left.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from memsearcher import jsonl
from memsearcher.trajectory import Trajectory, read_trajectories

FOLDER = "trajectories"


def write_step(output_dir: Path, kind: str, step: int, process: int, trajectories: Sequence[Trajectory]) -> None:
    """Put a process's trajectories of one step on disk, all of them or none.

    Args:
        kind: `train` or `eval`.
        step: the optimizer step that they train, or after which they were played; from 1.
    """
    lines = (json.dumps(each.to_json(), ensure_ascii=True, separators=(",", ":")) + "\n" for each in trajectories)
    jsonl.replace(output_dir / FOLDER / f"{kind}-{step:06d}-{process:04d}.jsonl", "".join(lines).encode("ascii"))


def read_steps(output_dir: Path, kind: str = "train") -> Iterator[tuple[int, Trajectory]]:
    """All trajectories of a run with the step they belong to, in order."""
    for step, path in _files(output_dir, kind):
        for trajectory in read_trajectories(path):
            yield step, trajectory


def forget_after(output_dir: Path, step: int) -> None:
    """Remove the trajectories of every step behind `step`, which will be played anew."""
    for kind in ("train", "eval"):
        for number, path in _files(output_dir, kind):
            if number > step:
                path.unlink(missing_ok=True)


def last_checkpoint(output_dir: Path) -> Path | None:
    """The newest checkpoint that was written to its end, None where there is none.

    The Trainer writes a checkpoint's state last; one without it was torn by a kill.
    """
    found = []
    for path in output_dir.glob("checkpoint-*"):
        number = re.fullmatch(r"checkpoint-(\d+)", path.name)
        if number and _is_whole(path / "trainer_state.json"):
            found.append((int(number.group(1)), path))
    return max(found)[1] if found else None


class NoStepTooMany:
    """Of a Trainer, before it: a run that is at its end does no further step.

    The Trainer looks for the end behind a step alone, so that one stopped between its last step and
    the weights it leaves would do one more.
    """

    state: Any
    control: Any

    def _run_epoch(self, *arguments: Any, **options: Any) -> None:
        self.control.should_training_stop |= self.state.global_step >= self.state.max_steps
        if not self.control.should_training_stop:
            super()._run_epoch(*arguments, **options)  # type: ignore[misc]


class StartingPoint(TrainerCallback):
    """Brings a trainer to where its run stands: step count, sampler, events seen, trajectories on disk."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        self.trainer._step = state.global_step * args.gradient_accumulation_steps
        # TRL's sampler draws one order an epoch; those of the epochs that are done are drawn again.
        sampler = self.trainer.sampler
        for _ in range(int(state.epoch or 0) if sampler.shuffle else 0):
            torch.randperm(sampler.num_samples, generator=sampler.generator)
        # An event that was seen has a rate from then on, also where it is 0.
        logged = {name for row in state.log_history for name in row}
        self.trainer._events |= {name.partition("events/")[2] for name in logged if "events/" in name}
        if self.trainer.accelerator.is_main_process:
            forget_after(Path(args.output_dir), state.global_step)
        self.trainer.accelerator.wait_for_everyone()


def _is_whole(state: Path) -> bool:
    try:
        return isinstance(json.loads(state.read_text(encoding="utf-8")), dict)
    except (OSError, ValueError):
        return False


def _files(output_dir: Path, kind: str) -> list[tuple[int, Path]]:
    paths = sorted((output_dir / FOLDER).glob(f"{kind}-*.jsonl"))
    return [(int(path.name.split("-")[1]), path) for path in paths]
