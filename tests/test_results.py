"""What the README and the cards of the adapters print is what the committed tables say."""

import csv
from collections import defaultdict
from pathlib import Path
from statistics import mean

import pytest

from memsearcher.assemble import SHIPPED
from memsearcher.evaluation.report import number
from memsearcher.figures.rise import over_seeds
from memsearcher.figures.runs import read_csv
from memsearcher.statistics import Interval, paired_difference
from scripts.gains import turned
from tests import reinforced
from tests.reinforced import interval

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/pocket.md").read_text(encoding="utf-8")
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


def test_the_readme_and_the_page_say_how_the_shipped_agents_compare():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    cards = {
        agent: {row["questions"]: row["em"] for row in read_csv(ROOT / "data" / card / "results.csv")}
        for agent, card in SHIPPED["search"].items()
    }
    for agent, page in (("memsearcher", PAGE), ("react", PAGE), ("react", text), ("mem1", text)):
        assert reinforced.joined(list(cards[agent].values())) in page, agent
    assert f"On four, MEM1's EM is {cards['mem1']['chain, 4 hops']}" in PAGE
    rows = [row for row in read_csv(ROOT / "figures/shipped/tested.csv") if row["measure"] == "em"]
    for row in (each for each in rows if each["tasks"] != "all"):
        em = cards[row["agent"]][f"chain, {row['tasks'][0]} hops"]
        assert em == interval("em", row, ("mean", "low", "high"))
    pairs = read_csv(ROOT / "figures/shipped/tested-pairs.csv")
    for first, page in (("memsearcher", PAGE), ("memsearcher", text)):
        (row,) = (
            row for row in pairs
            if (row["first"], row["second"], row["tasks"], row["measure"]) == (first, "react", "all", "em")
        )  # fmt: skip
        difference, low, high = (f"{float(row[each]):.3f}" for each in ("difference", "low", "high"))
        assert f"by {difference} ({low} to {high}) over all {row['n']} questions" in page
    contexts = [
        f"{float(row['tokens']):,.0f}" for row in read_csv(ROOT / "figures/shipped/tested-context.csv")
        if (row["agent"], row["tasks"], row["searches"]) == ("memsearcher", "4-hop", "True")
    ]  # fmt: skip
    assert f"{reinforced.joined(contexts)} tokens in turns 1 to 5" in text


def test_the_page_and_the_readme_say_what_a_longer_warm_start_of_react_did():
    gains = {(row["run"], row["measure"]): row for row in reinforced.read("gains")}
    for measure, name in (("em", "EM"), ("cover_em", "cover-EM")):
        row = gains["trial-longer-react", measure]
        before, after = (f"{float(row[each]):.3f}" for each in ("before", "after"))
        assert f"{name} from {before} to {after}" in PAGE
        assert interval("em", row, ("rise", "low", "high"), signed=True) in PAGE
    rows = [row for row in reinforced.read("questions") if row["step"] == "6"]
    ours, theirs = (
        {row["question"]: float(row["em"]) for row in rows if row["change"] == f"longer-{agent}"}
        for agent in ("memsearcher", "react")
    )
    react, memsearcher = over_seeds([theirs], [ours])
    by, alone = paired_difference(memsearcher, react, seed=0), turned(react, memsearcher, "em")
    assert f"EM less ReAct's is {number('em', by, signed=True)} after reinforcement" in PAGE
    assert f"{alone['won']} and {alone['lost']} right alone (McNemar's p {alone['p']:.2g})" in PAGE
    after = {agent: f"{float(gains[f'trial-longer-{agent}', 'em']['after']):.3f}" for agent in ("memsearcher", "react")}
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"ReAct came to EM {after['react']} on validation and MemSearcher to {after['memsearcher']}" in readme


def test_the_page_says_what_a_small_and_a_large_memory_did():
    played = defaultdict(list)
    for row in reinforced.read("groups"):
        played[row["run"]].append((row["question"], row["sample"], row["em"], row["turns"], row["reward"]))
    small = played["ablation-memory-16"]
    assert f"{sum(each[2] == '1.0' for each in small)} of {len(small)} attempts were right" in PAGE
    assert played["ablation-memory-256"] == played["train-memsearcher-0"]
    cut = [row["events/memory_cut"] for row in reinforced.read("log") if row["run"] == "train-memsearcher-0"]
    assert set(map(float, cut)) == {0}
    turns = {name: row[-1] for name, *row in reinforced.ablations()}
    base = reinforced.changed("memory-untrained", "turns")
    assert (
        f"{turns['average-conversation']} (conversation) and {turns['memory-untrained']} (memory untrained) "
        f"in place of {float(base['base']):.1f}"
    ) in PAGE


