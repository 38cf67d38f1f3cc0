"""A packed trajectory: each beginning once, and the same numbers as its turns run apart."""

import pytest
import torch

from memsearcher.training.attention import attend_by_paths
from memsearcher.training.packing import Packed
from memsearcher.training.tree import pack
from memsearcher.trajectory import Conversation, Limits, Segment, Task, Trajectory
from tests.grpo_reference import token_logprobs
from tests.scripted import passage
from tests.test_agents import ALL, play
from tests.tiny import tiny_model


@ALL
@pytest.mark.parametrize("kind", ["qwen2", "llama"])
def test_a_packed_trajectory_gives_the_log_probabilities_of_its_turns_run_apart(name, kind):
    books = {"a": [passage(1, "the capital of France")], "b": [passage(1, "Rome")]}
    trajectory = play(name, ["a", "b", "a"], books, kept="it is known", turns=5)
    model = tiny_model(kind, max_position_embeddings=4096)
    packed = pack(trajectory)
    with torch.no_grad():
        found = packed.logprobs(model(**packed.inputs(torch.float32)).logits)
        for talk, logprobs in zip(trajectory.conversations, found, strict=True):
            apart = token_logprobs(model, talk.token_ids)
            assert torch.allclose(logprobs, apart, atol=1e-5, rtol=0)
    assert len(packed.ids) < sum(len(talk.token_ids) for talk in trajectory.conversations) or len(found) == 1


def packed_by_hand():
    """Two conversations, 1 2 3 4 and 1 2 5: the beginning stands once."""
    trajectory = Trajectory(Task("t", "q"), "a", Limits())
    for ids in ([1, 2, 3, 4], [1, 2, 5]):
        trajectory.converse(Conversation([Segment("user", "question", "", ids)]))
    return pack(trajectory)


def test_packing_by_hand():
    packed = packed_by_hand()
    assert packed.ids.tolist() == [1, 2, 3, 4, 5]
    assert packed.positions.tolist() == [0, 1, 2, 3, 2]
    assert packed.before.tolist() == [-1, 0, 1, 2, 1]
    assert packed.paths == [[0, 1, 2, 3], [0, 1, 4]]
    assert packed.sees.int().tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 1, 1, 1, 0],
        [1, 1, 0, 0, 1],
    ]
    mask = packed.inputs(torch.float32)["attention_mask"]
    assert mask.shape == (1, 1, 5, 5)
    assert ((mask[0, 0] == 0) == packed.sees).all()


def test_a_mask_of_zeros_and_ones_would_mask_nothing():
    """The fault that the additive mask avoids: with it, the last token changes what comes before."""
    packed, model = packed_by_hand(), tiny_model()
    inputs = packed.inputs(torch.float32)
    changed = {**inputs, "input_ids": inputs["input_ids"].clone()}
    changed["input_ids"][0, -1] = 9
    faulty = packed.sees.float()[None, None]
    with torch.no_grad():
        assert torch.equal(model(**inputs).logits[:, :-1], model(**changed).logits[:, :-1])
        one = model(**{**inputs, "attention_mask": faulty}).logits[:, :-1]
        other = model(**{**changed, "attention_mask": faulty}).logits[:, :-1]
    assert not torch.allclose(one, other, atol=1e-3)


def test_what_cannot_be_packed_is_named():
    trajectory = play("mem1", ["a"], chat=None)
    with pytest.raises(ValueError, match="conversation 1 of t#0 has no token ids; it cannot be packed"):
        pack(trajectory)
    with pytest.raises(ValueError, match="t#0 has no conversation to pack"):
        pack(Trajectory(Task("t", "q"), "a", Limits()))


ROWS = [[5, 6, 7, 8, 9], [5, 6, 7, 3], [5, 6], [11], [5, 6, 7, 8, 9], [11, 6, 7, 8, 9, 10, 12]]


@pytest.mark.parametrize("kind", ["qwen2", "qwen3", "llama"])
def test_attention_by_paths_gives_what_rows_apart_give(kind):
    model = tiny_model(kind)
    assert attend_by_paths(model)
    ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in ROWS], batch_first=True)
    packed = Packed.tree(ids, (ids != 0).long(), torch.zeros_like(ids, dtype=torch.bool))
    assert packed.inputs["input_ids"].shape == (1, 13)
    with torch.no_grad():
        found = model(**packed.inputs).logits[0]
        for row, path in zip(ROWS, packed.inputs["tree_paths"], strict=True):
            apart = tiny_model(kind)(torch.tensor([row])).logits[0]
            assert torch.allclose(found[path[: len(row)]], apart, atol=1e-5)
            # Without paths, the model is what it was.
            assert torch.equal(model(torch.tensor([row])).logits[0], apart)


@pytest.mark.parametrize(
    "config",
    [
        {"attn_implementation": "eager"},
        {"use_sliding_window": True, "sliding_window": 20, "max_window_layers": 1},
    ],
)
def test_a_model_that_cannot_attend_by_paths_is_left_as_it_is(config):
    model = tiny_model("qwen2", **config)
    before = model.config._attn_implementation
    assert not attend_by_paths(model)
    assert model.config._attn_implementation == before
