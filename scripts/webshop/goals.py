"""Goals: a product, what is asked of it, and an instruction in words.

The price limit is not written here: the shop draws it under its seed and appends it to the
instruction, so no instruction ends in a full stop.
"""

import random
from collections.abc import Callable

from .kinds import Kind, Trait
from .products import Member, Row

SPLITS = ("train", "train", "train", "dev", "test")
"""By the number of the family: relatives never stand on both sides of a split."""
NOT_WANTED = {"hand wash only", "spot clean only"}
USED_UP = {"face serum", "lip balm", "protein bars"}


def build_goals(rng: random.Random, families: list[list[Member]]) -> list[Row]:
    """One goal for each product, in the schema of WebShop's human goals with an id and a split."""
    goals = []
    counts: dict[str, int] = {}
    for family in families:
        for member in family:
            split = SPLITS[member.family.number]
            counts[split] = counts.get(split, 0) + 1
            goals.append(_goal(rng, member, split, f"webshop-{split}-{counts[split]:03d}"))
    return goals


def _goal(rng: random.Random, member: Member, split: str, name: str) -> Row:
    wanted = [trait for trait in member.traits if trait not in NOT_WANTED]
    attributes = rng.sample(wanted, rng.randint(1, min(3, len(wanted))))
    if member.own in wanted and member.own not in attributes:
        attributes[0] = member.own
    offered = member.family.options
    named = list(offered) if rng.random() < 0.7 else rng.sample(list(offered), rng.randint(1, len(offered)))
    options = {option: rng.choice(values) for option, values in offered.items() if option in named}
    return {
        "id": name,
        "split": split,
        "asin": member.row["asin"],
        "instruction": instruct(rng, member, attributes, options),
        "instruction_attributes": attributes,
        "instruction_options": options,
    }


class Wish:
    """A goal in pieces of a sentence.

    `thing` is the noun with its adjectives and article, `bare` the noun with its article alone,
    `extras` what it is made of and comes with.
    """

    def __init__(self, kind: Kind, traits: dict[str, Trait], attributes: list[str], options: list[str]) -> None:
        self.kind = kind
        self.adjectives = [name for name in attributes if traits[name].wording == "is"]
        self.made_of = [name for name in attributes if traits[name].wording == "made of"]
        self.comes_with = [
            f"{article(name)} {name}" if traits[name].wording == "with a" else name
            for name in attributes
            if traits[name].wording in ("with", "with a")
        ]
        self.options = options
        self.plural = kind.noun == "plural"
        self.them = "them" if self.plural else "it"
        self.they = "they" if self.plural else "it"

    @property
    def thing(self) -> str:
        return self._with_article(" ".join([", ".join(self.adjectives), self.kind.query]).strip())

    @property
    def bare(self) -> str:
        return self._with_article(self.kind.query)

    @property
    def extras(self) -> str:
        made = [f"made of {listed(self.made_of)}"] if self.made_of else []
        return " ".join([*made, *([f"with {listed(self.comes_with)}"] if self.comes_with else [])])

    @property
    def predicate(self) -> str:
        """What is said of it behind "that": "are waterproof and come with a lid"."""
        parts = []
        if self.adjectives:
            parts.append(f"{'are' if self.plural else 'is'} {listed(self.adjectives)}")
        if self.made_of:
            parts.append(f"{'are' if self.plural else 'is'} made of {listed(self.made_of)}")
        if self.comes_with:
            parts.append(f"{'come' if self.plural else 'comes'} with {listed(self.comes_with)}")
        return listed(parts)

    def _with_article(self, text: str) -> str:
        return f"{article(text)} {text}" if self.kind.noun == "count" else text


def listed(parts: list[str]) -> str:
    """a, b and c."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def article(text: str) -> str:
    """a or an; "usb", "eau" and "one" are written with a vowel and spoken without, "led" the other way."""
    if text.startswith(("usb", "eau", "one", "unisex", "usda")):
        return "a"
    return "an" if text[0] in "aeiou8" or text.startswith(("led ", "rgb ", "herb")) else "a"


def spoken(option: str, value: str, category: str) -> str:
    """An option as part of a sentence."""
    if option == "color":
        return f"in {value}"
    if option == "skin type":
        return f"for {value} skin"
    if value.startswith("with "):
        return value
    if value in ("unscented", "unflavored", "untinted"):
        return f"in the {value} version"
    if value.endswith(" size"):
        return f"in {value}"
    if value.endswith(" pack"):
        return f"as {article(value)} {value}"
    if option == "size" and category == "fashion":
        return f"in size {value}"
    return f"in the {value} {option}"


def _looking(wish: Wish) -> str:
    return _joined(f"i am looking for {wish.thing}", wish.extras, wish.options)


def _need_that(wish: Wish) -> str:
    return _joined(f"i need {wish.bare} that {wish.predicate}", "", wish.options)


def _find(wish: Wish) -> str:
    return _joined(f"find me {wish.thing}", wish.extras, wish.options)


def _question(wish: Wish) -> str:
    first = f"can you help me find {wish.thing} {wish.extras}".strip()
    return f"{first}? i want {wish.them} " + ", ".join(wish.options)


def _replace(wish: Wish) -> str:
    if wish.kind.noun == "mass" or wish.kind.query in USED_UP:
        some = "one" if wish.kind.noun == "count" else "some"
        return _joined(
            f"i am running low on {wish.kind.query} and would like {some} that {wish.predicate}", "", wish.options
        )
    ones = "new ones" if wish.plural else "a new one"
    return _joined(f"my {wish.kind.query} wore out, so i want {ones} that {wish.predicate}", "", wish.options)


def _must(wish: Wish) -> str:
    wanted = ", ".join([f"looking for {wish.bare}", *wish.options])
    return f"{wanted}. make sure {wish.they} {wish.predicate}"


def _gift(wish: Wish) -> str:
    return _joined(f"i need a present for a friend, {wish.thing}", wish.extras, wish.options)


def _order(wish: Wish) -> str:
    return _joined(f"please order {wish.thing} for me", wish.extras, wish.options)


def _shopping(wish: Wish) -> str:
    return _joined(f"shopping for {wish.thing}", wish.extras, wish.options)


PHRASINGS: tuple[Callable[[Wish], str], ...] = (
    _looking, _need_that, _find, _question, _replace, _must, _gift, _order, _shopping,
)  # fmt: skip


def _joined(first: str, extras: str, options: list[str]) -> str:
    return ", ".join([f"{first} {extras}".strip(), *options])


def instruct(rng: random.Random, member: Member, attributes: list[str], options: dict[str, str]) -> str:
    """An instruction in one of the phrasings."""
    family = member.family
    category = family.category
    if rng.random() < 0.15:
        said = [f"{option}: {value}" for option, value in options.items()]
        wish = Wish(family.kind, category.traits, attributes, said)
        return _looking(wish)
    said = [spoken(option, value, category.name) for option, value in options.items()]
    return rng.choice(PHRASINGS)(Wish(family.kind, category.traits, attributes, said))
