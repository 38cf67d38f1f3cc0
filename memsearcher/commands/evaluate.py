"""`memsearcher evaluate`: agents on sets of questions under limits, in one table with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from memsearcher.agents.protocol import Agent
from memsearcher.assemble import adapter_path, make_agent, make_engine, make_environment, make_tasks
from memsearcher.commands.common import (
    Dependent,
    Objectives,
    Overrides,
    RecipeName,
    Shuffle,
    err,
    one_clear_error,
    out,
    progress_bar,
)
from memsearcher.console import plain
from memsearcher.engines.protocol import ContinuousEngine, Engine
from memsearcher.environments.protocol import Environment
from memsearcher.evaluation.judge import Judge
from memsearcher.evaluation.measures import supporting
from memsearcher.evaluation.paper import paper_section
from memsearcher.evaluation.report import Section
from memsearcher.evaluation.run import CARD, Evaluation, compare_runs, find_run
from memsearcher.evaluation.table import Arm
from memsearcher.foreign import read_flashrag
from memsearcher.recipe import Model, Recipe, load_recipe
from memsearcher.rollout import rollout
from memsearcher.runs import task_hash
from memsearcher.trajectory import Task, Trajectory


def evaluate(
    folder: Annotated[Path | None, typer.Option("--out", help="The folder of the evaluation.")] = None,
    agents: Annotated[str, typer.Option(help="Names with commas between, as memsearcher,react.")] = "memsearcher",
    tasks: Annotated[list[str] | None, typer.Option(help="Questions by name or JSONL file; may be repeated.")] = None,
    n: Annotated[int | None, typer.Option(min=1, help="Draw so many questions of each by the recipe's seed.")] = None,
    hops: Annotated[int | None, typer.Option(min=1, help="Only chain questions of so many hops.")] = None,
    objectives: Objectives = None,
    shuffle: Shuffle = False,
    dependent: Dependent = False,
    limits: Annotated[
        list[str] | None,
        typer.Option(help="Limits in place of the recipe's, as turns=3,memory_tokens=64; repeated, each is an arm."),
    ] = None,
    adapter: Annotated[
        list[str] | None, typer.Option(help="AGENT=FOLDER, or AGENT=null for the bare model; may be repeated.")
    ] = None,
    imports: Annotated[
        list[str] | None,
        typer.Option("--import", help="NAME=FILE, a FlashRAG intermediate_data.json as one more arm; may be repeated."),
    ] = None,
    judge: Annotated[str | None, typer.Option(help="A model that judges the answers too; needs --judge-url.")] = None,
    judge_url: Annotated[str | None, typer.Option(help="Its server, as http://127.0.0.1:8000/v1.")] = None,
    judge_key_env: Annotated[str, typer.Option(help="The environment variable with its key.")] = "OPENAI_API_KEY",
    judge_prompts: Annotated[str, typer.Option(help="`judge`, or a folder with one's own prompt.")] = "judge",
    paper: Annotated[bool, typer.Option("--paper", help="Put paper-reported figures beside ours.")] = False,
    compare: Annotated[
        tuple[Path, Path] | None, typer.Option(help="Compare two run folders question by question, and play nothing.")
    ] = None,
    recipe: RecipeName = "pocket",
    overrides: Overrides = None,
) -> None:
    """Play every agent on every set of questions and report; the same command goes on after a stop.

    Without --tasks, report again on what is in --out; without --out, --paper shows what papers report.
    """
    with one_clear_error():
        if compare:
            show(compare_runs(*map(find_run, compare)))
            return
        if folder is None:
            if tasks or not paper:
                raise ValueError("name the folder of the evaluation: --out FOLDER")
            show(paper_section([]))
            return
        if judge and objectives:
            raise ValueError("--judge does not go with --objectives: a verdict is on one answer")
        grader = make_judge(judge, judge_url, judge_key_env, judge_prompts)
        sets = {}
        if tasks:
            settings = load_recipe(recipe, overrides or ())
            sets = choose_sets(settings, tasks, n, hops, objectives=objectives, shuffle=shuffle, dependent=dependent)
        trials = plan(recipe, overrides or (), agents.split(","), sets, limits or [""], adapter or ())
        foreign = [read_import(each, sets) for each in imports or ()]
        if not trials and not foreign and not (folder / CARD).exists():
            raise ValueError(f"{folder} holds no evaluation yet: name its --tasks")
        arms = [*(trial.arm for trial in trials), *(arm for arm, _ in foreign)]
        evaluation = Evaluation.open(folder, arms, grader.fingerprint if grader else None)
        for arm, trajectories in foreign:
            evaluation.add(arm, trajectories)
        play(evaluation, trials)
        if grader:
            grade(evaluation, grader)
        with err.status("computing intervals"):
            sections, table = evaluation.report()
        for section in [*sections, *([paper_section(table)] if paper else [])]:
            show(section)
        out.print(f"evaluation: {folder}", soft_wrap=True)


@dataclass(frozen=True, slots=True)
class Trial:
    """An arm with what it is played with."""

    arm: Arm
    recipe: Recipe
    agent: Agent
    tasks: list[Task]


def choose_sets(
    recipe: Recipe, tasks: Sequence[str], n: int | None, hops: int | None, **options: Any
) -> dict[str, list[Task]]:
    """The sets of questions under the short names that they have in tables; `options` are those of `make_tasks`.

    Raises:
        ValueError: questions that are not there or could not be measured, two sets of one name.
    """
    sets: dict[str, list[Task]] = {}
    for name in tasks:
        label = Path(name).stem if Path(name).is_file() else name.partition("=")[0]
        if options["objectives"]:
            label += f" {options['objectives']}-objective"
        if label in sets:
            raise ValueError(f"--tasks {name}: another set of questions is named {label} too")
        sets[label] = make_tasks(recipe, name, n, hops, **options)
        if not sets[label]:
            raise ValueError(f"{name}: no questions" + (f" of {hops} hops" if hops else ""))
        for task in sets[label]:
            supporting(task)
    return sets


def plan(
    recipe: str,
    overrides: Sequence[str],
    agents: Sequence[str],
    sets: Mapping[str, list[Task]],
    limits: Sequence[str],
    adapters: Sequence[str],
) -> list[Trial]:
    """Agents × questions × limits, in an order that loads each agent's adapter once.

    Raises:
        ValueError: a recipe, prompts or an adapter that is not there, an agent that has no adapter of its own,
            an adapter for an agent that is not asked for.
    """
    folders = {}
    for pair in adapters:
        agent, equals, place = pair.partition("=")
        if not equals or agent not in agents:
            raise ValueError(f"--adapter {pair}: AGENT=FOLDER was expected, with one of the --agents")
        folders[agent] = place
    trials = []
    for agent in dict.fromkeys(agents):
        own = [f"model.adapter={folders[agent]}"] if agent in folders else []
        for (label, chosen), limit in product(sets.items(), dict.fromkeys(limits)):
            changed = [f"limits.{each}" for each in limit.split(",") if each]
            settings = load_recipe(recipe, [*overrides, f"agent={agent}", *own, *changed])
            adapter_path(settings)
            trials.append(Trial(Arm(agent, label, limit, len(chosen)), settings, make_agent(settings), chosen))
    return trials


def read_import(option: str, sets: Mapping[str, list[Task]]) -> tuple[Arm, list[Trajectory]]:
    """A foreign record as an arm, beside the set of questions that it shares most with.

    Raises:
        ValueError: an option that is not NAME=FILE, a file of another kind or without one readable item.
    """
    name, equals, file = option.partition("=")
    if not equals or not name:
        raise ValueError(f"--import {option}: NAME=FILE was expected")
    imported = read_flashrag(Path(file), name)
    for fault in imported.faults:
        err.print(f"not imported: {fault}", style="yellow", markup=False)
    if not imported.trajectories:
        raise ValueError(f"{file}: nothing could be imported")
    asked = {task_hash(each.task) for each in imported.trajectories}
    shared = {label: sum(task_hash(task) in asked for task in chosen) for label, chosen in sets.items()}
    label = max(shared, key=lambda each: shared[each], default="")
    count = len(imported.trajectories) + len(imported.faults)
    arm = Arm(f"imported:{name}", label if shared.get(label) else Path(file).stem, "", count)
    return arm, imported.trajectories


@dataclass
class Parts:
    """The engine and the environment at work; made again only where the next arm needs another one."""

    _policy: tuple[Model, Path | None] | None = None
    _engine: Engine | None = None
    _world: tuple[object, ...] | None = None
    _environment: Environment | None = None

    def engine(self, recipe: Recipe) -> Engine:
        policy = recipe.model, adapter_path(recipe)
        if self._engine is None or self._policy != policy:
            self.close()  # the old weights go before the new ones come
            self._engine, self._policy = make_engine(recipe), policy
        return self._engine

    def close(self) -> None:
        if isinstance(self._engine, ContinuousEngine):
            self._engine.close()
        self._engine = None

    def environment(self, recipe: Recipe) -> Environment:
        world = (recipe.environment, recipe.retrieval, recipe.limits.passages, recipe.webshop, recipe.tool)
        if self._environment is None or self._world != world:
            self._environment = None
            self._environment, self._world = make_environment(recipe), world
        return self._environment


def play(evaluation: Evaluation, trials: Sequence[Trial]) -> None:
    """Play what is missing of every arm, under one progress bar."""
    # Every arm is opened before the first is played: what is wrong with the last one is said at once.
    started = [(each, evaluation.start(each.arm, each.recipe, each.tasks)) for each in trials]
    waiting = [(trial, attempts) for trial, attempts in started if attempts]
    if not waiting:
        return
    with progress_bar() as progress, closing(Parts()) as parts:
        bar = progress.add_task("questions", total=sum(len(attempts) for _, attempts in waiting))
        for trial, attempts in waiting:
            progress.update(bar, description=escape(f"{trial.arm.name}, {trial.arm.tasks}"))
            settings = trial.recipe
            played = rollout(
                trial.agent,
                parts.environment(settings),
                parts.engine(settings),
                attempts,
                seed=settings.seed,
                width=settings.width,
            )
            for _ in evaluation.run(trial.arm).keep(played):
                progress.advance(bar)


def make_judge(model: str | None, url: str | None, key_env: str, prompts: str) -> Judge | None:
    """The judge that the options ask for, if any.

    Raises:
        ValueError: a judge without its server.
    """
    if model is None:
        return None
    if url is None:
        raise ValueError("--judge needs --judge-url, as http://127.0.0.1:8000/v1")
    server = Model(engine="openai", name=model, base_url=url, api_key_env=key_env)
    return Judge(make_engine(Recipe(model=server)), model, prompts)


def grade(evaluation: Evaluation, judge: Judge) -> None:
    """Have the judge give what verdicts are missing, under a progress bar."""
    waiting = [(run, judge.waiting(run)) for run in map(evaluation.run, evaluation.card.arms)]
    with progress_bar() as progress:
        bar = progress.add_task(escape(f"verdicts of {judge.model}"), total=sum(len(claims) for _, claims in waiting))
        for run, claims in waiting:
            for _ in judge.keep(run, claims):
                progress.advance(bar)


def show(section: Section) -> None:
    """Print a section; text from outside is printed as it is."""
    table = Table(title=plain(section.title), title_justify="left")
    for column in section.rows[0] if section.rows else ():
        table.add_column(plain(column), overflow="fold")
    for row in section.rows:
        table.add_row(*map(plain, row.values()))
    out.print(table)
    for note in section.notes:
        out.print(plain(note))
