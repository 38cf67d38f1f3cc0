"""What the README and the cards of the adapters print is what the committed tables say."""

import csv
from pathlib import Path

import pytest

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
    with (ROOT / "data/pocket-react/results.csv").open(newline="", encoding="utf-8") as file:
        (react,) = csv.DictReader(file)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"EM {react['em']}, 0.110 (0.050–0.175) less" in text
    assert f"peak {float(react['peak_tokens']):.0f} tokens" in text


def test_the_readme_says_what_the_shop_s_tables_say():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for name, said in (("pocket-shop", ") of 100 on 100 test goals"), ("pocket-shop-react", ") on the same goals")):
        with (ROOT / "data" / name / "results.csv").open(newline="", encoding="utf-8") as file:
            (shop,) = csv.DictReader(file)
        assert shop["n"] == "100"
        assert f"scores {shop['score'].replace(')', said)}" in text
