"""A training run from a recipe: what it leaves in its folder, and how it goes on after a stop.

`recipe.yaml` and `run.json` (versions, hashes of the questions and of the adapter it starts
from), `log.csv` (a row a step), `validation.csv` (a row an evaluation), `trajectories/` (every
trajectory of every step, see `resume`), `checkpoint-N/`, and in the end `adapter/`, or `model/`
where all weights were trained, with `agent.json`. The same command goes on from the newest
whole checkpoint; what the steps behind it left is made anew.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import fields, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from transformers import PrinterCallback, TrainerCallback, set_seed

from memsearcher import jsonl
from memsearcher.agents.protocol import Agent
from memsearcher.assemble import adapter_path
from memsearcher.engines.models import file_sha256, load_model
from memsearcher.environments.protocol import Environment
from memsearcher.recipe import Recipe, RecipeError
from memsearcher.runs import Run, task_hash
from memsearcher.training import resume
from memsearcher.training.adapter import CARD, adapted, in_bfloat16, save_adapter, write_card
from memsearcher.training.config import MultiContextGRPOConfig
from memsearcher.training.grpo import MultiContextGRPOTrainer
from memsearcher.training.questions import draw_questions
from memsearcher.trajectory import Task

# Filled from a recipe's other fields; as an option, one would undo the other.
_TAKEN = frozenset({"output_dir", "max_steps", "per_device_train_batch_size", "gradient_accumulation_steps"})


def train(recipe: Recipe, agent: Agent, environment: Environment, out: Path, max_steps: int | None = None) -> Path:
    """Train by a recipe into `out`, or go on with the run there; returns the folder of the weights.

    Every process of a launch calls this alike, and `out` is one folder for all of them.

    Args:
        max_steps: stop after so many steps in all; the run can go on later.

    Raises:
        ValueError: settings or questions that cannot be trained with, or `out` holds another run.
        ModelError: a model or adapter that cannot be loaded.
        FloatingPointError: too many steps in a row with numbers that are not finite.
    """
    settings = recipe.training
    args = make_config(recipe, out)
    goal = settings.steps if max_steps is None else min(max_steps, settings.steps)
    if goal % args.num_iterations:
        raise ValueError(
            f"{goal} steps end between two updates from the same trajectories; "
            f"name a multiple of num_iterations ({args.num_iterations})"
        )
    tasks, dev = questions_of(recipe)
    with args.main_process_first(local=False):
        Run.open(out, recipe, {"training": {**_digests(tasks, dev), "start": _start(recipe)}})
    weights = weights_folder(recipe, out)
    if trained_steps(weights) >= goal:
        return weights
    # A run too short to come to an evaluation needs none to compare with.
    args.eval_on_start = 0 < settings.evaluate_every <= goal and resume.last_checkpoint(out) is None
    set_seed(recipe.seed)  # a fresh adapter's weights are drawn before the trainer sets it
    # On the CPU at first: the trainer, DeepSpeed or FSDP take to a process's device what belongs there.
    model, tokenizer = load_model(recipe.model.name, device="cpu", dtype=_dtype(recipe))
    if weights.name == "adapter":
        model = adapted(model, adapter_path(recipe), settings.rank, settings.alpha)
    trainer = MultiContextGRPOTrainer(
        model,
        agent=agent,
        environment=environment,
        args=args,
        train_dataset=tasks,
        eval_dataset=dev,
        reward=settings.reward,
        processing_class=tokenizer,
        callbacks=[StopAt(goal), Tables(out)],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train(resume_from_checkpoint=True)
    _save(trainer, recipe, weights)
    return weights


def make_config(recipe: Recipe, out: Path) -> MultiContextGRPOConfig:
    """The trainer's settings, for this process of a launch.

    Raises:
        ValueError: settings that cannot work (see `MultiContextGRPOConfig`), an option that there
            is not or that another field sets, trajectories that the processes cannot share evenly.
    """
    settings, cuda = recipe.training, torch.cuda.is_available()
    if recipe.model.engine != "transformers":
        raise RecipeError(f"model.engine must be transformers to train, not {recipe.model.engine}: weights are needed")
    known = {field.name for field in fields(MultiContextGRPOConfig)}
    for name in settings.options:
        if name not in known:
            raise RecipeError(f"training.options.{name}: MultiContextGRPOConfig has no such field")
        if name in _TAKEN:
            raise RecipeError(f"training.options.{name}: it follows from other fields of the recipe and --out")
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    trajectories = settings.batch * settings.num_generations
    if settings.batch < 1 or settings.steps < 1 or trajectories % processes:
        raise RecipeError(
            f"training: steps ({settings.steps}) and batch ({settings.batch}) must be at least 1, and the "
            f"{trajectories} trajectories of a step must divide evenly among {processes} processes"
        )
    arguments: dict[str, Any] = {
        "max_steps": settings.steps,
        "per_device_train_batch_size": trajectories // processes,
        "num_generations": settings.num_generations,
        "per_device_eval_batch_size": recipe.width,
        "eval_strategy": "steps" if settings.evaluate_every else "no",
        "eval_steps": settings.evaluate_every or None,
        "learning_rate": settings.learning_rate,
        "lr_scheduler_type": "constant",
        "max_grad_norm": 1.0,
        "beta": settings.beta,
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "average": settings.average,
        "scale_rewards": settings.scale_rewards,
        "tokens_per_chunk": settings.tokens_per_chunk,
        "gradient_checkpointing": settings.gradient_checkpointing,
        "save_strategy": "steps",
        "save_steps": settings.save_every,
        "save_total_limit": 2,
        "logging_steps": 1,
        "seed": recipe.seed,
        "data_seed": recipe.seed,
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": not cuda,
        "bf16": in_bfloat16(recipe),
        "dataloader_pin_memory": cuda,
        "ddp_find_unused_parameters": False,
        "ddp_backend": "gloo" if processes > 1 and not cuda else None,
    }
    return MultiContextGRPOConfig(output_dir=str(out), **{**arguments, **settings.options})


def questions_of(recipe: Recipe) -> tuple[list[Task], list[Task]]:
    """The questions to train on, and those to evaluate on (none where nothing is evaluated).

    The first are drawn by the recipe's seed. The others are the same for every seed, so that runs
    can be compared question by question.

    Raises:
        ValueError: see `draw_questions`; evaluation without questions.
    """
    settings = recipe.training
    tasks = draw_questions(settings.questions, "train", recipe, "training.questions")
    if not settings.evaluate_every:
        return tasks, []
    dev = draw_questions(settings.dev, "dev", replace(recipe, seed=0), "training.dev")
    if not dev:
        raise RecipeError("training.dev names no questions; name some, or set training.evaluate_every to 0")
    return tasks, dev


def weights_folder(recipe: Recipe, out: Path) -> Path:
    """Where the trained weights go: `adapter`, or `model` where all of a model's weights are trained."""
    return out / ("adapter" if recipe.model.adapter is not None or recipe.training.rank else "model")


