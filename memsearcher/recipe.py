"""A recipe says everything a run depends on: model, agent and limits, environment, warm start, training.

Recipes are YAML files in `recipes/`, or a user's own. `key=value` overrides reach inside
(`limits.turns=8`). The resolved recipe is saved in every run folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import TypeAdapter, ValidationError

from memsearcher.trajectory import Limits, exact_adapter, first_fault

FOLDER = Path(__file__).parent / "recipes"

AgentName = Literal["memsearcher", "react", "search-r1", "mem1", "truncate", "summarize"]

# PyYAML lets an impossible date (`2024-99-99`) or a number without digits (`0x_`) out as a plain ValueError.
_NOT_YAML = (yaml.YAMLError, ValueError, RecursionError)


class RecipeError(ValueError):
    """A recipe that cannot be used; the message names the file and the field."""


@dataclass(frozen=True, slots=True)
class Model:
    """Which policy answers, and through which engine.

    Attributes:
        engine: `transformers` and `vllm` run `name` here; `openai` asks the server at `base_url` for it.
        name: `smollm2` (from the installed package), a folder, or a hub id.
        adapter: `shipped` (the one of the recipe's agent in its environment), a folder with a PEFT adapter, or none.
        batch_size: model calls under way at once; with `transformers`, contexts in one forward pass.
        vllm: with `vllm`, further arguments of `vllm.LLM`, as `{max_model_len: 8192, tensor_parallel_size: 2}`.
        tokenizer: with `openai`, the tokenizer to count tokens with; none leaves them to the server.
        api_key_env: with `openai`, the environment variable that holds the key.
        dtype: what products are taken in; `auto` is float32 on a CPU and bfloat16 on a GPU. On a CPU with AMX
            (`lscpu` says amx_bf16) bfloat16 is faster, elsewhere slower. Trained weights are float32 in any case.
    """

    engine: Literal["transformers", "vllm", "openai"] = "transformers"
    name: str = "smollm2"
    adapter: str | None = "shipped"
    batch_size: int = 32
    vllm: dict[str, Any] = field(default_factory=dict)
    base_url: str | None = None
    tokenizer: str | None = None
    api_key_env: str = "OPENAI_API_KEY"
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"


@dataclass(frozen=True, slots=True)
class Retrieval:
    """What is searched and how.

    Attributes:
        corpus: `factbook`, or a JSONL file.
        kind: `http` asks the servers at `url` (one, or a list of equal ones) and `web` a search service in
            Serper's format (there, or Serper itself); neither looks at the other fields. `qdrant` searches the
            vectors of `corpus` by `encoder` in the Qdrant server at `url`, or in a folder of that name.
        device: of the encoder, a torch device.
        search_device: of the dense index: `cpu` (FAISS), `cuda` for all GPUs together, or some, as `cuda:0,cuda:1`.
        index: a folder to build into.
        type: of the dense index; none takes the one that is there, and builds a flat one.
        mapped: open the dense index memory-mapped.
        rerank: the folder of a cross-encoder that orders anew what was found.
    """

    corpus: str = "factbook"
    kind: Literal["hybrid", "dense", "bm25", "http", "web", "qdrant"] = "hybrid"
    encoder: str = "minilm"
    index: str | None = None
    type: Literal["flat", "flat-fp16", "hnsw", "ivf-sq8", "ivf-pq"] | None = None
    mapped: bool = False
    url: str | list[str] | None = None
    rerank: str | None = None
    device: str = "cpu"
    search_device: str = "cpu"


@dataclass(frozen=True, slots=True)
class WebShop:
    """The web shop, where that is the environment.

    Attributes:
        mode: how a purchase is rewarded: as published (`original`), or with the quirks of that mended (`strict`).
        seed: of prices and of the price limits that instructions name. It is not the recipe's, so that runs of
            other seeds are about the same goals.
        items: your own `items_shuffle*.json`, in place of the built-in catalogue; None is that.
        attributes: the `items_ins_v2*.json` that goes with it.
        human: its `items_human_ins*.json`, for the goals that people wrote.
        n: only the first so many products of `items`.
    """

    mode: Literal["original", "strict"] = "original"
    seed: int = 0
    items: str | None = None
    attributes: str | None = None
    human: str | None = None
    n: int | None = None


@dataclass(frozen=True, slots=True)
class WarmStart:
    """Supervised fine-tuning on the expert's trajectories.

    Attributes:
        questions: training questions by kind (`2-hop`, `3-hop`, `4-hop`, `comparison`, `intersection`); of the
            web shop the only kind is `goals`.
        start: the folder of an adapter to go on from; none starts a fresh one.
        steps: optimizer steps; each takes `batch` conversations.
        rank, alpha: of the LoRA adapter on all linear layers of the blocks.
        exact_turns: the share of questions played with just as many turns as they need, so that
            the model meets the prompt of a last turn.
        careless: the share of the expert's steps that start with a query that is too short; of none in the web shop.
        wordy: the share of questions that the expert answers with a whole sentence; of none in the web shop.
        frugal: whether the expert's memory drops what no later step needs; not in the web shop.
    """

    questions: dict[str, int] = field(default_factory=lambda: {"2-hop": 300, "3-hop": 100, "4-hop": 50})
    start: str | None = None
    steps: int = 150
    batch: int = 8
    learning_rate: float = 1e-3
    warmup: int = 10
    rank: int = 16
    alpha: int = 32
    exact_turns: float = 0.25
    careless: float = 0.1
    wordy: float = 0.0
    frugal: bool = False
    save_every: int = 25


@dataclass(frozen=True, slots=True)
class Training:
    """Multi-context GRPO, on from the recipe's model and adapter.

    Attributes:
        questions: training questions by kind, as in `warmstart`, or a JSONL file of tasks.
        dev: questions for evaluation, named in the same way; by kind they are of the dev split, the same for all seeds.
        evaluate_every: steps from one evaluation on all of `dev` to the next, the first before training; 0 is never.
        steps: optimizer steps.
        batch: questions of a step, on all processes together.
        num_generations: attempts at each question, which are a group.
        learning_rate: constant.
        beta: weight of the KL divergence from where training started.
        average: what the loss is a mean over: `token`, `conversation`, `trajectory` or `trajectory_token`.
        reward: `em`, `f1` or `format_f1`; `objectives` for tasks of several questions, `outcome` for the web shop.
        scale_rewards: advantages are divided by the deviation of their `group` or `batch`, or not (`none`).
        tokens_per_chunk: tokens of one forward and backward pass; memory follows from it.
        rank, alpha: of a fresh LoRA adapter where the recipe names none; rank 0 trains all weights.
        options: further fields of `MultiContextGRPOConfig`, by the names that TRL gives them.
    """

    questions: dict[str, int] | str = field(default_factory=lambda: {"2-hop": 300, "3-hop": 100})
    dev: dict[str, int] | str = field(default_factory=lambda: {"2-hop": 40, "3-hop": 20})
    evaluate_every: int = 20
    steps: int = 100
    batch: int = 4
    num_generations: int = 8
    learning_rate: float = 1e-5
    beta: float = 0.0
    temperature: float = 1.0
    top_p: float = 1.0
    average: str = "token"
    reward: str = "format_f1"
    scale_rewards: str = "group"
    tokens_per_chunk: int = 4096
    rank: int = 16
    alpha: int = 32
    save_every: int = 10
    gradient_checkpointing: bool = True
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Recipe:
    """All settings of a run.

    `prompts` is a folder with one's own, or none for the agent's in that environment; `retrieval` is of the
    environment `search`, `webshop` of the one of that name.
    """

    model: Model = field(default_factory=Model)
    agent: AgentName = "memsearcher"
    limits: Limits = field(default_factory=Limits)
    prompts: str | None = None
    tool: str = "search"
    environment: Literal["search", "webshop"] = "search"
    retrieval: Retrieval = field(default_factory=Retrieval)
    webshop: WebShop = field(default_factory=WebShop)
    warmstart: WarmStart = field(default_factory=WarmStart)
    training: Training = field(default_factory=Training)
    width: int = 32
    seed: int = 0

    def to_json(self) -> dict[str, Any]:
        record: dict[str, Any] = _adapter().dump_python(self, mode="json")
        return record

    def to_yaml(self) -> str:
        return yaml.safe_dump(self.to_json(), sort_keys=False)


@cache
def _adapter() -> TypeAdapter[Recipe]:
    return exact_adapter(Recipe, Model, Retrieval, WebShop, WarmStart, Training, Limits)


def load_recipe(name: str = "pocket", overrides: Sequence[str] = ()) -> Recipe:
    """Load a built-in recipe by name, or a YAML file by path, and apply `key=value` overrides.

    Raises:
        RecipeError: no such file, not YAML, an unknown field, a value of the wrong kind.
    """
    built_in = FOLDER / f"{name}.yaml"
    path = built_in if built_in.is_file() else Path(name)
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError:
        names = ", ".join(sorted(each.stem for each in FOLDER.glob("*.yaml")))
        raise RecipeError(f"{name}: no such recipe or file; built-in recipes are: {names}") from None
    except _NOT_YAML as error:
        raise RecipeError(f"{path}: not YAML: {error}") from None
    if data is None:
        data = {}
    if not isinstance(data, dict):
        raise RecipeError(f"{path}: fields were expected, as 'limits: ...'")
    for override in overrides:
        _override(data, override)
    try:
        return _adapter().validate_python(data)
    except ValidationError as error:
        raise RecipeError(f"{path}: {first_fault(error)}") from None


def _override(data: dict[str, Any], override: str) -> None:
    """Set `a.b=value` in nested fields; the value is read as YAML."""
    key, equals, value = override.partition("=")
    if not equals or not key:
        raise RecipeError(f"{override!r}: an override looks like limits.turns=8")
    *path, last = key.split(".")
    for name in path:
        data = data.setdefault(name, {})
        if not isinstance(data, dict):
            raise RecipeError(f"{override!r}: {name} has no fields inside")
    try:
        data[last] = yaml.safe_load(value)
    except _NOT_YAML as error:
        raise RecipeError(f"{override!r}: {error}") from None
