"""The decode loop: a batch of rows through a model, token by token, until each has ended.

Each row's tokens are those of that row alone, up to floating point: rows have their own
random numbers, padding is masked, positions are passed. What contexts have in common is
computed once: identical contexts, and a prefix that all of them share. Rows that have
ended leave the batch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from memsearcher.engines.attention import grouped_attention, joined, repeated, roomy_cache
from memsearcher.engines.chat import ChatFormat
from memsearcher.engines.protocol import EngineFailure, Sampling
from memsearcher.engines.row import Row
from memsearcher.engines.sampling import draw, uniforms

SHORTEST_PREFIX = 16
"""Tokens from which on a pass of its own for the shared prefix pays."""
TOKENS_AT_ONCE = defaultdict(lambda: 16_384, cpu=1_024)
"""Tokens of one prefill pass, by device: a CPU is as fast with few of them, and less of them is padding."""


def decode(model: Any, chat: ChatFormat, rows: Sequence[Row], sampling: Sampling, share_prefix: bool = True) -> None:
    """Sample every row to its end, in place.

    Raises:
        Whatever the model raises; rows that have ended by then keep what they have.
    """
    with torch.inference_mode(), grouped_attention(model):
        _decode(model, chat, rows, sampling, share_prefix)


def _decode(model: Any, chat: ChatFormat, rows: Sequence[Row], sampling: Sampling, share_prefix: bool) -> None:
    live = list(rows)
    numbers = torch.zeros(len(rows), max(row.request.limit for row in rows), dtype=torch.float64)
    if sampling.temperature > 0:
        for line, row in zip(numbers, rows, strict=True):
            line[: row.request.limit] = uniforms(row.request.seed, row.request.limit)
    cache, logits, mask = prefill(model, [row.context for row in rows], share_prefix, numbers.shape[1])
    positions = torch.tensor([len(row.context) for row in rows], device=mask.device)
    step = 0
    while True:
        tokens, logprobs = draw(logits, sampling, numbers[:, step])
        for row, token, logprob in zip(live, tokens.tolist(), logprobs.tolist(), strict=True):
            if row.done:
                continue
            if logprob != logprob:
                row.failure = EngineFailure(f"the model's logits are not finite at token {len(row.ids) + 1} of a reply")
            else:
                row.take(token, logprob, chat)
        going = [number for number, row in enumerate(live) if not row.done]
        if not going:
            return
        # Dropping rows copies the cache, so it waits for a few of them.
        if 8 * len(going) <= 7 * len(live):
            keep = torch.tensor(going, device=mask.device)
            cache.batch_select_indices(keep)
            live = [live[number] for number in going]
            tokens, mask, positions, numbers = tokens[keep], mask[keep], positions[keep], numbers[going]
        mask = torch.cat([mask, mask.new_ones(len(live), 1)], dim=1)
        logits = _forward(model, tokens[:, None], mask, positions[:, None], cache)
        positions = positions + 1
        step += 1


def prefill(
    model: Any, contexts: Sequence[list[int]], share_prefix: bool = True, room: int = 0
) -> tuple[DynamicCache, Tensor, Tensor]:
    """Run contexts through the model: the cache, the logits behind each, and the mask of what the cache holds.

    Contexts of like length go together, a few at a time, which keeps padding short.

    Args:
        room: tokens that the cache makes room for behind the contexts.

    Returns:
        the cache, logits `[rows, vocabulary]` and mask `[rows, length]`. Rows end together;
        padding lies to the left, and behind the shared prefix where there is one.
    """
    config, device = model.config, model.device
    distinct = sorted({tuple(context) for context in contexts}, key=lambda context: (len(context), context))
    prefix = roomy_cache(config, 0)
    # A sliding window counts cache slots: there, only rows of one length or padding to the left is exact.
    sliding = any(prefix.is_sliding)
    shared = common_prefix(distinct) if share_prefix and not sliding and len(distinct) > 1 else 0
    shared = shared if shared >= SHORTEST_PREFIX else 0
    if shared:
        ids = torch.tensor([distinct[0][:shared]], device=device)
        _forward(model, ids, torch.ones_like(ids), torch.arange(shared, device=device)[None], prefix)
    groups = [distinct] if sliding else _groups(distinct, shared, TOKENS_AT_ONCE[device.type])
    caches, logits, masks = [], [], []
    for group in groups:
        own_room = room if len(groups) == 1 else 0
        cache = repeated(prefix, config, len(group), own_room) if shared else roomy_cache(config, own_room)
        ids, mask, positions = _padded(group, shared)
        masks.append(mask.to(device))
        logits.append(_forward(model, ids.to(device), masks[-1], positions.to(device), cache))
        caches.append(cache)
    whole = caches[0] if len(groups) == 1 else joined(caches, config, room)
    length = max(mask.shape[1] for mask in masks)
    mask = torch.cat([torch.nn.functional.pad(mask, (length - mask.shape[1], 0)) for mask in masks])
    places = {context: number for number, context in enumerate(distinct)}
    rows = torch.tensor([places[tuple(context)] for context in contexts], device=device)
    if rows.tolist() != list(range(len(distinct))):
        whole.batch_select_indices(rows)
    return whole, torch.cat(logits)[rows], mask[rows]


def _groups(contexts: Sequence[tuple[int, ...]], shared: int, tokens: int) -> list[list[tuple[int, ...]]]:
    """Contexts sorted by length in runs of at most `tokens` tokens to compute, padding included."""
    groups: list[list[tuple[int, ...]]] = [[]]
    for context in contexts:
        if groups[-1] and (len(context) - shared) * (len(groups[-1]) + 1) > tokens:
            groups.append([])
        groups[-1].append(context)
    return groups


def _padded(contexts: Sequence[tuple[int, ...]], shared: int) -> tuple[Tensor, Tensor, Tensor]:
    """Ids and positions of what follows the shared prefix, and the mask of both, padded between them."""
    longest = max(map(len, contexts)) - shared
    ids = torch.zeros(len(contexts), longest, dtype=torch.int64)
    mask = torch.zeros(len(contexts), shared + longest, dtype=torch.int64)
    mask[:, :shared] = 1
    for number, context in enumerate(contexts):
        rest = len(context) - shared
        ids[number, longest - rest :] = torch.tensor(context[shared:])
        mask[number, shared + longest - rest :] = 1
    return ids, mask, (mask.cumsum(-1) - 1).clamp(min=0)[:, shared:]


def common_prefix(contexts: Sequence[tuple[int, ...]]) -> int:
    """How many first tokens all contexts share, leaving each at least one of its own."""
    first, last = min(contexts), max(contexts)
    most = min(len(context) for context in contexts) - 1
    return next((place for place in range(most) if first[place] != last[place]), most)


def _forward(model: Any, ids: Tensor, mask: Tensor, positions: Tensor, cache: DynamicCache) -> Tensor:
    """Logits of the last position, shape `[rows, vocabulary]`; the cache grows by what was run."""
    out = model(
        input_ids=ids,
        attention_mask=mask,
        position_ids=positions,
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    )
    logits: Tensor = out.logits[:, -1]
    return logits
