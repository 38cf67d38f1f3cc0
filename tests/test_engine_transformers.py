import dataclasses
import math
import random

import pytest
import torch

from memsearcher.engines import decoding
from memsearcher.engines.attention import RoomyLayer, grouped_attention
from memsearcher.engines.decoding import common_prefix, prefill
from memsearcher.engines.prefix import PrefixCache, Start
from memsearcher.engines.protocol import EngineFailure, Request, Sampling
from memsearcher.engines.row import Row
from memsearcher.engines.sampling import uniforms
from memsearcher.engines.transformers import TransformersEngine
from memsearcher.trajectory import Conversation, Segment
from tests.tiny import tiny_model, tiny_tokenizer

WORDS = [
    "the",
    "capital",
    "of",
    "France",
    "is",
    "Paris",
    "Rome",
    "Italy",
    "question",
    "answer",
    "search",
    "query",
    "known",
    "memory",
]
KINDS = ["qwen2", "qwen3", "llama"]


def engine(kind="qwen2", **options):
    config = options.pop("config", {})
    return TransformersEngine(tiny_model(kind, **config), tiny_tokenizer(), name="tiny", **options)


def conversation(seed, words=None, system="You answer questions about the world, briefly and truly, in a few words."):
    draw = random.Random(seed)
    text = " ".join(draw.choice(WORDS) for _ in range(words or draw.randint(1, 30)))
    return Conversation.start([Segment("system", "system", system)], [Segment("user", "question", text)])


def requests(count=9, limit=12, **options):
    return [Request(conversation(seed), limit, seed=seed, **options) for seed in range(count)]


def slow_reply(model, context, limit, sampling, seed, ends):
    """One row without a cache, in plain steps, full width."""
    ids, logprobs = [], []
    numbers = uniforms(seed, limit)
    for step in range(limit):
        with torch.no_grad():
            logits = model(torch.tensor([context + ids])).logits[0, -1].double()
        scaled = logits / (sampling.temperature or 1.0)
        logprob = scaled.log_softmax(-1)
        if sampling.temperature == 0:
            token = int(scaled.argmax())
        else:
            cumulated = logprob.exp().cumsum(-1)
            token = int((cumulated <= numbers[step] * cumulated[-1]).sum())
        ids.append(token)
        logprobs.append(float(logprob[token]))
        if token in ends:
            break
    return ids, logprobs


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.8)], ids=["greedy", "sampled"])
def test_replies_match_a_slow_reference(kind, sampling):
    subject = engine(kind, batch_size=4)
    # Some of the likely tokens end a reply here, so that rows leave at different times.
    ends = frozenset(range(2, 60))
    subject.chat = dataclasses.replace(subject.chat, end_ids=ends)
    calls = requests()
    replies = subject.generate(calls, sampling)
    lengths = set()
    for call, reply in zip(calls, replies, strict=True):
        context = call.conversation.token_ids
        ids, logprobs = slow_reply(subject.model, context, call.limit, sampling, call.seed, ends)
        assert reply.token_ids == ids
        assert reply.logprobs == pytest.approx(logprobs, abs=1e-4)
        assert reply.context_tokens == len(context)
        assert reply.sampled_tokens == len(ids)
        assert reply.finish == ("eos" if ids[-1] in ends else "length")
        assert reply.text == subject.chat.encoder.decode(ids[:-1] if ids[-1] in ends else ids)
        lengths.add(len(ids))
    assert sampling.temperature == 0 or len(lengths) > 2


