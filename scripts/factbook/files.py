"""The files of data/factbook. A fact that many questions pass through is written once.

In the split files `metadata.steps` lists ids of facts.jsonl; in memory a step is the fact itself.
"""

import json
from pathlib import Path
from typing import Any

from .passages import Passage
from .profiles import FactbookError

Row = dict[str, Any]
SPLITS = ("train", "dev", "test")


def write_world(out: Path, corpus: list[Passage], rows: dict[str, list[Row]]) -> None:
    """Writes corpus, facts and splits."""
    out.mkdir(parents=True, exist_ok=True)
    _write(out / "corpus.jsonl", [passage.row() for passage in corpus])
    facts = {
        step["id"]: step for split_rows in rows.values() for row in split_rows for step in row["metadata"]["steps"]
    }
    _write(out / "facts.jsonl", [facts[key] for key in sorted(facts)])
    for split, split_rows in rows.items():
        _write(out / f"{split}.jsonl", [_with_steps(row, _ids(row)) for row in split_rows])


def read_world(folder: Path) -> tuple[dict[str, str], dict[str, list[Row]]]:
    """Passages by id and rows by split, with their steps filled in."""
    passages = {row["id"]: row["contents"] for row in _read(folder / "corpus.jsonl")}
    facts = {row["id"]: row for row in _read(folder / "facts.jsonl")}
    rows = {
        split: [
            _with_steps(row, [facts[key] for key in row["metadata"]["steps"]])
            for row in _read(folder / f"{split}.jsonl")
        ]
        for split in SPLITS
    }
    return passages, rows


def _ids(row: Row) -> list[str]:
    return [step["id"] for step in row["metadata"]["steps"]]


def _with_steps(row: Row, steps: list[Any]) -> Row:
    return {**row, "metadata": {**row["metadata"], "steps": steps}}


def _write(path: Path, rows: list[Row]) -> None:
    lines = (json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in rows)
    path.write_text("".join(line + "\n" for line in lines), "utf-8")


def _read(path: Path) -> list[Row]:
    try:
        lines = path.read_text("utf-8").splitlines()
    except FileNotFoundError:
        raise FactbookError(f"{path}: not there; run python -m scripts.factbook") from None
    return [json.loads(line) for line in lines]
