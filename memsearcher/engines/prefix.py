"""What earlier calls left behind: attention states of their tokens, for contexts that begin with the same tokens.

An agent's next context mostly begins as one before it: a history grows, a memory update follows
the prompt that found something, the question and the instructions come again. The states of a
token depend on the tokens before it alone, so what is kept may be taken for any context that
begins with them. vLLM calls it prefix caching, and keeps blocks where this keeps whole contexts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor
from transformers import DynamicCache

States = list[tuple[Tensor, Tensor]]
"""Keys and values of each layer, shape `[heads, length, size]`."""


@dataclass(slots=True, eq=False)
class Kept:
    """Tokens and their states. `call` is the last call that made or used them."""

    ids: list[int]
    states: States
    call: int


@dataclass(frozen=True, slots=True)
class Start:
    """How a context begins: with `length` tokens whose states are known (none where it is 0)."""

    length: int = 0
    states: States | None = None


class PrefixCache:
    """Contexts with their states, those of the last two calls and at most `tokens` tokens of them.

    What no longer fits is not kept, rather than pushing out what a call under way is yet to
    use: agents that advance together ask for everything once a round.
    """

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens
        self._kept: list[Kept] = []
        self._call = 0

    def __len__(self) -> int:
        """Tokens that are kept."""
        return sum(len(each.ids) for each in self._kept)

    def begin_call(self) -> None:
        """Let go of what neither the last call nor the one before used."""
        self._call += 1
        self._kept = [each for each in self._kept if each.call >= self._call - 2]

    def clear(self) -> None:
        """Forget all, as one must when the model has changed."""
        self._kept = []

    def find(self, context: Sequence[int]) -> Start:
        """The longest known beginning of a context that leaves it at least one token to compute."""
        best, length = None, 0
        for each in self._kept:
            same = common(each.ids, context)
            if same > length:
                best, length = each, same
        length = min(length, len(context) - 1)
        if best is None or length == 0:
            return Start()
        best.call = self._call
        return Start(length, best.states)

    def keep(self, ids: list[int], states: Callable[[], States]) -> None:
        """Keep a context in the place of those that it continues; its states are asked for where there is room."""
        self._kept = [each for each in self._kept if ids[: len(each.ids)] != each.ids]
        if len(self) + len(ids) <= self.tokens:
            self._kept.append(Kept(ids, states(), self._call))


def common(first: Sequence[int], second: Sequence[int]) -> int:
    """How many first tokens two contexts share."""
    most = min(len(first), len(second))
    return next((place for place in range(most) if first[place] != second[place]), most)


def states_of(cache: DynamicCache, row: int, slots: Tensor) -> States:
    """A copy of what a cache holds of one row at some places, in their order."""
    return [(layer.keys[row, :, slots], layer.values[row, :, slots]) for layer in cache.layers]