def test_a_reply_depends_on_its_seed_and_not_on_its_batch():
    calls = requests(10)
    together = engine(batch_size=10).generate(calls, Sampling(1.0))
    alone = [engine(batch_size=1).generate([call], Sampling(1.0))[0] for call in calls]
    backwards = engine(batch_size=3, batch_tokens=100).generate(calls[::-1], Sampling(1.0))[::-1]
    ids = [reply.token_ids for reply in together]
    assert ids == [reply.token_ids for reply in alone] == [reply.token_ids for reply in backwards]
    same = [Request(conversation(1), 12, seed=seed) for seed in (1, 1, 2)]
    first, second, third = engine().generate(same, Sampling(1.0))
    assert first.token_ids == second.token_ids
    assert first.logprobs == pytest.approx(second.logprobs, abs=1e-5)
    assert first.token_ids != third.token_ids


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tokens", [1, 40, 10_000])
def test_prefill_with_shared_prefix_and_groups_is_exact(kind, tokens, monkeypatch):
    subject = engine(kind)
    monkeypatch.setitem(decoding.TOKENS_AT_ONCE, "cpu", tokens)
    calls = requests(6)
    for call in calls:
        subject.chat.encode(call.conversation)
    contexts = [call.conversation.token_ids for call in calls]
    contexts.append(list(contexts[2]))  # twice the same
    assert common_prefix([tuple(context) for context in contexts]) >= decoding.SHORTEST_PREFIX
    with torch.inference_mode(), grouped_attention(subject.model):
        for share in (True, False):
            cache, logits, mask = prefill(subject.model, contexts, room=3, share_prefix=share)
            assert mask.sum(-1).tolist() == [len(context) for context in contexts]
            for context, line in zip(contexts, logits, strict=True):
                want = subject.model(torch.tensor([context])).logits[0, -1]
                assert torch.allclose(line, want, atol=1e-4)
            assert cache.get_seq_length() == mask.shape[1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tokens", [1, 40, 10_000])
def test_contexts_that_begin_with_earlier_ones_are_exact(kind, tokens, monkeypatch):
    monkeypatch.setitem(decoding.TOKENS_AT_ONCE, "cpu", tokens)
    subject = engine(kind, batch_size=4)
    calls = requests(9)
    computed = computed_tokens(monkeypatch)
    for turn in range(3):
        before, contexts = len(computed), 0
        # One conversation goes on, one begins again, one is new; the others rest and may be forgotten.
        for reply, call in zip(subject.generate(calls, Sampling(1.0)), calls, strict=True):
            ids, logprobs = slow_reply(
                subject.model, call.conversation.token_ids, call.limit, Sampling(1.0), call.seed, subject.chat.end_ids
            )
            assert reply.token_ids == ids
            assert reply.logprobs == pytest.approx(logprobs, abs=1e-4)
            contexts += reply.context_tokens
            said = Segment("assistant", "reply", reply.text, reply.token_ids, reply.logprobs, trained=True)
            call.conversation.tell([said]).tell([Segment("user", "observation", f"found {turn} of the capital")])
        if turn:
            assert sum(computed[before:]) < contexts  # sampled tokens and padding included
        calls = [*calls[turn % 2 :: 2], *requests(2), Request(conversation(50 + turn), 5, seed=turn)]


class Oracle:
    """Guesses what will come, but for every third token."""

    def __init__(self, replies, context):
        self.reply, self.done = replies[tuple(context)], 0

    def extend(self, ids):
        self.done += len(ids)

    def guess(self, most):
        coming = self.reply[self.done : self.done + most]
        return [token if (self.done + place) % 3 else 1 - min(token, 1) for place, token in enumerate(coming)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("most", [1, 3, 7, 12])
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(1.0, top_p=0.9)], ids=["greedy", "sampled"])
def test_right_and_wrong_guesses_change_no_reply(kind, most, sampling, monkeypatch):
    ends = frozenset(range(2, 40))
    calls = requests(9)
    guess(monkeypatch, 0)
    plain = engine(kind)
    plain.chat = dataclasses.replace(plain.chat, end_ids=ends)
    wanted = plain.generate(calls, sampling)
    guess(monkeypatch, most)
    known = {tuple(call.conversation.token_ids): want.token_ids for call, want in zip(calls, wanted, strict=True)}
    monkeypatch.setattr(decoding, "Guesses", lambda context: Oracle(known, context))
    subject = engine(kind)
    subject.chat = plain.chat
    for _ in range(2):  # the second time, contexts begin with what the first has left
        for reply, want in zip(subject.generate(calls, sampling), wanted, strict=True):
            assert (reply.token_ids, reply.finish, reply.text) == (want.token_ids, want.finish, want.text)
            assert reply.logprobs == pytest.approx(want.logprobs, abs=1e-4)
    kept = {tuple(each.ids) for each in subject._prefixes._kept}
    assert kept == {
        (*call.conversation.token_ids, *want.token_ids[:-1]) for call, want in zip(calls, wanted, strict=True)
    }
    # What was kept is what those tokens alone come to.
    for each in subject._prefixes._kept:
        with torch.no_grad():
            cache = subject.model(torch.tensor([each.ids]), use_cache=True).past_key_values
        for layer, (keys, values) in zip(cache.layers, each.states, strict=True):
            assert torch.allclose(layer.keys[0], keys, atol=1e-4) and torch.allclose(layer.values[0], values, atol=1e-4)


