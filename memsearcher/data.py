"""Where the built-in data lies: inside an installed package, or beside it in a checkout."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parent


def data_folder() -> Path:
    """The folder of the built-in data.

    Raises:
        FileNotFoundError: neither an installed package's nor a checkout's folder is there.
    """
    for folder in (_PACKAGE / "data", _PACKAGE.parent / "data"):
        if (folder / "factbook").is_dir():
            return folder
    raise FileNotFoundError("the built-in data is missing: install memsearcher again, or run it from its checkout")
