"""Exercises in notebooks: a check under them that says what is missing and lets the notebook go on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

RIGHT, NOT_YET = "✓ right", "✗ not yet"


@contextmanager
def check() -> Iterator[None]:
    """Run the assertions of a block and print whether they hold.

    The message of the first that fails is printed in place of a traceback, so it should teach.
    `NotImplementedError` is what a stub raises. Any other exception is the reader's to see whole.
    """
    try:
        yield
    except NotImplementedError as todo:
        print(f"{NOT_YET}: {todo or 'replace the stub above by your own code'}")
    except AssertionError as fault:
        print(f"{NOT_YET}: {fault or 'an assertion of the check above does not hold'}")
    else:
        print(RIGHT)
