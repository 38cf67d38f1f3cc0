"""What is guessed is what followed the same tokens last."""

import random

import pytest

from memsearcher.engines.guesses import LONGEST, Guesses


def slow_guess(ids, most):
    """The same by a search through all that is there."""
    for length in range(LONGEST, 0, -1):
        for place in range(len(ids) - 1, length - 1, -1):
            if ids[place - length : place] == ids[-length:]:
                return ids[place : place + most]
    return []


@pytest.mark.parametrize(
    ("ids", "guess"),
    [
        ([], []),
        ([1], []),
        ([1, 2, 3], []),
        ([1, 2, 1], [2, 1]),
        ([1, 2, 1, 3, 1], [3, 1]),  # the last place counts
        ([5, 1, 2, 9, 6, 2, 7, 5, 1, 2], [9, 6]),  # but a longer match counts more
        ([4, 4], [4]),
        ([4, 4, 4, 4], [4]),
    ],
)
def test_by_hand(ids, guess):
    assert Guesses(ids).guess(2) == guess


def test_against_a_search_through_everything():
    draw = random.Random(0)
    for _ in range(300):
        ids = [draw.randrange(4) for _ in range(draw.randrange(1, 40))]
        split, most = draw.randrange(len(ids)), draw.randrange(5)
        guesses = Guesses(ids[:split])
        guesses.extend(ids[split:])
        assert guesses.guess(most) == slow_guess(ids, most)
