"""Linear layers over few tokens on a CPU: the product is taken the other way round, which changes no result.

A decode step of few rows waits for the weights. PyTorch's `x Wᵀ` over two to eight tokens takes twice
the time of one; `(W xᵀ)ᵀ`, the same product up to floating point, takes little more than that of one
(SmolLM2 in float32 on two cores). In bfloat16 on AMX it takes half to two thirds of the time up to 128 tokens.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

FEW_TOKENS = defaultdict(lambda: 16, {torch.bfloat16: 128})
"""Tokens up to which turning the product round pays, by what it is taken in."""


@contextmanager
def thin_products(model: Any) -> Iterator[None]:
    """Within, linear layers of a model on a CPU turn products over few tokens round; all else stays as it is.

    A layer whose `forward` someone else has replaced keeps theirs, and so does one with weights of another kind.
    """
    layers = []
    if model.device.type == "cpu":
        layers = [each for each in model.modules() if type(each) is nn.Linear and "forward" not in vars(each)]
        layers = [each for each in layers if type(each.weight) is nn.Parameter]
    for layer in layers:
        vars(layer)["forward"] = partial(_forward, layer)
    try:
        yield
    finally:
        for layer in layers:
            del vars(layer)["forward"]


def _forward(layer: nn.Linear, states: Tensor) -> Tensor:
    """The layer's own answer to states of shape `[..., in]`."""
    tokens = states.shape[:-1].numel()
    if not 1 < tokens <= FEW_TOKENS[layer.weight.dtype]:
        return nn.functional.linear(states, layer.weight, layer.bias)
    columns = states.reshape(tokens, -1).t()
    product = (layer.weight @ columns).t().reshape(*states.shape[:-1], -1)
    return product if layer.bias is None else product + layer.bias
