"""What reinforcement adds: tables of the training runs of `scripts.pocket`, on the fixed questions of validation.

    python -m scripts.gains --runs runs/pocket --out figures/pocket

It reads runs as they stand, finished or not, and writes

- `log.csv`: every row of every run's log;
- `groups.csv`: every trajectory of training: its group (step and question), turns, EM, reward and advantage;
- `validation.csv`: EM, cover-EM (the answer contains a gold) and turns of every evaluation, of all questions and of
  each kind;
- `contexts.csv`: mean tokens in the context of each turn of every evaluation (`scripts.tested.context_rows`);
- `questions.csv`: each question of every evaluation, by each measure;
- `gains.csv`: the last evaluation against the one before training, question by question, by each measure, for each
  run and, where an agent has several seeds, for their mean at the last step that all of them came to;
- `changes.csv`: each ablation and trial against the run of its agent and seed that departs in nothing, on the same
  questions, before training and at the last step that both came to;
- `budget.csv`: what each run, and the warm start it begins from, was trained on, and how long that took.

A rise of EM without one of cover-EM is one of form alone: the same answers, said as the measure wants them.

Intervals are 95% bootstrap intervals over questions; of the mean over seeds a question's value is its mean
over them, so the interval speaks of the questions and not of further seeds.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from memsearcher import jsonl
from memsearcher.evaluation.report import markdown_table, number
from memsearcher.figures.rise import over_seeds
from memsearcher.figures.runs import LOG, read_csv
from memsearcher.figures.tables import kind_of
from memsearcher.scoring import score_trajectory
from memsearcher.statistics import Interval, bootstrap_mean, mcnemar, paired_difference
from memsearcher.training.adapter import CARD
from memsearcher.training.resume import read_steps
from memsearcher.trajectory import Trajectory
from scripts.tested import context_rows

Row = dict[str, Any]
ALL, CHANGED = "all", ("ablation-", "trial-")
MEASURES = ("em", "cover_em", "turns")
TOKENS = ("tokens", "trained_tokens")


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """A run of the chain, as far as it came.

    Attributes:
        change: what follows `ablation-` or `trial-` in the name of its folder; empty where it departs in nothing.
        scores: of each evaluation, by the step it follows: the measures by question, without those that failed.
        contexts: of each evaluation, by the step it follows: `scripts.tested.context_rows`.
        kinds: of each question.
        played: a row a trajectory of training.
        log: the rows of its log.
        start: the card of the adapter it begins from; None where that is no warm start or is not there any more.
    """

    name: str
    agent: str
    seed: int
    change: str
    scores: dict[int, dict[str, dict[str, float]]]
    contexts: dict[int, list[Row]]
    kinds: dict[str, str]
    played: list[Row]
    log: list[dict[str, str]]
    start: dict[str, Any] | None

    @classmethod
    def read(cls, folder: Path) -> TrainingRun:
        """Read a run folder.

        Raises:
            OSError: a file is not there.
            RecordError: a record that cannot be read.
        """
        card = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        found: dict[int, dict[str, dict[str, float]]] = defaultdict(dict)
        kinds: dict[str, str] = {}
        evaluated: dict[int, list[Trajectory]] = defaultdict(list)
        for step, trajectory in read_steps(folder, "eval"):
            evaluated[step].append(trajectory)
            kinds[trajectory.task.id] = kind_of(trajectory, folder.name)
            if scores := score_trajectory(trajectory):
                found[step][trajectory.task.id] = {
                    "em": scores.em, "cover_em": scores.cover_em, "turns": float(len(trajectory.turns))
                }  # fmt: skip
        log = read_csv(folder / LOG) if (folder / LOG).is_file() else []
        change = folder.name.partition("-")[2] if folder.name.startswith(CHANGED) else ""
        recipe = card["recipe"]
        played = [played_row(step, each) for step, each in read_steps(folder)]
        start = Path(recipe["model"]["adapter"] or "") / CARD
        warm = json.loads(start.read_text(encoding="utf-8")) if start.is_file() else {}
        return cls(
            folder.name, recipe["agent"], recipe["seed"], change, dict(found),
            {step: context_rows(each) for step, each in evaluated.items()}, kinds, played, log,
            warm if "counts" in warm else None,
        )  # fmt: skip

    @property
    def about(self) -> Row:
        return {"run": self.name, "agent": self.agent, "seed": self.seed, "change": self.change}

    def values(self, step: int, measure: str) -> dict[str, float]:
        """A measure of each question in an evaluation."""
        return {question: score[measure] for question, score in self.scores[step].items()}

    @property
    def ends(self) -> tuple[int, int] | None:
        """The steps of the first and the last evaluation; None before there are two."""
        return (min(self.scores), max(self.scores)) if len(self.scores) > 1 else None


def played_row(step: int, trajectory: Trajectory) -> Row:
    """A trajectory of training: `step, question, kind, sample, turns, answered, em, reward, advantage`."""
    scores = score_trajectory(trajectory)
    return {
        "step": step, "question": trajectory.task.id, "kind": kind_of(trajectory, ""), "sample": trajectory.sample,
        "turns": len(trajectory.turns), "answered": trajectory.answer is not None, "em": scores and scores.em,
        "reward": trajectory.reward, "advantage": trajectory.advantage,
    }  # fmt: skip


def validation_rows(run: TrainingRun) -> list[Row]:
    """Each evaluation, of all questions and of each kind: `step, questions, n, failed`, and of each measure
    its mean under the measure's name, `_low` and `_high`."""
    rows = []
    for step, scores in sorted(run.scores.items()):
        for kind in (ALL, *sorted(set(run.kinds.values()))):
            asked = [question for question, its in run.kinds.items() if kind in (ALL, its)]
            there = [scores[question] for question in asked if question in scores]
            if there:
                row: Row = {"step": step, "questions": kind, "n": len(there), "failed": len(asked) - len(there)}
                for measure in MEASURES:
                    each = bootstrap_mean([score[measure] for score in there], seed=0)
                    row |= {measure: each.mean, f"{measure}_low": each.low, f"{measure}_high": each.high}
                rows.append({**run.about, **row})
    return rows


