"""What an index belongs to: a small file beside it, checked before the index is believed."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from memsearcher import jsonl
from memsearcher.retrieval.types import IndexType

SCHEMA_VERSION = 2
READABLE = (1, 2)
"""Version 1 knew flat indexes only and lacks the fields that say so."""
MANIFEST_FILE = "manifest.json"
REBUILD = "build it again (`memsearcher index build --rebuild`) or give the folder of another index"


class IndexRefused(ValueError):
    """An index that does not fit or is damaged; the message names the file and the remedy."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The facts about an index.

    Attributes:
        corpus_sha256: hash of the corpus file the vectors were made from.
        count: passages, which is vectors.
        encoder: the encoder's fingerprint.
        dimension: of the vectors.
        metric: how vectors are compared.
        index_sha256, index_bytes: hash and size of the index file.
        versions: of the libraries that made it, for people; other versions are not refused.
        index_type: see types.py.
        recall: what the index finds of what exact search does, on held-out queries (see recall.py);
            None for `flat`, which is exact search.
    """

    corpus_sha256: str
    count: int
    encoder: dict[str, str]
    dimension: int
    metric: str
    index_sha256: str
    index_bytes: int
    versions: dict[str, str]
    index_type: IndexType = "flat"
    recall: dict[str, Any] | None = None

    def write(self, folder: Path) -> None:
        """Put `manifest.json` in a folder in one step, with a checksum of its own."""
        fields = asdict(self)
        record = {"schema": SCHEMA_VERSION, **fields, "checksum": _checksum(fields)}
        jsonl.replace(folder / MANIFEST_FILE, json.dumps(record, indent=1).encode() + b"\n")

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read it back.

        Raises:
            IndexRefused: no manifest, another schema version, or anything in it that was altered.
        """
        path = folder / MANIFEST_FILE
        if not path.is_file():
            raise IndexRefused(f"{path}: no such file, so there is no finished index here; {REBUILD}")
        try:
            record = json.loads(path.read_bytes().decode())
        except (ValueError, RecursionError) as error:
            raise IndexRefused(f"{path}: damaged, not JSON ({error}); {REBUILD}") from None
        if not isinstance(record, dict) or "schema" not in record:
            raise IndexRefused(f"{path}: not the manifest of an index, it has no field 'schema'; {REBUILD}")
        version = record.pop("schema")
        if version not in READABLE:
            raise IndexRefused(f"{path}: schema {version!r}, this program reads 1 to {SCHEMA_VERSION}; {REBUILD}")
        if record.pop("checksum", None) != _checksum(record):
            raise IndexRefused(f"{path}: damaged or edited, its checksum does not match; {REBUILD}")
        return cls(**record)

    def check_owner(self, folder: Path, corpus_sha256: str, encoder: dict[str, str], dimension: int) -> None:
        """Refuse another corpus, another encoder or another dimension than the index was built with."""
        path = folder / MANIFEST_FILE
        if corpus_sha256 != self.corpus_sha256:
            raise IndexRefused(
                f"{path}: built from another corpus (sha256 {self.corpus_sha256[:12]}…, "
                f"this corpus has {corpus_sha256[:12]}…); {REBUILD}"
            )
        if dimension != self.dimension:
            raise IndexRefused(
                f"{path}: vectors of dimension {self.dimension}, the encoder gives {dimension}; {REBUILD}"
            )
        differing = [
            f"{key} {self.encoder.get(key)!r} and not {encoder.get(key)!r}"
            for key in sorted(self.encoder.keys() | encoder.keys())
            if self.encoder.get(key) != encoder.get(key)
        ]
        if differing:
            raise IndexRefused(f"{path}: built with another encoder ({'; '.join(differing)}); {REBUILD}")

    def check_file(self, path: Path) -> None:
        """Refuse an index file that is not, byte for byte, the one that was written."""
        if not path.is_file():
            raise IndexRefused(f"{path}: no such file; {REBUILD}")
        size = path.stat().st_size
        if size != self.index_bytes:
            raise IndexRefused(f"{path}: {size} bytes where {self.index_bytes} were written; {REBUILD}")
        if file_sha256(path) != self.index_sha256:
            raise IndexRefused(f"{path}: damaged, its sha256 is not the one in {MANIFEST_FILE}; {REBUILD}")


def file_sha256(path: Path) -> str:
    """The hash of a file, read as a stream."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _checksum(fields: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
