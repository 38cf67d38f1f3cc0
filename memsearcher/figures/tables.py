"""Tables of the figures, made from recorded trajectories, logs of training, or published facts.

A table holds all that its plot shows, so that the plot can be drawn again from the table alone.
Intervals are 95% bootstrap intervals over questions with seed 0. Trajectories that failed are
left out and, where a table counts questions, counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from memsearcher.data import data_folder
from memsearcher.figures.runs import Log, Records, read_csv
from memsearcher.objective_scoring import has_objectives, objectives_of, score_objectives
from memsearcher.scoring import score_trajectory
from memsearcher.statistics import bootstrap_mean
from memsearcher.trajectory import Trajectory

Rows = list[dict[str, Any]]
"""A table: a dict a row, all with the same columns. Empty where there is nothing to show."""


def context(records: Sequence[Records]) -> Rows:
    """Mean tokens in the context in each turn, by agent: `series, measured, turn, n, tokens, low, high`.

    `n` is how many trajectories are still alive. Beside each agent that rewrites its context stands
    the counterfactual one of the same trajectories, had they kept their history (`react_tokens`).
    """
    rows: Rows = []
    for agent, trajectories in _by_agent(records).items():
        lengths = [each.context_tokens for each in trajectories]
        rows += _per_turn(lengths, series=agent, measured=True)
        kept = [each.react_tokens or [] for each in trajectories]
        if kept != lengths and any(kept):
            rows += _per_turn(kept, series=f"{agent}, history kept", measured=False)
    return rows


def memory(records: Sequence[Records]) -> Rows:
    """Mean tokens the model wrote as its memory in each turn: `series, turn, n, tokens, low, high`."""
    rows: Rows = []
    for agent, trajectories in _by_agent(records).items():
        written = [
            [call.sampled_tokens for turn in each.turns for call in turn.calls if call.purpose == "remember"]
            for each in trajectories
        ]
        rows += _per_turn(written, series=agent)
    return rows


def accuracy(records: Sequence[Records]) -> Rows:
    """EM by agent and kind of question: `agent, questions, n, failed, em, low, high`.

    Tasks of several questions are left out: they have a figure of their own (`objectives`).
    """
    groups: dict[tuple[str, str], list[Trajectory]] = {}
    for run in records:
        for each in run.trajectories:
            if each.task.golds and not has_objectives(each.task):
                groups.setdefault((each.agent, kind_of(each, run.name)), []).append(each)
    rows: Rows = []
    for (agent, questions), trajectories in sorted(groups.items()):
        scores = [scored.em for each in trajectories if (scored := score_trajectory(each))]
        if scores:
            mean, low, high = bootstrap_mean(scores, seed=0)
            failed = len(trajectories) - len(scores)
            row = {"agent": agent, "questions": questions, "n": len(scores), "failed": failed}
            rows.append({**row, "em": mean, "low": low, "high": high})
    return rows


def objectives(records: Sequence[Records]) -> Rows:
    """EM and peak tokens of tasks of several questions: `agent, measure, objectives, n, failed, value, low, high`.

    `objectives` is the number of questions in a task and `n` that of tasks. `em` is the mean over a task's
    questions, each answer taken by its position (`objective_scoring`); `peak tokens` the longest context of
    a trajectory, left out where it was not counted.

    Raises:
        ValueError: questions of a task that cannot be read.
    """
    groups: dict[tuple[str, int], list[Trajectory]] = {}
    for each in (each for run in records for each in run.trajectories):
        if each.task.golds and has_objectives(each.task):
            groups.setdefault((each.agent, len(objectives_of(each.task))), []).append(each)
    rows: Rows = []
    for (agent, count), trajectories in sorted(groups.items()):
        scores = [scored.mean("em") for each in trajectories if (scored := score_objectives(each))]
        peaks = [each.peak_tokens for each in trajectories if each.error is None and each.peak_tokens is not None]
        about = {"agent": agent, "objectives": count, "failed": len(trajectories) - len(scores)}
        for measure, values in (("em", scores), ("peak tokens", peaks)):
            if values:
                mean, low, high = bootstrap_mean(values, seed=0)
                row = {"measure": measure, "n": len(values), "value": mean, "low": low, "high": high}
                rows.append({**about, **row})
    return rows


def training(logs: Sequence[Log]) -> Rows:
    """Reward of every step and EM of every evaluation: `run, seed, series, step, value, n`.

    `n` is the number of questions that did not fail, of an evaluation.
    """
    rows: Rows = []
    for log in logs:
        for series, table, column in (("reward", log.steps, "reward"), ("validation EM", log.validation, "eval_em")):
            for row in table:
                if row.get(column):
                    about = {"run": log.name, "seed": log.seed, "series": series, "step": int(float(row["step"]))}
                    n = int(float(row["eval_n"])) if row.get("eval_n") else None
                    rows.append({**about, "value": float(row[column]), "n": n})
    return rows


@dataclass(frozen=True, slots=True)
class Architecture:
    """What the size of a key-value cache follows from; from the models' public configurations."""

    name: str
    layers: int
    kv_heads: int
    head_size: int

    @property
    def bytes_per_token(self) -> int:
        """A key and a value of 16 bits for every layer and key-value head."""
        return 2 * 2 * self.layers * self.kv_heads * self.head_size


