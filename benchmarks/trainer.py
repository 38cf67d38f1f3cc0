"""Time and memory of one update: ours beside stock TRL, with and without padding.

    python benchmarks/trainer.py [--run RUN] [--rows 48] [--tokens 4096] [--out trainer.json]

Every variant computes loss and gradient of the same rows in a process of its own:

- uniform rows that have nothing in common: TRL's `GRPOTrainer` and ours, with equally many rows a
  forward pass;
- ragged rows, the conversations of recorded trajectories: padded to the longest and run by TRL,
  run by ours, by ours with conversations apart (`share_beginnings=False`), and one at a time with
  no padding at all. A forward pass is given at most `tokens`.
  RUN is a folder of `memsearcher rollout` or `train`, whose groups share most; without one the rows
  are those of data/samples, which share their prompts alone.

The model is a random Llama; what a row costs depends on its length and on what it shares.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from rich.console import Console
from rich.table import Table
from transformers import LlamaConfig, LlamaForCausalLM
from trl import GRPOConfig, GRPOTrainer

from memsearcher.agents.memsearcher import MemSearcher
from memsearcher.data import data_folder
from memsearcher.engines.models import load_tokenizer
from memsearcher.training.batching import Row, padded, plan_chunks, rows_of, take
from memsearcher.training.config import MultiContextGRPOConfig
from memsearcher.training.grpo import MultiContextGRPOTrainer
from memsearcher.training.resume import read_steps
from memsearcher.trajectory import Task, Trajectory, read_trajectories

VARIANTS = (
    "uniform, TRL",
    "uniform, ours",
    "ragged, padded to the longest",
    "ragged, ours",
    "ragged, no padding",
    "ragged, ours, conversations apart",
)
PROMPT, COMPLETION = 400, 112
REPEATS = 5


@dataclass(frozen=True)
class NoSearch:
    """An environment that is never asked."""

    fingerprint: dict[str, str]

    def act(self, requests: Any) -> Any:
        raise AssertionError("a benchmark of updates plays nothing")


def uniform_rows(count: int) -> list[Row]:
    rows = [[number, *range(10, 9 + PROMPT + COMPLETION)] for number in range(count)]
    return [Row(0, ids[:PROMPT], ids[PROMPT:], [1] * COMPLETION, None) for ids in rows]


def recorded_rows(run: Path | None, count: int) -> list[Row]:
    """The first conversations of a run, at most so many."""
    return list(islice((row for each in recorded(run) for row in rows_of(each, 0)), count))


def recorded(run: Path | None) -> Iterator[Trajectory]:
    if run is None:
        return chain.from_iterable(map(read_trajectories, sorted((data_folder() / "samples").glob("*.jsonl"))))
    if (run / "trajectories.jsonl").is_file():
        return read_trajectories(run / "trajectories.jsonl")
    return (trajectory for _, trajectory in read_steps(run))


def batch_of(rows: list[Row], vocabulary: int, device: torch.device) -> dict[str, torch.Tensor]:
    """Rows as TRL lays them out: prompts padded on the left, completions on the right."""
    ids = [[token % vocabulary for token in row.prompt_ids] for row in rows]
    flipped = (
        padded([each[::-1] for each in ids], torch.long, device),
        padded([[1] * len(each) for each in ids], torch.long, device),
    )
    mask = padded([row.mask for row in rows], torch.long, device)
    draw = torch.Generator().manual_seed(0)
    return {
        "prompt_ids": flipped[0].flip(1),
        "prompt_mask": flipped[1].flip(1),
        "completion_ids": padded(
            [[token % vocabulary for token in row.completion_ids] for row in rows], torch.long, device
        ),
        "completion_mask": padded([[1] * len(row.mask) for row in rows], torch.long, device),
        "tool_mask": mask.float(),
        "trained": mask.bool(),
        "advantages": torch.randn(len(rows), generator=draw).to(device),
        "num_items_in_batch": mask.sum().float(),
    }


def make_trainer(kind: type, folder: str, tokens: int, share: bool) -> Any:
    config = LlamaConfig(
        vocab_size=4096,
        hidden_size=256,
        intermediate_size=768,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    torch.manual_seed(0)
    model, tokenizer = LlamaForCausalLM(config), load_tokenizer("smollm2")
    cuda = torch.cuda.is_available()
    common: dict[str, Any] = {
        "output_dir": folder,
        "per_device_train_batch_size": 2,
        "num_generations": 2,
        "report_to": "none",
        "use_cpu": not cuda,
        "bf16": cuda,
        "gradient_checkpointing": False,
        "dataloader_pin_memory": cuda,
    }
    if kind is GRPOTrainer:
        data = Dataset.from_list([{"prompt": "q"}])
        args = GRPOConfig(**common)
        trainer = GRPOTrainer(model, len, args, train_dataset=data, processing_class=tokenizer)
    else:
        trainer = MultiContextGRPOTrainer(
            model,
            agent=MemSearcher(),
            environment=NoSearch({}),
            args=MultiContextGRPOConfig(tokens_per_chunk=tokens, share_beginnings=share, **common),
            train_dataset=[Task("q", "q", ("a",))],
            processing_class=tokenizer,
        )
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.to(trainer.accelerator.device).train()
    return trainer


def update_by_trl(trainer: Any, batch: dict[str, torch.Tensor], chunks: list[list[int]], trim: bool) -> None:
    """TRL's loss in micro-batches of rows, each backpropagated; `trim` takes the padding off first."""
    stock = {name: value for name, value in batch.items() if name != "trained"}
    for chunk in chunks:
        part = take(stock, chunk) if trim else {n: v[chunk] if v.ndim else v for n, v in stock.items()}
        trainer.accelerator.backward(trainer.compute_loss(trainer.model, part))


