"""A corpus: one JSONL file of passages, checked once and then read by row.

The schema is Search-R1's and FlashRAG's: `{"id": "0", "contents": "\\"Title\\"\\ntext"}`,
more keys allowed. Only the byte offset of each line is kept in memory (8 bytes a
passage), so the size of the text does not matter.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

CACHED_PASSAGES = 4096
PROGRESS_FROM_BYTES = 1 << 28
UNREADABLE = re.compile("[\0\ud800-\udfff]")


class CorpusError(ValueError):
    """A corpus that cannot be used; the message names file, line and remedy."""


@dataclass(frozen=True, slots=True)
class Document:
    """A passage as it stands in the corpus.

    Attributes:
        contents: title and text as they were given.
        metadata: further keys of its line. They do not tell passages apart: the id does.
    """

    id: str
    title: str
    text: str
    contents: str
    metadata: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @classmethod
    def from_record(cls, record: Any, place: str) -> Document:
        """The passage of a line's object.

        The first line of `contents`, without the quotes that enclose it, is the title. Contents of a
        single line are text, and the title is empty.

        Raises:
            CorpusError: not an object with `id` and `contents` as a passage has them; `place` names it.
        """
        _check(record, place)
        contents = record["contents"]
        metadata = {key: value for key, value in record.items() if key not in ("id", "contents")}
        head, newline, text = contents.partition("\n")
        if not newline:
            return cls(record["id"], "", contents, contents, metadata)
        title = head.strip()
        if len(title) >= 2 and title.startswith('"') and title.endswith('"'):
            title = title[1:-1].strip()
        return cls(record["id"], title, text, contents, metadata)

    def to_record(self) -> dict[str, Any]:
        """The line as an object: `id`, `contents` and the further keys."""
        return {"id": self.id, "contents": self.contents, **self.metadata}


class Corpus:
    """The passages of a JSONL file, by row (the first line is row 0).

    Opening reads the file once, as a stream: every line is checked and the whole is hashed.

    Attributes:
        path: the file.
        sha256: the hash of its bytes, which names this corpus in every index and record.

    Raises:
        CorpusError: no such file, no passages, or a line that is not a passage: not UTF-8, not
            JSON, not an object, `id` or `contents` missing, not a string, empty, or holding a NUL
            or a lone surrogate, an id that an earlier line has.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_file():
            raise CorpusError(f"{path}: no such file; give a JSONL file of passages with `id` and `contents`")
        self.sha256, self._offsets, self._opened = _scan(path)
        self._read = lru_cache(maxsize=CACHED_PASSAGES)(self._fetch)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __iter__(self) -> Iterator[Document]:
        """All passages in order, as a stream."""
        with self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                yield self._document(line, number)

    def passage(self, row: int) -> Document:
        """The passage of a row.

        Raises:
            IndexError: no such row.
            CorpusError: the file has changed since it was opened.
        """
        return self._read(row)

    def _fetch(self, row: int) -> Document:
        # The file is opened for each fetch (some 20 microseconds): no handle is left open, and
        # threads and forked processes cannot disturb each other's position.
        if not 0 <= row < len(self):
            raise IndexError(f"{self.path}: row {row} of a corpus of {len(self)} passages")
        start, end = int(self._offsets[row]), int(self._offsets[row + 1])
        with self.path.open("rb") as file:
            if _stamp(file) != self._opened:
                raise CorpusError(f"{self.path}: the file has changed since it was opened; start again")
            file.seek(start)
            return self._document(file.read(end - start), row + 1)

    def _document(self, line: bytes, number: int) -> Document:
        place = f"{self.path}:{number}"
        return Document.from_record(_parse(line, place), place)


def _stamp(file: BinaryIO) -> tuple[int, int, int]:
    """What changes with a file: which it is, its size, when it was last written."""
    status = os.fstat(file.fileno())
    return status.st_ino, status.st_size, status.st_mtime_ns


