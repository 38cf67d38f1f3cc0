"""From a recipe to the parts of a run: agent, environment, engine."""

from __future__ import annotations

import os
from pathlib import Path

from memsearcher.agents.memsearcher import MemSearcher
from memsearcher.data import data_folder
from memsearcher.engines.models import cache_folder, load_tokenizer
from memsearcher.engines.openai import OpenAIEngine
from memsearcher.engines.protocol import Engine
from memsearcher.engines.transformers import TransformersEngine
from memsearcher.environments.search import SearchEnvironment
from memsearcher.recipe import Model, Recipe, RecipeError, Retrieval
from memsearcher.retrieval.build import build_retriever
from memsearcher.tasks import factbook


def make_agent(recipe: Recipe) -> MemSearcher:
    """The agent with the recipe's limits and prompts."""
    return MemSearcher(recipe.limits, recipe.prompts, recipe.tool)


def make_environment(recipe: Recipe) -> SearchEnvironment:
    """Search over the recipe's corpus; what is missing of its index is built first."""
    corpus, index = index_paths(recipe.retrieval)
    retriever = build_retriever(corpus, index, recipe.retrieval.kind, recipe.retrieval.encoder)
    return SearchEnvironment(retriever, recipe.limits.passages, recipe.tool)


def index_paths(retrieval: Retrieval) -> tuple[Path, Path]:
    """The corpus file and the folder of its index."""
    corpus = factbook.corpus_path() if retrieval.corpus == "factbook" else Path(retrieval.corpus)
    if retrieval.index:
        return corpus, Path(retrieval.index)
    return corpus, cache_folder() / "indexes" / f"{corpus.stem}-{retrieval.encoder.replace('/', '--')}"


def make_engine(model: Model) -> Engine:
    """The engine with its policy loaded.

    Raises:
        RecipeError: `openai` without `base_url`, or an adapter that is not there.
    """
    if model.engine == "openai":
        if model.base_url is None:
            raise RecipeError("model.base_url is needed with engine: openai, as http://127.0.0.1:8000/v1")
        tokenizer = load_tokenizer(model.tokenizer) if model.tokenizer else None
        return OpenAIEngine(model.base_url, model.name, api_key=os.environ.get(model.api_key_env), tokenizer=tokenizer)
    return TransformersEngine.load(model.name, adapter_path(model), batch_size=model.batch_size)


def adapter_path(model: Model) -> Path | None:
    """The folder of the recipe's adapter; `pocket` is the shipped one."""
    if model.adapter is None:
        return None
    folder = data_folder() / "pocket" if model.adapter == "pocket" else Path(model.adapter)
    if not (folder / "adapter_config.json").is_file():
        raise RecipeError(f"model.adapter: {folder} holds no adapter_config.json; name an adapter's folder, or null")
    return folder
