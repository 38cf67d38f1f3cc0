"""The shop as an environment: actions of many shoppers in, what each sees then out."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import asdict

from memsearcher.environments.protocol import ActRequest, EnvironmentFailure
from memsearcher.environments.webshop.actions import FAULTS, parse_action
from memsearcher.environments.webshop.catalogue import Goal, Split
from memsearcher.environments.webshop.shop import Shop, State
from memsearcher.trajectory import Action, Event, Observation, Outcome, Task

EPISODES = 65_536
"""Shoppers kept in mind; those that have not acted for longest are forgotten beyond that."""


class WebShopEnvironment:
    """Carries out the shop's actions.

    An action is `Action("search", {"query": …})` or `Action("click", {"button": …})`; or, for agents
    with one tool, `Action(tool, {"query": "search[…]"})` with either written as text. What cannot be
    carried out changes nothing: the observation says why and shows the page again, and has an event
    (see `parse_action` and `Shop.act`).

    A shopper is known by its episode from the action with number 1, which starts at the search page,
    to its purchase, which gives the observation an outcome and is forgotten.
    """

    def __init__(self, shop: Shop, tool: str = "shop", episodes: int = EPISODES) -> None:
        self.shop = shop
        self._tool = tool
        self._episodes = episodes
        self._states: OrderedDict[str, State] = OrderedDict()

    @property
    def fingerprint(self) -> dict[str, str]:
        shop = self.shop
        cuts = " ".join(f"{name}={value}" for name, value in asdict(shop.cuts).items())
        return {
            "environment": "webshop",
            "catalogue": shop.catalogue.sha256,
            "seed": str(shop.seed),
            "reward": shop.mode,
            "tool": self._tool,
            "cuts": cuts,
        }

    def tasks(self, split: Split, n: int | None = None, seed: int = 0) -> list[Task]:
        """The goals of a split as tasks, `n` of them drawn by `seed`, in the order of the draw.

        The question is the instruction with its price limit. What the goal asks for is metadata, for
        people and scripted shoppers.

        Raises:
            ValueError: fewer than `n` goals.
        """
        goals = [goal for goal in self.shop.goals.values() if goal.split == split]
        if n is not None and n > len(goals):
            raise ValueError(f"{n} {split} goals were asked for; there are {len(goals)}")
        return [_task(goal) for goal in (goals if n is None else random.Random(seed).sample(goals, n))]

    def act(self, requests: Sequence[ActRequest]) -> list[Observation | EnvironmentFailure]:
        """See `Environment.act`. A task that is no goal of this shop is a failure, not an observation."""
        return [self._act(request) for request in requests]

    def _act(self, request: ActRequest) -> Observation | EnvironmentFailure:
        state = self._states.get(request.episode)
        if request.number == 1:
            if request.task.id not in self.shop.goals:
                return EnvironmentFailure(
                    f"task {request.task.id!r:.80} is no goal of this shop; take tasks from its environment"
                )
            state = self.shop.start(request.task.id)
        if state is None:
            return Observation(FAULTS["after_end"], events=(Event("after_end"),))
        state, events = self.step(state, request.action)
        page = self.shop.page(state).text(self.shop.cuts)
        text = "\n".join([*(FAULTS[event.name] for event in events), page])
        if state.reward is not None:
            self._states.pop(request.episode, None)
            return Observation(text, events=events, outcome=Outcome(state.reward.value, state.reward.parts))
        self._states[request.episode] = state
        self._states.move_to_end(request.episode)
        if len(self._states) > self._episodes:
            self._states.popitem(last=False)
        return Observation(text, events=events)

    def step(self, state: State, action: Action) -> tuple[State, tuple[Event, ...]]:
        """What an action leads to, in whichever form it comes; see `Shop.act`."""
        if action.name != self._tool:
            return self.shop.act(state, action)
        said = action.arguments.get("query")
        if not isinstance(said, str):
            return state, (Event("bad_argument", "query must be text"),)
        read, event = parse_action(said)
        return self.shop.act(state, read) if read else (state, (event,) if event else ())


def _task(goal: Goal) -> Task:
    asked = {"asin": goal.asin, "attributes": list(goal.attributes), "options": list(goal.options)}
    return Task(goal.id, goal.text, metadata={"split": goal.split, "goal": {**asked, "limit": goal.limit}})
