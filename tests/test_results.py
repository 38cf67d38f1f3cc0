"""What the README and the cards of the adapters print is what the committed tables say."""

import csv
from collections import defaultdict
from pathlib import Path
from statistics import mean

import pytest

from memsearcher.evaluation.report import number
from memsearcher.figures.runs import read_csv
from memsearcher.statistics import Interval

ROOT = Path(__file__).parent.parent
CARDS = sorted(path.parent for path in (ROOT / "data").glob("pocket*/results.csv"))


def printed(page, columns):
    """The rows of the Markdown table with these columns."""
    lines = iter((ROOT / page).read_text(encoding="utf-8").splitlines())
    head = "| " + " | ".join(each.replace("_", " ") for each in columns) + " |"
    assert head in lines, f"{page} has no table {head}"
    next(lines)
    rows = []
    for line in lines:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


@pytest.mark.parametrize("folder", CARDS, ids=lambda each: each.name)
def test_a_card_prints_its_table(folder):
    with (folder / "results.csv").open(newline="", encoding="utf-8") as file:
        head, *rows = csv.reader(file)
    if folder.name == "pocket-react":  # a history is its own counterfactual
        left_out = head.index("counterfactual_react_tokens")
        head, *rows = ([*row[:left_out], *row[left_out + 1 :]] for row in (head, *rows))
    assert printed(folder / "README.md", head) == rows


def test_the_readme_prints_the_table_of_the_shipped_agent():
    with (ROOT / "data/pocket/results.csv").open(newline="", encoding="utf-8") as file:
        head, *rows = csv.reader(file)
    assert printed("README.md", head) == rows
    (react,) = read_csv(ROOT / "data/pocket-react/results.csv")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"EM {react['em']}, 0.110 (0.050–0.175) less" in text
    assert f"peak {float(react['peak_tokens']):.0f} tokens" in text


def test_the_readme_says_what_the_shop_s_tables_say():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for name, said in (("pocket-shop", ") of 100 on 100 test goals"), ("pocket-shop-react", ") on the same goals")):
        (shop,) = read_csv(ROOT / "data" / name / "results.csv")
        assert shop["n"] == "100"
        assert f"scores {shop['score'].replace(')', said)}" in text


@pytest.mark.parametrize(
    ("name", "measures"),
    [
        ("factbook", ("em", "f1", "all_found", "turns", "peak_tokens", "sampled_tokens")),
        ("hotpotqa", ("em", "f1", "recall", "all_found", "turns", "peak_tokens")),
    ],
)
def test_the_page_of_the_pocket_runs_prints_its_tables(name, measures):
    rows = [row for row in read_csv(ROOT / f"figures/early/{name}.csv") if row["measure"] in measures]
    wanted = []
    for agent in dict.fromkeys(row["agent"] for row in rows):
        mine = {row["measure"]: row for row in rows if row["agent"] == agent}
        cells = [interval(measure, mine[measure], ("mean", "low", "high")) for measure in measures]
        wanted.append([agent, mine["em"]["n"], mine["em"]["failed"], *cells])
    assert printed("docs/pocket.md", ("agent", "n", "failed", *measures)) == wanted


def test_the_readme_says_what_the_early_table_says():
    ems = {row["agent"]: row for row in read_csv(ROOT / "figures/early/factbook.csv") if row["measure"] == "em"}
    said = {agent: interval("em", row, ("mean", "low", "high")) for agent, row in ems.items()}
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"ReAct is ahead: EM {said['react']} and MemSearcher {said['memsearcher']} on 200 questions" in text


def test_the_page_of_the_pocket_runs_prints_their_differences():
    rows = [row for row in read_csv(ROOT / "figures/early/factbook-pairs.csv") if row["measure"] == "em"]
    wanted = [
        [
            row["first"],
            row["second"],
            interval("em", row, ("difference", "low", "high"), signed=True),
            f"{row['only_first']}, {row['only_second']}",
            f"{float(row['p']):.2g}",
        ]
        for row in rows
    ]
    assert printed("docs/pocket.md", ("first", "second", "difference in EM", "right alone", "p")) == wanted


def interval(measure, row, columns, signed=False):
    return number(measure, Interval(*(float(row[each]) for each in columns)), signed)