def test_copied_text_takes_fewer_passes(monkeypatch):
    """A model without variety repeats itself, which is guessed from the second time on."""
    lengths = []
    for most in (0, 3):
        guess(monkeypatch, most)
        subject = engine("llama")
        subject.chat = dataclasses.replace(subject.chat, end_ids=frozenset())
        computed = computed_tokens(monkeypatch)
        replies = subject.generate(requests(2, limit=60), Sampling())
        lengths.append((len(computed), [reply.token_ids for reply in replies]))
    assert lengths[0][1] == lengths[1][1]
    assert lengths[1][0] < 0.6 * lengths[0][0]


def test_no_position_lies_beyond_those_of_the_model(monkeypatch):
    subject, highest = engine("llama"), []
    forward = decoding._forward

    def spy(model, ids, mask, positions, *others):
        highest.append(int(positions.max()))
        return forward(model, ids, mask, positions, *others)

    monkeypatch.setattr(decoding, "_forward", spy)
    asked = [conversation(seed, words=300) for seed in range(3)]
    for each in asked:
        subject.chat.encode(each)
    subject.chat = dataclasses.replace(subject.chat, end_ids=frozenset())
    calls = [Request(each, 60 + 20 * place) for place, each in enumerate(asked)]
    longest = max(len(call.conversation.token_ids) + call.limit for call in calls)
    subject.model.config.max_position_embeddings = longest
    replies = subject.generate(calls, Sampling())
    assert [reply.finish for reply in replies] == ["length"] * 3
    assert max(highest) == longest - 2  # the newest token is never run


def computed_tokens(monkeypatch):
    """Tokens that each forward pass gets, padding included."""
    tokens = []
    forward = decoding._forward

    def spy(model, ids, *others):
        tokens.append(ids.numel())
        return forward(model, ids, *others)

    monkeypatch.setattr(decoding, "_forward", spy)
    return tokens


def test_the_same_again_is_computed_from_its_last_token_on(monkeypatch):
    computed = computed_tokens(monkeypatch)
    subject = engine()
    first = subject.generate(requests(3, limit=1), Sampling())
    assert sum(computed) > 60
    computed.clear()
    second = subject.generate(requests(3, limit=1), Sampling())
    assert computed == [3]
    for one, other in zip(first, second, strict=True):
        assert one.token_ids == other.token_ids
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)


def test_changed_weights_are_seen(monkeypatch):
    subject, calls = engine(), requests(3, limit=1)
    first = subject.generate(calls, Sampling())
    with torch.no_grad():
        for weight in subject.model.parameters():
            weight.mul_(1.1)
    computed = computed_tokens(monkeypatch)
    changed = subject.generate(calls, Sampling())
    assert sum(computed) > 60
    assert [reply.logprobs for reply in changed] != [reply.logprobs for reply in first]
    subject.forget()
    assert subject.generate(calls, Sampling()) == changed


