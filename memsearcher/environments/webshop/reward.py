"""What a purchase is worth: WebShop's reward, as published and with its quirks mended.

    R = r_type · (n_att + n_opt + [price ≤ limit]) / (|attributes| + |options| + 1)

- n_att: goal attributes that the product has, or that its title, bullets or description hold.
- n_opt: goal options that were chosen.
- r_type: 1; 0.5 unless the query is the same, two categories are shared or more than 0.2 of the
  nouns of the goal's title stand in the product's; then 0.1 where that share is below 0.1 and 0
  where it is 0, whatever else is the same. A title without nouns counts as 0.2.

`original` compares as published: by a token set ratio above 85, options after any colour in them
was reduced to its base colour, attributes else as a substring. So "large" is "x-large", "sky
blue" is "navy blue" and "oil" is in "foil". `strict` asks for the same words in the same order,
anywhere in a text but as whole words, and for the same option.

Source: Yao et al. 2022 (arXiv 2207.01206), section 3 and appendix; princeton-nlp/WebShop, goal.py.
There, options of goals that name them were compared as pairs of name and value; here by value.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from memsearcher.environments.webshop.catalogue import Goal, Product
from memsearcher.environments.webshop.matching import FUZZY_ABOVE, base_color, holds, nouns, token_set_ratio, words

Mode = Literal["original", "strict"]


@dataclass(frozen=True, slots=True)
class TypeMatch:
    """How close the product is to the goal's in kind: `factor` is r_type, `title` the share of nouns."""

    factor: float
    query: bool
    category: bool
    title: float


@dataclass(frozen=True, slots=True)
class Reward:
    """The reward and its parts: for each attribute and option of the goal whether it was met."""

    value: float
    mode: Mode
    type: TypeMatch
    attributes: dict[str, bool]
    options: dict[str, bool]
    price: float
    limit: float | None

    @property
    def in_budget(self) -> bool:
        return self.limit is None or self.price <= self.limit

    @property
    def parts(self) -> dict[str, Any]:
        """All of it as JSON types."""
        return {**asdict(self), "in_budget": self.in_budget}


def score(bought: Product, price: float, chosen: Iterable[str], goal: Goal, wanted: Product, mode: Mode) -> Reward:
    """The reward for buying `bought` at `price` with the `chosen` values of options.

    `wanted` is the product the goal was made from. An attribute or option that the goal lists
    twice counts once.
    """
    chosen = list(chosen)
    same_attribute, same_option = (_fuzzy_attribute, _fuzzy_option) if mode == "original" else (_has, _is)
    attributes = {each: same_attribute(bought, each) for each in goal.attributes}
    options = {each: any(same_option(other, each) for other in chosen) for each in goal.options}
    kind = match_type(bought, wanted)
    in_budget = goal.limit is None or price <= goal.limit
    met = sum(attributes.values()) + sum(options.values()) + in_budget
    value = kind.factor * met / (len(attributes) + len(options) + 1)
    return Reward(value, mode, kind, attributes, options, price, goal.limit)


def match_type(bought: Product, wanted: Product) -> TypeMatch:
    """r_type and what it is made of."""
    query = bought.query == wanted.query
    category = len(_categories(bought) & _categories(wanted)) >= 2
    desired = nouns(wanted.title)
    title = len(set(desired) & set(nouns(bought.title))) / len(desired) if desired else 0.2
    factor = 1.0 if query or category or title > 0.2 else 0.5
    if title < 0.1:
        factor = 0.1 if title else 0.0
    return TypeMatch(factor, query, category, title)


def _categories(product: Product) -> set[str]:
    return {each.strip() for each in product.product_category.split("›")}


def _texts(product: Product) -> tuple[str, str, str]:
    return product.title, " ".join(product.bullets), product.description


def _fuzzy_attribute(product: Product, wanted: str) -> bool:
    return any(token_set_ratio(each, wanted) > FUZZY_ABOVE for each in product.attributes) or any(
        wanted.lower() in text.lower() for text in _texts(product)
    )


def _fuzzy_option(chosen: str, wanted: str) -> bool:
    return token_set_ratio(base_color(chosen.lower()), base_color(wanted.lower())) > FUZZY_ABOVE


def _has(product: Product, wanted: str) -> bool:
    return any(words(each) == words(wanted) for each in product.attributes) or any(
        holds(text, wanted) for text in _texts(product)
    )


def _is(chosen: str, wanted: str) -> bool:
    return words(chosen) == words(wanted)