ARCHITECTURES = (
    Architecture("SmolLM2-135M", 30, 3, 64),
    Architecture("Qwen2.5-3B", 36, 2, 128),
    Architecture("Qwen2.5-7B", 28, 4, 128),
    Architecture("Qwen2.5-14B", 48, 8, 128),
)


def cache(records: Sequence[Records]) -> Rows:
    """The key-value cache of one trajectory in each turn in MB (10^6 bytes): `model, series, turn, n, mb`.

    Computed: the mean context of the table `context` times the bytes a token takes in each model. Of
    MemSearcher and ReAct where they are among the runs, as in the paper; else of all agents.
    """
    pair = [run for run in records if any(each.agent in ("memsearcher", "react") for each in run.trajectories)]
    return [
        {
            "model": model.name,
            "series": row["series"],
            "turn": row["turn"],
            "n": row["n"],
            "mb": row["tokens"] * model.bytes_per_token / 1e6,
        }
        for row in context(pair or records)
        for model in ARCHITECTURES
    ]


def reported() -> Rows:
    """EM that papers report on the seven benchmarks for 7B models: `method, model, dataset, em, source`."""
    path = data_folder() / "paper_reported.csv"
    return [
        {"method": row["method"], "model": row["model"], "dataset": row["dataset"], "em": float(row["value"]),
         "source": row["source"]}
        for row in read_csv(path)
        if row["metric"] == "em" and row["dataset"] in BENCHMARKS and "-7B" in row["model"]
    ]  # fmt: skip


BENCHMARKS = ("nq", "triviaqa", "popqa", "hotpotqa", "2wikimultihopqa", "musique", "bamboogle")


def _by_agent(records: Sequence[Records]) -> dict[str, list[Trajectory]]:
    found: dict[str, list[Trajectory]] = {}
    for run in records:
        for each in run.whole:
            found.setdefault(each.agent, []).append(each)
    return dict(sorted(found.items()))


def _per_turn(lengths: Sequence[Sequence[int | None]], **about: Any) -> Rows:
    """A row a turn with the mean over the trajectories that reached it; turns not counted are left out."""
    rows: Rows = []
    for turn in range(max(map(len, lengths), default=0)):
        values = [float(each[turn] or 0) for each in lengths if len(each) > turn and each[turn] is not None]
        if values:
            mean, low, high = bootstrap_mean(values, seed=0)
            rows.append({**about, "turn": turn + 1, "n": len(values), "tokens": mean, "low": low, "high": high})
    return rows


def kind_of(trajectory: Trajectory, run: str) -> str:
    """The kind of a built-in question, as `3-hop`; of another, the set its run is named after."""
    about = trajectory.task.metadata
    if "hops" not in about:
        return run
    return f"{about['hops']}-hop" if about.get("shape") == "chain" else str(about.get("shape"))
