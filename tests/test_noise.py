"""The agreement of groups' gradients: exact on vectors, and the gradient against a slow one."""

import pytest
import torch

from memsearcher.training.attention import attend_by_paths
from memsearcher.training.batching import rows_of
from memsearcher.training.resume import write_step
from memsearcher.trajectory import Conversation, Limits, Segment, Task, Trajectory
from scripts.noise import Group, agreement, gradient, groups
from tests.tiny import tiny_model

QUESTION = Task("q", "Which?", ("Kip",), {"hops": 2, "shape": "chain"})


def attempt(reward, *conversations, advantage=None, task=QUESTION):
    """A trajectory of conversations, each a prompt and a reply in tokens."""
    made = [
        Conversation([
            Segment("user", "question", "q", token_ids=prompt),
            Segment("assistant", "reply", "r", token_ids=reply, trained=True),
        ])
        for prompt, reply in conversations
    ]  # fmt: skip
    return Trajectory(task, "memsearcher", Limits(), conversations=made, reward=reward, advantage=advantage)


def test_agreement_by_hand():
    found = agreement(torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 2.0]]))
    assert found["groups"] == 3
    assert found["cosine"] == pytest.approx(1 / 3)
    # Without the third the mean is 1, without another 0.
    assert found["error"] == pytest.approx((2 / 3 * (4 / 9 + 1 / 9 + 1 / 9)) ** 0.5)
    assert found["needed"] == pytest.approx((2 - 1 / 3) / (1 / 3))


def test_noise_alone_shows_no_signal():
    found = agreement(torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]]))
    assert found["cosine"] < 0 and found["needed"] is None


def test_too_few_groups_have_no_agreement():
    assert agreement(torch.eye(2)) == {"groups": 2, "cosine": None, "error": None, "needed": None}


def test_advantages_are_those_of_training():
    half = 0.5 / (0.5**0.5 + 1e-4)
    group = Group("2-hop", [attempt(1.0, advantage=half), attempt(0.0, advantage=-half), attempt(None)])
    assert group.advantages == pytest.approx([0.5 / (0.5**0.5 + 1e-4), -0.5 / (0.5**0.5 + 1e-4), 0.0])
    level = [attempt(1.0, advantage=0.0), attempt(1.0, advantage=0.0), attempt(None)]
    assert group.differs and not Group("2-hop", level).differs


def test_the_gradient_is_that_of_conversations_run_one_by_one():
    model = tiny_model("llama")
    played = [
        attempt(1.0, ([5, 6, 7], [8, 9]), ([5, 6, 11], [12]), advantage=1.12),
        attempt(0.25, ([5, 6, 7], [8, 10, 13]), ([5, 6, 7, 14], [15, 16]), advantage=-0.32),
        attempt(0.0, ([5, 6, 7], [8, 9]), advantage=-0.8),
    ]
    group = Group("2-hop", played)
    total, trained = torch.zeros(()), 0
    for gain, trajectory in zip(group.advantages, played, strict=True):
        for row in rows_of(trajectory, 0):
            tokens = torch.tensor([*row.prompt_ids, *row.completion_ids])[None]
            scores = (model(tokens).logits[0] / 0.7).log_softmax(-1)
            for place, sampled in enumerate(row.mask, len(row.prompt_ids)):
                if sampled:
                    total, trained = total - gain * scores[place - 1, tokens[0, place]], trained + 1
    weights = [each for each in model.parameters() if each.requires_grad]
    slow = torch.cat([each.flatten() for each in torch.autograd.grad(total / trained, weights)])
    attend_by_paths(model)
    for tokens in (8, 1000):
        torch.testing.assert_close(gradient(model, group, 0.7, tokens), slow, atol=1e-6, rtol=1e-4)


def test_groups_that_differ_of_the_first_steps(tmp_path):
    other = Task("p", "Where?", ("Baht",), {"hops": 3, "shape": "chain"})
    same = [attempt(0.5, advantage=0.0, task=other) for _ in range(2)]
    write_step(tmp_path, "train", 1, 0, [attempt(1.0, advantage=0.7), attempt(0.0, advantage=-0.7), *same])
    for step in (2, 3):
        write_step(tmp_path, "train", step, 0, [attempt(0.0, advantage=-0.7), attempt(0.5, advantage=0.7)])
    found = list(groups(tmp_path, 2))
    assert [(group.kind, [each.reward for each in group.attempts]) for group in found] == [
        ("2-hop", [1.0, 0.0]),
        ("2-hop", [0.0, 0.5]),
    ]
