"""Tasks from the parquet files that Search-R1 and its kin train and evaluate on.

A row has `data_source`, `prompt` (chat messages), `ability`, `reward_model`
(`{"style", "ground_truth": {"target": [...]}}`) and `extra_info` (`{"split", "index"}`); most files
also hold FlashRAG's `id`, `question` and `metadata`, from which the rest was made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from memsearcher.tasks.files import TaskError, make_task
from memsearcher.trajectory import Task

COLUMNS = ("id", "question", "data_source", "prompt", "reward_model", "extra_info", "metadata")
ASKED = "Question: "


def read_search_r1(path: Path, splits: Mapping[str, str]) -> Iterator[tuple[str, str, Task]]:
    """The rows of some data sets: where each stands (for errors), its data set, and the task.

    Args:
        path: the file.
        splits: the data sets that are wanted, each with the split that it is evaluated on:
            `extra_info` calls that `test`, whatever it was of.

    A task's id is FlashRAG's, as `dev_17`. It does not name the data set, and the index in it
    starts anew with each.

    Raises:
        TaskError: not a parquet file, a row that is no task (rows count from 0), or no row of one
            of the data sets.
    """
    found: set[str] = set()
    for number, row in _rows(path):
        source = str(row.get("data_source"))
        found.add(source)
        if source in splits:
            where = f"{path}: row {number}"
            try:
                yield where, source, make_task(_flat(row, splits[source]), default_id="")
            except TaskError as error:
                raise TaskError(f"{where}: {error}") from None
    if missing := [name for name in splits if name not in found]:
        held = ", ".join(sorted(found)) or "nothing"
        raise TaskError(f"{path}: no rows of {' and '.join(missing)}; field 'data_source' holds {held}")


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 0
    try:
        file = pq.ParquetFile(path)
        columns = [name for name in COLUMNS if name in file.schema_arrow.names]
        for batch in file.iter_batches(columns=columns):
            for row in batch.to_pylist():
                yield number, row
                number += 1
    except (pa.ArrowException, OSError) as error:
        raise TaskError(f"{path}: not a parquet file that can be read ({error}); download it again") from None


def _flat(row: dict[str, Any], evaluated: str) -> dict[str, Any]:
    """A row in FlashRAG's schema."""
    model, about = row.get("reward_model"), row.get("extra_info")
    truth = model.get("ground_truth") if isinstance(model, dict) else None
    golds = truth.get("target") if isinstance(truth, dict) else None
    if not isinstance(golds, list):
        raise TaskError("field 'reward_model.ground_truth.target' must be a list of strings")
    name, question = row.get("id"), row.get("question")
    if name is None:
        split, index = (about.get("split"), about.get("index")) if isinstance(about, dict) else (None, None)
        if split not in ("train", "dev", "test") or not isinstance(index, int):
            raise TaskError("field 'extra_info' must hold a split, train, dev or test, and an index, a whole number")
        name = f"{evaluated if split == 'test' else split}_{index}"
    if question is None:
        question = _asked(row.get("prompt"))
    return {"id": name, "question": question, "golden_answers": golds, "metadata": row.get("metadata")}


def _asked(prompt: Any) -> str:
    """The question of a row without a column for it: what follows `Question: ` in the first message."""
    message = prompt[0] if isinstance(prompt, list) and prompt else None
    text = message.get("content") if isinstance(message, dict) else None
    _, asked, question = text.partition(ASKED) if isinstance(text, str) else ("", "", "")
    if not asked:
        raise TaskError(f"there is no field 'question', and no {ASKED!r} in the first message of field 'prompt'")
    return question.strip()