def test_prefix_cache_keeps_what_fits_and_what_is_used():
    def states(ids):
        return lambda: [(torch.tensor(ids), torch.tensor(ids))]

    cache = PrefixCache(10)
    cache.begin_call()
    assert cache.find([1, 2, 3]) == Start()
    cache.keep([1, 2, 3, 4], states([1, 2, 3, 4]))
    assert cache.find([1, 2, 9]).length == 2
    assert cache.find([1, 2]).length == 1  # one token is left to compute
    assert cache.find([5, 6]) == Start()
    cache.keep([1, 2, 3, 4, 5, 6], states([1, 2, 3, 4, 5, 6]))
    assert len(cache) == 6  # in the place of what it continues
    cache.keep([7, 8, 9, 10, 11], states([7, 8, 9, 10, 11]))
    assert len(cache) == 6  # no room
    cache.keep([7, 8], states([7, 8]))
    cache.begin_call()
    assert cache.find([7, 9]).length == 1
    for _ in range(2):
        cache.begin_call()
    assert len(cache) == 2  # [7, 8] was used later
    cache.clear()
    assert len(cache) == 0
    with pytest.raises(ValueError, match="prefix_tokens"):
        engine(prefix_tokens=-1)


def test_a_sliding_window_is_exact_too():
    window = {"use_sliding_window": True, "sliding_window": 20, "max_window_layers": 1}
    subject = engine("qwen2", config=window, batch_size=4)
    calls = requests(5)
    subject.generate(calls, Sampling())
    for call, reply in zip(calls, subject.generate(calls, Sampling()), strict=True):
        ids, logprobs = slow_reply(
            subject.model, call.conversation.token_ids, call.limit, Sampling(), 0, subject.chat.end_ids
        )
        assert reply.token_ids == ids
        assert reply.logprobs == pytest.approx(logprobs, abs=1e-4)


def test_other_attention_is_left_as_it_is():
    calls = requests(4)
    wanted = engine("llama").generate(calls, Sampling())
    subject = engine("llama", config={"attn_implementation": "eager"})
    assert subject.model.config._attn_implementation == "eager"
    for reply, want in zip(subject.generate(calls, Sampling()), wanted, strict=True):
        assert reply.token_ids == want.token_ids
        assert reply.logprobs == pytest.approx(want.logprobs, abs=1e-4)


def test_common_prefix():
    assert common_prefix([(1, 2, 3), (1, 2, 4, 5)]) == 2
    assert common_prefix([(1, 2), (1, 2, 3)]) == 1  # each keeps a token of its own
    assert common_prefix([(1,), (2, 3)]) == 0


def guess(monkeypatch, most):
    monkeypatch.setattr(decoding, "guesses_at", lambda rows, device: most)


def test_finished_rows_leave(monkeypatch):
    guess(monkeypatch, 0)
    subject = engine()
    sizes = []
    forward = decoding._forward

    def spy(model, ids, *others):
        if ids.shape[1] == 1:
            sizes.append(len(ids))
        return forward(model, ids, *others)

    monkeypatch.setattr(decoding, "_forward", spy)
    calls = [Request(conversation(seed, words=20), limit, seed=seed) for seed, limit in enumerate((2, 2, 4, 9))]
    replies = subject.generate(calls, Sampling(1.0))
    assert [reply.sampled_tokens for reply in replies] == [2, 2, 4, 9]
    assert sizes == [4, 2, 2, *[1] * 5]


def scripted(subject, monkeypatch, texts):
    """Make the model's draws spell these texts, a list of token ids a row."""
    guess(monkeypatch, 0)
    script = [list(ids) for ids in texts]
    step = {"now": 0}

    def draw(logits, sampling, uniform):
        now = step["now"]
        step["now"] += 1
        tokens = torch.tensor([ids[min(now, len(ids) - 1)] for ids in script])
        return tokens, torch.full((len(script),), -0.5)

    monkeypatch.setattr(decoding, "draw", draw)