def test_the_cards_say_what_reinforcement_changed():
    gains = {(row["run"], row["measure"]): row for row in reinforced.read("gains")}
    for folder, run in (
        ("pocket", "trial-longer-memsearcher"),
        ("pocket-react", "train-react-0"),
        ("pocket-mem1", "train-mem1-0"),
    ):
        text = (ROOT / "data" / folder / "README.md").read_text(encoding="utf-8")
        for measure, name in (("em", "EM"), ("cover_em", "cover-EM")):
            row = gains[run, measure]
            rise = interval("em", row, ("rise", "low", "high"), signed=True)
            before, after = (f"{float(row[each]):.3f}" for each in ("before", "after"))
            assert rise in text and f"from {before} to {after}" in text and name in text
    row = gains["trial-longer-memsearcher", "em"]
    for text in (PAGE, (ROOT / "data/pocket/README.md").read_text(encoding="utf-8")):
        assert f"{row['won']} turned right and {row['lost']} wrong" in text


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


def test_the_readme_says_how_the_agents_compare():
    ems = {row["agent"]: row for row in read_csv(ROOT / "figures/early/factbook.csv") if row["measure"] == "em"}
    said = {agent: interval("em", row, ("mean", "low", "high")) for agent, row in ems.items()}
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"EM {said['react']} and MemSearcher {said['memsearcher']} on 200 questions" in text
    two, three, four = (
        " and ".join(
            em
            for tasks, agent, _, _, em, *_ in reversed(reinforced.tested())
            if tasks == f"{hops}-hop" and agent != "mem1"
        )
        for hops in (2, 3, 4)
    )
    assert f"{two} on 300 test questions of two hops, {three} on 300 of three, {four} on 300 of four" in text


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


@pytest.mark.parametrize("make", reinforced.TABLES, ids=lambda make: make.__name__)
def test_the_page_of_the_pocket_runs_prints_the_tables_of_reinforcement(make):
    assert printed("docs/pocket.md", reinforced.TABLES[make]) == make()


def test_the_page_and_the_readme_say_what_reinforcement_changed():
    ems, covers, turns = (
        {agent: row for agent, name, *row in reinforced.rises() if name == measure}
        for measure in ("em", "cover_em", "turns")
    )
    gains = ", ".join(f"{float(ems[agent][2].split()[0]):.2f} ({name})" for agent, name in NAMES.items())
    assert f"EM rises by {gains}" in PAGE
    for agent in ("react", "memsearcher", "mem1"):
        assert f"({'cover-EM ' * (agent == 'react')}{covers[agent][0]})" in PAGE
    assert f"With the note before the thought it takes {turns['memsearcher'][1]} in place of" in PAGE
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"EM +{float(ems['memsearcher'][2].split()[0]):.2f} on validation" in readme


def test_the_page_of_the_pocket_runs_says_how_long_contexts_were_in_the_test():
    for tasks in {row["tasks"] for row in reinforced.read("tested-context")}:
        hops, kept = tasks[0], ("True", "False")
        ours = reinforced.contexts("memsearcher", tasks)
        assert f"{reinforced.listed(ours)} tokens in the turns that search (questions of {WORDS[hops]} hops" in PAGE
        spread = max(abs(each / ours[1] - 1) for each in ours[1:])
        assert f"from the second on within {spread:.1%}" in PAGE
        theirs = reinforced.listed(reinforced.contexts("react", tasks, kept))
        assert f"{theirs} in turns 1 to 6 (questions of {WORDS[hops]} hops)" in PAGE
    for row in reinforced.read("tested-pairs"):
        ours = (row["first"], row["second"]) == ("memsearcher", "react")
        if ours and row["measure"] == "em" and row["tasks"] != "all":
            assert f"by {-float(row['difference']):.3f} on {WORDS[row['tasks'][0]]} hops" in PAGE


WORDS = {"2": "two", "3": "three", "4": "four"}
NAMES = {"memsearcher": "MemSearcher", "react": "ReAct", "mem1": "MEM1"}


