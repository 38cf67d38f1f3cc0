"""LoRA adapters: the one that training starts from, and the one that it leaves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from peft.tuners.lora import Linear
from peft.tuners.tuners_utils import BaseTunerLayer
from peft.utils.other import AuxiliaryTrainingWrapper

from memsearcher import jsonl
from memsearcher.engines.models import SMOLLM2, with_adapter
from memsearcher.recipe import Recipe

# What the built-in weights are called upstream.
BASE_MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
CARD = "agent.json"


def in_bfloat16(recipe: Recipe) -> bool:
    """Whether a model under training takes its products in bfloat16; what is trained is float32 in any case."""
    dtype = recipe.model.dtype
    return torch.cuda.is_available() if dtype == "auto" else dtype == "bfloat16"


def adapted(model: Any, start: Path | None, rank: int, alpha: int) -> Any:
    """The model with the adapter in `start` to train further, or with a fresh one on all linear layers of its blocks.

    Raises:
        ModelError: `start` holds no adapter, or one that does not fit.
    """
    if start is None:
        config = LoraConfig(r=rank, lora_alpha=alpha, target_modules="all-linear", task_type="CAUSAL_LM")
        return get_peft_model(model, config)
    changed = with_adapter(model, start, trainable=True)
    # Under its upstream name, peft would ask the hub for the base's vocabulary at every checkpoint.
    changed.peft_config["default"].base_model_name_or_path = model.name_or_path
    return changed


@contextmanager
def folded_in(model: Any) -> Iterator[None]:
    """Within, a model answers with its LoRA adapter folded into the weights, which is faster; then it is as it was.

    The weights themselves are put back, since what is added and taken away again leaves a rest. A model
    without an adapter is left alone, and so is one whose adapter is more than a product added to the weights of
    linear layers. In bfloat16 the sums are rounded, as they are where vLLM is sent them. It takes the memory of the
    changed weights once more.
    """
    layers = [each for each in model.modules() if isinstance(each, (BaseTunerLayer, AuxiliaryTrainingWrapper))]
    embedded = model.get_input_embeddings().weight
    if not layers or not all(_is_plain(each) and each.get_base_layer().weight is not embedded for each in layers):
        yield
        return
    weights = [layer.get_base_layer().weight for layer in layers]
    before = [weight.data for weight in weights]
    try:
        with torch.no_grad():
            for layer, weight in zip(layers, weights, strict=True):
                deltas = [layer.get_delta_weight(name) for name in layer.active_adapters]
                weight.data = (weight.data + sum(deltas)).to(weight.dtype)
        with model.disable_adapter():
            yield
    finally:
        for weight, data in zip(weights, before, strict=True):
            weight.data = data


def _is_plain(layer: Any) -> bool:
    """Whether a layer is a linear one with A and B beside it, and nothing else."""
    if type(layer) is not Linear or type(layer.get_base_layer()) is not torch.nn.Linear:
        return False
    return not layer.lora_variant and not any(layer.lora_bias.values())


def save_adapter(
    model: Any, folder: Path, base: str, weights: dict[str, Any] | None = None, dtype: torch.dtype | None = None
) -> None:
    """Save the trained adapter as safetensors, bound to the name of its base model.

    Args:
        base: as a recipe names it.
        weights: the model's whole state where its own is in pieces on several processes.
        dtype: what the weights are rounded to; None leaves them as they were trained.
    """
    model.peft_config["default"].base_model_name_or_path = BASE_MODEL if base in SMOLLM2 else base
    state = {name: each.to(dtype=dtype) for name, each in (weights or model.state_dict()).items() if "lora_" in name}
    # Left to itself, peft asks the hub for the base's vocabulary; embeddings are not trained here.
    model.save_pretrained(folder, state_dict=state, save_embedding_layers=False, selected_adapters=["default"])


def write_card(
    folder: Path, recipe: dict[str, Any], agent: dict[str, str], environment: dict[str, str], **facts: Any
) -> None:
    """Write `agent.json`, which binds weights to the recipe, prompts, limits and environment they were trained with."""
    card = {"recipe": recipe, "agent": agent, "environment": environment, **facts}
    jsonl.replace(folder / CARD, json.dumps(card, indent=2).encode())
