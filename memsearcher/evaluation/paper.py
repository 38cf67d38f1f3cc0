"""What papers report, beside what was measured here and never mixed up with it.

The rows of `data/paper_reported.csv` carry their source, and all were transcribed second-hand.
Papers use other models, the whole of Wikipedia and whole test sets, so a row of ours stands
beside theirs for orientation; it is not a replication.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence

from memsearcher.data import data_folder
from memsearcher.evaluation.measures import Row
from memsearcher.evaluation.report import Section, number
from memsearcher.statistics import Interval

COLUMNS = ("dataset", "measure", "method", "model or questions", "value", "kind")
METRICS = ("em", "f1")


def paper_rows() -> list[dict[str, str]]:
    """The committed table: `method`, `model`, `dataset`, `metric`, `value`, `source`."""
    with (data_folder() / "paper_reported.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def dataset_of(tasks: str) -> str:
    """The data set that papers would call a set of questions: `hotpotqa` of `hotpotqa.dev.1000`."""
    objectives = re.search(r"\d+-objective", tasks)
    return objectives[0] if objectives else tasks.partition(".")[0]


def paper_section(table: Sequence[Row]) -> Section:
    """EM and F1 of `table` (see `table_rows`), data set by data set, above what papers report on the same one.

    Of tasks of several questions it is MEM1's sum over them, 0 at a wrong number of answers. With an
    empty table all that papers report.
    """
    reported = paper_rows()
    sources = list(dict.fromkeys(row["source"] for row in reported))
    wanted = {dataset_of(row["tasks"]) for row in table} or {row["dataset"] for row in reported}
    rows: list[tuple[str, ...]] = []
    for dataset, metric in dict.fromkeys((row["dataset"], row["metric"]) for row in reported):
        if dataset not in wanted or metric not in METRICS:
            continue
        measure = f"{metric}_sum_strict" if dataset.endswith("-objective") else metric
        for ours in (row for row in table if (dataset_of(row["tasks"]), row["measure"]) == (dataset, measure)):
            value = f"{number(measure, Interval(ours['mean'], ours['low'], ours['high']))}, n={ours['n']}"
            rows.append((dataset, metric, f"{ours['agent']} {ours['limits']}".strip(), ours["tasks"], value, "ours"))
        for theirs in (row for row in reported if (row["dataset"], row["metric"]) == (dataset, metric)):
            kind = f"paper-reported [{sources.index(theirs['source']) + 1}]"
            rows.append((dataset, metric, theirs["method"], theirs["model"], theirs["value"], kind))
    notes = [f"[{place}] {source}" for place, source in enumerate(sources, 1)]
    notes += [f"No paper-reported figures on {name}." for name in sorted(wanted - {row[0] for row in rows})]
    return Section(
        "Paper-reported figures (other models, corpora and samples than ours)",
        [dict(zip(COLUMNS, row, strict=True)) for row in rows],
        notes,
    )
