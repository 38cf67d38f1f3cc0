"""The vLLM engine around a scripted vLLM: what is handed in, what goes wrong. Real vLLM: `make test-vllm`."""

from __future__ import annotations

import importlib
import json
import sys
import threading
from dataclasses import replace
from types import ModuleType, SimpleNamespace

import pytest

from memsearcher.assemble import make_engine
from memsearcher.engines.chat import ChatFormat
from memsearcher.engines.models import ModelError
from memsearcher.engines.protocol import EngineFailure, Request, Sampling
from memsearcher.recipe import Model, Recipe, RecipeError
from memsearcher.trajectory import Conversation, Segment
from tests.tiny import tiny_tokenizer

CHAT = ChatFormat.from_tokenizer(tiny_tokenizer())
GREEDY = Sampling()


class ScriptedLLM:
    """Plays vLLM's `LLM` and its engine: every step ends the oldest request with what `script` makes of it."""

    def __init__(self, model="tiny", **options):
        self.model, self.options = model, options
        self.model_config = SimpleNamespace(max_model_len=200, dtype="torch.float32")
        self.llm_engine = self
        self.engine_core = SimpleNamespace(shutdown=lambda: setattr(self, "down", True))
        self.added, self.aborted, self.waiting = [], [], []
        self.down = False
        self.script = lambda text: (text, "stop")
        self.logprob = -1.0
        self.entered, self.gate = threading.Event(), threading.Event()
        self.gate.set()

    def add_request(self, name, prompt, params, lora_request):
        if self.script is None:
            raise ValueError("refused")
        self.added.append((name, prompt["prompt_token_ids"], params, lora_request))
        self.waiting.append(name)

    def abort_request(self, names):
        self.aborted += names
        self.waiting = [name for name in self.waiting if name not in names]

    def step(self):
        self.entered.set()
        self.gate.wait(10)
        name = self.waiting.pop(0)
        said = self.script(name)
        if isinstance(said, Exception):
            raise said
        text, reason = said
        ids = text if isinstance(text, list) else CHAT.encode_reply(text, end=True)
        logprobs = [{token: SimpleNamespace(logprob=self.logprob)} for token in ids]
        output = SimpleNamespace(token_ids=ids, logprobs=logprobs, finish_reason=reason)
        other = SimpleNamespace(request_id="other", finished=False, outputs=[])
        return [other, SimpleNamespace(request_id=name, finished=True, outputs=[output])]


@pytest.fixture
def module(monkeypatch):
    """`engines.vllm` over a stand-in for the package."""
    parts = {
        "vllm": {
            "LLM": ScriptedLLM,
            "SamplingParams": SimpleNamespace,
            "TokensPrompt": dict,
            "__version__": "0.31.0",
            "__spec__": SimpleNamespace(),
        },
        "vllm.lora": {},
        "vllm.lora.request": {"LoRARequest": lambda *about: about},
        "vllm.platforms": {"current_platform": SimpleNamespace(is_cpu=lambda: True, device_type="cpu")},
        "vllm.sampling_params": {"RequestOutputKind": SimpleNamespace(FINAL_ONLY="final")},
    }
    for name, about in parts.items():
        made = ModuleType(name)
        vars(made).update(about)
        monkeypatch.setitem(sys.modules, name, made)
    monkeypatch.delitem(sys.modules, "memsearcher.engines.vllm", raising=False)
    yield importlib.import_module("memsearcher.engines.vllm")
    sys.modules.pop("memsearcher.engines.vllm", None)


@pytest.fixture
def engine(module):
    made = module.VLLMEngine(ScriptedLLM(), CHAT, "tiny")
    yield made
    made.llm.gate.set()
    if made._pump.is_alive():
        made.close()


def talk(text="Why?"):
    return Conversation.start([Segment("system", "system", "Be brief.")], [Segment("user", "question", text)])


def ask(engine, *texts, sampling=GREEDY, limit=20, **options):
    return engine.generate([Request(talk(text), limit, seed=7, **options) for text in texts or ["Why?"]], sampling)


