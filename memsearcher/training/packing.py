"""A chunk of rows as a model is given it, and the places in it that are scored.

The head, which for a small model costs as much as the rest, sees only the places before a
trained token.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from accelerate.utils import is_peft_model
from torch import Tensor
from torch.nn.functional import cross_entropy

from memsearcher.training.batching import unpadded
from memsearcher.training.tree import TokenTree


@dataclass(frozen=True, slots=True)
class Packed:
    """Inputs of a model, where trained tokens are predicted, and how to find their numbers again."""

    inputs: dict[str, Tensor]
    places: Tensor
    """Of each line of inputs, where trained tokens are predicted, `[lines, most + 1]`; the last counts for nothing."""
    labels: Tensor
    """What comes there, shifted by one as labels are; -100 for nothing."""
    found: Tensor
    """`[rows, width]`, where the number of each trained token stands in `[lines, most]`, counted line after line."""

    @classmethod
    def rows(cls, input_ids: Tensor, attention_mask: Tensor, trained: Tensor) -> Packed:
        """Rows side by side, with nothing on their left, a line each.

        Padding lies behind every token that is scored, so causal attention needs no mask.

        Args:
            input_ids: `[rows, prompt + width]`: prompts padded on the left, completions on the right.
            attention_mask: of the same shape.
            trained: bool `[rows, width]`, the tokens whose log-probability is wanted.
        """
        count, width = trained.shape
        prompts = attention_mask[:, :-width].sum(1, keepdim=True)
        lengths = prompts + attention_mask[:, -width:].sum(1, keepdim=True)
        start = input_ids.shape[1] - width - prompts
        steps = torch.arange(int(lengths.max()), device=input_ids.device)
        real = steps < lengths
        ids = input_ids.gather(1, torch.where(real, start + steps, 0)) * real
        most = max(1, int(trained.sum(1).max()))
        columns = (~trained).sort(dim=1, stable=True).indices[:, :most]
        wanted = trained.gather(1, columns)
        labels = torch.where(wanted, input_ids[:, -width:].gather(1, columns), -100)
        places = torch.where(wanted, prompts - 1 + columns, 0)
        lines = most * torch.arange(count, device=input_ids.device)[:, None]
        found = (lines + trained.cumsum(1) - 1).masked_fill(~trained, 0)
        return cls({"input_ids": ids}, _one_more(places), _shifted(labels), found)

    @classmethod
    def tree(cls, input_ids: Tensor, attention_mask: Tensor, trained: Tensor) -> Packed:
        """Rows as the tree of their beginnings, in one line, for a model that attends by paths.

        The arguments are those of `rows`.
        """
        width, device = trained.shape[1], input_ids.device
        tree = TokenTree.of(unpadded(input_ids, attention_mask))
        paths = torch.nn.utils.rnn.pad_sequence([torch.tensor(path) for path in tree.paths], batch_first=True)
        picked = torch.zeros(len(tree.ids), dtype=torch.int64)
        filled = torch.arange(paths.shape[1]) < attention_mask.sum(1, keepdim=True).cpu()
        picked[paths[filled]] = filled.flatten().nonzero()[:, 0]
        prompts = attention_mask[:, :-width].sum(1, keepdim=True).cpu()
        wanted = trained.cpu()
        tokens = paths.gather(1, (prompts + torch.arange(width)).clamp(max=paths.shape[1] - 1))
        scored = torch.unique(tokens[wanted])
        places, labels = tree.before[scored][None], tree.ids[scored][None]
        if not len(scored):
            places, labels = torch.zeros(1, 1, dtype=torch.int64), torch.full((1, 1), -100)
        found = torch.searchsorted(scored, tokens).masked_fill(~wanted, 0)
        inputs = {
            "input_ids": tree.ids[None],
            "position_ids": tree.positions[None],
            "attention_mask": torch.ones(1, 1, 1, 1),
            "tree_paths": paths,
            "tree_picked": picked,
        }
        inputs = {name: value.to(device) for name, value in inputs.items()}
        return cls(inputs, _one_more(places).to(device), _shifted(labels).to(device), found.to(device))

    @contextmanager
    def scored(self, model: Any) -> Iterator[None]:
        """Have the backbone of a model, wrapped by peft or not, give its hidden states at `places` only."""

        def pick(module: torch.nn.Module, args: Any, output: Any) -> Any:
            hidden = output.last_hidden_state
            output.last_hidden_state = hidden.gather(1, self.places[..., None].expand(-1, -1, hidden.shape[-1]))
            return output

        backbone = (model.get_base_model() if is_peft_model(model) else model).base_model
        handle = backbone.register_forward_hook(pick)
        try:
            yield
        finally:
            handle.remove()

    def losses(self, logits: Tensor, trained: Tensor) -> Tensor:
        """The negative log-likelihood of each trained token `[rows, width]`, in float32; 0 where not trained.

        Args:
            logits: what the model gave at `places`, `[lines, most + 1, vocabulary]`.
        """
        scores, targets = logits[:, :-1].flatten(0, 1).float(), self.labels[:, 1:].flatten()
        return self.unpack(cross_entropy(scores, targets, ignore_index=-100, reduction="none"), trained)

    def unpack(self, output: Tensor, trained: Tensor) -> Tensor:
        """What a model gave for each label, `[lines, most]`, as `[rows, width]`; 0 where not trained."""
        each = output.flatten().index_select(0, self.found.flatten()).view(self.found.shape)
        return each.masked_fill(~trained, 0.0)


def _one_more(places: Tensor) -> Tensor:
    return torch.nn.functional.pad(places, (0, 1))


def _shifted(labels: Tensor) -> Tensor:
    return torch.nn.functional.pad(labels, (1, 0), value=-100)
