"""The engine that runs a transformers model in this process, on a CPU or a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import torch
import transformers
from transformers import DynamicCache, PreTrainedTokenizerBase

from memsearcher.agents.protocol import Reply
from memsearcher.engines.chat import ChatFormat
from memsearcher.engines.decoding import decode
from memsearcher.engines.models import adapter_label, load_model
from memsearcher.engines.prefix import PrefixCache
from memsearcher.engines.protocol import EngineFailure, Request, Sampling, failure
from memsearcher.engines.row import Row


class TransformersEngine:
    """Answers model calls with a causal language model of transformers.

    The model is shared, not owned: a trainer may go on changing its weights. It is put
    into evaluation mode for each call and back afterwards. Between calls the engine keeps
    attention states, and forgets them when a weight has been changed in place, as
    optimizers do; who changes the model in another way (another adapter, merging) must
    call `forget`.

    Args:
        model: a decoder with attention layers (a PeftModel will do), on its device.
        tokenizer: a fast tokenizer with a chat template.
        batch_size: rows at once, at most.
        batch_tokens: tokens of context at once, padding included, at most (a longer single context runs alone).
        prefix_tokens: tokens whose attention states are kept, at most, for later contexts that begin
            with them; 0 keeps none. A token of SmolLM2-135M takes 46 KB in float32.
        name: the model's name on the record; by default where it was loaded from.
        adapter: the folder of the adapter that the model carries, for the record.
        chat: the chat format, if it needs options (see `ChatFormat.from_tokenizer`).

    Raises:
        ChatFormatError: a tokenizer whose chat template cannot be worked with.
        ValueError: a model with recurrent layers, which cannot be padded.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: PreTrainedTokenizerBase,
        batch_size: int = 32,
        batch_tokens: int = 32_768,
        prefix_tokens: int = 32_768,
        name: str | None = None,
        adapter: Path | None = None,
        chat: ChatFormat | None = None,
    ) -> None:
        if batch_size < 1 or batch_tokens < 1:
            raise ValueError(f"batch_size and batch_tokens must be at least 1, not {batch_size} and {batch_tokens}")
        if prefix_tokens < 0:
            raise ValueError(f"prefix_tokens must be at least 0, not {prefix_tokens}")
        layers = DynamicCache(config=model.config)
        if any(layers.is_linear):
            raise ValueError(f"{type(model).__name__} has recurrent layers; TransformersEngine needs attention layers")
        self.model = model
        self.tokenizer = tokenizer
        self.chat = chat or ChatFormat.from_tokenizer(tokenizer)
        self.batch_size = batch_size
        self.batch_tokens = batch_tokens
        # A sliding window counts cache slots, and beginnings of unlike length leave slots empty.
        self._prefixes = PrefixCache(0 if any(layers.is_sliding) else prefix_tokens)
        self._weights = _versions(model)
        self._name = name or str(model.config.name_or_path)
        self._adapter = adapter_label(adapter)

    @classmethod
    def load(
        cls,
        name: str | Path = "smollm2",
        adapter: str | Path | None = None,
        device: str = "auto",
        dtype: str | torch.dtype = "auto",
        batch_size: int = 32,
        **options: Any,
    ) -> Self:
        """Load a model by name (see `models.load_model`) and put an engine around it."""
        model, tokenizer = load_model(name, adapter, device, dtype)
        folder = None if adapter is None else Path(adapter)
        return cls(model, tokenizer, batch_size=batch_size, name=str(name), adapter=folder, **options)

    @property
    def fingerprint(self) -> dict[str, str]:
        return {
            "engine": "transformers",
            "model": self._name,
            "adapter": self._adapter,
            "dtype": str(self.model.dtype).removeprefix("torch."),
            "device": self.model.device.type,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        }

    def forget(self) -> None:
        """Drop the attention states of earlier calls, which a changed model must not use."""
        self._prefixes.clear()

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Reply | EngineFailure]:
        """Answer every request, in order, whatever the batches are.

        A request fails alone if its conversation cannot be encoded, does not leave room for
        `limit` tokens or leads to logits that are not finite; an error of the model, such as
        no memory left, fails the requests of its batch that have not ended, with the cause.
        """
        longest = self.model.config.get_text_config().max_position_embeddings
        answers = [Row.start(request, self.chat, longest) for request in requests]
        rows = [row for row in answers if isinstance(row, Row)]
        weights = _versions(self.model)
        if weights != self._weights:
            self.forget()
            self._weights = weights
        self._prefixes.begin_call()
        training = self.model.training
        self.model.eval()
        try:
            for batch in self._batches(rows):
                try:
                    decode(self.model, self.chat, batch, sampling, self._prefixes)
                except Exception as error:  # noqa: BLE001 - a model may fail in any way; the others go on
                    for row in batch:
                        if not row.done:
                            row.failure = failure(f"the model failed on a batch of {len(batch)}: {error}", error)
        finally:
            self.model.train(training)
        return [answer.reply(self.chat) if isinstance(answer, Row) else answer for answer in answers]

    def _batches(self, rows: Sequence[Row]) -> Iterator[list[Row]]:
        """Rows of like length together, within both limits; identical contexts side by side."""
        batch: list[Row] = []
        for row in sorted(rows, key=lambda row: (len(row.context), row.context)):
            if batch and (len(batch) == self.batch_size or len(row.context) * (len(batch) + 1) > self.batch_tokens):
                yield batch
                batch = []
            batch.append(row)
        if batch:
            yield batch


def _versions(model: Any) -> int:
    """A number that grows whenever a weight is changed in place."""
    return sum(weight._version for weight in model.parameters())
