"""Shoppers that are not models: one that knows what to buy, and one that does not care."""

from __future__ import annotations

import random
from collections.abc import Iterator

from memsearcher.environments.webshop.shop import BUY, NEXT, Shop, State
from memsearcher.trajectory import Action

STEPS = 50
"""After so many actions a random shopper goes home."""


class ShopperError(RuntimeError):
    """A product that cannot be found by its own words."""


def search(query: str) -> Action:
    return Action("search", {"query": query})


def click(button: str) -> Action:
    return Action("click", {"button": button})


def scripted(shop: Shop, goal: str) -> Iterator[tuple[State, Action]]:
    """Buys the product that a goal was made from; yields each action with the state it is taken in.

    Looks for the kind of product with the goal's attributes and options, then for its title; goes
    through the pages of results until the product is there, chooses the options and buys.

    Raises:
        ShopperError: the product is not among the results of either search.
    """
    state = shop.start(goal)
    wanted = shop.products[shop.rows[state.goal.asin]]
    queries = " ".join([wanted.query, *state.goal.attributes, *state.goal.options]), wanted.title
    for query in queries:
        yield state, (action := search(query))
        state, _ = shop.act(state, action)
        while wanted.asin not in (buttons := shop.labels(state)) and NEXT in buttons:
            yield state, (action := click(NEXT))
            state, _ = shop.act(state, action)
        if wanted.asin in buttons:
            break
    else:
        raise ShopperError(f"goal {goal}: product {wanted.asin} is not among the results for its own title")
    yield state, (action := click(wanted.asin))
    state, _ = shop.act(state, action)
    choices = {value: label for label, (_, value) in shop.choices(state).items()}
    for button in (*(choices[each] for each in state.goal.options if each in choices), BUY):
        yield state, (action := click(button))
        state, _ = shop.act(state, action)


def scripted_reward(shop: Shop, goal: str) -> float:
    """What the scripted shopper earns."""
    for state, action in scripted(shop, goal):
        last = shop.act(state, action)[0]
    assert last.reward is not None, "the last action of the scripted shopper buys"
    return last.reward.value


def wander(shop: Shop, goal: str, rng: random.Random, steps: int = STEPS) -> tuple[float, int]:
    """Searches for three words of the instruction, then clicks on anything at all until it buys.

    Returns:
        The reward, 0 where nothing was bought within `steps` actions; and the number of actions.
    """
    state = shop.start(goal)
    for number in range(1, steps + 1):
        state, _ = shop.act(state, random_action(shop, state, rng))
        if state.reward is not None:
            return state.reward.value, number
    return 0.0, steps


def random_action(shop: Shop, state: State, rng: random.Random) -> Action:
    """A search where nothing can be clicked, else a click."""
    labels = shop.labels(state)
    if labels:
        return click(rng.choice(labels))
    words = state.goal.text.split()
    return search(" ".join(rng.sample(words, min(3, len(words)))))
