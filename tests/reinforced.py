"""The tables of docs/pocket.md on reinforcement and the test after it, as they follow from `figures/pocket`."""

from __future__ import annotations

from pathlib import Path
from statistics import mean

from memsearcher.evaluation.report import markdown_table, number
from memsearcher.figures.runs import read_csv
from memsearcher.statistics import Interval
from scripts.pocket import ABLATIONS

FOLDER = Path(__file__).parent.parent / "figures" / "pocket"
SEEDS = ("0", "1", "2")
TESTED = ("em", "f1", "all_found", "turns", "peak_tokens")


def read(name):
    return read_csv(FOLDER / f"{name}.csv")


def interval(measure, row, columns, signed=False):
    return number(measure, Interval(*(float(row[each]) for each in columns)), signed)


def thousands(value):
    return f"{round(float(value), -3):,.0f}"


def by_agent(name):
    """The rows of the runs that depart in nothing, by agent."""
    rows = [row for row in read(name) if not row["change"]]
    return {agent: [row for row in rows if row["agent"] == agent] for agent in ("memsearcher", "react", "mem1")}


def budgets():
    """agent, conversations, tokens, trained tokens, minutes, sampled tokens, minutes of reinforcement"""
    return [
        [
            agent, rows[0]["warm_conversations"], thousands(rows[0]["warm_tokens"]),
            thousands(rows[0]["warm_trained_tokens"]), rows[0]["warm_minutes"],
            thousands(mean(float(row["sampled_tokens"]) for row in rows)),
            f"{mean(float(row['minutes']) for row in rows):.0f}",
        ]
        for agent, rows in by_agent("budget").items()
    ]  # fmt: skip


def rises():
    """agent, measure, before, after, rise: of the mean over seeds"""
    return [
        [
            agent, row["measure"],
            *(f"{float(row[each]):.{1 if row['measure'] == 'turns' else 3}f}" for each in ("before", "after")),
            interval(row["measure"], row, ("rise", "low", "high"), signed=True),
        ]
        for agent, rows in by_agent("gains").items()
        for row in rows
        if not row["run"]
    ]  # fmt: skip


def seeds():
    """agent, seed 0, seed 1, seed 2: EM after the last step"""
    found = {
        agent: {row["seed"]: f"{float(row['after']):.3f}" for row in rows if row["run"] and row["measure"] == "em"}
        for agent, rows in by_agent("gains").items()
    }
    return [[agent, *(ems[seed] for seed in SEEDS)] for agent, ems in found.items()]


def tested():
    """questions, agent, n, failed, and the measures of the test"""
    rows = [row for row in read("tested") if row["measure"] in TESTED]
    places = dict.fromkeys((row["tasks"], row["agent"]) for row in rows)
    return [
        [tasks, agent, mine["em"]["n"], mine["em"]["failed"],
         *(interval(measure, mine[measure], ("mean", "low", "high")) for measure in TESTED)]
        for tasks, agent in places
        for mine in [{row["measure"]: row for row in rows if (row["tasks"], row["agent"]) == (tasks, agent)}]
    ]  # fmt: skip


def differences():
    """questions, first, second, difference in EM, right alone, p"""
    return [
        [
            row["tasks"], row["first"], row["second"],
            interval("em", row, ("difference", "low", "high"), signed=True),
            f"{row['only_first']}, {row['only_second']}", f"{float(row['p']):.2g}",
        ]
        for row in read("tested-pairs")
        if row["measure"] == "em"
    ]  # fmt: skip


def changed(change, measure, step=None):
    """The row of `changes.csv` of a change and a measure, at a step or the last."""
    rows = [row for row in read("changes") if (row["change"], row["measure"]) == (change, measure)]
    return next((row for row in reversed(rows) if step in (None, row["step"])), None)


def ablations():
    """ablation, EM before, EM after, difference in EM from the run it departs from, right alone, p, turns"""
    rows = []
    for name in ABLATIONS:
        before, after, turns = changed(name, "em", "0"), changed(name, "em"), changed(name, "turns")
        if after and after["step"] != "0":
            rows.append([
                name, f"{float(before['mean']):.3f}", f"{float(after['mean']):.3f}",
                interval("em", after, ("difference", "low", "high"), signed=True),
                f"{after['won']}, {after['lost']}", f"{float(after['p']):.2g}", f"{float(turns['mean']):.1f}",
            ])  # fmt: skip
    return rows


def contexts(agent, tasks, searches=("True",)):
    """Mean tokens in the contexts of turns that search, or of all, in the test, from the first turn on."""
    rows = [row for row in read("tested-context") if (row["agent"], row["tasks"]) == (agent, tasks)]
    return by_turn(row for row in rows if row["searches"] in searches)


def searching(run, step):
    """The same of the turns that search in a run's evaluation at a step."""
    return by_turn(row for row in read("contexts") if (row["run"], row["step"], row["searches"]) == (run, step, "True"))


def by_turn(rows):
    turns: dict[int, list[tuple[int, float]]] = {}
    for row in rows:
        turns.setdefault(int(row["turn"]), []).append((int(row["n"]), float(row["tokens"])))
    return [sum(n * each for n, each in found) / sum(n for n, _ in found) for found in turns.values()]


def listed(values):
    return joined([f"{each:,.0f}" for each in values])


def joined(texts):
    return f"{', '.join(texts[:-1])} and {texts[-1]}"


TABLES = {
    budgets: ("agent", "conversations", "tokens", "trained_tokens", "minutes", "tokens_sampled", "minutes_a_seed"),
    rises: ("agent", "measure", "before", "after", "rise"),
    seeds: ("agent", "seed_0", "seed_1", "seed_2"),
    tested: ("questions", "agent", "n", "failed", *TESTED),
    ablations: ("ablation", "EM_before", "EM_after", "difference_in_EM", "right_alone", "p", "turns"),
    differences: ("questions", "first", "second", "difference_in_EM", "right_alone", "p"),
}
"""By what makes its rows: the columns that a table of the page has."""


def main():
    """Print the tables, to be put into the page."""
    for make, columns in TABLES.items():
        head = [each.replace("_", " ") for each in columns]
        print(f"\n{make.__name__}\n\n{markdown_table([dict(zip(head, row, strict=True)) for row in make()])}")


if __name__ == "__main__":
    main()
