"""What the commands share: options, the two consoles, and how an error reaches the user."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from memsearcher.engines.models import ModelError
from memsearcher.retrieval.encoder import EncoderError

RecipeName = Annotated[str, typer.Option("--recipe", "-r", help="A built-in recipe, or a YAML file.")]
Overrides = Annotated[list[str] | None, typer.Option("--set", "-s", help="KEY=VALUE in the recipe, as limits.turns=8.")]

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


@contextmanager
def one_clear_error() -> Iterator[None]:
    """What a user can mend ends in one line on standard error and exit code 1; Ctrl-C in 130."""
    try:
        yield
    except (ValueError, OSError, ModelError, EncoderError) as error:
        err.print(f"error: {error}", style="red", markup=False)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        err.print("stopped; what was done is kept, the same command goes on from there")
        raise typer.Exit(130) from None


def progress_bar() -> Progress:
    """A bar on standard error with the count and the time that is left."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=err)