def context_table(run: TrainingRun) -> list[Row]:
    """Contexts of each evaluation: `step, turn, searches, n, tokens`."""
    return [{**run.about, "step": step, **row} for step, rows in sorted(run.contexts.items()) for row in rows]


def question_rows(run: TrainingRun) -> list[Row]:
    """Each question of each evaluation that did not fail there: `step, question, kind` and the measures."""
    return [
        {**run.about, "step": step, "question": question, "kind": run.kinds[question], **measures}
        for step, scores in sorted(run.scores.items())
        for question, measures in sorted(scores.items())
    ]


def budget(run: TrainingRun) -> Row:
    """What a run was trained on, and the warm start before it.

    Of the warm start: `conversations` in its steps, with `tokens` and `trained_tokens` by their mean over all
    that it could draw from. Of the run: `steps`, `trajectories`, `sampled_tokens` and, of a core or a GPU, `minutes`.
    """
    row: Row = dict(run.about)
    if run.start:
        settings, counts = run.start["recipe"]["warmstart"], run.start["counts"]
        drawn = settings["steps"] * settings["batch"]
        row |= {"warm_conversations": drawn, "warm_minutes": run.start["minutes"]}
        row |= {f"warm_{name}": round(counts[name] / counts["conversations"] * drawn) for name in TOKENS}
    sizes = Counter(each["step"] for each in run.played)
    sampled = sum(float(each["trajectories/sampled_tokens"]) * sizes[int(float(each["step"]))] for each in run.log)
    row |= {"steps": len(run.log), "trajectories": sum(sizes.values()), "sampled_tokens": round(sampled)}
    return {**row, "minutes": round(sum(float(each["step_time"]) for each in run.log) / 60, 1)}


def gain(runs: Sequence[TrainingRun], first: int, last: int, measure: str) -> Row:
    """The rise of a measure between two evaluations that all runs have, over the questions that never failed."""
    before, after = over_seeds(*([run.values(step, measure) for run in runs] for step in (first, last)))
    rise = paired_difference(after, before, seed=0)
    row: Row = {"measure": measure, "first_step": first, "last_step": last, "n": len(before)}
    row |= {"before": mean(before), "after": mean(after), "rise": rise.mean, "low": rise.low, "high": rise.high}
    return row | (turned(before, after, measure) if len(runs) == 1 else turned((), (), measure))


def turned(before: Sequence[float], after: Sequence[float], measure: str) -> Row:
    """How many questions turned right (`won`) and wrong (`lost`), and McNemar's p; empty where nothing is right."""
    if measure == "turns" or not before:
        return {"won": None, "lost": None, "p": None}
    pairs = list(zip(before, after, strict=True))
    won, lost = pairs.count((0.0, 1.0)), pairs.count((1.0, 0.0))
    return {"won": won, "lost": lost, "p": mcnemar(won, lost)}


