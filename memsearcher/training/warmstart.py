"""Warm start: supervised fine-tuning of a LoRA adapter on the expert's trajectories.

Every conversation of every trajectory is a training example of its own, with loss on the
model's own tokens and on no others. The expert plays through the real environment, so
its failed searches are in there; trajectories that do not end with the right answer are
left out and counted. The trainer is transformers' own; only its loss differs: logits are
computed where a token is trained, which on a CPU saves a third of the time.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from rich.console import Console
from rich.progress import track
from torch.nn.functional import cross_entropy
from transformers import Trainer, TrainingArguments, set_seed

from memsearcher import jsonl
from memsearcher.agents.memsearcher import MemSearcher
from memsearcher.engines.chat import ChatFormat
from memsearcher.engines.models import SMOLLM2
from memsearcher.environments.protocol import Environment
from memsearcher.recipe import Recipe
from memsearcher.scoring import exact_match
from memsearcher.tasks import factbook
from memsearcher.training.expert import Expert, demonstrate
from memsearcher.training.resume import last_checkpoint
from memsearcher.trajectory import Task, Trajectory, read_trajectories, write_trajectory

KINDS: dict[str, dict[str, Any]] = {
    "2-hop": {"shape": "chain", "hops": 2},
    "3-hop": {"shape": "chain", "hops": 3},
    "4-hop": {"shape": "chain", "hops": 4},
    "comparison": {"shape": "comparison"},
    "intersection": {"shape": "intersection"},
}
# What the built-in weights are called upstream.
BASE_MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"


def training_questions(recipe: Recipe) -> list[Task]:
    """The training questions of a recipe, drawn by its seed.

    Raises:
        ValueError: an unknown kind, or more questions than there are.
    """
    tasks: list[Task] = []
    for kind, n in recipe.warmstart.questions.items():
        if kind not in KINDS:
            raise ValueError(f"warmstart.questions: {kind!r} is not one of {', '.join(KINDS)}")
        tasks += factbook.load("train", **KINDS[kind], n=n, seed=recipe.seed)
    random.Random(recipe.seed).shuffle(tasks)
    return tasks


def record_demonstrations(recipe: Recipe, environment: Environment, chat: ChatFormat, path: Path) -> list[Trajectory]:
    """Play the training questions with the expert into `path`; what is there already is kept.

    A share of the questions (`warmstart.exact_turns`) is played with just the turns it needs.
    """
    done = {each.task.id: each for each in read_trajectories(path)} if path.exists() else {}
    path.parent.mkdir(parents=True, exist_ok=True)
    draw = random.Random(recipe.seed)
    by_turns: dict[int, list[Task]] = {}
    for task in training_questions(recipe):
        needed = len(task.metadata["steps"]) + 1
        turns = needed if draw.random() < recipe.warmstart.exact_turns else max(needed, recipe.limits.turns)
        by_turns.setdefault(turns, []).append(task)

    def play() -> Iterator[Trajectory]:
        for turns, tasks in sorted(by_turns.items()):
            agent = MemSearcher(replace(recipe.limits, turns=turns), recipe.prompts, recipe.tool)
            missing = [task for task in tasks if task.id not in done]
            yield from demonstrate(agent, environment, Expert(recipe.warmstart.careless, recipe.tool), chat, missing)

    total = sum(map(len, by_turns.values())) - len(done)
    for trajectory in track(play(), "The expert plays", total=total, console=Console(stderr=True)):
        write_trajectory(path, trajectory)
        done[trajectory.task.id] = trajectory
    return list(done.values())


def examples(trajectories: list[Trajectory], seed: int) -> tuple[list[dict[str, list[int]]], dict[str, int]]:
    """Conversations of the trajectories that end right, shuffled, and counts of what there was."""
    right = [each for each in trajectories if each.answer is not None and exact_match(each.answer, each.task.golds)]
    rows = []
    for trajectory in right:
        for conversation in trajectory.conversations:
            ids, mask = conversation.token_ids, conversation.loss_mask
            assert ids is not None and mask is not None
            labels = [token if trained else -100 for token, trained in zip(ids, mask, strict=True)]
            rows.append({"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels})
    random.Random(seed).shuffle(rows)
    counts = {
        "trajectories": len(trajectories),
        "right": len(right),
        "failed": sum(each.error is not None for each in trajectories),
        "conversations": len(rows),
        "tokens": sum(len(row["input_ids"]) for row in rows),
        "trained_tokens": sum(label != -100 for row in rows for label in row["labels"]),
    }
    return rows, counts


class SparseLossTrainer(Trainer):
    """Trainer with the mean negative log-likelihood of the trained tokens, logits elsewhere not computed."""

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        labels = inputs.pop("labels")[:, 1:]
        positions = (labels != -100).any(0).nonzero().squeeze(1)
        outputs = model(**inputs, logits_to_keep=positions, use_cache=False)
        targets = labels[:, positions].flatten()
        total = cross_entropy(outputs.logits.flatten(0, 1).float(), targets, ignore_index=-100, reduction="sum")
        loss = total / (num_items_in_batch if num_items_in_batch is not None else (targets != -100).sum())
        return (loss, outputs) if return_outputs else loss


def pad(rows: list[dict[str, list[int]]]) -> dict[str, torch.Tensor]:
    """Rows as tensors (rows, longest), padded on the right with masked zeros."""
    longest = max(len(row["input_ids"]) for row in rows)
    fill = {"input_ids": 0, "attention_mask": 0, "labels": -100}
    return {
        name: torch.tensor([row[name] + [value] * (longest - len(row[name])) for row in rows])
        for name, value in fill.items()
    }


def train(model: Any, rows: list[dict[str, list[int]]], recipe: Recipe, out: Path) -> list[dict[str, Any]]:
    """Fine-tune a LoRA adapter on `model` and save it to `out/adapter`; returns the log, a row for five steps.

    On a CPU one conversation a forward pass wastes nothing on padding. A killed run goes on
    from its last checkpoint.

    Raises:
        ValueError: no rows.
    """
    if not rows:
        raise ValueError("there is nothing to train on: no demonstration ended with the right answer")
    settings = recipe.warmstart
    set_seed(recipe.seed)  # the adapter's first weights are drawn before the trainer sets it
    if settings.start:
        adapted = PeftModel.from_pretrained(model, settings.start, is_trainable=True)
        # Under its upstream name, peft would ask the hub for the base's vocabulary at every checkpoint.
        adapted.peft_config["default"].base_model_name_or_path = model.name_or_path
    else:
        lora = LoraConfig(
            r=settings.rank, lora_alpha=settings.alpha, target_modules="all-linear", task_type="CAUSAL_LM"
        )
        adapted = get_peft_model(model, lora)
    arguments = TrainingArguments(
        output_dir=str(out / "checkpoints"),
        per_device_train_batch_size=1,
        gradient_accumulation_steps=settings.batch,
        max_steps=settings.steps,
        learning_rate=settings.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=settings.warmup,
        logging_steps=5,
        save_steps=settings.save_every,
        save_total_limit=2,
        max_grad_norm=1.0,
        seed=recipe.seed,
        data_seed=recipe.seed,
        report_to="none",
        use_cpu=not torch.cuda.is_available(),
        bf16=torch.cuda.is_available(),
        remove_unused_columns=False,
        dataloader_pin_memory=torch.cuda.is_available(),
    )
    trainer = SparseLossTrainer(model=adapted, args=arguments, train_dataset=rows, data_collator=pad)
    checkpoint = last_checkpoint(out / "checkpoints")
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    save_adapter(adapted, out / "adapter", BASE_MODEL if recipe.model.name in SMOLLM2 else recipe.model.name)
    return [row for row in trainer.state.log_history if "loss" in row]


def save_adapter(adapted: Any, folder: Path, base: str) -> None:
    """Save a LoRA adapter as safetensors in bfloat16, bound to the name of its base model."""
    adapted.peft_config["default"].base_model_name_or_path = base
    # Left to itself, peft asks the hub for the base's vocabulary; embeddings are not trained here.
    adapted.to(torch.bfloat16).save_pretrained(folder, save_embedding_layers=False)


def warm_start(recipe: Recipe, environment: Environment, model: Any, tokenizer: Any, out: Path) -> Path:
    """The whole warm start into `out`; returns the folder of the adapter.

    `out` then holds the recipe, the expert's trajectories, the training log and the adapter
    with `agent.json`, which binds it to prompts and limits.

    Raises:
        ValueError: `out` holds a warm start of another recipe, or no demonstration ended right.
    """
    card, mine = out / "recipe.yaml", recipe.to_yaml().encode()
    if card.exists() and card.read_bytes() != mine:
        raise ValueError(f"{out} holds a warm start of another recipe; name another --out, or remove it")
    jsonl.replace(card, mine)
    chat = ChatFormat.from_tokenizer(tokenizer)
    trajectories = record_demonstrations(recipe, environment, chat, out / "demonstrations.jsonl")
    rows, counts = examples(trajectories, recipe.seed)
    started = time.time()
    log = train(model, rows, recipe, out)
    agent = MemSearcher(recipe.limits, recipe.prompts, recipe.tool)
    bound = {
        "recipe": recipe.to_json(),
        "agent": agent.fingerprint,
        "environment": environment.fingerprint,
        "counts": counts,
        "minutes": round((time.time() - started) / 60, 1),
    }
    jsonl.replace(out / "adapter" / "agent.json", json.dumps(bound, indent=2).encode())
    columns = ["step", "epoch", "loss", "learning_rate", "grad_norm"]
    jsonl.write_csv(out / "adapter" / "training_log.csv", log, columns)
    return out / "adapter"
