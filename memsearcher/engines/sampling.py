"""Drawing tokens from logits, so that a row's draws depend on its own seed alone."""

from __future__ import annotations

import torch
from torch import Tensor

from memsearcher.engines.protocol import Sampling

_NARROW = 256
"""Tokens looked at first for top-p: their mass nearly always suffices, and sorting a vocabulary is slow."""


def uniforms(seed: int, count: int) -> Tensor:
    """The random numbers of one request, one a token: float64 in [0, 1), shape `[count]`.

    They are drawn at once and on the CPU, so they are the same on every device.
    """
    generator = torch.Generator().manual_seed(seed & (2**63 - 1))
    return torch.rand(count, dtype=torch.float64, generator=generator)


def draw(logits: Tensor, sampling: Sampling, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """One token a row by inverting the cumulated distribution, and its log-probability.

    The log-probability is that of the softmax of `logits / temperature` over the whole
    vocabulary, BEFORE top-k and top-p: what importance ratios need and what TRL and vLLM
    report. Greedy draws use temperature 1. Top-k is applied first and top-p to what it
    leaves; the token that crosses `top_p` is kept.

    Args:
        logits: float, shape `[rows, vocabulary]`.
        uniform: float64 in [0, 1), shape `[rows]`; unused if greedy.

    Returns:
        tokens (int64) and log-probabilities (float32), shape `[rows]`; a log-probability
        is not finite where the row's logits have a NaN or an infinity above.
    """
    logits = logits.float()
    if sampling.temperature == 0:
        tokens = logits.max(-1).indices  # the first of equals, as argmax, in a fifth of its time on a CPU
    else:
        logits = logits / sampling.temperature
    total = logits.logsumexp(-1)
    if sampling.temperature > 0:
        safe = torch.where(torch.isfinite(total)[:, None], logits, 0.0)
        if sampling.top_p < 1 or sampling.top_k > 0:
            tokens = _filtered(safe, sampling, uniform)
        else:
            tokens = _invert((safe - total.nan_to_num(0.0, 0.0, 0.0)[:, None]).exp(), uniform)
    chosen = logits.gather(-1, tokens[:, None])[:, 0]
    # Subtracting where the total is not finite could look finite or zero: say so outright.
    return tokens, torch.where(torch.isfinite(total), chosen - total, torch.nan)


def _filtered(logits: Tensor, sampling: Sampling, uniform: Tensor) -> Tensor:
    """Draw among each row's likeliest tokens."""
    size = logits.shape[-1]
    most = min(sampling.top_k, size) if sampling.top_k else size
    width = min(most, _NARROW)
    top, order = logits.topk(width)
    if width < most:
        mass = (top.logsumexp(-1) - logits.logsumexp(-1)).exp()
        if sampling.top_k or bool((mass < sampling.top_p).any()):
            top, order = logits.topk(most)
    # Relative to the mass of what top-k left, or of everything where only top-p filters.
    total = top.logsumexp(-1) if sampling.top_k else logits.logsumexp(-1)
    weights = (top - total[:, None]).exp()
    before = weights.cumsum(-1) - weights
    weights = torch.where(before < sampling.top_p, weights, 0.0)
    return order.gather(-1, _invert(weights, uniform)[:, None])[:, 0]


def _invert(weights: Tensor, uniform: Tensor) -> Tensor:
    """The first index whose cumulated weight exceeds that share of the whole; never one of weight 0."""
    cumulated = weights.cumsum(-1, dtype=torch.float64)
    total = cumulated[:, -1:]
    target = torch.minimum(uniform.to(weights.device)[:, None] * total, total.nextafter(torch.zeros_like(total)))
    return torch.searchsorted(cumulated, target, right=True)[:, 0]
