"""The command line: `memsearcher doctor`, `ask`, `rollout`, `index`, `warmstart`, `demo`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import typer
from rich.markup import escape
from rich.table import Table

from memsearcher import doctor as health
from memsearcher.assemble import adapter_path, make_agent, make_engine, make_environment, make_tasks
from memsearcher.commands.common import (
    Dependent,
    Objectives,
    Overrides,
    RecipeName,
    Shuffle,
    one_clear_error,
    out,
    progress_bar,
)
from memsearcher.commands.evaluate import evaluate
from memsearcher.commands.figures import figures
from memsearcher.commands.index import index_app
from memsearcher.commands.inspect import inspect
from memsearcher.commands.serve import serve
from memsearcher.commands.train import train
from memsearcher.commands.webshop import webshop
from memsearcher.console import show, summary
from memsearcher.engines.models import load_model
from memsearcher.engines.protocol import Engine, Sampling
from memsearcher.environments.protocol import Environment
from memsearcher.recipe import Recipe, load_recipe
from memsearcher.rollout import rollout as run_rollout
from memsearcher.runs import Run
from memsearcher.tasks import factbook
from memsearcher.tasks.choose import HELP as TASKS
from memsearcher.trajectory import Task, Trajectory

app = typer.Typer(
    help="A workbench for search agents that manage their memory.", no_args_is_help=True, pretty_exceptions_enable=False
)
app.add_typer(index_app, name="index")
app.command()(serve)
app.command()(train)
app.command()(evaluate)
app.command()(webshop)
app.command()(inspect)
app.command()(figures)

SHOWN = 3
DEMO_SEED = 7
ROWS = 40
"""Questions under way at once: with all of them no call is made for the last few alone."""


@app.command()
def doctor(recipe: RecipeName = "pocket", overrides: Overrides = None) -> None:
    """Check python, torch, device, models, encoder, index, browser and disk."""
    with one_clear_error():
        table = Table("", "what", "found", "remedy")
        missing = False
        for finding in health.examine(load_recipe(recipe, overrides or ())):
            sign = {True: "[green]✓[/]", False: "[red]✗[/]", None: "[yellow]–[/]"}[finding.ok]
            table.add_row(sign, finding.name, escape(finding.value), "" if finding.ok else escape(finding.remedy))
            missing |= finding.ok is False
        out.print(table)
        if missing:
            raise typer.Exit(1)


@app.command()
def ask(
    question: str,
    as_json: Annotated[bool, typer.Option("--json", help="Print the record instead.")] = False,
    retriever: Annotated[str | None, typer.Option(help="Search through the server at this URL.")] = None,
    recipe: RecipeName = "pocket",
    overrides: Overrides = None,
) -> None:
    """Answer one question and show every turn: memory, thought, query, passages, tokens."""
    with one_clear_error():
        if not question.strip():
            raise ValueError("the question is empty")
        remote = [f"retrieval.url={retriever}", "retrieval.kind=http"] if retriever else []
        settings = load_recipe(recipe, [*(overrides or ()), *remote])
        if settings.environment != "search":
            raise ValueError(f"{recipe}: only a search can be asked; play goals with rollout --tasks webshop-test")
        engine, environment = make_engine(settings), make_environment(settings)
        (trajectory,) = run_rollout(make_agent(settings), environment, engine, [(Task("ask", question), 0)])
        if as_json:
            sys.stdout.write(json.dumps(trajectory.to_json()) + "\n")
        else:
            show(out, trajectory)
        if trajectory.error:
            raise typer.Exit(2)


@app.command()
def rollout(
    tasks: Annotated[str, typer.Option(help=TASKS)],
    folder: Annotated[Path, typer.Option("--out", help="The run folder.")],
    n: Annotated[int | None, typer.Option(min=1, help="Draw so many questions by the recipe's seed.")] = None,
    hops: Annotated[int | None, typer.Option(min=1, help="Only chain questions of so many hops.")] = None,
    objectives: Objectives = None,
    shuffle: Shuffle = False,
    dependent: Dependent = False,
    samples: Annotated[int, typer.Option(min=1, help="Attempts at each question.")] = 1,
    temperature: Annotated[float, typer.Option(min=0, help="0 is greedy.")] = 0.0,
    recipe: RecipeName = "pocket",
    overrides: Overrides = None,
) -> None:
    """Play many questions into a run folder; the same command goes on after a stop."""
    with one_clear_error():
        settings = load_recipe(recipe, overrides or ())
        chosen = make_tasks(settings, tasks, n, hops, objectives=objectives, shuffle=shuffle, dependent=dependent)
        if not chosen:
            raise ValueError(f"{tasks}: no questions" + (f" of {hops} hops" if hops else ""))
        about = {"tasks": tasks, "n": n, "hops": hops, "samples": samples, "temperature": temperature}
        if objectives:
            about |= {"objectives": objectives, "shuffle": shuffle, "dependent": dependent}
        adapter_path(settings)  # one that is not there is said before the folder is taken
        run = Run.open(folder, settings, about)
        waiting = run.missing(chosen, samples)
        if waiting:
            engine, environment = make_engine(settings), make_environment(settings)
            play(run, settings, engine, environment, waiting, temperature)
        report(run, f"{tasks}, greedy" if temperature == 0 else f"{tasks}, temperature {temperature}")


def play(
    run: Run,
    settings: Recipe,
    engine: Engine,
    environment: Environment,
    attempts: list[tuple[Task, int]],
    temperature: float = 0.0,
) -> list[Trajectory]:
    """Roll out `attempts` into the run folder under a progress bar."""
    played = run_rollout(
        make_agent(settings),
        environment,
        engine,
        attempts,
        sampling=Sampling(temperature),
        seed=settings.seed,
        width=settings.width,
    )
    with progress_bar() as progress:
        return list(progress.track(run.keep(played), total=len(attempts), description="questions"))


def report(run: Run, title: str) -> list[dict[str, Any]]:
    """Write `metrics.csv`, print the summary and where everything lies."""
    rows = run.write_metrics()
    out.print(summary(rows, title))
    out.print(f"run folder: {run.folder}", soft_wrap=True)
    return rows


@app.command()
def warmstart(
    folder: Annotated[Path, typer.Option("--out", help="The run folder.")],
    recipe: RecipeName = "pocket",
    overrides: Overrides = None,
) -> None:
    """Train an adapter on a scripted expert's trajectories; the same command resumes it."""
    from memsearcher.training.warmstart import warm_start

    with one_clear_error():
        settings = load_recipe(recipe, overrides or ())
        model, tokenizer = load_model(settings.model.name, dtype=settings.model.dtype)
        adapter = warm_start(settings, make_environment(settings), model, tokenizer, folder)
        out.print(f"adapter: {adapter}", soft_wrap=True)


@app.command()
def demo(
    folder: Annotated[Path, typer.Option("--out", help="The run folder.")] = Path("runs/demo"),
    n: Annotated[int, typer.Option(min=1, help="Held-out questions; the first three are shown.")] = 40,
) -> None:
    """The built-in agent on the built-in world: three questions turn by turn, then all of them scored."""
    with one_clear_error():
        settings = load_recipe("pocket", [f"width={ROWS}", f"model.batch_size={ROWS}"])
        tasks = factbook.load("test", shape="chain", hops=2, n=n, seed=DEMO_SEED)
        run = Run.open(folder, settings, {"demo": n})
        if waiting := run.missing(tasks):
            play(run, settings, make_engine(settings), make_environment(settings), waiting)
        done = {each.task.id: each for each in run.trajectories()}
        for task in tasks[:SHOWN]:
            show(out, done[task.id])
        report(run, f"{len(tasks)} held-out 2-hop questions about countries unseen in training, greedy (demo)")


if __name__ == "__main__":
    app()
