"""Draw the README's picture: a recorded trajectory as `memsearcher ask` prints it.

python -m scripts.picture data/samples/good.jsonl docs/turns.svg
"""

from __future__ import annotations

import argparse
import io
import re
from pathlib import Path

from rich.console import Console

from memsearcher import jsonl
from memsearcher.console import show
from memsearcher.trajectory import read_trajectories

WIDTH = 118


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trajectories", type=Path, help="a JSONL file; its first trajectory is drawn")
    parser.add_argument("picture", type=Path)
    arguments = parser.parse_args()
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, highlight=False)
    show(console, next(read_trajectories(arguments.trajectories)))
    svg = console.export_svg(title="memsearcher ask", unique_id="turns")
    svg = re.sub(r"@font-face \{.*?\}\n", "", svg, flags=re.DOTALL)  # a picture that asks the web for nothing
    jsonl.replace(arguments.picture, svg.encode())


if __name__ == "__main__":
    main()
