"""The original WebShop files, which users bring: products, attributes, people's goals.

The schema is that of princeton-nlp/WebShop: `items_shuffle*.json` is a list of products,
`items_ins_v2*.json` gives each asin its attributes and a synthetic instruction, and
`items_human_ins*.json` gives an asin the instructions that people wrote. As there, products
whose asin is "nan", longer than ten characters or there already are left out, and so are
goals without attributes; a warning counts them. Ids of workers are not read.

A file is read as a whole: the one of 1.18 million products takes several times its size in memory.
"""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Iterator
from itertools import islice, product
from pathlib import Path
from typing import Any

from memsearcher.environments.webshop.catalogue import (
    Catalogue,
    CatalogueError,
    Goal,
    Product,
    Split,
    digest,
    goal_options,
    load,
    make_product,
    refuse,
    texts,
)

ASIN_LENGTH = 10
SHUFFLE_SEED = 233
TEST, DEV = 500, 1500
"""The official splits, by a goal's place after the shuffle: test up to 500, dev up to 1,500, then train."""

logger = logging.getLogger(__name__)


class UnmatchedFiles(ValueError):
    """Files that do not go together, before any is read."""


def choose_catalogue(items: Path | None, attributes: Path | None, human: Path | None, n: int | None) -> Catalogue:
    """The built-in catalogue where there is no file, or that of the original ones (see `read_original`).

    Raises:
        UnmatchedFiles: some of the files without those that they are about.
        CatalogueError: see `read_original`.
    """
    if items is None:
        if attributes or human or n:
            raise UnmatchedFiles("attributes, human and n go with items, the products they are about")
        return load()
    if attributes is None:
        raise UnmatchedFiles("items needs attributes, the items_ins_v2*.json that goes with it")
    return read_original(items, attributes, human, n)


def read_original(items: Path, attributes: Path, human: Path | None = None, n: int | None = None) -> Catalogue:
    """A catalogue out of the original files.

    Args:
        items: `items_shuffle*.json`.
        attributes: `items_ins_v2*.json`.
        human: `items_human_ins*.json`; without it the goals are the synthetic ones, one for each
            combination of a product's options.
        n: only the first so many products.

    The goals are in the published order, shuffled with the published seed, so their places and
    splits are the official ones where the files are.

    Raises:
        CatalogueError: no JSON, or a row that is not of the schema; the message names file, row and field.
        OSError: no such file.
    """
    described = _object(attributes)
    products: dict[str, Product] = {}
    left_out = 0
    rows = _load(items)
    if not isinstance(rows, list):
        raise CatalogueError(f"{items}: a list of products was expected, not {type(rows).__name__}")
    for number, row in enumerate(islice(rows, n), 1):
        asin = row.get("asin") if isinstance(row, dict) else None
        if isinstance(asin, str) and (asin == "nan" or len(asin) > ASIN_LENGTH or asin in products):
            left_out += 1
            continue
        place = f"{items}: product {number}"
        about = described.get(asin, {}) if isinstance(asin, str) else {}
        if not isinstance(about, dict):
            raise CatalogueError(f"{attributes}: {asin}: an object was expected, not {about!r:.40}")
        read = make_product(row, place, texts(about, "attributes", f"{attributes}: {asin}"))
        products[read.asin] = read
    if left_out:
        logger.warning("%s: %d products left out (asin 'nan', too long or repeated)", items, left_out)
    asked = _synthetic(products, described, attributes) if human is None else _written(products, human)
    files = [items, attributes, *([human] if human else [])]
    return Catalogue(tuple(products.values()), _in_order(list(asked)), digest(files))


Asked = tuple[str, str, tuple[str, ...], tuple[str, ...]]
"""A goal without id and split: asin, instruction, attributes, options."""


def _in_order(asked: list[Asked]) -> tuple[Goal, ...]:
    random.Random(SHUFFLE_SEED).shuffle(asked)
    return tuple(Goal(f"webshop-{place}", _split(place), *each) for place, each in enumerate(asked))


def _split(place: int) -> Split:
    return "test" if place < TEST else "dev" if place < DEV else "train"


def _written(products: dict[str, Product], path: Path) -> Iterator[Asked]:
    """The goals that people wrote, product by product."""
    written = _object(path)
    without = 0
    for asin in products:
        rows = written.get(asin, [])
        if not isinstance(rows, list):
            raise CatalogueError(f"{path}: {asin}: a list of instructions was expected, not {rows!r:.40}")
        for number, row in enumerate(rows, 1):
            place = f"{path}: {asin}, instruction {number}"
            if not isinstance(row, dict):
                raise CatalogueError(f"{place}: an object was expected, not {row!r:.40}")
            wanted = texts(row, "instruction_attributes", place)
            if wanted:
                yield asin, _instruction(row, place), wanted, goal_options(row, place)
            else:
                without += 1
    if without:
        logger.warning("%s: %d goals left out (no attributes)", path, without)


def _synthetic(products: dict[str, Product], described: dict[str, Any], path: Path) -> Iterator[Asked]:
    """One goal for each combination of options of each product that has an instruction."""
    for asin, each in products.items():
        about, place = described.get(asin, {}), f"{path}: {asin}"
        if about.get("instruction") is None:
            continue
        instruction = _instruction(about, place).rstrip(".")
        wanted = texts(about, "instruction_attributes", place)
        if not wanted:
            refuse(place, "instruction_attributes", "is empty, yet there is an instruction")
        names = sorted(each.options)
        for values in product(*(each.options[name] for name in names)):
            said = ", and ".join(f"{name}: {value}" for name, value in zip(names, values, strict=True))
            yield asin, f"{instruction} with {said}" if said else instruction, wanted, values


def _instruction(row: dict[str, Any], place: str) -> str:
    found = row.get("instruction")
    if not isinstance(found, str) or not found.strip():
        refuse(place, "instruction", f"must be text, not {found!r:.40}")
    return found.strip()


def _object(path: Path) -> dict[str, Any]:
    found = _load(path)
    if not isinstance(found, dict):
        raise CatalogueError(f"{path}: an object by asin was expected, not {type(found).__name__}")
    return found


def _load(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise CatalogueError(f"{path}: not JSON ({error}); give the file as it was downloaded") from None
