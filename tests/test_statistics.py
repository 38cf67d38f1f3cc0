"""Intervals and tests against hand numbers and SciPy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from memsearcher import statistics
from memsearcher.statistics import bootstrap_mean, mcnemar, paired_difference


def test_two_values_have_the_exact_interval():
    # Resampled means are 0, 1/2 and 1 with 1/4, 1/2 and 1/4: both tails are reached.
    assert bootstrap_mean([0.0, 1.0], seed=1) == (0.5, 0.0, 1.0)


def test_equal_values_leave_no_doubt():
    assert bootstrap_mean([0.25] * 7, seed=3) == (0.25, 0.25, 0.25)
    assert bootstrap_mean([1.0], seed=3) == (1.0, 1.0, 1.0)


def test_against_a_loop_with_the_same_draws():
    values = [0.0, 0.0, 1.0, 0.5, 0.25]
    draws = np.random.default_rng(11).integers(5, size=(200, 5))
    means = sorted(sum(sorted(values)[place] for place in row) / 5 for row in draws)
    low = means[4] + 0.975 * (means[5] - means[4])  # 0.025 * 199 = 4.975
    high = means[194] + 0.025 * (means[195] - means[194])  # 0.975 * 199 = 194.025
    assert bootstrap_mean(values, seed=11, resamples=200) == pytest.approx((0.35, low, high), abs=1e-12)


def test_against_scipy():
    values = np.random.default_rng(0).random(300)
    mean, low, high = bootstrap_mean(list(values), seed=5)
    theirs = stats.bootstrap((values,), np.mean, method="percentile", n_resamples=10_000, rng=7).confidence_interval
    assert mean == pytest.approx(values.mean())
    assert (low, high) == pytest.approx((theirs.low, theirs.high), abs=1.5e-3)  # two seeds; the half width is 0.033


def test_coin_flips_against_the_binomial():
    values = [1.0] * 60 + [0.0] * 140
    _, low, high = bootstrap_mean(values, seed=2)
    assert (low, high) == pytest.approx(tuple(stats.binom.ppf([0.025, 0.975], 200, 0.3) / 200), abs=0.0051)


def test_a_seed_fixes_the_interval_and_many_values_are_drawn_in_chunks():
    values = [float(number % 3) for number in range(5_000)]
    once = bootstrap_mean(values, seed=9, resamples=500)
    assert once == bootstrap_mean(values, seed=9, resamples=500)
    assert once != bootstrap_mean(values, seed=10, resamples=500)
    assert once.low < once.mean < once.high


def test_the_order_of_the_values_changes_nothing():
    values = list(np.random.default_rng(3).random(50))
    assert bootstrap_mean(values, seed=2)[1:] == bootstrap_mean(values[::-1], seed=2)[1:]
    assert values != sorted(values)  # and the caller's list is left as it was


@pytest.mark.parametrize("chunk", [1, 7, 30, 1_000])
def test_the_size_of_a_chunk_changes_nothing(chunk, monkeypatch):
    values = [0.0, 0.25, 1.0]
    expected = bootstrap_mean(values, seed=4, resamples=101)
    monkeypatch.setattr(statistics, "_CHUNK", chunk)
    assert bootstrap_mean(values, seed=4, resamples=101) == expected


@pytest.mark.parametrize(
    ("values", "resamples", "message"),
    [
        ([], 10, "no values"),
        ([1.0, float("nan")], 10, "value 1 is not a finite number"),
        ([float("inf"), 1.0], 10, "value 0 is not a finite number"),
        ([1.0], 0, "resamples must be at least 1, not 0"),
    ],
)
def test_what_has_no_mean_is_refused(values, resamples, message):
    with pytest.raises(ValueError, match=message):
        bootstrap_mean(values, 0, resamples)


def test_a_paired_difference_is_the_mean_of_the_differences():
    first, second = [1.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, 0.5]
    assert paired_difference(first, second, seed=3) == bootstrap_mean([1.0, 0.0, 0.0, 0.5], seed=3)
    mean, low, high = paired_difference(second, first, seed=3)
    theirs = paired_difference(first, second, seed=3)
    assert (mean, low, high) == pytest.approx((-theirs.mean, -theirs.high, -theirs.low))


def test_pairing_takes_out_what_is_hard_for_both():
    hard = np.random.default_rng(0).random(200)
    difference = paired_difference(list(hard + 0.01), list(hard), seed=1)
    assert (difference.low, difference.high) == pytest.approx((0.01, 0.01))
    alone = bootstrap_mean(list(hard), seed=1)
    assert alone.high - alone.low > 0.05


@pytest.mark.parametrize(
    ("first", "second", "message"), [([1.0], [], "1 values cannot be paired with 0"), ([], [], "no values")]
)
def test_what_cannot_be_paired_is_refused(first, second, message):
    with pytest.raises(ValueError, match=message):
        paired_difference(first, second, seed=0)


@pytest.mark.parametrize(
    ("only_first", "only_second", "p"),
    [
        (0, 0, 1.0),
        (1, 0, 1.0),
        (5, 5, 1.0),
        (6, 5, 1.0),
        (0, 6, 2 / 2**6),
        (1, 9, 2 * 11 / 2**10),
        (9, 1, 2 * 11 / 2**10),
    ],
)
def test_mcnemar_by_hand(only_first, only_second, p):
    assert mcnemar(only_first, only_second) == p


@given(st.integers(0, 300), st.integers(0, 300))
def test_mcnemar_against_scipy(only_first, only_second):
    if only_first + only_second:
        theirs = stats.binomtest(only_first, only_first + only_second, 0.5).pvalue
        assert mcnemar(only_first, only_second) == pytest.approx(theirs, rel=1e-9)


def test_mcnemar_of_a_whole_benchmark():
    assert mcnemar(7_000, 7_100) == pytest.approx(stats.binomtest(7_000, 14_100, 0.5).pvalue, rel=1e-9)
    assert mcnemar(0, 5_000) == 0.0  # 2^-4999 is below what a float can hold


def test_mcnemar_refuses_what_is_no_count():
    with pytest.raises(ValueError, match="counts cannot be negative: -1 and 2"):
        mcnemar(-1, 2)
