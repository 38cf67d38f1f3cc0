"""`memsearcher train`: multi-context GRPO from a recipe's model and adapter on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from memsearcher.assemble import make_agent, make_environment
from memsearcher.commands.common import Overrides, RecipeName, one_clear_error, out
from memsearcher.recipe import load_recipe


def train(
    folder: Annotated[Path, typer.Option("--out", help="The run folder.")],
    max_steps: Annotated[int | None, typer.Option(min=1, help="Stop after so many steps in all.")] = None,
    resume: Annotated[bool, typer.Option(help="Only go on with the run in --out, never start one.")] = False,
    dry_run: Annotated[bool, typer.Option(help="Print what the run would take, and load no weights.")] = False,
    recipe: RecipeName = "pocket",
    overrides: Overrides = None,
) -> None:
    """Train by reinforcement on trajectories of the agent itself; the same command goes on after a stop."""
    with one_clear_error():
        settings = load_recipe(recipe, overrides or ())
        if resume and not (folder / "run.json").is_file():
            raise ValueError(f"{folder} holds no run to go on with; leave out --resume to start one")
        agent = make_agent(settings)
        if dry_run:
            from memsearcher.training.plan import plan

            for name, value in plan(settings, agent, folder, max_steps):
                out.print(f"{name:<24}{value}", soft_wrap=True, markup=False)
            return
        import torch

        from memsearcher.training.run import train as run_training

        weights = run_training(settings, agent, make_environment(settings), folder, max_steps)
        if os.environ.get("RANK", "0") == "0":
            out.print(f"weights: {weights}", soft_wrap=True)
        if torch.distributed.is_initialized():  # left to the interpreter's end, gloo's threads may abort the process
            torch.distributed.destroy_process_group()