def change_rows(runs: Sequence[TrainingRun]) -> list[Row]:
    """What each run with a change does otherwise than the one of its agent and seed without: rows a step and measure.

    `base` and `mean` are means over the questions that failed in neither, `won` and `lost` those that the change
    turned right and wrong.
    """
    bases = {(run.agent, run.seed): run for run in runs if not run.change}
    rows = []
    for run in (each for each in runs if each.change and (each.agent, each.seed) in bases):
        base = bases[run.agent, run.seed]
        common = sorted(set(run.scores) & set(base.scores))
        for step in dict.fromkeys((*common[:1], *common[-1:])):
            for measure in MEASURES:
                theirs, mine = over_seeds([base.values(step, measure)], [run.values(step, measure)])
                if not mine:  # not the same questions
                    continue
                by = paired_difference(mine, theirs, seed=0)
                row: Row = {"measure": measure, "step": step, "n": len(mine), "base": mean(theirs), "mean": mean(mine)}
                row |= {"difference": by.mean, "low": by.low, "high": by.high, **turned(theirs, mine, measure)}
                rows.append({**run.about, **row})
    return rows


def gain_rows(runs: Sequence[TrainingRun]) -> list[Row]:
    """Rows of a run that was evaluated twice, and of the seeds of an agent up to where all came, one a measure."""
    rows = [{**run.about, **gain([run], *run.ends, measure)} for run in runs if run.ends for measure in MEASURES]
    seeds: dict[str, list[TrainingRun]] = defaultdict(list)
    for run in runs:
        if run.ends and not run.change:
            seeds[run.agent].append(run)
    for agent, each in seeds.items():
        common = set[int].intersection(*(set(run.scores) for run in each))
        if len(each) > 1 and len(common) > 1:
            about = {"run": "", "agent": agent, "seed": " ".join(str(run.seed) for run in each), "change": ""}
            rows += [{**about, **gain(each, min(common), max(common), measure)} for measure in MEASURES]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs/pocket"), help="where `scripts.pocket` put its runs")
    parser.add_argument("--out", type=Path, default=Path("figures/pocket"))
    arguments = parser.parse_args()
    runs = [TrainingRun.read(path.parent) for path in sorted(arguments.runs.glob("*/run.json")) if is_training(path)]
    if not any(run.scores for run in runs):
        parser.error(f"{arguments.runs} has no training run that was evaluated")
    gains = gain_rows(runs)
    write(arguments.out / "log.csv", [{**run.about, **row} for run in runs for row in run.log])
    write(arguments.out / "groups.csv", [{**run.about, **row} for run in runs for row in run.played])
    write(arguments.out / "validation.csv", [row for run in runs for row in validation_rows(run)])
    write(arguments.out / "contexts.csv", [row for run in runs for row in context_table(run)])
    write(arguments.out / "questions.csv", [row for run in runs for row in question_rows(run)])
    write(arguments.out / "gains.csv", gains)
    write(arguments.out / "changes.csv", change_rows(runs))
    write(arguments.out / "budget.csv", [budget(run) for run in runs if run.log])
    print(markdown_table([shown(row) for row in gains]) if gains else "no run was evaluated twice yet")


def is_training(card: Path) -> bool:
    """Whether a run folder, by its name, is one that `scripts.pocket` trains in, or a trial beside them."""
    return card.parent.name.startswith(("train-", *CHANGED))


def write(path: Path, rows: Sequence[Row]) -> None:
    """Write a table whose rows need not have the same columns; none where there are no rows."""
    if rows:
        jsonl.write_csv(path, rows, jsonl.columns_of(rows))


def shown(row: Row) -> dict[str, str]:
    """A row of `gains.csv` as the page shows it."""
    rise = number("em", Interval(row["rise"], row["low"], row["high"]), signed=True)
    return {
        "agent": row["agent"], "change": row["change"], "seed": str(row["seed"]), "steps": str(row["last_step"]),
        "n": str(row["n"]), "measure": row["measure"], "before": f"{row['before']:.3f}", "after": f"{row['after']:.3f}",
        "rise": rise,
    }  # fmt: skip


if __name__ == "__main__":
    main()