def test_the_page_of_the_pocket_runs_says_what_the_note_before_a_thought_changed():
    rows = [row for row in reinforced.read("validation") if row["questions"] == "all"]
    before = {row["seed"]: row for row in rows if row["change"].startswith("wordy-em-seed") and row["step"] == "6"}
    wordy = ("trial-wordy-em-seed", "train-memsearcher")
    starts = {row["cover_em"] for row in rows if row["step"] == "0" and row["run"].startswith(wordy)}
    low, high = (f"{each:.3f}" for each in sorted(map(float, starts)))
    assert f"cover-EM of the warm start went from {low} to {high} on the same questions" in PAGE
    old = reinforced.changed("wordy-em-seed-0", "cover_em", "0")
    rise = number("em", Interval(*(-float(old[each]) for each in ("difference", "high", "low"))), signed=True)
    assert f"{rise}, {old['lost']} turned right and {old['won']} wrong" in PAGE
    ems = [f"{float(before[seed]['em']):.3f}" for seed in reinforced.SEEDS]
    assert f"from {ems[0]}, {ems[1]} and {ems[2]} (seeds 0, 1 and 2" in PAGE
    assert f"took {mean(float(row['turns']) for row in before.values()):.1f} turns in place of 3.8" in PAGE
    gained = mean(float(row["em"]) for row in before.values()) - 0.15
    assert f"The three `wordy-em` seeds rose, by {gained:.3f} on average" in PAGE
    assert f"Seed 2 had EM {ems[2]} and {float(before['2']['turns']):.1f} turns there" in PAGE
    noise = reinforced.read("noise")
    (ours,) = (row for row in noise if (row["run"], row["questions"]) == ("trial-wordy-em-seed-1", "all"))
    (theirs,) = (row for row in noise if (row["run"], row["questions"]) == ("trial-from-shipped", "all"))
    for row in (ours, theirs):
        assert f"{float(row['cosine']):.3f} ± {float(row['error']):.3f} ({row['groups']} groups" in PAGE


def test_the_page_of_the_pocket_runs_says_what_a_frugal_memory_does():
    start, end = (reinforced.changed("frugal", measure, step) for measure, step in (("cover_em", "0"), ("em", "6")))
    for row, name in ((start, "cover-EM of {} after the warm start"), (end, "EM of {} after six steps")):
        assert name.format(f"{float(row['mean']):.3f}") in PAGE
        assert interval("em", row, ("difference", "low", "high"), signed=True) in PAGE
    turns = reinforced.changed("frugal", "turns", "6")
    assert f"with {float(turns['mean']):.1f} turns in place of {float(turns['base']):.1f}" in PAGE
    for run, words in (("trial-frugal", "contexts of"), ("train-memsearcher-0", "with the whole memory")):
        tokens = reinforced.searching(run, "0")
        assert f"{words} {reinforced.listed(tokens)}" in PAGE
        assert run != "trial-frugal" or f"within {max(abs(each / tokens[1] - 1) for each in tokens[1:]):.1%}" in PAGE
        tokens = reinforced.searching(run, "6")
        assert reinforced.listed(tokens) in PAGE
        assert f"{max(abs(each / tokens[1] - 1) for each in tokens[1:]):.0%}" == "6%"
    assert "so that both grow by 6% then" in PAGE


def test_the_page_of_the_pocket_runs_says_what_the_trials_of_reinforcement_left():
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
        assert trial.startswith(("wordy", "frugal", "longer")) or set(rates) == {float(rate)}
        assert all((float(row["reward"]) == 0.1) <= (reward == "format_f1") for row in played)
        assert before == interval("em", ems[trial, "0", "all"], ("em", "em_low", "em_high"))
        wanted = "not evaluated"
        if trial in last:
            wanted = interval("em", ems[trial, last[trial], "all"], ("em", "em_low", "em_high"))
            wanted += "" if last[trial] == steps else f" after {last[trial]}"
        assert after == wanted
    assert sorted(row[0] for row in shown) == sorted(
        {row["change"] for row in tables["groups"] if row["run"].startswith("trial-")}
    )

    (first,) = (row for row in tables["gains"] if (row["change"], row["measure"]) == ("format_f1-seed-0", "em"))
    rise = interval("em", first, ("rise", "low", "high"), signed=True).replace("-", "−", 1).replace("(-", "(−")
    assert f"{rise}, {first['won']} questions turned right and {first['lost']} wrong" in PAGE
    assert f"McNemar's p {float(first['p']):.2f}" in PAGE

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
    assert f"Of the {len(groups)} groups of eight attempts" in PAGE and f"{right} had a right one" in PAGE
    assert f"In {len(nobody)} of the {len(groups)} groups nobody was right" in PAGE
    gave = {
        turns: [float(row["advantage"]) for each in nobody for row in each if row["turns"] == turns] for turns in "36"
    }
    assert f"an advantage of −{-mean(gave['6']):.2f} on average (n = {len(gave['6'])})" in PAGE
    assert f"those that answered in the third +{mean(gave['3']):.2f} (n = {len(gave['3'])})" in PAGE

    hot = [f"{float(row['trajectories/turns']):.1f}" for row in tables["log"] if row["change"] == "f1-rate-4e-4"]
    assert f"turns went from {hot[0]} to {hot[1]}" in PAGE
    steps = [row for row in tables["log"] if row["change"] == "format_f1-seed-0"]
    sample, update = (mean(float(row[f"time/{part}"]) for row in steps) for part in ("generate", "update"))
    assert f"({sample:.0f} s to sample, {update:.0f} s to update, mean of {len(steps)} steps)" in PAGE
    assert f"gets {float(ems['from-shipped', '0', '3-hop']['em']):.3f} of those of three hops right" in PAGE
