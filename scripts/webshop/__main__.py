"""`python -m scripts.webshop [--out data/webshop]`: writes the catalogue and the goals, the same bytes every time."""

import argparse
import json
import random
from collections import Counter
from pathlib import Path

from .goals import build_goals
from .products import Row, build_members

SEED = 20220704


def build() -> tuple[list[Row], list[Row]]:
    """The products in a shuffled order, and the goals."""
    rng = random.Random(SEED)
    families = build_members(rng)
    goals = build_goals(rng, families)
    products = [member.row for family in families for member in family]
    by_asin = {row["asin"]: row for row in products}
    for goal in goals:
        by_asin[goal["asin"]]["instruction"] = goal["instruction"]
        by_asin[goal["asin"]]["instruction_attributes"] = goal["instruction_attributes"]
    rng.shuffle(products)
    return products, goals


def write(path: Path, rows: list[Row]) -> None:
    """A row a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows]
    path.write_text("".join(lines), encoding="utf-8")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m scripts.webshop", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("data/webshop"))
    out = parser.parse_args().out
    products, goals = build()
    write(out / "products.jsonl", products)
    write(out / "goals.jsonl", goals)
    print("products", dict(Counter(row["category"] for row in products)))
    print("goals", dict(Counter(row["split"] for row in goals)))
    print(f"{out}: {sum(path.stat().st_size for path in out.glob('*.jsonl')) / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