def _scan(path: Path) -> tuple[str, np.ndarray[Any, np.dtype[np.int64]], tuple[int, int, int]]:
    """Check every line; the file's sha256, where each line starts, with the end of the last, and its stamp."""
    digest = hashlib.sha256()
    offsets, ids = array("q", [0]), array("q")
    with path.open("rb") as file, _bar(path.stat().st_size) as bar:
        stamp = _stamp(file)
        task = bar.add_task(f"reading {path.name}", total=path.stat().st_size)
        for number, line in enumerate(file, 1):
            digest.update(line)
            place = f"{path}:{number}"
            record = _parse(line, place)
            _check(record, place)
            # Ids are compared by 8 bytes of their hash: a set of 21 million strings would not fit.
            ids.append(int.from_bytes(hashlib.blake2b(record["id"].encode(), digest_size=8).digest(), signed=True))
            offsets.append(offsets[-1] + len(line))
            if number % 1024 == 0:
                bar.update(task, completed=offsets[-1])
    if not ids:
        raise CorpusError(f"{path}: the file is empty; a corpus needs at least one passage")
    starts = np.frombuffer(offsets, dtype=np.int64)
    _refuse_repeats(path, starts, np.frombuffer(ids, dtype=np.int64))
    return digest.hexdigest(), starts, stamp


def _refuse_repeats(
    path: Path, offsets: np.ndarray[Any, np.dtype[np.int64]], hashes: np.ndarray[Any, np.dtype[np.int64]]
) -> None:
    """Refuse an id that two lines have; equal hashes are settled by reading the lines again."""
    order = np.argsort(hashes, kind="stable")
    repeated = hashes[order][1:] == hashes[order][:-1]
    suspects = np.unique(np.concatenate([order[1:][repeated], order[:-1][repeated]]))
    seen: dict[str, int] = {}
    with path.open("rb") as file:
        for row in suspects:
            file.seek(offsets[row])
            name = json.loads(file.readline())["id"]
            if name in seen:
                raise CorpusError(
                    f"{path}:{row + 1}: the id {name!r} is that of line {seen[name]} already; give each line its own"
                )
            seen[name] = int(row) + 1


def _parse(line: bytes, place: str) -> Any:
    """The JSON of a line."""
    try:
        return json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise CorpusError(
            f"{place}: not UTF-8 ({error.reason} at byte {error.start}); save the file as UTF-8"
        ) from None
    except (ValueError, RecursionError) as error:
        if not line.strip():
            raise CorpusError(f"{place}: an empty line; remove it") from None
        raise CorpusError(f"{place}: not JSON ({error}); each line must be one JSON object") from None


def _check(record: Any, place: str) -> None:
    """Refuse what is not an object with the fields of a passage."""
    if not isinstance(record, dict):
        raise CorpusError(f'{place}: a JSON {type(record).__name__}; it must be an object {{"id", "contents"}}')
    for key in ("id", "contents"):
        _check_text(record, key, place)


def _check_text(record: dict[str, Any], key: str, place: str) -> None:
    """Refuse a field that is not a string a passage can have."""
    if key not in record:
        raise CorpusError(f"{place}: no field {key!r}; it must be there, as a string")
    value = record[key]
    if not isinstance(value, str):
        raise CorpusError(f"{place}: {key!r} is {json.dumps(value)[:60]}, not a string; put it in quotes")
    if not value.strip():
        raise CorpusError(f"{place}: {key!r} is empty; fill it in or remove the line")
    found = UNREADABLE.search(value)
    if found:
        name = "a NUL character" if found.group() == "\0" else f"the lone surrogate U+{ord(found.group()):04X}"
        raise CorpusError(f"{place}: {key!r} holds {name} at character {found.start()}; remove it")


def _bar(size: int) -> Progress:
    """A bar in bytes, shown only for files that take a while."""
    columns = (TextColumn("{task.description}"), BarColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    return Progress(*columns, disable=size < PROGRESS_FROM_BYTES)
