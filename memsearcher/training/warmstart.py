"""Warm start: supervised fine-tuning of a LoRA adapter on the expert's trajectories.

Every conversation of every trajectory is a training example of its own, with loss on the
model's own tokens and on no others. The expert plays through the real environment, so
its failed searches are in there; trajectories that do not end with the right answer (in the
web shop: with the whole reward) are left out and counted. The trainer is transformers' own;
only its loss differs: logits are computed where a token is trained, and beginnings that
conversations share are run once.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from transformers import Trainer, TrainingArguments, set_seed

from memsearcher import jsonl
from memsearcher.assemble import make_agent
from memsearcher.engines.chat import ChatFormat
from memsearcher.environments.protocol import Environment
from memsearcher.environments.webshop.environment import WebShopEnvironment
from memsearcher.recipe import Recipe
from memsearcher.scoring import exact_match, has_goal, score_outcome
from memsearcher.training.adapter import CARD, adapted, in_bfloat16, save_adapter, write_card
from memsearcher.training.attention import attend_by_paths
from memsearcher.training.expert import Demonstrator, Expert, demonstrate
from memsearcher.training.packing import Packed
from memsearcher.training.questions import draw_questions
from memsearcher.training.resume import NoStepTooMany, last_checkpoint
from memsearcher.training.shop_expert import ShopExpert
from memsearcher.trajectory import Task, Trajectory, read_trajectories, write_trajectory

MOST_TOGETHER, MOST_TOKENS = 4, 5000
"""Conversations of a forward pass at most, and their tokens were all as long as the longest: more would share more,
and take more memory (6 GB for 5,000 tokens of SmolLM2-135M in float32)."""


def training_questions(recipe: Recipe) -> list[Task]:
    """The training questions of a recipe, drawn by its seed.

    Raises:
        ValueError: an unknown kind, or more questions than there are.
    """
    return draw_questions(recipe.warmstart.questions, "train", recipe, "warmstart.questions")


def make_expert(recipe: Recipe, environment: Environment) -> Demonstrator:
    """Who shows how an environment is played in."""
    if isinstance(environment, WebShopEnvironment):
        return ShopExpert(environment.shop, recipe.tool)
    settings = recipe.warmstart
    return Expert(settings.careless, recipe.tool, settings.frugal, settings.wordy)


def record_demonstrations(recipe: Recipe, environment: Environment, chat: ChatFormat, path: Path) -> list[Trajectory]:
    """Play the training questions with the expert into `path`; what is there already is kept.

    A share of the questions (`warmstart.exact_turns`) is played with just the turns it needs.
    """
    done = {each.task.id: each for each in read_trajectories(path)} if path.exists() else {}
    path.parent.mkdir(parents=True, exist_ok=True)
    draw, expert = random.Random(recipe.seed), make_expert(recipe, environment)
    by_turns: dict[int, list[Task]] = {}
    for task in training_questions(recipe):
        needed = expert.turns(task)
        turns = needed if draw.random() < recipe.warmstart.exact_turns else max(needed, recipe.limits.turns)
        by_turns.setdefault(turns, []).append(task)

    def play() -> Iterator[Trajectory]:
        for turns, tasks in sorted(by_turns.items()):
            agent = make_agent(replace(recipe, limits=replace(recipe.limits, turns=turns)))
            missing = [task for task in tasks if task.id not in done]
            yield from demonstrate(agent, environment, expert, chat, missing)

    total = sum(map(len, by_turns.values())) - len(done)
    for trajectory in track(play(), "The expert plays", total=total, console=Console(stderr=True)):
        write_trajectory(path, trajectory)
        done[trajectory.task.id] = trajectory
    return list(done.values())


def ends_right(trajectory: Trajectory) -> bool:
    """Whether a trajectory ends with the right answer, or with the whole reward where it has a goal.

    The fact that the answer stands in, which a wordy expert gives, is right as well.
    """
    task, answer = trajectory.task, trajectory.answer
    if has_goal(task):
        return score_outcome(trajectory) == 1
    if answer is None:
        return False
    steps = task.metadata.get("steps", ())
    return bool(exact_match(answer, [*task.golds, *(each["fact"] for each in steps[-1:])]))


def examples(trajectories: list[Trajectory], seed: int) -> tuple[list[dict[str, list[int]]], dict[str, int]]:
    """Conversations of the trajectories that end right, shuffled, and counts of what there was."""
    right = [each for each in trajectories if ends_right(each)]
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


class SparseLossTrainer(NoStepTooMany, Trainer):
    """Trainer with the mean negative log-likelihood of the trained tokens.

    Logits are computed for no others, and what the rows of a batch begin with in common once.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._pack = Packed.tree if attend_by_paths(self.model) else Packed.rows

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        trained = inputs["labels"] != -100
        packed = self._pack(inputs["input_ids"], inputs["attention_mask"], trained)
        with packed.scored(self.accelerator.unwrap_model(model)):
            outputs = model(**packed.inputs, use_cache=False)
        total = packed.losses(outputs.logits, trained).sum()
        loss = total / (num_items_in_batch if num_items_in_batch is not None else trained.sum())
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

    A killed run goes on from its last checkpoint.

    Raises:
        ValueError: no rows.
    """
    if not rows:
        raise ValueError("there is nothing to train on: no demonstration ended with the right answer")
    settings = recipe.warmstart
    set_seed(recipe.seed)  # the adapter's first weights are drawn before the trainer sets it
    start = Path(settings.start) if settings.start else None
    model = adapted(model, start, settings.rank, settings.alpha)
    fits = max(1, min(MOST_TOGETHER, MOST_TOKENS // max(len(row["input_ids"]) for row in rows)))
    together = max(count for count in range(1, fits + 1) if settings.batch % count == 0)
    arguments = TrainingArguments(
        output_dir=str(out / "checkpoints"),
        per_device_train_batch_size=together,
        gradient_accumulation_steps=settings.batch // together,
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
        bf16=in_bfloat16(recipe),
        remove_unused_columns=False,
        dataloader_pin_memory=torch.cuda.is_available(),
    )
    trainer = SparseLossTrainer(model=model, args=arguments, train_dataset=rows, data_collator=pad)
    checkpoint = last_checkpoint(out / "checkpoints")
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    save_adapter(model, out / "adapter", recipe.model.name, dtype=torch.bfloat16)
    return [row for row in trainer.state.log_history if "loss" in row]


def warm_start(recipe: Recipe, environment: Environment, model: Any, tokenizer: Any, out: Path) -> Path:
    """The whole warm start into `out`, or what is missing of it; returns the folder of the adapter.

    `out` then holds the recipe, the expert's trajectories, the training log and the adapter
    with `agent.json`, which binds it to prompts and limits.

    Raises:
        ValueError: `out` holds a warm start of another recipe, or no demonstration ended right.
    """
    card, mine = out / "recipe.yaml", recipe.to_yaml().encode()
    if card.exists() and card.read_bytes() != mine:
        raise ValueError(f"{out} holds a warm start of another recipe; name another --out, or remove it")
    adapter = out / "adapter"
    if (adapter / CARD).exists():
        return adapter
    jsonl.replace(card, mine)
    chat = ChatFormat.from_tokenizer(tokenizer)
    trajectories = record_demonstrations(recipe, environment, chat, out / "demonstrations.jsonl")
    rows, counts = examples(trajectories, recipe.seed)
    started = time.time()
    log = train(model, rows, recipe, out)
    agent = make_agent(recipe)
    minutes = round((time.time() - started) / 60, 1)
    columns = ["step", "epoch", "loss", "learning_rate", "grad_norm"]
    jsonl.write_csv(adapter / "training_log.csv", log, columns)
    # The card comes last: where it is, the warm start is done.
    write_card(adapter, recipe.to_json(), agent.fingerprint, environment.fingerprint, counts=counts, minutes=minutes)
    return adapter
