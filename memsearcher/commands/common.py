"""What the commands share: options, the two consoles, and how an error reaches the user."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from memsearcher.engines.models import ModelError
from memsearcher.retrieval.encoder import EncoderError

RecipeName = Annotated[str, typer.Option("--recipe", "-r", help="A built-in recipe, or a YAML file.")]
Overrides = Annotated[list[str] | None, typer.Option("--set", "-s", help="KEY=VALUE in the recipe, as limits.turns=8.")]

Objectives = Annotated[
    str | None, typer.Option(help="Put so many questions into each task, 1 to 16, or by turns as 1,2,4.")
]
Shuffle = Annotated[bool, typer.Option("--shuffle", help="Shuffle the questions before they are put together.")]
Dependent = Annotated[bool, typer.Option("--dependent", help="Let the questions of a task need each other's answers.")]

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


@contextmanager
def one_clear_error() -> Iterator[None]:
    """What a user can mend ends in one line on standard error and exit code 1; Ctrl-C in 130."""
    try:
        yield
    except (ValueError, OSError, FloatingPointError, ModelError, EncoderError) as error:
        err.print(f"error: {error}", style="red", markup=False)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        err.print("stopped; what was done is kept, the same command goes on from there")
        raise typer.Exit(130) from None


class Rate(ProgressColumn):
    """How many are done a minute."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{60 * speed:.3g}/min", style="progress.data.speed")


def progress_bar() -> Progress:
    """A bar on standard error with the count, the rate and the time that is left."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Rate(), TimeRemainingColumn())
    # Questions of a batch end together, minutes apart with a slow model: half a minute would see none or all.
    return Progress(*columns, console=err, speed_estimate_period=600)
