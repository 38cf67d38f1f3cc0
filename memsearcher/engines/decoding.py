"""The decode loop: a batch of rows through a model, token by token, until each has ended.

Each row's tokens are those of that row alone, up to floating point: rows have their own
random numbers, padding is masked, positions are passed. What contexts have in common is
computed once: identical contexts, a prefix that all of them share, and what they begin with
of the contexts of earlier calls. On a CPU, tokens that are guessed are run along, and kept
where they are what is drawn. Rows that have ended leave the batch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from memsearcher.engines.attention import RoomyLayer, grouped_attention, joined, roomy_cache, started
from memsearcher.engines.chat import ChatFormat
from memsearcher.engines.guesses import Guesses
from memsearcher.engines.linear import thin_products
from memsearcher.engines.prefix import PrefixCache, Start, common, states_of
from memsearcher.engines.protocol import EngineFailure, Sampling
from memsearcher.engines.row import Row
from memsearcher.engines.sampling import draw, uniforms

SHORTEST_PREFIX = 16
"""Tokens from which on a pass of its own for the shared prefix pays."""
TOKENS_AT_ONCE = defaultdict(lambda: 16_384, cpu=1_024)
"""Tokens of one prefill pass, by device: a CPU is as fast with few of them, and less of them is padding."""
FEW_ROWS = 8
"""Rows up to which three tokens a row are guessed; above it is one. So few tokens wait for the weights."""


def decode(
    model: Any, chat: ChatFormat, rows: Sequence[Row], sampling: Sampling, kept: PrefixCache | None = None
) -> None:
    """Sample every row to its end, in place.

    Args:
        kept: what earlier calls of the same model left; contexts begin with it where they can, and are added to it.

    Raises:
        Whatever the model raises; rows that have ended by then keep what they have.
    """
    with torch.inference_mode(), grouped_attention(model), thin_products(model):
        _decode(model, chat, rows, sampling, kept)


def _decode(model: Any, chat: ChatFormat, rows: Sequence[Row], sampling: Sampling, kept: PrefixCache | None) -> None:
    live = list(rows)
    numbers = torch.zeros(len(rows), max(row.request.limit for row in rows), dtype=torch.float64)
    if sampling.temperature > 0:
        for line, row in zip(numbers, rows, strict=True):
            line[: row.request.limit] = uniforms(row.request.seed, row.request.limit)
    cache, last, mask = prefill(model, [row.context for row in rows], numbers.shape[1], kept)
    logits, guessed = last[:, None], [list[int]() for _ in rows]
    # Wrong guesses leave slots empty, which is exact where slots are masked and not counted.
    guessing = all(type(layer) is RoomyLayer for layer in cache.layers) and guesses_at(1, mask.device.type) > 0
    guesses = [Guesses(row.context if guessing else ()) for row in rows]
    while True:
        before = mask.shape[1] - logits.shape[1]
        tokens, logprobs = _draw(logits, sampling, numbers, live)
        used = [
            _take(row, guess, drawn, chances, chat)
            for row, guess, drawn, chances in zip(live, guessed, tokens, logprobs, strict=True)
        ]
        for number, (row, count) in enumerate(zip(live, used, strict=True)):
            if count and row.finish is not None and kept is not None:
                # The newest token has not been through the model.
                ids = [*row.context, *row.ids[:-1]]
                slots = mask[number].nonzero()[: len(ids), 0]
                kept.keep(ids, partial(states_of, cache, number, slots))
            guesses[number].extend(row.ids[len(row.ids) - count :])
        going = [number for number, row in enumerate(live) if not row.done]
        if not going:
            return
        if guessing:
            right = torch.arange(logits.shape[1]) < torch.tensor(used)[:, None]
            mask[:, before:] *= right.to(mask.device)
        if max(used) < logits.shape[1]:
            cache.crop(max(used) - logits.shape[1])
            mask = mask[:, : before + max(used)]
        # Dropping rows copies the cache, so it waits for a few of them.
        if 8 * len(going) <= 7 * len(live):
            cache.batch_select_indices(torch.tensor(going, device=mask.device))
            live, guesses = [live[number] for number in going], [guesses[number] for number in going]
            mask, numbers = mask[going], numbers[going]
        most = guesses_at(len(live), mask.device.type) if guessing else 0
        guessed = [
            [] if row.done else each.guess(min(most, row.request.limit - len(row.ids) - 1))
            for row, each in zip(live, guesses, strict=True)
        ]
        new, real, positions = _next(live, guessed)
        mask = torch.cat([mask, real.to(mask.device)], dim=1)
        logits = _forward(model, new.to(mask.device), mask, positions.to(mask.device), cache, new.shape[1])


def guesses_at(rows: int, device: str) -> int:
    """Tokens to guess of each row.

    A GPU guesses none: what it would gain has not been measured, and empty slots take memory.
    """
    if device != "cpu":
        return 0
    return 3 if rows <= FEW_ROWS else 1


def _draw(
    logits: Tensor, sampling: Sampling, numbers: Tensor, rows: Sequence[Row]
) -> tuple[list[list[int]], list[list[float]]]:
    """A token and its log-probability behind each token of each row, all with the numbers of their places.

    Args:
        logits: shape `[rows, tokens, vocabulary]`.
        numbers: uniform numbers, shape `[rows, longest reply]`.
    """
    count, width = logits.shape[:2]
    places = torch.tensor([len(row.ids) for row in rows])[:, None] + torch.arange(width)
    uniform = numbers.gather(1, places.clamp(max=numbers.shape[1] - 1))
    tokens, logprobs = draw(logits.flatten(0, 1), sampling, uniform.flatten())
    return tokens.view(count, width).tolist(), logprobs.view(count, width).tolist()


def _take(row: Row, guess: Sequence[int], tokens: Sequence[int], logprobs: Sequence[float], chat: ChatFormat) -> int:
    """Give a row the tokens drawn for it, up to the first that follows a wrong guess; how many they were."""
    count = 0
    for token, logprob, right in zip(tokens, logprobs, [*guess, None], strict=False):
        if row.done:
            break
        if logprob != logprob:
            row.failure = EngineFailure(f"the model's logits are not finite at token {len(row.ids) + 1} of a reply")
            break
        row.take(token, logprob, chat)
        count += 1
        if token != right:
            break
    return count


def _next(rows: Sequence[Row], guessed: Sequence[list[int]]) -> tuple[Tensor, Tensor, Tensor]:
    """Ids, mask and positions of the newest token of each row and of what is guessed behind it.

    Padding lies behind, at the position of the last guess: never beyond those that the model has.
    """
    width = 1 + max(map(len, guessed))
    fed = [[(row.ids or row.context)[-1], *guess] for row, guess in zip(rows, guessed, strict=True)]
    ids = torch.tensor([each + [0] * (width - len(each)) for each in fed])
    place = torch.arange(width)
    last = torch.tensor([len(guess) for guess in guessed])[:, None]
    newest = torch.tensor([len(row.context) + len(row.ids) - 1 for row in rows])[:, None]
    return ids, (place <= last).long(), newest + place.minimum(last)


def prefill(
    model: Any, contexts: Sequence[list[int]], room: int = 0, kept: PrefixCache | None = None, share_prefix: bool = True
) -> tuple[DynamicCache, Tensor, Tensor]:
    """Run contexts through the model: the cache, the logits behind each, and the mask of what the cache holds.

    Contexts with as many tokens to compute go together, a few at a time, which keeps padding short.

    Args:
        room: tokens that the cache makes room for behind the contexts.
        kept: states that contexts may begin with; none for a model with a sliding window.
        share_prefix: whether to compute once what all contexts begin with.

    Returns:
        the cache, logits `[rows, vocabulary]` and mask `[rows, length]`. Rows end together;
        padding lies to the left, and behind what a row begins with.
    """
    config, device = model.config, model.device
    distinct = sorted({tuple(context) for context in contexts}, key=lambda context: (len(context), context))
    # A sliding window counts cache slots: there, only rows of one length or padding to the left is exact.
    sliding = any(roomy_cache(config, 0).is_sliding)
    starts = [Start() if kept is None else kept.find(context) for context in distinct]
    shared = common_prefix(distinct) if share_prefix and not sliding and len(distinct) > 1 else 0
    if shared >= SHORTEST_PREFIX and shared > max(start.length for start in starts):
        ids = torch.tensor([distinct[0][:shared]], device=device)
        prefix = roomy_cache(config, 0)
        _forward(model, ids, torch.ones_like(ids), torch.arange(shared, device=device)[None], prefix)
        starts = [Start(shared, states_of(prefix, 0, torch.arange(shared, device=device)))] * len(distinct)
    begun = sorted(zip(distinct, starts, strict=True), key=lambda pair: len(pair[0]) - pair[1].length)
    groups = [begun] if sliding else _groups(begun, TOKENS_AT_ONCE[device.type])
    caches, logits, masks = [], [], []
    for group in groups:
        ids, mask, positions = _padded(group)
        cache = started([start for _, start in group], config, ids.shape[1], room if len(groups) == 1 else 0)
        masks.append(mask.to(device))
        logits.append(_forward(model, ids.to(device), masks[-1], positions.to(device), cache)[:, -1])
        caches.append(cache)
    whole = caches[0] if len(groups) == 1 else joined(caches, config, room)
    length = max(mask.shape[1] for mask in masks)
    mask = torch.cat([torch.nn.functional.pad(mask, (length - mask.shape[1], 0)) for mask in masks])
    places = {context: number for number, (context, _) in enumerate(begun)}
    rows = torch.tensor([places[tuple(context)] for context in contexts], device=device)
    if rows.tolist() != list(range(len(begun))):
        whole.batch_select_indices(rows)
    return whole, torch.cat(logits)[rows], mask[rows]


Begun = tuple[tuple[int, ...], Start]
"""A context, and what of it is known."""


def _groups(begun: Sequence[Begun], tokens: int) -> list[list[Begun]]:
    """Contexts, sorted by what there is to compute, in runs of at most `tokens` tokens of it, padding included."""
    groups: list[list[Begun]] = [[]]
    for context, start in begun:
        if groups[-1] and (len(context) - start.length) * (len(groups[-1]) + 1) > tokens:
            groups.append([])
        groups[-1].append((context, start))
    return groups


def _padded(begun: Sequence[Begun]) -> tuple[Tensor, Tensor, Tensor]:
    """Ids and positions of what is to compute, and the mask of that and of what is known.

    Known tokens are aligned at their ends and the others too, so padding lies before both.
    """
    known = max(start.length for _, start in begun)
    longest = max(len(context) - start.length for context, start in begun)
    ids = torch.zeros(len(begun), longest, dtype=torch.int64)
    mask = torch.zeros(len(begun), known + longest, dtype=torch.int64)
    for number, (context, start) in enumerate(begun):
        rest = len(context) - start.length
        ids[number, longest - rest :] = torch.tensor(context[start.length :])
        mask[number, known - start.length : known] = 1
        mask[number, known + longest - rest :] = 1
    return ids, mask, (mask.cumsum(-1) - 1).clamp(min=0)[:, known:]


def common_prefix(contexts: Sequence[tuple[int, ...]]) -> int:
    """How many first tokens all contexts share, leaving each at least one of its own."""
    return min(common(min(contexts), max(contexts)), min(map(len, contexts)) - 1)


def _forward(model: Any, ids: Tensor, mask: Tensor, positions: Tensor, cache: DynamicCache, keep: int = 1) -> Tensor:
    """Logits of the last `keep` positions, shape `[rows, keep, vocabulary]`; the cache grows by what was run."""
    out = model(
        input_ids=ids,
        attention_mask=mask,
        position_ids=positions,
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=keep,
    )
    logits: Tensor = out.logits
    return logits