STOP = ("</tool_call>", "</a>")


@pytest.mark.parametrize(
    ("pieces", "text", "finish", "used"),
    [
        (["x", "</", "a", ">", "y"], "x</a>", "stop", 5),  # over several tokens
        (["x", "<think>", "</tool_call>", "y"], "x<think></tool_call>", "stop", 3),  # an added token
        (["é日", "</a>"], "é日</a>", "stop", None),  # behind torn characters
        (["</a", "<|im_end|>"], "</a", "eos", None),  # begun and not finished
        (["<|endoftext|>", "</a", ">"], "<|endoftext|></a>", "stop", None),
        (["</a></a>", "y"], "</a>", "stop", None),
        (["y"] * 30, "y" * 20, "length", 20),
        (["z" * 16, "</a>"], "z" * 16 + "</a>", "stop", None),  # the last token allowed
    ],
)
def test_stops(monkeypatch, pieces, text, finish, used):
    subject = engine()
    ids = [token for piece in pieces for token in subject.chat.encoder.markers(piece)]
    scripted(subject, monkeypatch, [ids])
    (reply,) = subject.generate([Request(conversation(0), 20, STOP)], Sampling())
    assert (reply.text, reply.finish) == (text, finish)
    assert used is None or reply.sampled_tokens == used
    assert reply.token_ids == ids[: reply.sampled_tokens]
    assert len(reply.logprobs) == reply.sampled_tokens


def test_a_token_that_runs_on_behind_the_stop_is_kept_and_the_text_is_cut():
    chat = engine().chat
    row = Row(Request(Conversation(), 20, ("<thin",)), [1])
    (token,) = chat.encoder.markers("<think>")
    row.take(token, -0.1, chat)
    assert row.finish == "stop"
    assert row.ids == [token]
    assert row.text(chat) == "<thin"


def test_failures_are_each_request_s_own():
    subject = engine()
    good = Request(conversation(1), 5)
    ended = conversation(2).tell([Segment("assistant", "reply", "x", subject.chat.encode_reply("x", end=True))])
    answers = subject.generate(
        [
            good,
            Request(Conversation(), 5),
            Request(conversation(2, words=1500), 5),
            Request(conversation(3), 2000),
            Request(conversation(4), 0),
            Request(ended, 5),
            dataclasses.replace(good, conversation=conversation(1)),
        ],
        Sampling(),
    )
    wanted = ["empty conversation", "do not fit the model's 1024", "up to 2000", "at least 1", "nothing to answer"]
    for answer, message in zip(answers[1:6], wanted, strict=True):
        assert isinstance(answer, EngineFailure)
        assert message in str(answer)
    assert answers[0] == answers[6]
    assert subject.generate([], Sampling()) == []


def test_an_error_of_the_model_fails_its_batch_with_the_cause(monkeypatch):
    subject = engine(batch_size=2)
    forward = decoding._forward
    monkeypatch.setattr(decoding, "_forward", _failing(forward, RuntimeError("out of memory")))
    answers = subject.generate(requests(4), Sampling())
    failed = [answer for answer in answers if isinstance(answer, EngineFailure)]
    assert len(failed) == 2
    assert all(isinstance(failure.__cause__, RuntimeError) and "out of memory" in str(failure) for failure in failed)
    monkeypatch.setattr(decoding, "_forward", _failing(forward, KeyboardInterrupt()))
    subject.model.train()
    with pytest.raises(KeyboardInterrupt):
        subject.generate(requests(4), Sampling())
    assert subject.model.training
    assert subject.model.config._attn_implementation == "sdpa"


def _failing(forward, error):
    """Fails at the first call only."""
    state = {"first": True}

    def run(*args):
        if state.pop("first", False):
            raise error
        return forward(*args)

    return run