def test_what_vllm_is_given(engine):
    reply, _ = ask(engine, "a", "b", sampling=Sampling(0.5, 0.9, 7), stop=("</a>",), limit=20)
    wanted = talk("a")
    CHAT.encode(wanted)
    (name, ids, params, lora), (other, *_) = engine.llm.added
    assert (ids, lora) == (wanted.token_ids, None)
    assert name != other
    assert vars(params) == {
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 7,
        "seed": 7,
        "max_tokens": 20,
        "stop": ["</a>"],
        "include_stop_str_in_output": True,
        "stop_token_ids": sorted(CHAT.end_ids),
        "ignore_eos": True,
        "skip_special_tokens": False,
        "spaces_between_special_tokens": False,
        "logprobs": 0,
        "output_kind": "final",
    }
    assert (reply.text, reply.finish) == ("1", "eos")
    assert (reply.context_tokens, reply.sampled_tokens) == (len(ids), 2)
    assert reply.logprobs == [-1.0, -1.0]
    ask(engine)
    assert engine.llm.added[-1][2].seed is None


def test_ids_end_where_the_text_does(engine):
    """vLLM may sample on behind a stop string; what is kept is read off the ids."""
    ids = [*CHAT.encode_reply("known</a> and more")]
    engine.llm.script = lambda name: (ids, "stop")
    (reply,) = ask(engine, stop=("</a>",))
    assert (reply.text, reply.finish) == ("known</a>", "stop")
    assert reply.token_ids == ids[: len(reply.token_ids)]
    assert CHAT.encoder.decode(reply.token_ids).startswith("known</a>")
    assert len(reply.token_ids) == len(reply.logprobs) < len(ids)
    (reply,) = ask(engine, limit=3)
    assert (reply.finish, reply.token_ids) == ("length", ids[:3])


@pytest.mark.parametrize("reason", ["abort", "error", "length"])
def test_an_end_that_is_not_the_reply_s_is_a_failure(engine, reason):
    engine.llm.script = lambda name: ([5, 6], reason)
    (failure,) = ask(engine)
    assert str(failure) == f"vLLM ended the reply with {reason!r} after 2 tokens"


def test_logits_that_are_not_finite_are_a_failure(engine):
    engine.llm.logprob = float("nan")
    (failure,) = ask(engine)
    assert "not finite at token 1" in str(failure)


def test_a_request_that_cannot_be_run_does_not_reach_vllm(engine):
    first, second = engine.generate([Request(talk(), 500), Request(Conversation(), 5)], GREEDY)
    assert "do not fit the model's 200 positions" in str(first)
    assert "empty conversation" in str(second)
    assert engine.llm.added == []


def test_a_request_that_vllm_refuses_fails_alone(engine):
    engine.llm.script = None
    (failure,) = ask(engine)
    assert "vLLM does not take the request: refused" in str(failure)
    assert isinstance(failure.__cause__, ValueError)


def test_when_vllm_breaks_all_under_way_fail_and_the_next_are_tried(engine):
    engine.llm.script = lambda name: MemoryError("no room")
    engine.llm.gate.clear()
    answers = [engine.submit(Request(talk(), 9), GREEDY) for _ in range(3)]
    engine.llm.gate.set()
    failures = [answer.result(10) for answer in answers]
    assert all(isinstance(each, EngineFailure) and "no room" in str(each) for each in failures)
    engine.llm.script = lambda name: ("fine", "stop")
    engine.llm.waiting.clear()
    (reply,) = ask(engine)
    assert reply.text == "fine"


def test_what_is_cancelled_is_aborted(engine):
    engine.llm.gate.clear()
    first, second, third = (engine.submit(Request(talk(), 9), GREEDY) for _ in range(3))
    assert engine.llm.entered.wait(10)
    assert second.cancel() and third.cancel()
    engine.llm.gate.set()
    assert first.result(10).text == "1"
    (reply,) = ask(engine)
    assert reply.text == "4"
    assert set(engine.llm.aborted) <= {"2", "3"}