def test_the_page_of_the_pocket_runs_says_what_reinforcement_changed():
    page = (ROOT / "docs/pocket.md").read_text(encoding="utf-8")
    mine = [row for row in read_csv(ROOT / "figures/pocket/gains.csv") if not row["change"]]
    wanted = [
        [
            row["seed"].replace(" ", ", "), row["last_step"], row["measure"],
            *(f"{float(row[each]):.{1 if row['measure'] == 'turns' else 3}f}" for each in ("before", "after")),
            interval(row["measure"], row, ("rise", "low", "high"), signed=True),
        ]
        for row in mine
    ]  # fmt: skip
    assert printed("docs/pocket.md", ("seed", "steps", "measure", "before", "after", "rise")) == wanted
    means = {row["measure"]: row for row in mine if not row["run"]}
    assert f"EM rises by {float(means['em']['rise']):.2f}" in page
    assert f"take {float(means['turns']['after']):.1f} turns in place of {float(means['turns']['before']):.1f}" in page
    rewards = defaultdict(list)
    for row in read_csv(ROOT / "figures/pocket/log.csv"):
        if not row["change"]:
            rewards[row["step"]].append(float(row["reward"]))
    assert f"from {mean(rewards['1']):.2f} in the first step to {mean(rewards['5'] + rewards['6']):.2f}" in page
    noise = read_csv(ROOT / "figures/pocket/noise.csv")
    (ours,) = (row for row in noise if (row["run"], row["questions"]) == ("train-memsearcher-1", "all"))
    (theirs,) = (row for row in noise if (row["run"], row["questions"]) == ("trial-from-shipped", "all"))
    for row in (ours, theirs):
        assert f"{float(row['cosine']):.3f} ± {float(row['error']):.3f} ({row['groups']} groups" in page


def test_the_page_of_the_pocket_runs_says_what_the_trials_of_reinforcement_left():
    page = (ROOT / "docs/pocket.md").read_text(encoding="utf-8")
    tables = {name: read_csv(ROOT / f"figures/pocket/{name}.csv") for name in ("gains", "groups", "log", "validation")}
    ems = {(row["change"], row["step"], row["questions"]): row for row in tables["validation"]}
    last = {row["change"]: row["last_step"] for row in tables["gains"]}
    columns = ("trial", "from", "reward", "rate", "trajectories_a_step", "steps", "dev_EM_before", "dev_EM_after")
    shown = printed("docs/pocket.md", columns)
    for trial, _, reward, rate, count, steps, before, after in shown:
        logged = [row for row in tables["log"] if row["change"] == trial]
        played = [row for row in tables["groups"] if row["change"] == trial and row["step"] == "1"]
        assert (len(logged), len(played)) == (int(steps), int(count)), trial
        rates = [float(row["learning_rate"]) for row in logged]
        assert rates == sorted(rates) and rates[-1] == float(rate)
        assert trial.startswith("wordy") or set(rates) == {float(rate)}
        assert all((float(row["reward"]) == 0.1) <= (reward == "format_f1") for row in played)
        assert before == interval("em", ems[trial, "0", "all"], ("em", "em_low", "em_high"))
        wanted = "not evaluated"
        if trial in last:
            wanted = interval("em", ems[trial, last[trial], "all"], ("em", "em_low", "em_high"))
            wanted += "" if last[trial] == steps else f" after {last[trial]}"
        assert after == wanted
    assert sorted(row[0] for row in shown) == sorted({row["change"] for row in tables["groups"]} - {""})

    (first,) = (row for row in tables["gains"] if (row["change"], row["measure"]) == ("format_f1-seed-0", "em"))
    rise = interval("em", first, ("rise", "low", "high"), signed=True).replace("-", "−", 1).replace("(-", "(−")
    assert f"{rise}, {first['won']} questions turned right and {first['lost']} wrong" in page
    assert f"McNemar's p {float(first['p']):.2f}" in page

    groups = defaultdict(list)
    for row in tables["groups"]:
        if row["change"].startswith("format_f1") and row["kind"] != "2-hop":
            groups[row["run"], row["step"], row["question"]].append(row)
    nobody = [
        each
        for each in groups.values()
        if all(row["em"] != "1.0" for row in each) and len({row["reward"] for row in each}) > 1
    ]
    right = sum(any(row["em"] == "1.0" for row in each) for each in groups.values())
    assert f"Of the {len(groups)} groups of eight attempts" in page and f"{right} had a right one" in page
    assert f"In {len(nobody)} of the {len(groups)} groups nobody was right" in page
    gave = {
        turns: [float(row["advantage"]) for each in nobody for row in each if row["turns"] == turns] for turns in "36"
    }
    assert f"an advantage of −{-mean(gave['6']):.2f} on average (n = {len(gave['6'])})" in page
    assert f"those that answered in the third +{mean(gave['3']):.2f} (n = {len(gave['3'])})" in page

    hot = [f"{float(row['trajectories/turns']):.1f}" for row in tables["log"] if row["change"] == "f1-rate-4e-4"]
    assert f"turns went from {hot[0]} to {hot[1]}" in page
    steps = [row for row in tables["log"] if row["change"] == "format_f1-seed-0"]
    sample, update = (mean(float(row[f"time/{part}"]) for row in steps) for part in ("generate", "update"))
    assert f"({sample:.0f} s to sample, {update:.0f} s to update, mean of {len(steps)} steps)" in page
    assert f"gets {float(ems['from-shipped', '0', '3-hop']['em']):.3f} of those of three hops right" in page
