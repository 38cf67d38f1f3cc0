"""Products and goals of the shop, and the built-in catalogue.

`make_product` reads one product of WebShop's schema; `files.py` reads whole files that users
bring. The built-in catalogue is made by `python -m scripts.webshop`; `data/webshop/README.md`
is its card.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn

from memsearcher import jsonl
from memsearcher.data import data_folder

Split = Literal["train", "dev", "test"]

NO_PRICE = 100.0
"""What a product costs whose price is not known, as in the published code."""

_AMOUNT = re.compile(r"\$\s*([\d,]+(?:\.\d+)?)")
_LONGEST_AMOUNT = 12


class CatalogueError(ValueError):
    """A product or a goal that cannot be used; the message names the file, the row and the field."""


@dataclass(frozen=True, slots=True)
class Product:
    """A product as it is sold.

    Attributes:
        prices: none (not known), one, or the ends of a range.
        options: names of options in lower case, each with its values in lower case.
        attributes: what is true of it; the shop shows them on a page of their own.
    """

    asin: str
    title: str
    category: str
    query: str
    product_category: str
    description: str
    bullets: tuple[str, ...]
    prices: tuple[float, ...]
    options: dict[str, tuple[str, ...]]
    attributes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Goal:
    """What to buy: a product that fits the instruction, with these attributes and values of options.

    `limit` is the highest price in dollars. The shop draws it under its seed; None is no limit.
    """

    id: str
    split: Split
    asin: str
    instruction: str
    attributes: tuple[str, ...]
    options: tuple[str, ...]
    limit: float | None = None

    @property
    def text(self) -> str:
        """The instruction with its price limit."""
        if self.limit is None:
            return self.instruction
        return f"{self.instruction.rstrip('.')}, and price lower than {self.limit:.2f} dollars"


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Products and the goals that can be reached with them; `sha256` names both."""

    products: tuple[Product, ...]
    goals: tuple[Goal, ...]
    sha256: str


def load() -> Catalogue:
    """The built-in catalogue: 1,000 products in five categories, one goal for each."""
    return read(data_folder() / "webshop")


def read(folder: Path) -> Catalogue:
    """A catalogue of two files, `products.jsonl` and `goals.jsonl`.

    Raises:
        CatalogueError: a row that cannot be used, an asin or id that comes twice, a goal without its product.
        JsonlError: a line that is not JSON.
        OSError: no such file.
    """
    files = folder / "products.jsonl", folder / "goals.jsonl"
    products: dict[str, Product] = {}
    for number, row in jsonl.read(files[0], foreign=True):
        place = f"{files[0]}:{number}"
        product = make_product(row, place)
        if product.asin in products:
            refuse(place, "asin", f"is that of another product already, {product.asin!r}")
        products[product.asin] = product
    goals: dict[str, Goal] = {}
    for number, row in jsonl.read(files[1], foreign=True):
        place = f"{files[1]}:{number}"
        goal = _make_goal(row, place)
        if goal.id in goals:
            refuse(place, "id", f"is that of another goal already, {goal.id!r}")
        if goal.asin not in products:
            refuse(place, "asin", f"is that of no product, {goal.asin!r}")
        goals[goal.id] = goal
    return Catalogue(tuple(products.values()), tuple(goals.values()), digest(files))


def digest(files: Sequence[Path]) -> str:
    """The hash of the files' bytes, in their order."""
    found = hashlib.sha256()
    for path in files:
        found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()


def make_product(row: Any, place: str, attributes: Sequence[str] | None = None) -> Product:
    """One row of WebShop's products; `attributes` are those of another file, where they are kept apart.

    Option names and values are lower-cased and "/" is written " | ", as in the published code.

    Raises:
        CatalogueError: naming `place`, the asin and the field.
    """
    if not isinstance(row, dict):
        raise CatalogueError(f"{place}: an object was expected, not {row!r:.40}")
    asin = row.get("asin")
    if not isinstance(asin, str) or not asin.strip():
        refuse(place, "asin", f"must be text, not {asin!r:.40}")
    place = f"{place} ({asin:.20})"
    return Product(
        asin=asin,
        title=_text(row, "name", place),
        category=_text(row, "category", place),
        query=_text(row, "query", place).lower().strip(),
        product_category=_text(row, "product_category", place),
        description=_text(row, "full_description", place, empty=True),
        bullets=_bullets(row, place),
        prices=_prices(row, place),
        options=_options(row, place),
        attributes=tuple(texts(row, "attributes", place) if attributes is None else attributes),
    )


def _make_goal(row: Any, place: str) -> Goal:
    if not isinstance(row, dict):
        raise CatalogueError(f"{place}: an object was expected, not {row!r:.40}")
    split: Any = row.get("split")
    if split not in ("train", "dev", "test"):
        refuse(place, "split", f"must be train, dev or test, not {split!r:.40}")
    return Goal(
        id=_text(row, "id", place),
        split=split,
        asin=_text(row, "asin", place),
        instruction=_text(row, "instruction", place),
        attributes=texts(row, "instruction_attributes", place),
        options=goal_options(row, place),
    )


def goal_options(row: dict[str, Any], place: str) -> tuple[str, ...]:
    """The values of a goal's `instruction_options`, a list of them or an object with their names."""
    found = row.get("instruction_options", [])
    values = list(found.values()) if isinstance(found, dict) else found
    return texts({"instruction_options": values}, "instruction_options", place)


def texts(row: dict[str, Any], key: str, place: str) -> tuple[str, ...]:
    """A field that is a list of texts; empty where it is missing or null."""
    found = row.get(key)
    if found is None:
        return ()
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        refuse(place, key, f"must be a list of texts, not {found!r:.60}")
    return tuple(found)


def refuse(place: str, key: str, fault: str) -> NoReturn:
    """Say what is wrong with a field of a row."""
    raise CatalogueError(f"{place}: field {key!r} {fault}")


def _text(row: dict[str, Any], key: str, place: str, empty: bool = False) -> str:
    found = row.get(key)
    if found is None and empty:
        return ""
    if not isinstance(found, str) or not (found.strip() or empty):
        refuse(place, key, f"must be text, not {found!r:.60}")
    return found


def _bullets(row: dict[str, Any], place: str) -> tuple[str, ...]:
    found = row.get("small_description")
    return (found,) if isinstance(found, str) else texts(row, "small_description", place)


def _prices(row: dict[str, Any], place: str) -> tuple[float, ...]:
    found = row.get("pricing")
    if not found:
        return ()
    amounts = _AMOUNT.findall(found) if isinstance(found, str) else []
    if not amounts or any(len(amount) > _LONGEST_AMOUNT for amount in amounts):
        refuse(place, "pricing", f"must be like '$9.99' or '$9.99 - $14.99', not {found!r:.60}")
    return tuple(float(amount.replace(",", "")) for amount in amounts[:2])


def _options(row: dict[str, Any], place: str) -> dict[str, tuple[str, ...]]:
    found = row.get("customization_options")
    if not found:
        return {}
    if not isinstance(found, dict):
        refuse(place, "customization_options", f"must be an object of lists, not {found!r:.60}")
    options: dict[str, tuple[str, ...]] = {}
    for name, entries in found.items():
        if entries is None:
            continue
        if not isinstance(entries, list) or not all(
            isinstance(entry, dict) and isinstance(entry.get("value"), str) for entry in entries
        ):
            refuse(place, "customization_options", f"must give {name!r:.40} a list of objects with a text as 'value'")
        values = [" ".join(entry["value"].replace("/", " | ").lower().split()) for entry in entries]
        options[name.lower()] = tuple(dict.fromkeys(value for value in values if value))
    return options
