"""The engine on real vLLM gives what the engine on transformers gives, and what only vLLM has works."""

from __future__ import annotations

from concurrent.futures import CancelledError

import pytest
import torch
from peft import PeftModel

from memsearcher.engines.prefix import common
from memsearcher.engines.protocol import EngineFailure, Request, Sampling
from memsearcher.engines.transformers import TransformersEngine
from memsearcher.rollout import rollout
from memsearcher.trajectory import Conversation, Segment, Task
from tests.scripted import ScriptedEnvironment, passage
from tests.test_engine_transformers import conversation
from tests.test_rollout import Babble, stripped
from tests.tiny import tiny_tokenizer
from tests_vllm.conftest import ROUNDING, small_model

GREEDY = Sampling()


def requests(count=12, limit=16, **options):
    return [Request(conversation(seed), limit, seed=seed, **options) for seed in range(count)]


def assert_same(ours, theirs):
    """Greedy replies are the same, but for what rounding turns at a near tie, which half of them must be free of."""
    whole = 0
    for one, other in zip(ours, theirs, strict=True):
        compared = common(one.token_ids, other.token_ids) + 1  # at a tie both are as likely
        assert one.logprobs[:compared] == pytest.approx(other.logprobs[:compared], abs=ROUNDING)
        assert one.context_tokens == other.context_tokens
        if one.token_ids == other.token_ids:
            whole += 1
            assert (one.text, one.finish, one.sampled_tokens) == (other.text, other.finish, other.sampled_tokens)
    assert whole >= len(ours) / 2


@pytest.fixture(scope="module")
def plain():
    return TransformersEngine(small_model(), tiny_tokenizer())


@pytest.mark.parametrize("stop", [(), ("e", "ar"), (" the", ">")])
def test_greedy_replies_are_those_of_transformers(engine, plain, stop):
    ours = engine.generate(requests(stop=stop), GREEDY)
    assert_same(ours, plain.generate(requests(stop=stop), GREEDY))
    assert len({reply.text for reply in ours}) > 6
    assert ("stop" in {reply.finish for reply in ours}) == bool(stop)


def test_a_reply_keeps_its_stop_string(engine):
    for reply in engine.generate(requests(stop=("e", "ar")), GREEDY):
        if reply.finish == "stop":
            assert reply.text.endswith(("e", "ar"))
            assert engine.chat.encoder.decode(reply.token_ids).startswith(reply.text)


def test_an_adapter_is_used_where_the_engine_has_one(adapted, engine, adapter_folder):
    theirs = TransformersEngine(PeftModel.from_pretrained(small_model(), adapter_folder).eval(), tiny_tokenizer())
    ours = adapted.generate(requests(), GREEDY)
    assert_same(ours, theirs.generate(requests(), GREEDY))
    assert [reply.text for reply in ours] != [reply.text for reply in engine.generate(requests(), GREEDY)]
    assert adapted.fingerprint["adapter"].startswith(adapter_folder.name + "@")
    assert engine.fingerprint == {
        "engine": "vllm",
        "model": "tiny",
        "adapter": "none",
        "dtype": "float32",
        "device": "cpu",
        "vllm": "0.31.0",
    }


@pytest.mark.parametrize("sampling", [Sampling(0.8), Sampling(1.3), Sampling(0.8, top_k=5)])
def test_logprobs_are_those_of_what_was_drawn_from(engine, sampling):
    model = small_model()
    for request, reply in zip(asked := requests(4), engine.generate(asked, sampling), strict=True):
        ids = torch.tensor([request.conversation.token_ids + reply.token_ids])
        with torch.no_grad():
            logits = model(ids).logits[0, reply.context_tokens - 1 : -1].double() / sampling.temperature
        if sampling.top_k:
            least = logits.topk(sampling.top_k).values[:, -1:]
            logits = logits.masked_fill(logits < least, -torch.inf)
        drawn = logits.log_softmax(-1).gather(1, torch.tensor(reply.token_ids)[:, None])[:, 0]
        assert reply.logprobs == pytest.approx(drawn.tolist(), abs=ROUNDING)


def test_a_reply_depends_on_its_seed_and_not_on_its_batch(engine):
    together = engine.generate(requests(), Sampling(1.0))
    (alone,) = engine.generate(requests()[5:6], Sampling(1.0))
    assert alone.token_ids == together[5].token_ids
    same = [Request(conversation(0), 16, seed=seed) for seed in (2**63 - 1, 2**63 - 1, 1, 2)]
    first, second, *others = [reply.token_ids for reply in engine.generate(same, Sampling(1.0))]
    assert first == second
    assert len({tuple(ids) for ids in [first, *others]}) == 3


def test_failures_are_each_request_s_own(engine):
    ended = conversation(1).tell([Segment("assistant", "reply", "x", engine.chat.encode_reply("x", end=True))])
    long = conversation(2, words=900)
    asked = [
        Request(conversation(0), 8),
        Request(ended, 8),
        Request(long, 8),
        Request(Conversation(), 8),
        Request(conversation(0), 0),
        Request(conversation(0), 8),
    ]
    first, *failures, last = engine.generate(asked, GREEDY)
    assert_same([first], [last])  # logprobs to rounding: rows of one batch are not of one last bit on every CPU
    assert all(isinstance(each, EngineFailure) for each in failures)
    for failure, why in zip(failures, ("nothing to answer", "do not fit", "empty", "at least 1"), strict=True):
        assert why in str(failure)


def test_what_vllm_refuses_fails_alone(engine):
    """A token that the model does not have, as a conversation from another model's record has one."""
    foreign = Conversation([Segment("user", "question", "x", [99_999]), Segment("assistant", "template", "", [1])])
    first, last = engine.generate([Request(foreign, 8), Request(conversation(0), 8)], GREEDY)
    assert "vLLM does not take the request" in str(first)
    assert last.sampled_tokens >= 1


def test_what_is_cancelled_is_given_up(engine):
    long = [engine.submit(Request(conversation(seed), 800, seed=seed), Sampling(1.0)) for seed in range(3)]
    assert all(future.cancel() for future in long)
    (reply,) = engine.generate(requests(1), GREEDY)
    assert reply.sampled_tokens >= 1
    assert not engine.llm.llm_engine.has_unfinished_requests()
    with pytest.raises(CancelledError):
        long[0].result()


def test_a_free_rollout_has_the_records_of_lockstep(engine):
    environment = ScriptedEnvironment({None: [passage(1, "the capital of Italy is Rome")]})
    attempts = [(Task(f"t{number}", f"What is {'the capital of ' * number}Rome?"), number % 2) for number in range(6)]

    def play(order, **options):
        played = rollout(Babble(), environment, engine, order, **options)
        return {each.id: stripped(each) for each in played}

    free, bound = play(attempts, width=4), play(attempts[::-1], lockstep=True)
    assert free.keys() == bound.keys()
    for key, each in free.items():
        other = bound[key]
        assert each.error is None
        assert each.provenance["engine"] == "vllm"
        assert [talk.token_ids for talk in each.conversations] == [talk.token_ids for talk in other.conversations]
        assert [turn.steps for turn in each.turns] == [turn.steps for turn in other.turns]
        for ours, theirs in zip(each.conversations, other.conversations, strict=True):
            for one, two in zip(ours.segments, theirs.segments, strict=True):
                assert one.logprobs == (two.logprobs and pytest.approx(two.logprobs, abs=ROUNDING))


def test_prefixes_are_cached(engine):
    assert engine.llm.llm_engine.vllm_config.cache_config.enable_prefix_caching