def test_a_reply_that_was_cancelled_at_the_last_moment_is_dropped(engine):
    def script(name):
        late.cancel()
        return "x", "stop"

    engine.llm.gate.clear()
    late = engine.submit(Request(talk(), 9), GREEDY)
    engine.llm.script = script
    engine.llm.gate.set()
    (reply,) = ask(engine)
    assert late.cancelled()
    assert reply.text == "x"


def test_closing(engine):
    engine.llm.gate.clear()
    engine.llm.script = lambda name: engine._inbox.put(None) or ("x", "stop")
    first = engine.submit(Request(talk(), 9), GREEDY)
    assert engine.llm.entered.wait(10)
    second = engine.submit(Request(talk(), 9), GREEDY)
    engine.llm.gate.set()
    engine.close()
    assert first.result(10).text == "x"
    assert str(second.result(10)) == "the engine was closed"
    assert engine.llm.down
    with pytest.raises(RuntimeError, match="was closed"):
        ask(engine)


def adapter(folder, rank):
    (folder / "adapter_config.json").write_text(json.dumps({"r": rank}))
    (folder / "adapter_model.safetensors").write_bytes(b"weights")
    return folder


def test_loading(module, tmp_path):
    tiny_tokenizer().save_pretrained(tmp_path)
    engine = module.VLLMEngine.load(tmp_path, adapter(tmp_path, 12), batch_size=3, max_model_len=99)
    assert engine.llm.model == str(tmp_path)
    assert engine.llm.options == {
        "dtype": "float32",
        "load_format": "safetensors",
        "generation_config": "vllm",
        "logprobs_mode": "processed_logprobs",
        "enable_prefix_caching": True,
        "max_num_seqs": 3,
        "max_model_len": 99,
        "enable_lora": True,
        "max_lora_rank": 16,
    }
    ask(engine)
    label = engine.fingerprint["adapter"]
    assert engine.llm.added[0][3] == (label, 1, str(tmp_path))
    assert engine.fingerprint == {
        "engine": "vllm",
        "model": str(tmp_path),
        "adapter": label,
        "dtype": "float32",
        "device": "cpu",
        "vllm": "0.31.0",
    }
    engine.close()
    plain = module.VLLMEngine.load(tmp_path, dtype="bfloat16")
    assert plain.llm.options["dtype"] == "bfloat16"
    assert "enable_lora" not in plain.llm.options
    plain.close()


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (None, "is not the configuration of a LoRA adapter"),
        ("{", "is not the configuration"),
        ("{}", "is not the configuration"),
        ('{"r": "x"}', "is not the configuration"),
        ('{"r": 513}', "rank 513; vLLM runs adapters of at most 512"),
    ],
)
def test_an_adapter_that_vllm_cannot_run(module, tmp_path, config, why):
    tiny_tokenizer().save_pretrained(tmp_path)
    if config:
        (tmp_path / "adapter_config.json").write_text(config)
    with pytest.raises(ModelError, match=why):
        module.VLLMEngine.load(tmp_path, tmp_path)


def test_a_recipe_makes_the_engine_or_says_what_to_install(module, tmp_path, monkeypatch):
    tiny_tokenizer().save_pretrained(tmp_path)
    model = Model("vllm", str(tmp_path), adapter=None, batch_size=4, vllm={"enforce_eager": True})
    recipe = Recipe(model=model)
    engine = make_engine(recipe)
    assert isinstance(engine, module.VLLMEngine)
    given = engine.llm.options
    assert (given["max_num_seqs"], given["enforce_eager"], given["dtype"]) == (4, True, "float32")
    engine.close()
    engine = make_engine(Recipe(model=replace(model, dtype="bfloat16")))
    assert engine.llm.options["dtype"] == "bfloat16"
    engine.close()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(RecipeError, match=r"vllm is not installed; pip install -e '.\[gpu\]'"):
        make_engine(recipe)
