"""A recipe says everything a run depends on: model, agent and limits, retrieval, warm start.

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

# PyYAML lets an impossible date (`2024-99-99`) or a number without digits (`0x_`) out as a plain ValueError.
_NOT_YAML = (yaml.YAMLError, ValueError, RecursionError)


class RecipeError(ValueError):
    """A recipe that cannot be used; the message names the file and the field."""


@dataclass(frozen=True, slots=True)
class Model:
    """Which policy answers, and through which engine.

    Attributes:
        engine: `transformers` runs `name` here; `openai` asks the server at `base_url` for it.
        name: `smollm2` (from the installed package), a folder, or a hub id.
        adapter: `pocket` (the shipped one), a folder with a PEFT adapter, or none.
        batch_size: contexts in one forward pass of the transformers engine.
        tokenizer: with `openai`, the tokenizer to count tokens with; none leaves them to the server.
        api_key_env: with `openai`, the environment variable that holds the key.
    """

    engine: Literal["transformers", "openai"] = "transformers"
    name: str = "smollm2"
    adapter: str | None = "pocket"
    batch_size: int = 32
    base_url: str | None = None
    tokenizer: str | None = None
    api_key_env: str = "OPENAI_API_KEY"


@dataclass(frozen=True, slots=True)
class Retrieval:
    """What is searched and how. `corpus` is `factbook` or a JSONL file; `index` is a folder to build into."""

    corpus: str = "factbook"
    kind: Literal["hybrid", "dense", "bm25"] = "hybrid"
    encoder: str = "minilm"
    index: str | None = None


@dataclass(frozen=True, slots=True)
class WarmStart:
    """Supervised fine-tuning on the expert's trajectories.

    Attributes:
        questions: training questions by kind (`2-hop`, `3-hop`, `4-hop`, `comparison`, `intersection`).
        start: the folder of an adapter to go on from; none starts a fresh one.
        steps: optimizer steps; each takes `batch` conversations.
        rank, alpha: of the LoRA adapter on all linear layers of the blocks.
        exact_turns: the share of questions played with just as many turns as they need, so that
            the model meets the prompt of a last turn.
        careless: the share of the expert's steps that start with a query that is too short.
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
    save_every: int = 25


@dataclass(frozen=True, slots=True)
class Recipe:
    """All settings of a run."""

    model: Model = field(default_factory=Model)
    limits: Limits = field(default_factory=Limits)
    prompts: str = "memsearcher"
    tool: str = "search"
    retrieval: Retrieval = field(default_factory=Retrieval)
    warmstart: WarmStart = field(default_factory=WarmStart)
    width: int = 32
    seed: int = 0

    def to_json(self) -> dict[str, Any]:
        record: dict[str, Any] = _adapter().dump_python(self, mode="json")
        return record

    def to_yaml(self) -> str:
        return yaml.safe_dump(self.to_json(), sort_keys=False)


@cache
def _adapter() -> TypeAdapter[Recipe]:
    return exact_adapter(Recipe, Model, Retrieval, WarmStart, Limits)


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
