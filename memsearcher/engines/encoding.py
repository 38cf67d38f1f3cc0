"""Text to tokens, so that what is only text stays only text.

A tokenizer finds its special tokens (`<|im_end|>`) and its other added tokens
(`<tool_call>`, `<think>`) wherever their spelling turns up. Here three kinds of
text are told apart, each with a copy of the tokenizer that knows no more than it may:

- the chat template's markers: every token;
- our prompts and replies we wrote ourselves: added tokens, which a model may know
  as its protocol, but no special ones;
- text from outside: neither. Whatever it spells comes out as ordinary pieces.

`split_special_tokens` of transformers covers special tokens alone (and is a state
that other callers share), hence the copies.
"""

from __future__ import annotations

import json
import re
from typing import Any

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase

REPLACEMENT = "\ufffd"
_SURROGATES = re.compile("[\ud800-\udfff]")


class EncodingError(ValueError):
    """Text that the tokenizer cannot encode, or a tokenizer that cannot be worked with."""


class TextEncoder:
    """Encodes the three kinds of text, and decodes.

    Args:
        tokenizer: a fast tokenizer (one with a `tokenizers` backend). Byte-level BPE gives
            back every text exactly; other kinds may change white space at the seams.

    Raises:
        EncodingError: the tokenizer has no `tokenizers` backend.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        if not tokenizer.is_fast:
            raise EncodingError(
                f"{type(tokenizer).__name__} is a slow tokenizer; memsearcher needs one with a tokenizer.json"
            )
        backend: Tokenizer = tokenizer.backend_tokenizer
        state: dict[str, Any] = json.loads(backend.to_str())
        state.update(truncation=None, padding=None, post_processor=None)
        added: list[dict[str, Any]] = state["added_tokens"]
        self._all = _build(state, added)
        self._own = _build(state, [token for token in added if not token["special"]])
        self._outside = _build(state, [])

        self.special_ids = frozenset(token["id"] for token in added if token["special"])
        unknown = {tokenizer.unk_token_id} - {None}
        self._barred_own = self.special_ids | unknown
        # An added token that the model's own merges also spell (Gemma's "\n\n") is an ordinary piece.
        ordinary = {
            token["id"] for token in added if not token["special"] and self._spells(token["content"], token["id"])
        }
        self._barred_outside = (frozenset(token["id"] for token in added) | unknown) - ordinary

    def markers(self, text: str) -> list[int]:
        """Token ids of the chat template's text, special tokens included."""
        ids: list[int] = self._all.encode(text, add_special_tokens=False).ids
        return ids

    def own(self, text: str) -> tuple[list[int], str]:
        """Token ids of text of ours, and the text that was encoded; added tokens may arise, special ones not."""
        return _encode(self._own, self._barred_own, text)

    def outside(self, text: str) -> tuple[list[int], str]:
        """Token ids of text from outside, and the text that was encoded.

        No special and no added token can arise. Lone surrogates, and characters for which the
        vocabulary has no piece (SmolLM2 lacks six control characters), become U+FFFD; a
        tokenizer that normalizes (Qwen2: NFC) gives its own form back.
        """
        ids, text = _encode(self._outside, self._barred_outside, text)
        return ids, self.decode(ids)

    def decode(self, ids: list[int]) -> str:
        """The text of token ids, special tokens spelled out, nothing tidied up."""
        text: str = self._all.decode(ids, skip_special_tokens=False)
        return text

    def _spells(self, text: str, token_id: int) -> bool:
        return token_id in self._outside.encode(text, add_special_tokens=False).ids


def without_surrogates(text: str) -> str:
    """The text with U+FFFD for lone surrogates, which no encoding can carry."""
    return _SURROGATES.sub(REPLACEMENT, text)


def cut(encoder: TextEncoder, ids: list[int], text: str, limit: int) -> tuple[list[int], str]:
    """The first `limit` tokens, or fewer where the last character would be torn, and their text."""
    kept = ids[:limit]
    if len(kept) == len(ids):
        return kept, text
    while not text.startswith(left := encoder.decode(kept)):
        kept.pop()
    return kept, left


def cut_front(encoder: TextEncoder, ids: list[int], text: str, limit: int) -> tuple[list[int], str]:
    """The last `limit` tokens, or fewer where the first character would be torn, and their text."""
    kept = ids[max(0, len(ids) - limit) :]
    if len(kept) == len(ids):
        return kept, text
    while not text.endswith(left := encoder.decode(kept)):
        kept.pop(0)
    return kept, left


def _build(state: dict[str, Any], added: list[dict[str, Any]]) -> Tokenizer:
    return Tokenizer.from_str(json.dumps({**state, "added_tokens": added}))


def _encode(backend: Tokenizer, barred: frozenset[int], text: str) -> tuple[list[int], str]:
    text = without_surrogates(text)
    ids: list[int] = backend.encode_batch_fast([text], add_special_tokens=False)[0].ids
    for mark in (REPLACEMENT, "?", ""):
        if barred.isdisjoint(ids):
            return ids, text
        encoding = backend.encode(text, add_special_tokens=False)
        for token_id, (start, end) in zip(reversed(encoding.ids), reversed(encoding.offsets), strict=True):
            if token_id in barred:
                text = text[:start] + mark * (end - start) + text[end:]
        ids = backend.encode_batch_fast([text], add_special_tokens=False)[0].ids
    if barred.isdisjoint(ids):
        return ids, text
    raise EncodingError(f"the tokenizer has no pieces for {text[:80]!r}")
