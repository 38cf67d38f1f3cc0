"""Rows on disk: lines of JSON, appended whole, read as a stream, torn ends survived; and whole files, tables too."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any


class JsonlError(ValueError):
    """A line that is not JSON; the message names file and line."""


def append(path: Path, value: Any) -> None:
    """Append one value as a line, in a single write that reaches the disk before it returns.

    A torn last line, left by a process killed while it wrote, is cut off first. Text is
    escaped to ASCII, so lone surrogates and control characters survive.

    Raises:
        OSError: the folder is read-only or the disk is full; the file then ends as it did.
    """
    line = json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode("ascii") + b"\n"
    # Unbuffered: a buffer that could not be written would be tried again when the file is closed.
    with path.open("ab", buffering=0) as file:
        end = _mend(path)
        file.truncate(end)
        try:
            written = 0
            while written < len(line):
                written += file.write(line[written:])
            os.fsync(file.fileno())
        except OSError:
            os.truncate(path, end)
            raise


def read(path: Path, *, foreign: bool = False) -> Iterator[tuple[int, Any]]:
    """Yield (line number, value); a last line without its newline is a torn write and is left out.

    In a `foreign` file, one that `append` did not write, such a line is a line like any other.

    Raises:
        JsonlError: any other line that is not JSON, an empty line included.
        OSError: the file cannot be opened.
    """
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not foreign and not line.endswith(b"\n"):
                return
            try:
                yield number, json.loads(line)
            except (ValueError, RecursionError) as error:
                raise JsonlError(f"{path}:{number}: not a line of JSON ({error})") from None


def write(path: Path, values: list[Any]) -> None:
    """Write a whole file of lines, in place of what was there, or leave that as it is."""
    text = "".join(json.dumps(value, ensure_ascii=True, separators=(",", ":")) + "\n" for value in values)
    replace(path, text.encode("ascii"))


def write_csv(path: Path, rows: Sequence[dict[str, Any]], columns: Sequence[str] | None = None) -> None:
    """Write a table in place of what was there; `columns` are those of the first row where they are not named.

    Fields that are no column are left out. Lone surrogates are written as escapes.
    """
    table = io.StringIO()
    writer = csv.DictWriter(table, columns or list(rows[0]), extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    replace(path, table.getvalue().encode("utf-8", "backslashreplace"))


def columns_of(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The columns of rows that need not have the same ones, in the order in which they first come."""
    return list(dict.fromkeys(column for row in rows for column in row))


def replace(path: Path, content: bytes) -> None:
    """Put `content` in place of a file in one step: readers see the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise


def is_part(path: Path) -> bool:
    """Whether a file is what a `replace` that was killed left behind."""
    return path.name.startswith(".") and path.suffix == ".part"


def _mend(path: Path) -> int:
    """Where the last whole line of a file ends, in bytes."""
    with path.open("rb") as file:
        file.seek(0, os.SEEK_END)
        position = file.tell()
        while position > 0:
            step = min(position, 1 << 16)
            file.seek(position - step)
            block = file.read(step)
            found = block.rfind(b"\n")
            if found >= 0:
                return position - step + found + 1
            position -= step
        return 0
