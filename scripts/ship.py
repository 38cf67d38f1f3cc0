"""Put the adapter that a chain of runs ends with where recipes find it, in bfloat16, with the records of the chain.

    python -m scripts.ship runs/pocket/warm-memsearcher runs/pocket/train-memsearcher-0 --out data/pocket

The runs, of `memsearcher warmstart` and `memsearcher train`, come in their order, each on from the one before.
Beside the weights it writes `agent.json`, which binds them to prompts, limits and retriever and holds the cards of
all stages, and `training_log.csv`, a row a logged step. The card of a person's words, `README.md`, is left alone.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from memsearcher import jsonl
from memsearcher.engines.models import file_sha256
from memsearcher.figures.runs import LOG, read_csv
from memsearcher.training.adapter import CARD

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
LOGGED = ("step", "loss", "learning_rate", "grad_norm", "reward", "trajectories/em", "trajectories/turns")
BOUND = ("agent", "environment")


def ship(runs: Sequence[Path], out: Path) -> None:
    """Write the adapter of the last run and the records of all into `out`.

    Raises:
        OSError: a run that has no adapter yet.
        ValueError: a run of reinforcement that did not begin with the adapter before it.
    """
    stages: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    for number, run in enumerate(runs, 1):
        stage = json.loads((run / "adapter" / CARD).read_text(encoding="utf-8"))
        if (run / "run.json").is_file():
            began = json.loads((run / "run.json").read_text(encoding="utf-8"))["about"]["training"]["start"]
            before = file_sha256(runs[number - 2] / "adapter" / WEIGHTS) if number > 1 else None
            if began != before:
                raise ValueError(f"{run} did not begin with the adapter of the run named before it")
            log = run / LOG
        else:
            log = run / "adapter" / "training_log.csv"
        rows += [{"stage": number, **{name: row.get(name, "") for name in LOGGED}} for row in read_csv(log)]
        stages.append(_without_paths(stage, number))
    out.mkdir(parents=True, exist_ok=True)
    last = runs[-1] / "adapter"
    weights = {name: each.to(torch.bfloat16) for name, each in load_file(last / WEIGHTS).items()}
    save_file(weights, out / WEIGHTS, metadata={"format": "pt"})
    shutil.copyfile(last / CONFIG, out / CONFIG)
    jsonl.write_csv(out / "training_log.csv", rows, ["stage", *LOGGED])
    card = {**{name: stages[-1][name] for name in BOUND}, "stages": stages}
    jsonl.replace(out / CARD, json.dumps(card, indent=2).encode())


def _without_paths(stage: dict[str, Any], number: int) -> dict[str, Any]:
    """A card with the name of the stage before it where its recipe has the place of that on one machine."""
    recipe, before = dict(stage["recipe"]), f"stage {number - 1}" if number > 1 else None
    for section, name in (("model", "adapter"), ("warmstart", "start")):
        if recipe[section][name] is not None:
            recipe[section] = {**recipe[section], name: before}
    return {**stage, "recipe": recipe}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="the stages in their order")
    parser.add_argument("--out", type=Path, required=True, help="the folder in data/")
    arguments = parser.parse_args()
    try:
        ship(arguments.runs, arguments.out)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    print(arguments.out)


if __name__ == "__main__":
    main()
