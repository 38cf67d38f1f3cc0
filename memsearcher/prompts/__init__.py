"""Prompts are text files, loaded by name; a user may pass a folder of their own.

A prompt is text with `{name}` slots. Filling one gives segments: the text around the
slots is ours, what goes into a slot comes from outside and is marked as such, so that
an engine encodes it as plain text. Braces that are not a slot's are text (`\\boxed{}`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from memsearcher.trajectory import Part, Role, Segment

FOLDER = Path(__file__).parent


class PromptError(ValueError):
    """A prompt file that is missing or lacks a slot; the message names the file."""


@dataclass(frozen=True, slots=True)
class Filling:
    """What goes into a slot: the part it is on the record, its text, and the most tokens of it."""

    part: Part
    text: str
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Prompt:
    """A text with slots."""

    name: str
    text: str

    def fill(self, role: Role, part: Part, slots: Mapping[str, list[Filling]] | None = None) -> list[Segment]:
        """The prompt as segments of one message; `part` is the part of the text around the slots."""
        slots = slots or {}
        pattern = "|".join(re.escape(f"{{{name}}}") for name in slots)
        pieces = re.split(f"({pattern})", self.text) if slots else [self.text]
        segments: list[Segment] = []
        for number, piece in enumerate(pieces):
            if number % 2:  # the odd pieces are what the pattern found
                slot = slots[piece[1:-1]]
                segments += [Segment(role, each.part, each.text, limit=each.limit) for each in slot]
            elif piece:
                segments.append(Segment(role, part, piece))
        return segments


@dataclass(frozen=True, slots=True)
class Prompts:
    """The prompts of one agent, by file name without its ending."""

    folder: str
    texts: dict[str, Prompt]

    def __getitem__(self, name: str) -> Prompt:
        return self.texts[name]

    @property
    def sha256(self) -> str:
        """Binds a record to the exact wording."""
        digest = hashlib.sha256()
        for name, prompt in sorted(self.texts.items()):
            digest.update(f"{name}\0{prompt.text}\0".encode())
        return digest.hexdigest()


def load_prompts(folder: str | Path, slots: Mapping[str, tuple[str, ...]]) -> Prompts:
    """Load the prompts of an agent.

    Args:
        folder: the name of a built-in set, or the path of a folder with `NAME.txt` files.
        slots: the names that are needed, each with the slots its text must have.

    Raises:
        PromptError: a file is missing, not UTF-8, or lacks a slot.
    """
    home = FOLDER / folder if isinstance(folder, str) and (FOLDER / folder).is_dir() else Path(folder)
    texts: dict[str, Prompt] = {}
    for name, needed in slots.items():
        path = home / f"{name}.txt"
        try:
            text = path.read_text(encoding="utf-8").removesuffix("\n")
        except (FileNotFoundError, NotADirectoryError):
            built_in = ", ".join(
                sorted(each.name for each in FOLDER.iterdir() if each.is_dir() and each.name[0] != "_")
            )
            raise PromptError(f"{path}: no such prompt; built-in sets are: {built_in}") from None
        except UnicodeDecodeError as error:
            raise PromptError(f"{path}: not UTF-8 ({error})") from None
        for slot in needed:
            if f"{{{slot}}}" not in text:
                raise PromptError(f"{path}: the slot {{{slot}}} is missing")
        texts[name] = Prompt(name, text)
    return Prompts(str(folder), texts)
