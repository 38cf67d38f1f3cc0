"""How far the groups of a run agree on what to change: the noise of multi-context GRPO's gradient.

    python -m scripts.noise --run RUN --steps 3 --out figures/pocket/noise.csv

For every group (a question's attempts) of a run's first steps whose rewards differ, it computes the gradient g of
the group's own loss at the weights that the run started from, and writes a row for all groups, and one for those
of each kind of question, under the rows that the table already has of other runs:

- `cosine`: the mean over pairs of groups, with its standard error by the jackknife;
- `needed`: groups at whose mean the signal is as large as the noise, tr(S)/|G|^2, where G is the mean gradient and
  S the covariance (the "simple noise scale" of McCandlish et al., arXiv 1812.06162); empty where the estimate of
  |G|^2 is not above zero, so that the groups that there are do not show any common direction.

Trajectories of later steps were sampled from weights that had moved a little; their gradient is taken at the start
all the same, as off-policy samples without a correction.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor

from memsearcher import jsonl
from memsearcher.assemble import adapter_path
from memsearcher.engines.models import load_model
from memsearcher.evaluation.report import markdown_table
from memsearcher.figures.runs import read_csv
from memsearcher.figures.tables import kind_of
from memsearcher.recipe import load_recipe
from memsearcher.training.adapter import adapted, in_bfloat16
from memsearcher.training.attention import attend_by_paths
from memsearcher.training.batching import padded, plan_trees, rows_of
from memsearcher.training.packing import Packed
from memsearcher.training.resume import read_steps
from memsearcher.trajectory import Trajectory

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Group:
    """A question's attempts and their advantages."""

    kind: str
    attempts: Sequence[Trajectory]

    @property
    def advantages(self) -> list[float]:
        """Those of training, from the record; 0 of an attempt that failed."""
        return [each.advantage or 0.0 for each in self.attempts]

    @property
    def differs(self) -> bool:
        """Whether there is anything to learn from it."""
        return any(self.advantages)


def groups(run: Path, steps: int) -> Iterator[Group]:
    """The groups of a run's first steps whose rewards differ."""
    found: dict[tuple[int, str], list[Trajectory]] = defaultdict(list)
    for step, trajectory in read_steps(run):
        if step <= steps:
            found[step, trajectory.task.id].append(trajectory)
    for attempts in found.values():
        group = Group(kind_of(attempts[0], run.name), attempts)
        if group.differs:
            yield group


def gradient(model: Any, group: Group, temperature: float, tokens: int, bfloat16: bool = False) -> Tensor:
    """The gradient of a group's loss, a mean over its sampled tokens, by all weights that are trained `[weights]`.

    The model attends by paths (`attend_by_paths`).

    Args:
        tokens: of one forward and backward pass.
    """
    weights = [each for each in model.parameters() if each.requires_grad]
    for each in weights:
        each.grad = None
    rows = [row for owner, attempt in enumerate(group.attempts) for row in rows_of(attempt, owner)]
    gains = torch.tensor(group.advantages)[[row.owner for row in rows], None]
    texts = [[*row.prompt_ids, *row.completion_ids] for row in rows]
    ids = padded(texts, torch.long, model.device)
    there = padded([[1] * len(text) for text in texts], torch.long, model.device)
    sampled = padded([[False] * len(row.prompt_ids) + list(row.mask) for row in rows], torch.bool, model.device)
    for chunk in plan_trees(texts, tokens):
        packed = Packed.tree(ids[chunk], there[chunk], sampled[chunk])
        with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16), packed.scored(model):
            logits = model(**packed.inputs, use_cache=False).logits.float() / temperature
        loss = (packed.losses(logits, sampled[chunk]) * gains[chunk]).sum() / sampled.sum()
        loss.backward()  # type: ignore[no-untyped-call]
    return torch.cat([(torch.zeros_like(each) if each.grad is None else each.grad).flatten() for each in weights])


def agreement(gradients: Tensor) -> Row:
    """What the gradients of groups `[groups, weights]` have in common: `cosine, error, needed`."""
    count = len(gradients)
    if count < 3:
        return {"groups": count, "cosine": None, "error": None, "needed": None}
    products = (gradients @ gradients.T).double()
    lengths = products.diagonal()
    cosines = products / torch.outer(lengths, lengths).sqrt()
    without = [_off_diagonal(cosines[keep][:, keep]) for keep in _all_but_one(count)]
    error = ((count - 1) / count * sum((each - mean(without)) ** 2 for each in without)) ** 0.5
    signal = _off_diagonal(products)
    noise = float(lengths.mean()) - signal
    needed = noise / signal if signal > 0 else None
    return {"groups": count, "cosine": _off_diagonal(cosines), "error": error, "needed": needed}


def _off_diagonal(table: Tensor) -> float:
    """The mean of what is not on the diagonal."""
    count = len(table)
    return float((table.sum() - table.diagonal().sum()) / (count * (count - 1)))


def _all_but_one(count: int) -> Iterator[list[int]]:
    return ([each for each in range(count) if each != left] for left in range(count))


def measure(run: Path, steps: int) -> list[Row]:
    """The rows of a run.

    Raises:
        ValueError: no group of these steps has rewards that differ.
    """
    recipe = load_recipe(str(run / "recipe.yaml"))
    settings, narrow = recipe.training, in_bfloat16(recipe)
    found = list(groups(run, steps))
    if not found:
        raise ValueError(f"{run}: no group of its first {steps} steps has rewards that differ")
    model, _ = load_model(recipe.model.name, device="cpu", dtype="bfloat16" if narrow else "float32")
    model = adapted(model, adapter_path(recipe), settings.rank, settings.alpha)
    attend_by_paths(model)
    model.train()
    watched = track(found, run.name, console=Console(stderr=True))
    each = [gradient(model, group, settings.temperature, settings.tokens_per_chunk, narrow) for group in watched]
    table = torch.stack(each)
    kinds = [group.kind for group in found]
    rows = []
    for kind in ("all", *sorted(set(kinds))):
        chosen = [place for place, its in enumerate(kinds) if kind in ("all", its)]
        rows.append(
            {"run": run.name, "agent": recipe.agent, "steps": steps, "questions": kind, **agreement(table[chosen])}
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True, help="a folder that `memsearcher train` left")
    parser.add_argument("--steps", type=int, default=3, help="the first steps of it that are read")
    parser.add_argument("--out", type=Path, default=Path("figures/pocket/noise.csv"))
    arguments = parser.parse_args()
    rows = measure(arguments.run, arguments.steps)
    others = read_csv(arguments.out) if arguments.out.exists() else []
    kept = [row for row in others if row["run"] != arguments.run.name]
    jsonl.write_csv(arguments.out, [*kept, *rows])
    shown = [
        {name: f"{value:.3f}" if isinstance(value, float) else str(value) for name, value in row.items()}
        for row in rows
    ]
    print(markdown_table(shown))


if __name__ == "__main__":
    main()
