"""The shop: which page a shopper is on, what can be done there, and what that leads to.

A `State` says all about one shopper; `Shop.act` leads from one to the next and changes
nothing. Pages, buttons and their effects follow WebShop (arXiv 2207.01206). Departures: prices
and price limits are drawn under a seed, each from its product or goal alone, so they depend on
nothing but that; a product with a range of prices shows the price that was drawn, not the range;
what cannot be done is said.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from memsearcher.environments.webshop.actions import ARGUMENTS
from memsearcher.environments.webshop.catalogue import NO_PRICE, Catalogue, Goal, Product
from memsearcher.environments.webshop.pages import Cuts, Line, Page, PageName, cut
from memsearcher.environments.webshop.reward import Mode, Reward, score
from memsearcher.retrieval.lexical import Bm25
from memsearcher.trajectory import Action, Event

HITS = 50
PER_PAGE = 10
LIMITS = tuple(10.0 * step for step in range(1, 100))
"""The price limits there are, in dollars; a goal's is one of the four next above the price."""

BACK, PREVIOUS, NEXT, BUY = "Back to Search", "< Prev", "Next >", "Buy Now"
SUB_PAGES: dict[str, PageName] = {
    "Description": "description",
    "Features": "features",
    "Reviews": "reviews",
    "Attributes": "attributes",
}
FIXED = frozenset(label.lower() for label in (BACK, PREVIOUS, NEXT, BUY, *SUB_PAGES))


@dataclass(frozen=True, slots=True)
class State:
    """Where a shopper is: the page, the search with its hits, the item and what was chosen of it."""

    goal: Goal
    page: PageName = "search"
    query: str = ""
    hits: tuple[int, ...] = ()
    number: int = 1
    row: int | None = None
    chosen: dict[str, str] = field(default_factory=dict)
    reward: Reward | None = None


Way = Callable[[], State]


