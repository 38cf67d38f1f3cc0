"""What the lists of a category are made of."""

from dataclasses import dataclass
from typing import Literal

Wording = Literal["is", "with", "with a", "made of"]
Noun = Literal["count", "plural", "mass"]


@dataclass(frozen=True)
class Trait:
    """An attribute: how it is worded ("is" noise cancelling, "with a" lid), and bullets that state it."""

    wording: Wording
    bullets: tuple[str, ...]


@dataclass(frozen=True)
class Kind:
    """One kind of product.

    Attributes:
        query: what a shopper would search for; the noun of the instructions.
        noun: whether that is "a towel", "earbuds" or "coffee".
        path: from the broadest category to the narrowest.
        titles: the noun as titles have it.
        price: from and to, in dollars.
        groups: traits, by name; a product has at most one of a group.
        options: names of options, each with the values to draw from, in their order.
        tails: how a title may end.
        about: descriptions; {name} is brand and line.
    """

    query: str
    noun: Noun
    path: tuple[str, ...]
    titles: tuple[str, ...]
    price: tuple[int, int]
    groups: tuple[tuple[str, ...], ...]
    options: dict[str, tuple[str, ...]]
    tails: tuple[str, ...]
    about: tuple[str, ...]


@dataclass(frozen=True)
class Category:
    """The written lists of one category."""

    name: str
    brands: tuple[str, ...]
    lines: tuple[str, ...]
    traits: dict[str, Trait]
    kinds: tuple[Kind, ...]


def is_(*bullets: str) -> Trait:
    """As in: earbuds that are noise cancelling."""
    return Trait("is", bullets)


def has(*bullets: str) -> Trait:
    """As in: boots with memory foam."""
    return Trait("with", bullets)


def has_a(*bullets: str) -> Trait:
    """As in: baskets with a lid."""
    return Trait("with a", bullets)


def of(*bullets: str) -> Trait:
    """As in: socks made of merino wool."""
    return Trait("made of", bullets)
