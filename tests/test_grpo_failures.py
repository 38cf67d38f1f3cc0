"""Bad input before the first step, failures within one, numbers that are not finite."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
from accelerate.utils import DistributedType

from memsearcher.engines.chat import ChatFormatError
from memsearcher.training import resume
from memsearcher.training.config import MultiContextGRPOConfig
from memsearcher.training.guard import FiniteGuard
from memsearcher.training.metrics import ChunkMetrics, measure, summarize
from memsearcher.training.rewards import as_functions, compare, reward_table
from memsearcher.trajectory import Limits, Task, Trajectory
from tests.grpo_world import GROUP, Rewriter, ScriptedTrainer, make, tasks
from tests.tiny import tiny_tokenizer


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"average": "official"},
            "average must be one of token, conversation, trajectory, trajectory_token, not 'official'",
        ),
        ({"num_generations": 1}, "num_generations must be at least 2"),
        ({"loss_type": "grpo"}, "loss_type must be 'dapo'.*depend on how rows are packed"),
        ({"loss_type": "bnpo"}, "loss_type must be 'dapo'"),
        ({"importance_sampling_level": "sequence"}, "importance_sampling_level must be 'token'"),
        ({"top_entropy_quantile": 0.2}, "top_entropy_quantile.*in each chunk"),
        ({"entropy_coef": 0.001}, "entropy_coef.*mean over each chunk"),
        ({"use_adaptive_entropy": True}, "use_adaptive_entropy"),
        ({"router_aux_loss_coef": 0.1}, "router_aux_loss_coef"),
        ({"off_policy_mask_threshold": 0.5}, "off_policy_mask_threshold"),
        ({"steps_per_generation": 2}, "steps_per_generation \\(2\\) must equal gradient_accumulation_steps \\(1\\)"),
        ({"scale_rewards": "std"}, "scale_rewards must be group, batch or none"),
        ({"tokens_per_chunk": 0}, "tokens_per_chunk must be at least 1"),
        ({"max_skipped_steps": 0}, "max_skipped_steps must be at least 1"),
        ({"num_generations_eval": 4}, "num_generations_eval must be 1.*greedy"),
        ({"shared_decoding": True, "min_p": 0.1}, "shared_decoding knows temperature, top_p and top_k"),
        ({"num_iterations": 2, "save_strategy": "steps", "save_steps": 3}, "must be a multiple of num_iterations"),
    ],
)
def test_settings_that_are_refused(changes, message, tmp_path):
    settings = {"use_cpu": True, "bf16": False, "per_device_train_batch_size": 8, "num_generations": 4}
    with pytest.raises(ValueError, match=message):
        MultiContextGRPOConfig(output_dir=str(tmp_path), **{**settings, **changes})


def test_the_published_settings(tmp_path, monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    config = MultiContextGRPOConfig.memsearcher(str(tmp_path), use_cpu=True, bf16=False)
    assert (config.num_generations, config.generation_batch_size) == (5, 1280)
    assert (config.beta, config.epsilon, config.delta, config.learning_rate) == (0.001, 0.2, 3.0, 1e-6)
    assert (config.average, config.loss_type, config.use_bias_correction_kl) == ("token", "dapo", False)
    assert config.lr_scheduler_type == "constant" and config.top_p == 0.99 and config.num_iterations == 1
    assert MultiContextGRPOConfig.memsearcher(str(tmp_path), use_cpu=True, bf16=False, beta=0.0).beta == 0.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reward": "bleu"}, "unknown reward 'bleu'; there are: em, f1, format_f1"),
        ({"reward": []}, "a reward is needed"),
        ({"train": [replace(tasks(1)[0], question=" ")]}, "task 'q0': the question is empty"),
        ({"train": [replace(tasks(1)[0], golds=())], "reward": "em"}, "task 'q0': there are no golds"),
        ({"per_device_train_batch_size": 5 * GROUP}, "a step takes 5 questions, and train_dataset has 4"),
        ({"agent": Rewriter(limits=Limits(call_tokens=9), stop=())}, None),
    ],
)
def test_tasks_and_rewards_that_are_refused(changes, message, tmp_path):
    if message is None:
        make(tmp_path, **changes)
        return
    with pytest.raises(ValueError, match=message):
        make(tmp_path, **changes)


def test_a_model_without_a_chat_template_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.grpo_world.tiny_tokenizer", lambda: tiny_tokenizer(template=""))
    with pytest.raises(ChatFormatError, match="no chat template"):
        make(tmp_path)


def test_limits_that_the_model_cannot_hold_are_refused(tmp_path):
    long = [replace(each, question=each.question + " the capital" * 900) for each in tasks()]
    with pytest.raises(
        ValueError, match=r"the first turn of agent 'rewriter': a context of .* do not fit the model's 1024"
    ):
        make(tmp_path, train=long)


def test_an_agent_that_cannot_start_is_refused(tmp_path):
    class Broken(Rewriter):
        def play(self, trajectory):
            raise RuntimeError("no prompts")
            yield

    with pytest.raises(ValueError, match="cannot start on task 'q0': RuntimeError: no prompts"):
        make(tmp_path, agent=Broken())


def test_failed_trajectories_are_kept_and_not_judged(tmp_path):
    train = tasks(2)
    for each in train:
        each.metadata.update(conversations=[2, 2, 3, 1])
    train[0].metadata["fails"] = [1]
    train[1].metadata["fails"] = [0, 1, 2]
    trainer, _ = make(tmp_path, train=train)
    trainer.train()
    played = {each.id: each for _, each in resume.read_steps(tmp_path / "run")}
    assert len(played) == 2 * GROUP
    failed = {name for name, each in played.items() if each.error}
    assert failed == {"q0#1", "q1#0", "q1#1", "q1#2"}
    assert all(played[name].reward is None and played[name].advantage is None for name in failed)
    assert "the index is gone" in played["q0#1"].error
    assert played["q1#3"].reward == train[1].metadata["rewards"][3] and played["q1#3"].advantage == 0
    rewards = [train[0].metadata["rewards"][sample] for sample in (0, 2, 3)]
    mean = sum(rewards) / 3
    std = math.sqrt(sum((each - mean) ** 2 for each in rewards) / 2)
    assert played["q0#0"].advantage == pytest.approx((rewards[0] - mean) / (std + 1e-4), abs=1e-5)
    log = trainer.state.log_history[0]
    assert log["trajectories/failed"] == 0.5 and log["trajectories/turns"] == (2 + 3 + 1 + 1) / 4


def test_a_step_in_which_everything_failed_changes_nothing(tmp_path):
    train = tasks(2, conversations=[2] * GROUP, fails=list(range(GROUP)))
    trainer, keep = make(tmp_path, train=train)
    trainer.train()
    assert trainer.state.global_step == 1
    assert all(not each.any() for each in keep.gradients[0].values())


def test_a_loss_that_is_not_finite_is_skipped_and_said(tmp_path, caplog):
    class Broken(ScriptedTrainer):
        bad = (1,)

        def _compute_loss(self, model, inputs):
            loss = super()._compute_loss(model, inputs)
            return loss * math.nan if self.state.global_step in self.bad else loss

    trainer, keep = make(tmp_path, trainer=Broken, max_steps=3, max_skipped_steps=2)
    trainer.train()
    assert trainer.state.global_step == 3
    same = [
        all(torch.equal(a, b) for a, b in zip(x.values(), y.values(), strict=True)) for x, y in pairwise(keep.weights)
    ]
    assert same == [False, True]
    assert all(each.isfinite().all() for each in trainer.model.parameters())
    assert "step 2 is skipped: its loss or gradient is not finite" in caplog.text

    Broken.bad = (1, 2)
    trainer, _ = make(tmp_path / "again", trainer=Broken, max_steps=4, max_skipped_steps=2)
    with pytest.raises(FloatingPointError, match=r"step 3 is skipped.*the 1 before it"):
        trainer.train()


def test_with_deepspeed_a_loss_that_is_not_finite_ends_the_run_before_its_step():
    here = SimpleNamespace(distributed_type=DistributedType.DEEPSPEED, device="cpu", gather=lambda flags: flags)
    guard = FiniteGuard(here, most=5)
    guard.saw(torch.tensor(0.5))
    with pytest.raises(FloatingPointError, match="the loss is not finite; go on from a checkpoint"):
        guard.saw(torch.tensor(math.nan))


def test_rewards_must_be_as_many_as_trajectories():
    played = [Trajectory(Task("a", "q", ("x",)), "agent", Limits(), answer="x") for _ in range(3)]
    played[1].error = "gone"
    functions = as_functions(["em", lambda trajectories, **_: [None, 0.5]])
    table = reward_table(functions, played)
    assert table[0, 0] == 1 and table[0].isnan().tolist() == [False, True]
    assert table[1].isnan().all() and table[2].tolist() == [1.0, 0.5]
    with pytest.raises(ValueError, match="must give a list of 2 numbers"):
        reward_table(as_functions(lambda trajectories, **_: [1.0]), played)


def test_groups_are_compared():
    nan = math.nan
    table = torch.tensor([[1, nan], [0, 2], [nan, nan], [nan, nan], [nan, 3], [nan, nan], [1, nan], [0, nan], [nan, 1]])
    counted, level = compare(table, torch.tensor([1.0, 0.5]), 3, slice(0, 9))
    assert counted.tolist() == [True, True, False, False, False, False, True, True, True]
    assert level.tolist() == [True] * 6 + [False] * 3
    assert compare(table, torch.ones(2), 3, slice(0, 3))[1].tolist() == [False] * 3


def test_equal_rewards_give_no_advantage_whatever_their_mean_is_rounded_to(tmp_path):
    equal = torch.full((1, 7), 0.45)
    assert bool((equal != equal.mean(1)).any())
    train = tasks(2, conversations=[1] * 7, rewards=[0.45] * 7)
    trainer, keep = make(tmp_path, train=train, num_generations=7, per_device_train_batch_size=14)
    trainer.train()
    assert [each.advantage for _, each in resume.read_steps(tmp_path / "run")] == [0.0] * 14
    assert not any(each.any() for each in keep.gradients[0].values())


def test_a_reward_may_log_and_be_weighted(tmp_path):
    def length(trajectories, log_metric, trainer_state):
        log_metric("mean_conversations", sum(len(each.conversations) for each in trajectories) / len(trajectories))
        return [float(len(each.conversations)) for each in trajectories]

    trainer, _ = make(tmp_path, reward=["em", length], reward_weights=[2.0, 0.5])
    trainer.train()
    for _, each in resume.read_steps(tmp_path / "run"):
        assert each.reward == 2.0 + 0.5 * len(each.conversations)
    log = trainer.state.log_history[0]
    assert log["mean_conversations"] == log["trajectories/conversations"] == log["rewards/length/mean"]


def test_event_rates_and_peaks():
    plain = Trajectory(Task("a", "q", ("x",)), "agent", Limits(), answer="x")
    odd = Trajectory(Task("a", "q", ("x",)), "agent", Limits(), answer="y")
    for _ in range(2):
        odd.begin_turn().event("bad_json")
    failed = Trajectory(Task("a", "q", ("x",)), "agent", Limits(), error="gone")
    known = {"turn_limit"}
    numbers = summarize([measure(each) for each in (plain, odd, failed)], known)
    assert numbers["trajectories/em"] == 0.5 and numbers["trajectories/turns"] == 1.0
    assert numbers["trajectories/failed"] == pytest.approx(1 / 3)
    assert numbers["events/bad_json"] == 0.5 and numbers["events/turn_limit"] == 0.0
    assert summarize([measure(failed)], known) == {"trajectories/failed": 1.0}


def test_chunk_metrics_are_means_over_tokens():
    chunks, logged = ChunkMetrics(), {"kl": [9.0], "clip_ratio/low_min": []}
    logged["kl"].append(0.5)
    logged["clip_ratio/low_min"].append(math.nan)
    chunks.collect(logged, {"kl": 1, "clip_ratio/low_min": 0}, 3.0)
    logged["kl"].append(0.1)  # a mask sum of 0.5 that TRL divided by 1
    logged["clip_ratio/low_min"].append(0.25)
    chunks.collect(logged, {"kl": 1, "clip_ratio/low_min": 0}, 0.5)
    assert logged == {"kl": [9.0], "clip_ratio/low_min": []}
    numbers = chunks.merge(lambda mine: torch.cat([mine, mine]))
    assert numbers == pytest.approx({"kl": (0.5 * 3 + 0.1) / 3.5, "clip_ratio/low_min": 0.25})
