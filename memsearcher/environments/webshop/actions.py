"""The shop's two actions, `search[…]` and `click[…]`, written as text, and what can be wrong with them."""

from __future__ import annotations

import re

from memsearcher.trajectory import Action, Event

ARGUMENTS = {"search": "query", "click": "button"}
"""Each action's name, and what its one argument is called."""

FAULTS = {
    "not_an_action": "That is no action. Write search[what to look for] or click[a button].",
    "several_actions": "One action at a time.",
    "nested_action": "An action inside an action cannot be carried out.",
    "unknown_action": "There is no such action. Write search[what to look for] or click[a button].",
    "bad_argument": "A search needs a query and a click a button, as text.",
    "empty_search": "The search is empty. Name what to look for.",
    "empty_click": "The click is empty. Name a button.",
    "query_cut": "The query was too long; its beginning was searched for.",
    "button_elsewhere": "That button is not on this page.",
    "unknown_button": "There is no such button.",
    "already_chosen": "That was chosen already.",
    "after_end": "The purchase is made. Nothing more can be done.",
}
"""What a shopper is told of each event."""

_ACTION = re.compile(r"(search|click)\s*\[(.*)\]", re.IGNORECASE | re.DOTALL)
_BETWEEN = re.compile(r"\]\s*(?:search|click)\s*\[", re.IGNORECASE)


def parse_action(text: str) -> tuple[Action | None, Event | None]:
    """Read one action; where it is none, an event says why.

    Everything between the first bracket and the last is the argument, brackets too:
    `search[cable [3 pack]]` looks for "cable [3 pack]". Nothing may stand before or behind.

    Events: not_an_action, several_actions (nothing says which one counts), nested_action (the
    argument is an action itself, as in `search[click[x]]`), empty_search, empty_click.
    """
    found = _ACTION.fullmatch(text.strip())
    if found is None:
        return None, Event("not_an_action", f"{text.strip():.200}")
    name, argument = found[1].lower(), found[2].strip()
    if _BETWEEN.search(argument):
        return None, Event("several_actions", f"{text.strip():.200}")
    if _ACTION.fullmatch(argument):
        return None, Event("nested_action", f"{text.strip():.200}")
    if not argument:
        return None, Event(f"empty_{name}")
    return Action(name, {ARGUMENTS[name]: argument}), None


def write_action(action: Action) -> str:
    """An action of the shop as text."""
    return f"{action.name}[{action.arguments[ARGUMENTS[action.name]]}]"
