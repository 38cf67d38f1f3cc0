"""What a run would take, told before it starts and without loading weights.

The counts are upper bounds. The memory is an estimate for one process that holds all
weights; ZeRO and FSDP divide weights, gradients and moments, and vLLM has its own. Libraries,
the allocator and temporary tensors come on top.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from memsearcher.agents.protocol import Agent, Generate
from memsearcher.assemble import adapter_path
from memsearcher.engines.chat import ChatFormat
from memsearcher.engines.models import SMOLLM2, ModelError, load_tokenizer, smollm2
from memsearcher.recipe import Recipe
from memsearcher.rollout import Episode
from memsearcher.training.config import MultiContextGRPOConfig
from memsearcher.training.resume import last_checkpoint
from memsearcher.training.run import make_config, questions_of, weights_folder
from memsearcher.trajectory import Task

GIB = 1 << 30
TRAINED_BYTES = 12
"""Of a trained weight beside itself: its gradient and Adam's two moments, in float32."""
KEPT_HIDDEN, KEPT_INNER = 9, 4
"""What a block of Llama or Qwen keeps of a token for the backward pass, in hidden and inner widths (measured: 8.7 and
4.0 where all weights are trained, 6.7 and 4.0 under an adapter)."""


def plan(recipe: Recipe, agent: Agent, out: Path, max_steps: int | None = None) -> list[tuple[str, str]]:
    """Names and values, in the order in which they are to be read.

    Raises:
        ValueError: settings or questions that cannot be trained with.
    """
    args = make_config(recipe, out)
    tasks, dev = questions_of(recipe)
    settings, limits = recipe.training, recipe.limits
    steps = settings.steps if max_steps is None else min(max_steps, settings.steps)
    trajectories = settings.batch * settings.num_generations
    sampled = trajectories * limits.turns * (limits.call_tokens + limits.memory_tokens)
    checkpoint = last_checkpoint(out)
    evaluations = 1 + steps // settings.evaluate_every if 0 < settings.evaluate_every <= steps else 0
    try:
        memory = _memory(recipe, args, _first_context(recipe, agent, tasks[0]) if tasks else 0)
    except (OSError, ModelError) as error:
        memory = [("memory", f"not known: {next(iter(str(error).splitlines()), type(error).__name__)}")]
    return [
        ("questions", f"{len(tasks)} to train on, {len(dev)} to evaluate on"),
        ("steps", f"{steps}" + (f", on from {checkpoint.name}" if checkpoint else "")),
        ("trajectories a step", f"{trajectories} ({settings.batch} questions, {settings.num_generations} attempts)"),
        ("conversations a step", f"at most {trajectories * limits.turns:,}"),
        ("sampled tokens a step", f"at most {sampled:,}"),
        ("evaluations", f"{evaluations}, greedy"),
        *memory,
        ("run folder", str(out)),
        ("checkpoints", f"checkpoint-N, every {settings.save_every} steps; the last two are kept"),
        ("records", "recipe.yaml, run.json, log.csv, validation.csv, trajectories/ of every step"),
        ("weights", str(weights_folder(recipe, out))),
    ]


def _first_context(recipe: Recipe, agent: Agent, task: Task) -> int:
    """Tokens of the first context of an agent."""
    wish = Episode(agent, task).pending
    if not isinstance(wish, Generate):
        return 0
    ChatFormat.from_tokenizer(load_tokenizer(recipe.model.name)).encode(wish.talk)
    return len(wish.talk.token_ids or ())


def _memory(recipe: Recipe, args: MultiContextGRPOConfig, first: int) -> list[tuple[str, str]]:
    """Estimates in GiB, for one process."""
    settings, limits = recipe.training, recipe.limits
    whole = weights_folder(recipe, Path()).name == "model"
    name = recipe.model.name
    config = AutoConfig.from_pretrained(smollm2() if name in SMOLLM2 else name)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    total = sum(each.numel() for each in model.parameters())
    trained = total if whole else _adapter_size(recipe, model)
    text = config.get_text_config()
    layers, hidden, inner = text.num_hidden_layers, text.hidden_size, text.intermediate_size
    width = 2 if args.bf16 else 4
    block = (KEPT_HIDDEN * hidden + KEPT_INNER * inner) * width
    kept = layers * hidden * width + block if settings.gradient_checkpointing else layers * block
    held = {
        "weights": total * 4 if whole else total * width + trained * 4,
        "gradients and moments": trained * TRAINED_BYTES,
        "reference weights": trained * 4 if settings.beta else 0,
    }
    passing = {f"a chunk of {args.tokens_per_chunk:,} tokens": args.tokens_per_chunk * kept}
    if not args.use_vllm:
        longest = first + limits.call_tokens + limits.passages * limits.passage_tokens + limits.memory_tokens
        head = getattr(text, "head_dim", None) or hidden // text.num_attention_heads
        rows = args.per_device_train_batch_size
        cache = rows * longest * 2 * layers * text.num_key_value_heads * head * width
        passing[f"cache of {rows} contexts"] = cache
    # Sampling is over before the first chunk is run.
    peak = sum(held.values()) + max(passing.values())
    return [
        ("parameters", f"{total / 1e6:,.1f} million, of which {trained / 1e6:,.1f} million are trained"),
        *((name, f"{size / GIB:.2f} GiB") for name, size in {**held, **passing}.items() if size),
        ("memory", f"about {peak / GIB:.1f} GiB a process, undivided (an estimate)"),
    ]


def _adapter_size(recipe: Recipe, model: Any) -> int:
    """Weights of a LoRA adapter on all linear layers but the head."""
    folder = adapter_path(recipe)
    rank = json.loads((folder / "adapter_config.json").read_bytes())["r"] if folder else recipe.training.rank
    linear = (each for each in model.modules() if isinstance(each, nn.Linear) and each is not model.lm_head)
    return sum(rank * (each.in_features + each.out_features) for each in linear)