def trained_steps(weights: Path) -> int:
    """How many steps the weights in a folder have been trained for; 0 where there are none."""
    card = weights / CARD
    return int(json.loads(card.read_bytes())["steps"]) if card.exists() else 0


class StopAt(TrainerCallback):
    """Ends a run after a number of steps, with a checkpoint from which it can go on."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def on_train_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        control.should_training_stop = state.global_step >= self.steps

    def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        if state.global_step >= self.steps:
            control.should_training_stop = control.should_save = True


class Tables(TrainerCallback):
    """Keeps `log.csv` and `validation.csv`, and prints a line for each of their rows."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.console = Console(stderr=True, highlight=False)

    def on_log(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        if not state.is_world_process_zero:
            return
        for name, key in (("log.csv", "loss"), ("validation.csv", "eval_failed")):
            rows = [row for row in state.log_history if key in row]
            if rows:
                jsonl.write_csv(self.out / name, rows, jsonl.columns_of(rows))
            if key in state.log_history[-1]:
                line = f"step {state.global_step}/{args.max_steps}  {_in_short(state.log_history[-1])}"
                self.console.print(line, soft_wrap=True)


def _in_short(row: dict[str, Any]) -> str:
    """What a person watches: reward, EM or success, turns, groups that teach nothing, seconds of each part."""
    shown = {
        "dev reward": row.get("eval_reward"),
        "dev em": row.get("eval_em"),
        "reward": row.get("reward"),
        "em": row.get("trajectories/em"),
        "success": row.get("trajectories/success"),
        "turns": row.get("trajectories/turns"),
        "groups without signal": row.get("frac_reward_zero_std"),
        "seconds to generate": row.get("time/generate"),
        "to update": row.get("time/update"),
    }
    return ", ".join(f"{name} {value:.3g}" for name, value in shown.items() if value is not None)


def _save(trainer: MultiContextGRPOTrainer, recipe: Recipe, folder: Path) -> None:
    """Put the weights and their card into a folder; all processes take part where each holds a piece."""
    accelerator, main = trainer.accelerator, trainer.is_world_process_zero()
    if folder.name == "adapter":
        weights = accelerator.get_state_dict(trainer.model_wrapped)
        if main:
            save_adapter(accelerator.unwrap_model(trainer.model_wrapped), folder, recipe.model.name, weights)
    else:
        trainer.save_model(str(folder))
    if main:
        facts = {"steps": trainer.state.global_step, "processes": accelerator.num_processes}
        write_card(folder, recipe.to_json(), trainer.agent.fingerprint, trainer.environment.fingerprint, **facts)
    accelerator.wait_for_everyone()


def _dtype(recipe: Recipe) -> str:
    """Trained weights are kept in float32; those under an adapter only take part."""
    frozen = recipe.model.adapter is not None or recipe.training.rank
    return "bfloat16" if frozen and in_bfloat16(recipe) else "float32"


def _digests(tasks: Sequence[Task], dev: Sequence[Task]) -> dict[str, str]:
    named = {"questions": tasks, "dev": dev}
    return {name: sha256("".join(map(task_hash, each)).encode()).hexdigest() for name, each in named.items()}


def _start(recipe: Recipe) -> str | None:
    folder = adapter_path(recipe)
    return None if folder is None else file_sha256(folder / "adapter_model.safetensors")
