"""Means and differences with their uncertainty."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

_CHUNK = 1 << 20


class Interval(NamedTuple):
    """A mean and the ends of its 95% interval."""

    mean: float
    low: float
    high: float


def bootstrap_mean(values: Sequence[float], seed: int, resamples: int = 10_000) -> Interval:
    """The mean of `values` with its 95% percentile bootstrap interval.

    `resamples` times as many values as there are, drawn with replacement, give as many
    means; the interval runs from their 2.5th to their 97.5th percentile (interpolated
    linearly). The same seed and values give the same interval, in whatever order they stand.
    It speaks of the questions drawn and not of training runs: a run is one sample.

    Raises:
        ValueError: no values, one that is not finite, or no resamples.
    """
    sample = np.array(values, dtype=np.float64)
    if sample.size == 0:
        raise ValueError("there are no values to take a mean of")
    if not np.isfinite(sample).all():
        raise ValueError(f"value {int(np.argmin(np.isfinite(sample)))} is not a finite number")
    if resamples < 1:
        raise ValueError(f"resamples must be at least 1, not {resamples}")
    sample.sort()
    random = np.random.default_rng(seed)
    # In chunks: 10,000 resamples of a benchmark's 14,000 questions would take a gigabyte.
    rows = max(1, _CHUNK // sample.size)
    means = [
        sample[random.integers(sample.size, size=(min(rows, resamples - done), sample.size))].mean(axis=1)
        for done in range(0, resamples, rows)
    ]
    low, high = np.percentile(np.concatenate(means), [2.5, 97.5])
    return Interval(float(sample.mean()), float(low), float(high))


def paired_difference(first: Sequence[float], second: Sequence[float], seed: int, resamples: int = 10_000) -> Interval:
    """The mean of `first - second`, value by value, with its 95% bootstrap interval (see `bootstrap_mean`).

    Questions are drawn as pairs, so what makes a question hard for both cancels out.

    Raises:
        ValueError: not as many values on either side, and what `bootstrap_mean` refuses.
    """
    if len(first) != len(second):
        raise ValueError(f"{len(first)} values cannot be paired with {len(second)}")
    differences = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
    return bootstrap_mean(differences.tolist(), seed, resamples)


def mcnemar(only_first: int, only_second: int) -> float:
    """McNemar's exact test: the two-sided p of so many pairs that only one of the two got right.

    Were both equally good, each such pair would be a fair coin. p is the chance of a split at
    least as uneven as this one; pairs that both got right, or both wrong, say nothing.

    Raises:
        ValueError: a negative count.
    """
    if only_first < 0 or only_second < 0:
        raise ValueError(f"counts cannot be negative: {only_first} and {only_second}")
    pairs = only_first + only_second
    # In whole numbers: binomials of thousands of pairs are beyond floats.
    tail = ways = 1
    for right in range(min(only_first, only_second)):
        ways = ways * (pairs - right) // (right + 1)
        tail += ways
    return float(min(Fraction(1), Fraction(2 * tail, 1 << pairs)))
