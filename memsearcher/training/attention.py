"""Attention over a tree of tokens: each conversation by itself, gathered from tokens that stand once."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, DynamicCache
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from memsearcher.engines.attention import LIKE_SDPA

PATHS = "memsearcher_paths"


def attend_by_paths(model: Any) -> bool:
    """Have a model take trees of tokens; whether it can.

    It then takes, besides `input_ids` and `position_ids` of one row and an `attention_mask` of four
    dimensions that is not looked at: `tree_paths` `[rows, longest]`, the places of each
    conversation's tokens with anything behind their ends, and `tree_picked` `[tokens]`, a place of
    each token in `tree_paths`, counted row after row. Without them it does what it did before. A
    model whose layers have sliding windows, or which does not attend by `sdpa`, is left as it is.
    """
    config = model.config.get_text_config()
    if config._attn_implementation == "sdpa" and not any(DynamicCache(config=model.config).is_sliding):
        config._attn_implementation = PATHS
    return bool(config._attn_implementation == PATHS)


def _by_paths(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    tree_paths: Tensor | None = None,
    tree_picked: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Query, key and value come as `[1, heads, tokens, size]`; the answer is `[1, tokens, heads, size]`."""
    if tree_paths is None or tree_picked is None:
        answer: tuple[Tensor, None] = sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
        return answer
    apart = (_gathered(each, tree_paths) for each in (query, key, value))
    # What stands behind a row's end is padding on the right, where causal attention does not look.
    out, _ = sdpa_attention_forward(module, *apart, None, **kwargs)
    heads, size = out.shape[2:]
    return out.reshape(-1, heads * size).index_select(0, tree_picked).view(1, -1, heads, size), None


def _gathered(states: Tensor, paths: Tensor) -> Tensor:
    """States of tokens `[1, heads, tokens, size]` along the paths, `[rows, heads, longest, size]`."""
    _, heads, tokens, size = states.shape
    flat = states[0].transpose(0, 1).reshape(tokens, heads * size)
    return flat.index_select(0, paths.flatten()).view(*paths.shape, heads, size).transpose(1, 2)


AttentionInterface.register(PATHS, _by_paths)
AttentionMaskInterface.register(PATHS, sdpa_mask)
LIKE_SDPA.add(PATHS)
