"""A scripted shopper that plays every agent's own protocol, for the warm start in the web shop.

What it does is the business of `shoppers.scripted`, which knows the product. What it writes down is
on the page that the model is shown: where it is, what fits, what is chosen and what is still to
choose. Each action follows from that and from the instruction, so that a model can learn it, but for
two. Of the products found, the shopper goes straight to the one the goal was made from, and titles
do not always tell it from its relatives. Where it is not found, the shopper searches for its title.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from memsearcher.agents.protocol import Generate
from memsearcher.environments.webshop.actions import write_action
from memsearcher.environments.webshop.pages import cut
from memsearcher.environments.webshop.shop import BUY, NEXT, Shop, State
from memsearcher.environments.webshop.shoppers import scripted
from memsearcher.training.expert import HANDS
from memsearcher.trajectory import Action, Task, Trajectory

Script = list[tuple[State, Action]]


@dataclass(frozen=True, slots=True)
class ShopExpert:
    """Writes the replies of any agent in `HANDS`; `tool` is the name of what it shops with."""

    shop: Shop
    tool: str = "shop"
    _scripts: dict[str, Script] = field(default_factory=dict, init=False, repr=False, compare=False)

    def turns(self, task: Task) -> int:
        """A turn for each action, and the last, in which nothing can be bought.

        Raises:
            ShopperError: the product cannot be found (see `scripted`).
        """
        return len(self._script(task)) + 1

    def reply(self, trajectory: Trajectory, call: Generate) -> str:
        """The text of the next reply of `trajectory`, whose pending call is `call`."""
        hand, script = HANDS[trajectory.agent], self._script(trajectory.task)
        done = len(trajectory.actions)
        note = self._note(script, done) if done else ""
        if call.purpose == "remember":
            return hand.remember.format(memory=note)
        # What an agent with a memory noted stands right before its thought: the page it is on, and nothing older.
        lead = "" if hand.thinks == "last" else note
        thought = f"{lead} {_plan(script[done][1])}".lstrip()
        return f"<think>{thought}</think>\n{hand.act(write_action(script[done][1]), self.tool)}"

    def _script(self, task: Task) -> Script:
        if task.id not in self._scripts:
            self._scripts[task.id] = list(scripted(self.shop, task.id))
        return self._scripts[task.id]

    def _note(self, script: Script, done: int) -> str:
        """Where the shopper is after `done` actions, and what of it the rest of its way depends on."""
        state, action = script[done]
        if state.page == "results":
            page = f'Page {state.number} of the results for "{state.query}":'
            if action.name == "search":
                return f"{page} nothing fits, and there are no more."
            button = action.arguments["button"]
            found = "nothing" if button == NEXT else self._describe(self.shop.rows[button])
            return f"{page} {found} fits."
        assert state.row is not None, "the scripted shopper goes from the results to the item and stays there"
        chosen = ", ".join(f"{name}: {value}" for name, value in state.chosen.items())
        left = ", ".join(each.arguments["button"] for _, each in script[done:-1])
        # No word stands both for nothing chosen and for nothing left: small models take one for the other.
        told = f" Chosen: {chosen}." if chosen else ""
        return f"At {self._describe(state.row)}.{told} {f'To choose: {left}.' if left else 'Ready to buy.'}"

    def _describe(self, row: int) -> str:
        product = self.shop.products[row]
        return f"{product.asin} ({cut(product.title, self.shop.cuts.title)}, ${self.shop.prices[row]:.2f})"


def _plan(action: Action) -> str:
    """What the shopper is about to do."""
    if action.name == "search":
        return "I search for what is asked for."
    button = action.arguments["button"]
    return {NEXT: "I turn the page.", BUY: "That is all, I buy it."}.get(button, f"I click {button}.")
