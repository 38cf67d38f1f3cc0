"""The tables of an evaluation as text, for a terminal and as Markdown."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from memsearcher.evaluation.measures import DEPENDENCY, MEASURES, SCORES, Row
from memsearcher.evaluation.table import Arm, Results
from memsearcher.statistics import Interval

LISTED = 20

LEGEND = (
    "Mean (95% bootstrap interval over questions) over the questions that were played and did not fail; [n] where",
    "a measure is known of fewer. em, f1 and cover_em follow SQuAD's normalization, em_unicode reads answers as a",
    "person would. Of tasks of several questions these are means over the questions; the sums run from 0 to their",
    "number, strict ones are 0 at a wrong number of answers. recall: share of the supporting passages that any",
    "search brought back; all_found: all of them. Of goals in the web shop, score is the reward × 100, success the",
    "share with the whole reward, steps the actions; buying nothing earns 0. peak_tokens: longest context, prompt,",
    "markers and reply counted.",
    f"dependency: {DEPENDENCY}, in tokens squared. seconds: from a question's",
    "first turn to its end, beside the others that were played at the same time.",
)


@dataclass(frozen=True, slots=True)
class Section:
    """A table to show: rows of text under the same columns, and remarks."""

    title: str
    rows: list[dict[str, str]]
    notes: list[str] = field(default_factory=list)


def sections(
    results: Results, table: Sequence[Row], pairs: Sequence[Row], judge: Mapping[str, str] | None
) -> list[Section]:
    """What there is to show of an evaluation: a table for each set of questions, and the pairs.

    Args:
        results: the rows of every arm.
        table, pairs: what `table_rows` and `pair_rows` make of them.
        judge: the fingerprint of the judge, if there is one.
    """
    means = {(row["agent"], row["tasks"], row["limits"], row["measure"]): row for row in table}
    shown = []
    for tasks in dict.fromkeys(arm.tasks for arm in results):
        arms = [arm for arm in results if arm.tasks == tasks]
        rows = [
            {"": "questions"} | {arm.name: str(arm.questions) for arm in arms},
            {"": "played"} | {arm.name: str(len(results[arm])) for arm in arms},
            {"": "failed"} | {arm.name: str(sum(_failed(row) for row in results[arm])) for arm in arms},
        ]
        for name in MEASURES:
            cells = {arm.name: _cell(name, means.get((arm.agent, tasks, arm.limits, name))) for arm in arms}
            if any(cells.values()):
                rows.append({"": name} | cells)
        shown.append(Section(tasks, rows, [note for arm in arms for note in _notes(arm, results[arm], judge)]))
    if pairs:
        shown.append(pair_section(pairs))
    return shown


def pair_section(pairs: Sequence[Row]) -> Section:
    """Paired differences as text."""
    rows = [
        {
            "first - second": f"{row['first']} - {row['second']}",
            "questions": row["tasks"],
            "measure": row["measure"],
            "difference": number(row["measure"], Interval(row["difference"], row["low"], row["high"]), signed=True),
            "n": f"{row['n']} of {row['shared']}",
            "only first : only second": "" if row["p"] is None else f"{row['only_first']} : {row['only_second']}",
            "McNemar p": "" if row["p"] is None else f"{row['p']:.2g}",
        }
        for row in pairs
    ]
    notes = [
        "n: questions with a value on both sides (a failed one has none), of those that both played.",
        "p: McNemar's exact test on EM or success, not corrected for the number of pairs.",
    ]
    return Section("Paired differences, question by question", rows, notes)


def markdown(title: str, shown: Sequence[Section]) -> str:
    """`table.md`: the sections and what the measures mean."""
    parts = [f"# {title}"]
    for section in shown:
        parts += [f"## {_plain(section.title)}", markdown_table(section.rows)]
        if section.notes:
            parts.append("\n".join(f"- {_plain(note)}" for note in section.notes))
    parts.append("\n".join(LEGEND))
    return "\n\n".join(parts) + "\n"


def markdown_table(rows: Sequence[dict[str, str]]) -> str:
    """Rows of text, at least one, as a table."""
    lines = [f"| {' | '.join(map(_plain, cells))} |" for cells in (rows[0], *(row.values() for row in rows))]
    return "\n".join([lines[0], f"{'|---' * len(rows[0])}|", *lines[1:]])


def number(name: str, interval: Interval, signed: bool = False) -> str:
    """A mean with its interval, in the digits of its measure."""
    digits = 3 if name in (*SCORES, "success") else 0 if name == "dependency" else 1
    mean, low, high = (f"{value:{'+' if signed else ''},.{digits}f}" for value in interval)
    return f"{mean} ({low} to {high})" if signed else f"{mean} ({low}–{high})"


def _cell(name: str, row: Row | None) -> str:
    if row is None:
        return ""
    known = "" if row["n"] == row["played"] - row["failed"] else f" [{row['n']}]"
    return number(name, Interval(row["mean"], row["low"], row["high"])) + known


def _notes(arm: Arm, rows: Sequence[Row], judge: Mapping[str, str] | None) -> list[str]:
    """What a reader must know of an arm: what failed, and what has no verdict."""
    notes = []
    if failed := [f"{row['id']} ({row['error']})" for row in rows if _failed(row)]:
        notes.append(f"{arm.name}: failed and not scored: {_listed(failed)}")
    if judge:
        due = [row for row in rows if not _failed(row) and row["em"] is not None]
        known = sum(row["judge"] is not None for row in due)
        notes.append(
            f"{arm.name}: judged {known} of {len(due)} by {judge['model']}, prompt {judge['prompts']} "
            f"(SHA-256 {judge['prompts_sha256'][:12]})"
        )
        if unjudged := [f"{row['id']} ({row['judge_error']})" for row in due if row["judge"] is None]:
            notes.append(f"{arm.name}: without a verdict: {_listed(unjudged)}")
    return notes


def _listed(names: Sequence[str]) -> str:
    more = f"; and {len(names) - LISTED} more in questions.csv" if len(names) > LISTED else ""
    return "; ".join(names[:LISTED]) + more


def _failed(row: Row) -> bool:
    return row["error"] is not None


def _plain(text: str) -> str:
    """Text that may come from outside, as it is, in one cell of a Markdown table."""
    shown = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in " ".join(text.split()))
    return re.sub(r"([\\`*<>\[\]|])", r"\\\1", shown)
