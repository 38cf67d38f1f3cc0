"""The trainer knows nothing of questions: MemSearcher takes a step in the web shop."""

from __future__ import annotations

import json
import re

import pytest
import torch

from memsearcher.agents.memsearcher import MemSearcher
from memsearcher.environments.webshop.environment import WebShopEnvironment
from memsearcher.training import resume
from memsearcher.trajectory import Limits
from tests.grpo_world import GROUP, ScriptedTrainer, make
from tests.tiny import tiny_model
from tests.webshop_world import make_shop

LIMITS = Limits(turns=7, call_tokens=150, memory_tokens=200, passages=1, passage_tokens=400)


class Shops(ScriptedTrainer):
    """Remembers what can be clicked and then clicks on some of it, often on what buys."""

    def _generate_single_turn(self, prompt_ids, *rest, **options):
        encoder, end = self.policy.chat.encoder, [self._tokenizer.eos_token_id]
        draws = torch.rand(len(prompt_ids)).tolist()
        written = [self._write(encoder.decode(ids), draw) for ids, draw in zip(prompt_ids, draws, strict=True)]
        return [[*encoder.own(text)[0], *end] for text in written], None

    def _write(self, text, draw):
        if "<tool_response>" in text:
            seen = re.search(r"or click: (.*)", text)
            return f"<memory>{seen[1] if seen else 'nothing'}</memory>"
        labels = re.findall(r"\[([^\[\]]+)\]", re.findall(r"<memory>(.*)</memory>", text)[-1])
        wanted = [each for each in labels if each == "Buy Now" or each.startswith(("LAMP", "SOAP"))]
        choices = wanted if wanted and draw < 0.7 else labels
        said = f"click[{choices[int(1000 * draw) % len(choices)]}]" if choices else "search[lamp soap]"
        call = json.dumps({"name": "shop", "arguments": {"query": said}})
        return f"<think>a</think><tool_call>{call}</tool_call>"


def test_a_step_is_taken_on_what_purchases_earn(tmp_path):
    environment = WebShopEnvironment(make_shop())
    goals = [*environment.tasks("test"), *environment.tasks("train")]
    trainer, keep = make(
        tmp_path,
        trainer=Shops,
        model=tiny_model(max_position_embeddings=4096),
        model_init_kwargs=None,
        agent=MemSearcher(LIMITS, "webshop-memsearcher", tool="shop"),
        environment=environment,
        train=goals,
        eval_dataset=goals,
        reward="outcome",
    )
    trainer.train()
    played = [each for _, each in resume.read_steps(tmp_path / "run")]
    assert len(played) == GROUP * len(goals) and all(each.error is None for each in played)
    for each in played:
        assert each.reward == (each.outcome.reward if each.outcome else 0.0)
    rewards = [each.reward for each in played]
    assert len(set(rewards)) > 1 and any(each.outcome is None for each in played)
    log = trainer.state.log_history[0]
    assert log["trajectories/outcome"] == log["reward"] == pytest.approx(sum(rewards) / len(rewards))
    assert log["trajectories/success"] == pytest.approx(sum(each == 1 for each in rewards) / len(rewards))
    assert "trajectories/em" not in log
    (gradients,) = keep.gradients
    assert all(each.isfinite().all() for each in gradients.values()) and any(each.any() for each in gradients.values())
    metrics = trainer.evaluate()
    assert metrics["eval_reward"] == metrics["eval_outcome"] and metrics["eval_failed"] == 0


def test_a_shop_without_these_goals_gives_no_reward(tmp_path):
    other = WebShopEnvironment(make_shop())
    goals = [*other.tasks("test"), *other.tasks("train")]
    other.shop.goals.clear()
    agent = MemSearcher(LIMITS, "webshop-memsearcher", tool="shop")
    trainer, keep = make(
        tmp_path,
        trainer=Shops,
        model=tiny_model(max_position_embeddings=4096),
        model_init_kwargs=None,
        agent=agent,
        environment=other,
        train=goals,
        reward="outcome",
    )
    trainer.train()
    played = [each for _, each in resume.read_steps(tmp_path / "run")]
    assert all("is no goal of this shop" in each.error and each.reward is None for each in played)
    assert not any(each.any() for gradients in keep.gradients for each in gradients.values())
