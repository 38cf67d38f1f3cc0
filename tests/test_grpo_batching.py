"""Rows, weights, chunks; and that an update does not depend on how rows are arranged."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.modeling_outputs import BaseModelOutput

from memsearcher.training.batching import (
    NOBODY,
    Row,
    filler,
    plan_chunks,
    plan_trees,
    row_weights,
    rows_of,
    split_chunks,
    take,
)
from memsearcher.training.packing import Packed
from memsearcher.trajectory import Call, Conversation, Limits, Segment, Task, Trajectory
from tests.grpo_world import make


def trajectory(*conversations, finish="eos"):
    made = Trajectory(Task("t", "q", ("a",)), "agent", Limits(), conversations=list(conversations))
    turn = made.begin_turn()
    turn.calls = [Call("act", number, 1, finish, 3, 2) for number in range(len(conversations))]
    return made


def talk(*parts):
    """Segments from (ids, trained) pairs; sampled tokens have their id as log-probability."""
    return Conversation(
        [
            Segment("user", "reply", "", list(ids), [float(-i) for i in ids] if trained else None, trained)
            for ids, trained in parts
        ]
    )


def test_rows_of_a_trajectory():
    rows = rows_of(trajectory(talk(([1, 2], False), ([3, 4], True), ([5], False), ([6], True), ([7], False))), 5)
    assert rows == [Row(5, [1, 2], [3, 4, 5, 6], [1, 1, 0, 1], [-3.0, -4.0, 0.0, -6.0])]
    assert rows[0].trained == 3


def test_rows_without_logprobs_failed_and_cut():
    plain = talk(([1], False), ([3], True))
    plain.segments[1].logprobs = None
    assert rows_of(trajectory(plain), 0)[0].logprobs is None
    failed = trajectory(plain)
    failed.error = "gone"
    assert rows_of(failed, 0) == []
    assert rows_of(trajectory(plain, finish="length"), 0, leave_out_cut=True) == []
    assert len(rows_of(trajectory(plain, finish="stop"), 0, leave_out_cut=True)) == 1


def test_calls_that_write_a_memory_can_be_left_out_of_the_loss():
    both = talk(([1, 2], False), ([3, 4], True), ([5], False), ([6], True))
    played = trajectory(both, talk(([7], False), ([8], True)))
    played.turns[0].calls = [
        Call("act", 0, 1, "eos", 2, 2), Call("remember", 0, 3, "eos", 5, 1), Call("remember", 1, 1, "eos", 1, 1)
    ]  # fmt: skip
    assert rows_of(played, 0, train_memory=False) == [Row(0, [1, 2], [3, 4], [1, 1], [-3.0, -4.0])]
    assert [row.trained for row in rows_of(played, 0)] == [3, 1]


def test_a_conversation_without_a_sampled_token_is_named():
    with pytest.raises(ValueError, match="agent 'agent' left conversation 2 of t#0 without a sampled token"):
        rows_of(trajectory(talk(([1], False), ([2], True)), talk(([1], False))), 0)


def test_weights():
    rows = [Row(0, [1], [2, 3], [1, 1], None), Row(0, [1], [2], [1], None), Row(1, [1], [2, 3, 4], [1, 1, 1], None)]
    rows += [Row(2, [1], [2], [1], None), filler(0, logprobs=False)]
    counted = [True, True, False]
    assert row_weights(rows, "token", counted) == [1, 1, 1, 0, 0]
    assert row_weights(rows, "conversation", counted) == [1 / 2, 1, 1 / 3, 0, 0]
    assert row_weights(rows, "trajectory", counted) == [1 / 4, 1 / 2, 1 / 3, 0, 0]
    assert row_weights(rows, "trajectory_token", counted) == [1 / 3, 1 / 3, 1 / 3, 0, 0]
    assert rows[-1].owner == NOBODY and rows[-1].trained == 0


@given(st.lists(st.integers(1, 300), min_size=1, max_size=60), st.integers(1, 700), st.data())
def test_chunks_hold_every_row_once_within_the_budget(lengths, tokens, data):
    chunks = plan_chunks([[0] * length for length in lengths], tokens)
    assert sorted(row for chunk in chunks for row in chunk) == list(range(len(lengths)))
    for chunk in chunks:
        assert len(chunk) == 1 or len(chunk) * max(lengths[row] for row in chunk) <= tokens
    count = data.draw(st.integers(len(chunks), len(lengths)))
    more = split_chunks(chunks, count)
    assert len(more) == count and all(more)
    assert [row for chunk in more for row in chunk] == [row for chunk in chunks for row in chunk]


def test_rows_cannot_be_split_finer_than_one_by_one():
    with pytest.raises(ValueError, match="2 rows cannot be split into 3"):
        split_chunks([[0, 1]], 3)


class Gives(torch.nn.Module):
    """A backbone whose hidden states are known."""

    def __init__(self, hidden):
        super().__init__()
        self.hidden = hidden

    @property
    def base_model(self):
        return self

    def forward(self):
        return BaseModelOutput(last_hidden_state=self.hidden)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=6), st.integers(0, 99))
def test_packing_finds_every_token_again(sizes, seed):
    """A model that gives each place the token behind it must give each completion its ids."""
    draw = random.Random(seed)
    prompt, width = max(p for p, _ in sizes) + draw.randint(0, 3), max(c for _, c in sizes) + draw.randint(0, 3)
    ids, mask = torch.zeros(len(sizes), prompt + width, dtype=torch.long), torch.zeros(len(sizes), prompt + width)
    trained = torch.zeros(len(sizes), width, dtype=torch.bool)
    for row, (p, c) in enumerate(sizes):
        ids[row, prompt - p : prompt + c] = torch.tensor([draw.randint(1, 99) for _ in range(p + c)])
        mask[row, prompt - p : prompt + c] = 1
        trained[row, :c] = torch.tensor([draw.random() < 0.7 for _ in range(c)])
    packed = Packed.rows(ids, mask.long(), trained)
    given = packed.inputs["input_ids"]
    assert given.shape[1] == max(p + c for p, c in sizes)
    for row, (p, c) in enumerate(sizes):
        assert given[row, : p + c].tolist() == ids[row, prompt - p : prompt + c].tolist()
        wanted = ids[row, prompt:][trained[row]].tolist()
        assert [label for label in packed.labels[row].tolist() if label != -100] == wanted
    assert packed.labels.shape[1] == max(1, int(trained.sum(1).max())) + 1
    behind = torch.nn.functional.pad(given[:, 1:], (0, 1)).float()[..., None]
    backbone = Gives(behind)
    with packed.scored(backbone):
        hidden = backbone().last_hidden_state[:, :-1, 0]
    assert torch.equal(backbone().last_hidden_state, behind)
    assert torch.equal(hidden[packed.labels[:, 1:] != -100].long(), packed.labels[packed.labels != -100])
    given_back = packed.unpack(hidden, trained)
    assert torch.equal(given_back, torch.where(trained, ids[:, prompt:], 0).float())


letters = st.lists(st.lists(st.integers(1, 3), min_size=2, max_size=8), min_size=1, max_size=12)


@given(letters, st.integers(1, 60), st.data())
def test_trees_hold_every_row_once_within_the_budget(rows, tokens, data):
    chunks = plan_trees(rows, tokens)
    assert sorted(row for chunk in chunks for row in chunk) == list(range(len(rows)))
    sizes = [beginnings([rows[row] for row in chunk]) for chunk in chunks]
    assert sizes == sorted(sizes, reverse=True)
    for chunk, size in zip(chunks, sizes, strict=True):
        assert len(chunk) == 1 or size <= tokens
        assert len(chunk) == 1 or len(chunk) * max(len(rows[row]) for row in chunk) <= 4 * tokens


def beginnings(rows):
    return len({tuple(row[:end]) for row in rows for end in range(1, len(row) + 1)})


@settings(max_examples=50, deadline=None)
@given(letters, st.integers(0, 99))
def test_a_packed_tree_finds_every_token_again(rows, seed):
    """Beginnings stand once, and what is scored for a row are its trained tokens, each where it is predicted."""
    draw = random.Random(seed)
    cuts = [draw.randint(1, len(row) - 1) for row in rows]
    prompt, width = max(cuts) + draw.randint(0, 2), max(len(row) for row in rows) + draw.randint(0, 2)
    ids, mask = torch.zeros(len(rows), prompt + width, dtype=torch.long), torch.zeros(len(rows), prompt + width)
    trained = torch.zeros(len(rows), width, dtype=torch.bool)
    for number, (row, cut) in enumerate(zip(rows, cuts, strict=True)):
        ids[number, prompt - cut : prompt - cut + len(row)] = torch.tensor(row)
        mask[number, prompt - cut : prompt - cut + len(row)] = 1
        trained[number, : len(row) - cut] = torch.tensor([draw.random() < 0.7 for _ in range(len(row) - cut)])
    packed = Packed.tree(ids, mask.long(), trained)
    given, paths = packed.inputs["input_ids"][0], packed.inputs["tree_paths"]
    assert len(given) == beginnings(rows)
    for row, path in zip(rows, paths, strict=True):
        assert given[path[: len(row)]].tolist() == row
        assert packed.inputs["position_ids"][0, path[: len(row)]].tolist() == list(range(len(row)))
    assert paths.flatten()[packed.inputs["tree_picked"]].tolist() == list(range(len(given)))
    # A model whose hidden state is the place in the tree, and whose number for a label is label and place.
    number = packed.places[:, :-1] * 10 + packed.labels[:, 1:]
    for row, cut, line, path, is_trained in zip(
        rows, cuts, packed.unpack(number.float(), trained), paths, trained, strict=True
    ):
        for column in range(width):
            place = cut + column
            wanted = path[place - 1] * 10 + row[place] if is_trained[column] else 0
            assert line[column] == wanted


def test_take_trims_what_no_row_needs():
    inputs = {
        "prompt_ids": torch.tensor([[0, 0, 1], [0, 2, 3], [4, 5, 6]]),
        "prompt_mask": torch.tensor([[0, 0, 1], [0, 1, 1], [1, 1, 1]]),
        "completion_ids": torch.tensor([[7, 8, 9], [7, 0, 0], [7, 8, 0]]),
        "completion_mask": torch.tensor([[1, 1, 1], [1, 0, 0], [1, 1, 0]]),
        "advantages": torch.tensor([1.0, 2.0, 3.0]),
        "importance_sampling_ratio": torch.tensor([[1.0], [2.0], [3.0]]),
        "num_items_in_batch": torch.tensor(6.0),
    }
    taken = take(inputs, [1, 0])
    assert taken["prompt_ids"].tolist() == [[2, 3], [0, 1]]
    assert taken["completion_ids"].tolist() == [[7, 0, 0], [7, 8, 9]]
    assert take(inputs, [1, 2])["completion_ids"].tolist() == [[7, 0], [7, 8]]
    assert taken["importance_sampling_ratio"].tolist() == [[2.0], [1.0]]
    assert taken["advantages"].tolist() == [2.0, 1.0] and taken["num_items_in_batch"] == 6


@pytest.mark.parametrize("average", ["token", "conversation", "trajectory", "trajectory_token"])
def test_the_update_does_not_depend_on_order_chunks_sharing_or_fillers(average, tmp_path):
    """One batch, arranged at random: rows shuffled, fillers between them, chunks of any size, as trees or not."""
    trainer, _ = make(tmp_path, average=average, beta=0.1, num_iterations=2)
    trainer.model.train()
    batch = trainer._generate_and_score_completions([{"prompt": "", "task": i // 4} for i in range(16)])
    trainer.current_gradient_accumulation_steps = 1
    drift = torch.Generator().manual_seed(0)
    for parameter in trainer.model.parameters():
        parameter.data += 0.03 * torch.randn(parameter.shape, generator=drift)

    def gradient(inputs, tokens, share=True):
        trainer._shares = share
        trainer.args.tokens_per_chunk = tokens
        trainer.model.zero_grad()
        trainer.compute_loss(trainer.model, inputs).backward()
        return torch.cat([each.grad.flatten() for each in trainer.model.parameters()]), {
            name: values[-1] for name, values in trainer._metrics["train"].items() if name in METRICS
        }

    wanted, metrics = gradient(batch, 1 << 30)
    assert metrics["clip_ratio/region_mean"] > 0.1 and metrics["kl"] > 0
    for seed in range(8):
        draw = random.Random(seed)
        rows = len(batch["advantages"])
        blanks = draw.randint(0, 7)
        mixed = {name: _with_blanks(name, value, blanks) for name, value in batch.items()}
        order = draw.sample(range(rows + blanks), rows + blanks)
        mixed = {name: value[order] if value.ndim else value for name, value in mixed.items()}
        found, numbers = gradient(mixed, draw.choice([1, 100, 250, 700, 5000]), share=seed % 2 == 0)
        assert float((found - wanted).norm() / wanted.norm()) < 1e-5
        assert numbers == pytest.approx(metrics, rel=1e-4)


METRICS = (
    "kl",
    "entropy",
    "clip_ratio/region_mean",
    "clip_ratio/low_mean",
    "clip_ratio/high_max",
    "clip_ratio/low_min",
)


def _with_blanks(name, value, count):
    """`count` filler rows behind a batch: one token of prompt and completion, and no weight."""
    if not value.ndim:
        return value
    blank = torch.zeros(count, *value.shape[1:], dtype=value.dtype)
    if name == "prompt_mask":
        blank[:, -1] = 1
    if name == "completion_mask":
        blank[:, 0] = 1
    return torch.cat([value, blank])