def test_logits_that_are_not_finite_fail_their_request_alone(monkeypatch):
    guess(monkeypatch, 0)
    subject = engine()
    forward = decoding._forward

    def poisoned(*args):
        logits = forward(*args).clone()
        if args[1].shape[1] == 1 and len(logits) == 3:
            logits[1] = math.nan
        return logits

    monkeypatch.setattr(decoding, "_forward", poisoned)
    calls = [Request(conversation(seed, words=5), 4) for seed in range(3)]
    answers = subject.generate(calls, Sampling(1.0))
    failed = [answer for answer in answers if isinstance(answer, EngineFailure)]
    assert len(failed) == 1
    assert "not finite at token 2" in str(failed[0])


def test_a_row_that_fails_at_its_first_token_does_not_fail_the_others(monkeypatch):
    calls = requests(12)
    wanted = engine().generate(calls, Sampling(1.0))
    subject, forward = engine(), decoding._forward
    state = {"first": True}

    def poisoned(*args):
        logits = forward(*args).clone()
        if len(logits) == 12 and state.pop("first", False):
            logits[3] = math.nan
        return logits

    monkeypatch.setattr(decoding, "_forward", poisoned)
    answers = subject.generate(calls, Sampling(1.0))
    (place,) = [place for place, answer in enumerate(answers) if isinstance(answer, EngineFailure)]
    assert "not finite at token 1" in str(answers[place])
    for answer, want in zip(answers, wanted, strict=True):
        assert answer is answers[place] or answer.token_ids == want.token_ids


def test_guesses_are_for_a_cpu():
    assert [decoding.guesses_at(rows, "cpu") for rows in (1, 8, 9, 64)] == [3, 3, 1, 1]
    assert decoding.guesses_at(1, "cuda") == 0


def test_the_model_is_left_as_it_was_and_weights_may_change():
    subject = engine()
    subject.model.train()
    before = subject.generate(requests(2), Sampling())
    assert subject.model.training
    with torch.no_grad():
        subject.model.model.embed_tokens.weight.mul_(-1)
    assert subject.generate(requests(2), Sampling()) != before


def test_a_conversation_goes_on_behind_sampled_tokens():
    subject = engine()
    talk = conversation(3)
    (first,) = subject.generate([Request(talk, 6)], Sampling())
    talk.tell([Segment("assistant", "reply", first.text, first.token_ids, first.logprobs, trained=True)])
    talk.tell([Segment("user", "observation", "<|im_end|> more </tool_call>")])
    (second,) = subject.generate([Request(talk, 6)], Sampling())
    assert sum(talk.loss_mask) == 6
    ids, _ = slow_reply(subject.model, talk.token_ids, 6, Sampling(), 0, subject.chat.end_ids)
    assert second.token_ids == ids


def test_the_fingerprint_and_bad_options(tmp_path):
    (tmp_path / "adapter_model.safetensors").write_bytes(b"weights")
    found = engine(adapter=tmp_path).fingerprint
    assert found["engine"] == "transformers"
    assert found["model"] == "tiny"
    assert found["dtype"] == "float32"
    assert found["adapter"].startswith(tmp_path.name + "@")
    assert all(isinstance(value, str) for value in found.values())
    assert engine().fingerprint["adapter"] == "none"
    with pytest.raises(ValueError, match="at least 1"):
        engine(batch_size=0)


def test_a_layer_with_room_is_a_cache_layer():
    torch.manual_seed(0)
    layer = RoomyLayer(room=2)
    held = torch.zeros(2, 1, 0, 3)
    for length in (4, 1, 1, 1):
        new = torch.randn(2, 1, length, 3)
        held = torch.cat([held, new], dim=2)
        keys, values = layer.update(new, -new)
        assert torch.equal(keys, held)
        assert torch.equal(values, -held)
    layer.batch_select_indices(torch.tensor([1, 1, 0]))
    new = torch.randn(3, 1, 1, 3)
    keys, _ = layer.update(new, -new)
    assert torch.equal(keys, torch.cat([held[[1, 1, 0]], new], dim=2))
