"""Conversations as the tree of their beginnings: what they have in common is computed once.

A trajectory's conversations begin alike, and those of a group even more so: often most tokens of
a step stand in several of them. In the tree each stands once. All that a model does to one token
at a time (projections, norms, MLP, head) is done once for it; attention alone is run for each
conversation by itself (`training/attention.py`), so every number is what it is with them apart.

The same tree can be given to any model as one sequence with a 2-D mask (`TokenTree.inputs`). MEM1's
official code recomposes a trajectory that way, with two faults that this avoids: its mask leaves
the internal state before out of what the next one sees, and a mask of zeros and ones is passed
where one that is added to the scores is expected, so that it masks nothing. There, a state also
stands in the sequence once, though the model has it in two contexts: as it wrote it, with all that
it read then in sight, and in the next turn without that. Here it stands twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from memsearcher.engines.prefix import common
from memsearcher.trajectory import Trajectory


@dataclass(frozen=True, slots=True)
class TokenTree:
    """Rows of tokens, each beginning that they share only once.

    Attributes:
        ids: `[tokens]`.
        positions: `[tokens]`, each token's place in its rows.
        before: `[tokens]`, the place of the token before it in its rows; -1 for a first one.
        paths: of each row, the places of its tokens in order.
    """

    ids: Tensor
    positions: Tensor
    before: Tensor
    paths: list[list[int]]

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]]) -> TokenTree:
        """The tree of some rows."""
        ids: list[int] = []
        positions: list[int] = []
        before: list[int] = []
        paths: list[list[int]] = [[] for _ in rows]
        last: Sequence[int] = ()
        path: list[int] = []
        # In this order, no row has more in common with any before it than with the last one.
        for number in sorted(range(len(rows)), key=lambda number: list(rows[number])):
            row = rows[number]
            same = common(last, row)
            new = range(len(ids), len(ids) + len(row) - same)
            path = [*path[:same], *new]
            before.extend(path[place - 1] if place else -1 for place in range(same, len(row)))
            positions.extend(range(same, len(row)))
            ids.extend(row[same:])
            paths[number], last = path, row
        return cls(torch.tensor(ids), torch.tensor(positions), torch.tensor(before), paths)

    @property
    def sees(self) -> Tensor:
        """Bool `[tokens, tokens]`: whether the token of the row attends to that of the column."""
        sees = torch.eye(len(self.ids), dtype=torch.bool)
        for place, parent in enumerate(self.before.tolist()):
            if parent >= 0:
                sees[place] |= sees[parent]
        return sees

    def inputs(self, dtype: torch.dtype) -> dict[str, Tensor]:
        """What a model of transformers takes: one row, with a mask `[1, 1, tokens, tokens]` to add to the scores."""
        sees = self.sees
        mask = torch.zeros(sees.shape, dtype=dtype).masked_fill(~sees, torch.finfo(dtype).min)
        return {
            "input_ids": self.ids[None],
            "position_ids": self.positions[None],
            "attention_mask": mask[None, None],
        }

    def logprobs(self, logits: Tensor) -> list[Tensor]:
        """Of each row, the log-probability of every token but the first.

        Args:
            logits: `[1, tokens, vocabulary]`, what the model gave for `inputs`.
        """
        scores = logits[0].log_softmax(-1)
        each = scores[self.before, self.ids]
        return [each[path[1:]] for path in self.paths]


def pack(trajectory: Trajectory) -> TokenTree:
    """The conversations of a trajectory as a tree.

    Raises:
        ValueError: there is no conversation, or one without token ids.
    """
    rows = []
    for number, conversation in enumerate(trajectory.conversations, 1):
        tokens = conversation.token_ids
        if tokens is None:
            raise ValueError(f"conversation {number} of {trajectory.id} has no token ids; it cannot be packed")
        rows.append(tokens)
    if not any(rows):
        raise ValueError(f"{trajectory.id} has no conversation to pack")
    return TokenTree.of(rows)
