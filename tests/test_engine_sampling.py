import math

import pytest
import torch

from memsearcher.engines.protocol import Sampling
from memsearcher.engines.sampling import draw, uniforms


def slow(logits, sampling, uniform):
    """One row, in plain Python floats."""
    scale = sampling.temperature or 1.0
    scaled = [value / scale for value in logits.tolist()]
    top = max(scaled)
    total = top + math.log(sum(math.exp(value - top) for value in scaled))
    if sampling.temperature == 0:
        token = scaled.index(top)
        return token, scaled[token] - total
    order = list(range(len(scaled)))
    if sampling.top_k or sampling.top_p < 1:
        order.sort(key=lambda index: -scaled[index])
        order = order[: sampling.top_k or len(order)]
        mass = sum(math.exp(scaled[index] - total) for index in order)
        kept, seen = [], 0.0
        for index in order:
            if seen >= sampling.top_p:
                break
            kept.append(index)
            seen += math.exp(scaled[index] - total) / mass
        order = kept
    weights = [math.exp(scaled[index] - total) for index in order]
    target, seen = uniform * sum(weights), 0.0
    for index, weight in zip(order, weights, strict=True):
        seen += weight
        if seen > target:
            return index, scaled[index] - total
    raise AssertionError


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(),
        Sampling(1.0),
        Sampling(0.7),
        Sampling(1.0, top_p=0.8),
        Sampling(1.0, top_k=5),
        Sampling(1.3, top_p=0.5, top_k=20),
        Sampling(8.0, top_p=0.99),  # nearly flat: more than the narrow look is needed
        Sampling(8.0, top_p=0.9, top_k=300),
    ],
    ids=str,
)
def test_draws_match_a_slow_reference(sampling):
    torch.manual_seed(0)
    logits = torch.randn(50, 400) * 3
    uniform = uniforms(1, 50)
    tokens, logprobs = draw(logits, sampling, uniform)
    for row in range(50):
        token, logprob = slow(logits[row].double(), sampling, float(uniform[row]))
        assert int(tokens[row]) == token
        assert float(logprobs[row]) == pytest.approx(logprob, abs=1e-5)


def test_the_draws_follow_the_distribution():
    probabilities = torch.tensor([0.5, 0.0, 0.3, 0.2])
    tokens, _ = draw(probabilities.log().expand(20_000, 4), Sampling(1.0), uniforms(3, 20_000))
    counts = torch.bincount(tokens, minlength=4) / 20_000
    assert counts[1] == 0
    assert torch.allclose(counts, probabilities, atol=0.015)


def test_the_ends_of_the_unit_interval():
    logits = torch.tensor([[-math.inf, 0.0, 0.0, -math.inf]]).expand(2, 4)
    tokens, _ = draw(logits, Sampling(1.0), torch.tensor([0.0, 1 - 2**-53], dtype=torch.float64))
    assert tokens.tolist() == [1, 2]


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(1.0), Sampling(1.0, top_p=0.5)], ids=str)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_logits_that_are_not_finite_show(sampling, bad):
    logits = torch.zeros(2, 300)
    logits[1, 7] = bad
    _, logprobs = draw(logits, sampling, uniforms(0, 2))
    assert torch.isfinite(logprobs).tolist() == [True, False]


def test_seeds():
    assert torch.equal(uniforms(5, 10), uniforms(5, 20)[:10])
    assert not torch.equal(uniforms(5, 10), uniforms(6, 10))
    assert torch.equal(uniforms(2**63 + 4, 3), uniforms(4, 3))
    assert uniforms(-1, 3).shape == (3,)