class Shop:
    """A catalogue that can be shopped in.

    Args:
        catalogue: products and goals.
        seed: of prices and price limits.
        mode: how a purchase is rewarded.
        cuts: how much is shown of each part of a page, and read of a query.

    Attributes:
        goals: by id, with their price limits.
        prices: of each product in dollars, by its row in the catalogue.
    """

    def __init__(self, catalogue: Catalogue, seed: int = 0, mode: Mode = "original", cuts: Cuts | None = None) -> None:
        self.catalogue = catalogue
        self.seed = seed
        self.mode = mode
        self.cuts = cuts or Cuts()
        self.products = catalogue.products
        self.prices = [draw_price(product, seed) for product in self.products]
        self.rows = {product.asin: row for row, product in enumerate(self.products)}
        self.goals = {goal.id: self._limited(goal) for goal in catalogue.goals}
        self._asins = {product.asin.lower() for product in self.products}
        self._bm25 = Bm25(map(_indexed, self.products))

    def start(self, goal: str) -> State:
        """The search page, before anything was done.

        Raises:
            KeyError: no goal of that id.
        """
        return State(self.goals[goal])

    def act(self, state: State, action: Action) -> tuple[State, tuple[Event, ...]]:
        """What an action leads to. One that cannot be carried out changes nothing, and an event says why.

        Events: after_end, unknown_action, bad_argument, empty_search, query_cut, empty_click,
        button_elsewhere, unknown_button, already_chosen.
        """
        if state.reward is not None:
            return state, (Event("after_end", "the purchase is made"),)
        argument = action.arguments.get(ARGUMENTS.get(action.name, ""))
        if action.name not in ARGUMENTS:
            return state, (Event("unknown_action", f"{action.name:.80}"),)
        if not isinstance(argument, str):
            return state, (Event("bad_argument", f"{ARGUMENTS[action.name]} must be text"),)
        argument = " ".join(argument.split())
        if not argument:
            return state, (Event(f"empty_{action.name}"),)
        return self._search(state, argument) if action.name == "search" else self._click(state, argument.lower())

    def page(self, state: State) -> Page:
        """What the shopper sees."""
        if state.reward is not None:
            thanks = Line("Thank you for shopping with us!")
            return Page("done", (thanks, Line(f"Your score (min 0.0, max 1.0): {state.reward.value:.3f}")))
        if state.page == "search":
            return Page("search", (Line("WebShop"), Line("Search")))
        buttons = tuple(self._buttons(state))
        if state.page == "results":
            return Page("results", self._results(state), buttons)
        row = self._row(state)
        product = self.products[row]
        if state.page == "item":
            lines = (Line(product.title, "title"), Line(f"Price: ${self.prices[row]:.2f}"), Line("Rating: N.A."))
            return Page("item", lines, buttons, _labels(product), state.chosen)
        texts = {
            "description": (product.description or "There is no description.",),
            "features": product.bullets or ("There are no features.",),
            "reviews": ("There are no reviews.",),
            "attributes": product.attributes or ("There are no attributes.",),
        }
        return Page(state.page, tuple(map(Line, texts[state.page])), buttons)

    def labels(self, state: State) -> list[str]:
        """All that can be clicked, options included, as it is shown in full."""
        return [*self._buttons(state), *self.choices(state)]

    def search(self, query: str) -> tuple[int, ...]:
        """The products that a query finds, by their rows, best first and at most `HITS`."""
        return tuple(hit.row for hit in self._bm25.search(query, HITS))

    def _search(self, state: State, query: str) -> tuple[State, tuple[Event, ...]]:
        events: tuple[Event, ...] = ()
        if len(query) > self.cuts.query:
            events = (Event("query_cut", f"{len(query) - self.cuts.query} of {len(query)} characters left out"),)
            query = query[: self.cuts.query]
        return State(state.goal, "results", query, self.search(query)), events

    def _click(self, state: State, label: str) -> tuple[State, tuple[Event, ...]]:
        for name, way in self._buttons(state).items():
            if name.lower() == label:
                return way(), ()
        for name, (option, value) in self.choices(state).items():
            if label in (name, cut(name, self.cuts.value)):
                if state.chosen.get(option) == value:
                    return state, (Event("already_chosen", f"{option}: {value}"),)
                return replace(state, chosen={**state.chosen, option: value}), ()
        elsewhere = label in FIXED or label in self._asins
        return state, (Event("button_elsewhere" if elsewhere else "unknown_button", f"{label:.200}"),)

    def _buttons(self, state: State) -> dict[str, Way]:
        """What each button of the page leads to, by its label."""
        if state.page == "search" or state.reward is not None:
            return {}
        ways: dict[str, Way] = {BACK: partial(State, state.goal)}
        results = partial(State, state.goal, "results", state.query, state.hits)
        if state.page == "results":
            if state.number * PER_PAGE < len(state.hits):
                ways[NEXT] = partial(results, state.number + 1)
            if state.number > 1:
                ways[PREVIOUS] = partial(results, state.number - 1)
            for row in self.shown(state):
                ways[self.products[row].asin] = partial(replace, state, page="item", row=row)
        elif state.page == "item":
            ways[PREVIOUS] = partial(results, state.number)
            ways |= {label: partial(replace, state, page=page) for label, page in SUB_PAGES.items()}
            ways[BUY] = partial(self._buy, state)
        else:
            ways[PREVIOUS] = partial(replace, state, page="item")
        return ways

    def choices(self, state: State) -> dict[str, tuple[str, str]]:
        """Option and value by the label that chooses it."""
        if state.page != "item":
            return {}
        product = self.products[self._row(state)]
        return {
            label: (option, value)
            for (option, labels), values in zip(_labels(product).items(), product.options.values(), strict=True)
            for label, value in zip(labels, values, strict=True)
        }

    def _buy(self, state: State) -> State:
        row = self._row(state)
        wanted = self.products[self.rows[state.goal.asin]]
        reward = score(self.products[row], self.prices[row], state.chosen.values(), state.goal, wanted, self.mode)
        return replace(state, page="done", reward=reward)

    def _results(self, state: State) -> tuple[Line, ...]:
        lines = [Line(f"Page {state.number} (Total results: {len(state.hits)})")]
        for row in self.shown(state):
            product = self.products[row]
            lines += [Line(product.asin), Line(product.title, "title"), Line(f"${self.prices[row]:.2f}")]
        return tuple(lines)

    def shown(self, state: State) -> tuple[int, ...]:
        """The products of a page of results, by their rows."""
        if state.page != "results":
            return ()
        return state.hits[(state.number - 1) * PER_PAGE : state.number * PER_PAGE]

    def _row(self, state: State) -> int:
        assert state.row is not None, "a page of an item has an item"
        return state.row

    def _limited(self, goal: Goal) -> Goal:
        return replace(goal, limit=draw_limit(goal, self.prices[self.rows[goal.asin]], self.seed))


def draw_price(product: Product, seed: int) -> float:
    """The price in dollars: the one there is, one within the range, or `NO_PRICE`."""
    if not product.prices:
        return NO_PRICE
    if len(product.prices) == 1:
        return product.prices[0]
    return round(random.Random(f"{seed} price {product.asin}").uniform(*product.prices), 2)


def draw_limit(goal: Goal, price: float, seed: int) -> float | None:
    """The higher of two drawn from the next four limits above the price; None where there are not two."""
    above = [limit for limit in LIMITS if limit > price][:4]
    if len(above) < 2:
        return None
    return max(random.Random(f"{seed} limit {goal.id}").sample(above, 2))


def _indexed(product: Product) -> str:
    """What is searched: title, description, first bullet and options."""
    options = ", ".join(f"{name}: {', '.join(values)}" for name, values in product.options.items())
    return "\n".join([product.title, product.description, *product.bullets[:1], options])


def _labels(product: Product) -> dict[str, tuple[str, ...]]:
    """The labels of each option's values: the value, or "option: value" where it would not be the only one."""
    count = Counter(value for values in product.options.values() for value in values)
    return {
        option: tuple(f"{option}: {value}" if value in FIXED or count[value] > 1 else value for value in values)
        for option, values in product.options.items()
    }
