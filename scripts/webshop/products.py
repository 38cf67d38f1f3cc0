"""Products out of the lists: families of one brand and line, whose members differ in one attribute.

Nothing here is drawn but from the `random.Random` that is handed in.
"""

import hashlib
import random
from dataclasses import dataclass
from typing import Any

from .beauty import BEAUTY
from .electronics import ELECTRONICS
from .fashion import FASHION
from .garden import GARDEN
from .grocery import GROCERY
from .kinds import Category, Kind

CATEGORIES = (BEAUTY, ELECTRONICS, FASHION, GARDEN, GROCERY)
FAMILIES = 5
MEMBERS = 4
CLOSING = (
    "Send it back within 30 days if it is not for you.",
    "Questions are answered by people, usually within a day.",
    "Ships in a plain cardboard box without plastic.",
    "Makes a good present for someone who has everything.",
    "Look at the size chart before you order.",
    "From a family business in its second generation.",
)
CAPITALS = {"usb": "USB", "led": "LED", "spf": "SPF", "rgb": "RGB", "usda": "USDA", "gmo": "GMO",
            "10000mah": "10000mAh", "20000mah": "20000mAh", "4k": "4K"}  # fmt: skip
SMALL_WORDS = {"of", "in", "with", "a", "and", "to"}
CENTS = (0.99, 0.95, 0.49, 0.0)

Row = dict[str, Any]


@dataclass(frozen=True)
class Family:
    """What the members share."""

    category: Category
    kind: Kind
    number: int
    name: str
    brand: str
    line: str
    noun: str
    tail: str
    about: tuple[str, ...]
    bullets: dict[str, str]
    closing: str
    options: dict[str, tuple[str, ...]]
    price: float


@dataclass(frozen=True)
class Member:
    """One product: its traits, and the one by which it differs from the first of its family, if it has that."""

    family: Family
    traits: tuple[str, ...]
    own: str | None
    row: Row


def build_members(rng: random.Random) -> list[list[Member]]:
    """All families, each as the list of its members."""
    families = []
    for category in CATEGORIES:
        names = [(brand, line) for brand in category.brands for line in category.lines]
        rng.shuffle(names)
        for kind in category.kinds:
            families += [_family(rng, category, kind, number, *names.pop()) for number in range(FAMILIES)]
    return families


def _family(rng: random.Random, category: Category, kind: Kind, number: int, brand: str, line: str) -> list[Member]:
    low, high = kind.price
    family = Family(
        category,
        kind,
        number,
        f"{brand} {line}",
        brand,
        line,
        rng.choice(kind.titles),
        rng.choice(kind.tails),
        tuple(rng.sample(kind.about, 2)),
        {name: rng.choice(category.traits[name].bullets) for group in kind.groups for name in group},
        rng.choice(CLOSING if category.name == "fashion" else [each for each in CLOSING if "size chart" not in each]),
        {name: _some(rng, pool) for name, pool in kind.options.items()},
        rng.uniform(low, high * 0.9),
    )
    first = [rng.choice(group) for group in rng.sample(kind.groups, rng.randint(3, min(5, len(kind.groups) - 1)))]
    sets: list[tuple[list[str], str | None]] = [(first, None)]
    while len(sets) < MEMBERS:
        traits, own = _one_changed(rng, kind, first)
        if all(set(traits) != set(other) for other, _ in sets):
            sets.append((traits, own))
    style = rng.randrange(3)
    return [Member(family, tuple(traits), own, _row(rng, family, traits, own, style)) for traits, own in sets]


def _some(rng: random.Random, pool: tuple[str, ...]) -> tuple[str, ...]:
    """A few values in the order of the pool."""
    chosen = set(rng.sample(pool, rng.randint(min(3, len(pool)), min(7, len(pool)))))
    return tuple(value for value in pool if value in chosen)


def _one_changed(rng: random.Random, kind: Kind, first: list[str]) -> tuple[list[str], str | None]:
    """The traits of the first with one exchanged, added or left out; and the new one."""
    groups = {name: group for group in kind.groups for name in group}
    taken = {groups[name] for name in first}
    swaps = [(name, other) for name in first for other in groups[name] if other != name]
    added = [name for group in kind.groups if group not in taken for name in group]
    ways = rng.choice((["swap"] * 2 if swaps else []) + ["add"] * 2 + ["drop"])
    if ways == "swap":
        old, new = rng.choice(swaps)
        return [new if name == old else name for name in first], new
    if ways == "add":
        new = rng.choice(added)
        return [*first, new], new
    left_out = rng.choice(first)
    return [name for name in first if name != left_out], None


def _row(rng: random.Random, family: Family, traits: list[str], own: str | None, style: int) -> Row:
    """The product in WebShop's schema. What is its own stands in the title or in a bullet only."""
    kind = family.kind
    shown = [name for name in traits if name != own][:2]
    if own is not None and rng.random() < 0.6:
        shown.append(own)
    bullets = [_bullet(name, family.bullets[name], labelled=style == 0) for name in traits]
    rng.shuffle(bullets)
    key = "|".join((family.name, kind.query, *sorted(traits)))
    return {
        "asin": asin(key),
        "name": _title(family, shown, style),
        "category": family.category.name,
        "query": kind.query,
        "product_category": " › ".join(kind.path),
        "full_description": " ".join(sentence.format(name=family.name) for sentence in family.about),
        "small_description": [*bullets, family.closing],
        "pricing": _pricing(rng, family.price * rng.uniform(0.92, 1.1)),
        "customization_options": {
            name: [{"value": value} for value in values] for name, values in family.options.items()
        },
        "images": [],
        "attributes": sorted(traits),
        "instruction": None,
        "instruction_attributes": [],
    }


def _bullet(trait: str, text: str, labelled: bool) -> str:
    """A bullet, with the trait before it where it does not start with that."""
    return f"{titled(trait)}: {text}" if labelled and not text.lower().startswith(trait) else text


def asin(key: str) -> str:
    """Ten characters out of a product's own words."""
    alphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
    digest = int.from_bytes(hashlib.sha256(key.encode()).digest()[:5])
    return "MS" + "".join(alphabet[digest >> 5 * place & 31] for place in range(8))


def titled(text: str) -> str:
    """Capitalized as in titles."""
    return " ".join(word if word in SMALL_WORDS else CAPITALS.get(word, word.capitalize()) for word in text.split())


def _title(family: Family, shown: list[str], style: int) -> str:
    traits = family.category.traits
    plain = [titled(name) for name in shown if traits[name].wording == "is"]
    things = [titled(name) for name in shown if traits[name].wording in ("with", "with a")]
    stuff = [titled(name) for name in shown if traits[name].wording == "made of"]
    if style == 0:
        front = " ".join([family.brand, family.line, *stuff, family.noun])
        return ", ".join([front, *plain, *things, family.tail])
    if style == 1:
        front = " ".join([family.name, *plain[:1], *stuff, family.noun])
        ending = f" with {' and '.join(things)}" if things else ""
        return ", ".join([front + ending, *plain[1:], family.tail])
    front = f"{family.brand} {family.noun} - {family.line}"
    return ", ".join([front, *[f"Made of {each}" for each in stuff], *plain, *things, family.tail])


def _pricing(rng: random.Random, price: float) -> str:
    """One price, or a range for every fourth product."""
    low = int(price) + rng.choice(CENTS)
    if rng.random() < 0.75:
        return f"${low:.2f}"
    return f"${low:.2f} - ${int(low * rng.uniform(1.15, 1.6)) + rng.choice(CENTS):.2f}"
