"""A trajectory as one sequence: what its conversations have in common is computed once.

The conversations are laid out as the tree of their beginnings. A token sees those before it in
its own conversation and no others (a 2-D mask), and its position is its place there, so each
token's log-probability is what it is with the turns run apart.

MEM1's official code recomposes a trajectory too, with two faults that this avoids: its mask
leaves the internal state before out of what the next one sees, and a mask of zeros and ones is
passed where one that is added to the scores is expected, so that it masks nothing. There, a
state also stands in the sequence once, though the model has it in two contexts: as it wrote it,
with all that it read then in sight, and in the next turn without that. Here it stands twice.

A building block for an optimization; the trainer runs conversations as rows of a batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from memsearcher.trajectory import Trajectory


@dataclass(frozen=True, slots=True)
class Packed:
    """A trajectory's tokens, each beginning that conversations share only once.

    Attributes:
        ids: `[tokens]`.
        positions: `[tokens]`, each token's place in its conversations.
        sees: bool `[tokens, tokens]`, whether the token of the row attends to that of the column.
        before: `[tokens]`, the place of the token before it in its conversations; -1 for a first one.
        paths: of each conversation, the places of its tokens in order.
    """

    ids: Tensor
    positions: Tensor
    sees: Tensor
    before: Tensor
    paths: list[list[int]]

    def inputs(self, dtype: torch.dtype) -> dict[str, Tensor]:
        """What a model of transformers takes: one row, with a mask `[1, 1, tokens, tokens]` to add to the scores."""
        mask = torch.zeros(self.sees.shape, dtype=dtype).masked_fill(~self.sees, torch.finfo(dtype).min)
        return {
            "input_ids": self.ids[None],
            "position_ids": self.positions[None],
            "attention_mask": mask[None, None],
        }

    def logprobs(self, logits: Tensor) -> list[Tensor]:
        """Of each conversation, the log-probability of every token but the first.

        Args:
            logits: `[1, tokens, vocabulary]`, what the model gave for `inputs`.
        """
        scores = logits[0].log_softmax(-1)
        each = scores[self.before, self.ids]
        return [each[path[1:]] for path in self.paths]


def pack(trajectory: Trajectory) -> Packed:
    """Lay the conversations of a trajectory out as one sequence.

    Raises:
        ValueError: there is no conversation, or one without token ids.
    """
    places: dict[tuple[int, int], int] = {}
    ids: list[int] = []
    before: list[int] = []
    positions: list[int] = []
    paths: list[list[int]] = []
    for number, conversation in enumerate(trajectory.conversations, 1):
        tokens = conversation.token_ids
        if tokens is None:
            raise ValueError(f"conversation {number} of {trajectory.id} has no token ids; it cannot be packed")
        paths.append([])
        place = -1
        for position, token in enumerate(tokens):
            key = (place, token)
            if key not in places:
                places[key] = len(ids)
                ids.append(token)
                before.append(place)
                positions.append(position)
            place = places[key]
            paths[-1].append(place)
    if not ids:
        raise ValueError(f"{trajectory.id} has no conversation to pack")
    sees = torch.eye(len(ids), dtype=torch.bool)
    for place, parent in enumerate(before):
        if parent >= 0:
            sees[place] |= sees[parent]
    return Packed(torch.tensor(ids), torch.tensor(positions), sees, torch.tensor(before), paths)