def update_by_us(trainer: Any, batch: dict[str, torch.Tensor]) -> None:
    trainer.accelerator.backward(trainer.compute_loss(trainer.model, batch))


def measure(variant: str, run: Path | None, count: int, tokens: int) -> dict[str, float]:
    """Median seconds of an update, its trained tokens, and the process's or GPU's peak memory in MB."""
    rows = uniform_rows(count) if variant.startswith("uniform") else recorded_rows(run, count)
    ours, share = "ours" in variant, not variant.endswith("apart")
    lengths = [len(row.prompt_ids) + len(row.completion_ids) for row in rows]
    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer(MultiContextGRPOTrainer if ours else GRPOTrainer, folder, tokens, share)
        batch = batch_of(rows, 4096, trainer.accelerator.device)
        widest = batch["prompt_ids"].shape[1] + batch["completion_ids"].shape[1]
        alone = variant.endswith("no padding")
        chunks = [[row] for row in range(len(rows))] if alone else plan_chunks([[0] * widest] * len(rows), tokens)
        update: Callable[[], None] = (
            (lambda: update_by_us(trainer, batch)) if ours else (lambda: update_by_trl(trainer, batch, chunks, alone))
        )
        seconds = [timed(update, trainer) for _ in range(REPEATS)]
    peak = torch.cuda.max_memory_allocated() / 1e6 if torch.cuda.is_available() else 0
    return {
        "seconds": statistics.median(seconds),
        "rows": len(rows),
        "tokens": sum(lengths),
        "trained": sum(row.trained for row in rows),
        "shortest": min(lengths),
        "longest": max(lengths),
        "peak_mb": peak or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def timed(update: Callable[[], None], trainer: Any) -> float:
    """Seconds of an update: by the clock on a GPU, of this process's CPU time elsewhere, where others may be busy."""
    trainer.model.zero_grad()
    cuda = torch.cuda.is_available()
    clock = time.perf_counter if cuda else time.process_time
    started = clock()
    update()
    if cuda:
        torch.cuda.synchronize()
    return clock() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--rows", type=int, default=48)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", choices=VARIANTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        print(json.dumps(measure(options.only, options.run, options.rows, options.tokens)))
        return
    found = {}
    for variant in VARIANTS:
        done = subprocess.run(
            [sys.executable, *sys.argv, "--only", variant], capture_output=True, text=True, check=False
        )
        if done.returncode:
            sys.exit(done.stderr)
        found[variant] = json.loads(done.stdout.splitlines()[-1])
    table = Table("variant", "n rows", "tokens each", "seconds", "ms a trained token", "peak MB")
    for variant, one in found.items():
        each = 1000 * one["seconds"] / one["trained"]
        lengths = f"{one['shortest']}-{one['longest']}"
        table.add_row(
            variant, str(one["rows"]), lengths, f"{one['seconds']:.2f}", f"{each:.3f}", f"{one['peak_mb']:.0f}"
        )
    seconds = [found[variant]["seconds"] for variant in VARIANTS]
    ratios = {
        "ours / TRL, uniform (at most 1.05)": seconds[1] / seconds[0],
        "padded / ours, ragged (at least 1.5)": seconds[2] / seconds[3],
        "no padding / ours, ragged (at least 0.85)": seconds[4] / seconds[3],
        "apart / ours, ragged": seconds[5] / seconds[3],
    }
    console = Console()
    console.print(table)
    for name, ratio in ratios.items():
        console.print(f"{name}: {ratio:.2f}")
    if options.out:
        options.out.write_text(json.dumps({"variants": found, "ratios": ratios}, indent=2))


if __name__ == "__main__":
    main()
