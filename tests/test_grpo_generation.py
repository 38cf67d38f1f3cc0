"""Generation in lockstep: TRL's own backends, stop strings, and ranks that never mispair."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from accelerate.utils import DistributedType

from memsearcher.engines.chat import ChatFormat
from memsearcher.engines.protocol import EngineFailure
from memsearcher.rollout import Episode
from memsearcher.training import generation, resume
from memsearcher.training.generation import Kind, Policy, call_settings
from memsearcher.training.grpo import MultiContextGRPOTrainer
from tests.grpo_world import LIMIT, Looker, Rewriter, make, scripted_reply, tasks
from tests.tiny import tiny_tokenizer


def replies(trajectory):
    for turn in trajectory.turns:
        for call in turn.calls:
            yield call, trajectory.conversations[call.conversation].segments[call.segment]


def test_trl_generates_and_every_reply_ends_where_it_should(tmp_path):
    """Real sampling with stop strings that random text soon spells."""
    trainer, keep = make(tmp_path, trainer=MultiContextGRPOTrainer, agent=Rewriter(stop=("e", "ar")), max_steps=2)
    trainer.train()
    chat = trainer.policy.chat
    finishes = Counter()
    for _, trajectory in resume.read_steps(tmp_path / "run"):
        for call, segment in replies(trajectory):
            finishes[call.finish] += 1
            ids = segment.token_ids
            assert segment.trained and 1 <= len(ids) == call.sampled_tokens <= LIMIT
            earlier = chat.encoder.decode(ids[:-1])
            assert "e" not in earlier and "ar" not in earlier and chat.end_ids.isdisjoint(ids[:-1])
            if call.finish == "stop":
                assert segment.text.endswith(("e", "ar"))
            elif call.finish == "eos":
                assert ids[-1] in chat.end_ids
            else:
                assert len(ids) == LIMIT
    assert finishes["stop"] > 10 and finishes["length"] > 10
    assert len(keep.gradients) == 2 and all(each.isfinite().all() for each in keep.gradients[1].values())


def test_shared_decoding_ends_replies_as_trl_does_and_repeats_itself_by_seed(tmp_path):
    changes = {"trainer": MultiContextGRPOTrainer, "agent": Rewriter(stop=("e", "ar")), "shared_decoding": True}
    sampled = []
    for folder in ("first", "second"):
        trainer, keep = make(tmp_path / folder, **changes)
        trainer.train()
        chat, records = trainer.policy.chat, [each for _, each in resume.read_steps(tmp_path / folder / "run")]
        sampled.append([talk.token_ids for each in records for talk in each.conversations])
        for call, segment in (pair for each in records for pair in replies(each)):
            assert segment.trained and segment.logprobs is None and 1 <= len(segment.token_ids) <= LIMIT
            assert not any(stop in chat.encoder.decode(segment.token_ids[:-1]) for stop in ("e", "ar"))
            assert call.finish != "stop" or segment.text.endswith(("e", "ar"))
        assert all(each.error is None for each in records)
        assert trainer.model.training and all(each.isfinite().all() for each in keep.gradients[0].values())
    assert sampled[0] == sampled[1]


def test_shared_decoding_is_greedy_as_trl_is(tmp_path):
    """The same replies by both, up to a tie of two tokens that no seed brings about here."""
    found = []
    for shared in (False, True):
        trainer, _ = make(tmp_path / str(shared), trainer=MultiContextGRPOTrainer, shared_decoding=shared)
        played = trainer._play([(task, sample) for task in tasks(2) for sample in range(2)], greedy=True)
        found.append([talk.token_ids for each in played for talk in each.conversations])
    assert found[0] == found[1]


def test_shared_decoding_is_refused_where_the_model_is_in_pieces(server):
    server.args.shared_decoding, server.accelerator.distributed_type = True, DistributedType.FSDP
    with pytest.raises(ValueError, match="shared_decoding needs a model that each process has whole"):
        policy_of(server)


def test_generate_itself_stops_at_a_stop_string(tmp_path):
    """The stopping criterion reaches `generate`, and is taken off again."""
    trainer, _ = make(tmp_path, trainer=MultiContextGRPOTrainer)
    chat, prompt = trainer.policy.chat, trainer.policy.chat.encoder.markers("<|im_start|>e")
    with call_settings(trainer, chat, Kind(40, ()), greedy=True):
        whole, _ = trainer._generate_single_turn([prompt], None, {}, num_generations=1)
    text = chat.encoder.decode(whole[0][:3])
    with call_settings(trainer, chat, Kind(40, (text[-2:],)), greedy=True):
        cut, _ = trainer._generate_single_turn([prompt], None, {}, num_generations=1)
    assert len(whole[0]) > 3 and cut[0] == whole[0][: len(cut[0])] and len(cut[0]) <= 3
    assert "generate" not in vars(trainer.model)
    assert trainer.generation_config.max_new_tokens == trainer.max_completion_length


def test_greedy_evaluation_is_the_mean_over_questions_and_leaves_training_as_it_was(tmp_path):
    dev = tasks(3, seed=5)
    dev[2].metadata.update(fails=[0], conversations=[2, 2, 2, 2])
    trainer, _ = make(tmp_path, trainer=MultiContextGRPOTrainer, eval_dataset=dev, per_device_eval_batch_size=2)
    before = torch.get_rng_state()
    first = trainer.evaluate()
    assert torch.equal(before, torch.get_rng_state())
    wanted = sum(each.metadata["rewards"][0] for each in dev[:2]) / 2
    assert first["eval_reward"] == pytest.approx(wanted)
    assert first["eval_failed"] == pytest.approx(1 / 3)
    assert trainer.evaluate() == first
    trainer.train()
    assert trainer.state.global_step == 1
    played = [each for _, each in resume.read_steps(tmp_path / "run", "eval")]
    assert sorted(each.task.id for each in played) == ["q0", "q1", "q2"]


class Collective:
    """Two processes in turn, seen from `gather_object`: what each would send is known beforehand."""

    def __init__(self, others):
        self.others = list(others)

    def __call__(self, mine):
        return [*mine, self.others.pop(0)] if self.others else [*mine, {}]


class Server:
    """A stand-in for TRL's server mode: takes all processes' prompts and gives each its slice, by equal counts."""

    def __init__(self, chat):
        self.chat, self.batches = chat, []
        self.args = SimpleNamespace(shared_decoding=False)
        self.accelerator = SimpleNamespace(distributed_type=DistributedType.NO)
        self.use_vllm, self.eos_token_ids, self._tokenizer = True, [], tiny_tokenizer()
        self.vllm_generation = SimpleNamespace(max_completion_length=256, generation_kwargs=None, temperature=1.0)

    def _generate_single_turn(self, prompts, images, fields, num_generations):
        assert num_generations == 1 and self.vllm_generation.max_completion_length == LIMIT
        self.batches.append([list(prompt) for prompt in prompts])
        ids = [scripted_reply(prompt, len(self._tokenizer), self._tokenizer.eos_token_id) for prompt in prompts]
        return ids, [[-1.0] * len(each) for each in ids]


def policy_of(server):
    return Policy(server, server.chat, longest=1024)


@pytest.fixture
def server():
    return Server(ChatFormat.from_tokenizer(tiny_tokenizer()))


def episodes(counts):
    task = tasks(1)[0]
    task.metadata["conversations"] = counts
    return [Episode(Rewriter(), task, sample) for sample in range(len(counts))]


def test_a_process_with_fewer_episodes_makes_the_same_calls(server, monkeypatch):
    """3 episodes against 1: the smaller process pads every call and goes on until the other has ended."""
    kind = Kind(LIMIT, ())
    monkeypatch.setattr(generation, "gather_object", Collective([{kind: 3}, {kind: 3}, {kind: 2}, {kind: 1}]))
    mine = episodes([1])
    policy_of(server).play(mine, Looker())
    assert [len(batch) for batch in server.batches] == [3, 3, 2, 1]
    assert mine[0].trajectory.error is None and mine[0].trajectory.answer == "Paris"
    end = server._tokenizer.pad_token_id
    assert server.batches[0][1:] == [[end], [end]] and server.batches[3] == [[end]]


def test_replies_go_to_their_own_episode_and_logprobs_come_along(server):
    mine = episodes([1, 3, 2, 1])
    policy_of(server).play(mine, Looker())
    for episode in mine:
        for call, segment in replies(episode.trajectory):
            talk = episode.trajectory.conversations[call.conversation]
            context = [token for each in talk.segments[: call.segment] for token in each.token_ids]
            size, end = len(server._tokenizer), server._tokenizer.eos_token_id
            assert segment.token_ids == scripted_reply(context, size, end)
            assert segment.logprobs == [-1.0] * len(segment.token_ids)
    assert server.vllm_generation.max_completion_length == 256 and server.vllm_generation.generation_kwargs is None


def test_vllm_is_told_where_to_stop(server):
    seen = []
    policy = policy_of(server)
    with call_settings(server, policy.chat, Kind(7, ("</memory>",)), greedy=True):
        seen.append((server.vllm_generation.generation_kwargs, server.vllm_generation.temperature))
    kwargs, temperature = seen[0]
    assert kwargs["stop"] == ["</memory>"] and kwargs["include_stop_str_in_output"] and temperature == 0.0
    assert kwargs["stop_token_ids"] == sorted(policy.chat.end_ids)


def test_calls_of_different_kinds_are_made_apart(server):
    task = tasks(1)[0]
    task.metadata["conversations"] = [1, 1]
    mixed = [Episode(Rewriter(stop=stop), task, sample) for sample, stop in enumerate([("a",), ("b",)])]
    policy_of(server).play(mixed, Looker())
    assert [len(batch) for batch in server.batches] == [1, 1]


def test_a_context_that_does_not_fit_fails_alone(server):
    task = tasks(1)[0]
    task.metadata["conversations"] = [1, 1, 1, 1]
    pair = [Episode(Rewriter(), task, 0), Episode(Rewriter(), tasks(2)[1], 1)]
    policy = policy_of(server)
    policy.longest = 60
    policy.play(pair, Looker())
    errors = [each.trajectory.error for each in pair]
    assert any(error and "do not fit the model's 60" in error for error in errors)


def test_an_empty_reply_is_a_failure(server):
    server._generate_single_turn = lambda prompts, *_, num_generations: ([[] for _ in prompts], None)
    (episode,) = episodes([1])
    policy_of(server).play([episode], Looker())
    assert "without a token" in episode.trajectory.error
    assert EngineFailure.__name__ in episode.trajectory.error
