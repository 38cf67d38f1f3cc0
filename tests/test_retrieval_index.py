import hashlib
import json
import logging
import threading

import numpy as np
import pytest

from memsearcher.retrieval import encoder as encoder_module
from memsearcher.retrieval.build import build_retriever, index_info
from memsearcher.retrieval.corpus import Corpus
from memsearcher.retrieval.fusion import FusionRetriever
from memsearcher.retrieval.index import DenseIndex
from memsearcher.retrieval.lexical import LexicalIndex
from memsearcher.retrieval.manifest import IndexRefused

DIMENSION = 8


class FakeEncoder:
    """A fixed unit vector for each text, and a count of what was encoded; it can be told to break."""

    def __init__(self, name="fake", dimension=DIMENSION, break_after=None):
        self.fingerprint = {"convention": name, "weights": "w"}
        self.dimension = dimension
        self.passages = []
        self._calls_left = break_after

    def encode_queries(self, texts):
        seeds = [int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) for text in texts]
        vectors = np.array([np.random.default_rng(seed).normal(size=self.dimension) for seed in seeds])
        return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)

    def encode_passages(self, texts):
        if self._calls_left is not None:
            if self._calls_left == 0:
                raise KeyboardInterrupt
            self._calls_left -= 1
        self.passages.extend(texts)
        return self.encode_queries(texts)


def write_corpus(path, count=23, word="passage"):
    lines = [{"id": str(n), "contents": f'"Title {n}"\n{word} {n}'} for n in range(count)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return Corpus(path)


@pytest.fixture
def corpus(tmp_path):
    return write_corpus(tmp_path / "c.jsonl")


@pytest.fixture
def built(tmp_path, corpus):
    folder = tmp_path / "index"
    DenseIndex.build(corpus, FakeEncoder(), folder, block=5, progress=False)
    return folder


def brute_force(corpus, queries, k):
    encoder = FakeEncoder()
    scores = encoder.encode_queries(queries) @ encoder.encode_queries([d.contents for d in corpus]).T
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return [[(int(row), float(scores[n, row])) for row in rows] for n, rows in enumerate(order)]


@pytest.mark.parametrize("count", [1, 7, 64])
def test_search_is_brute_force(corpus, built, count):
    queries = [f"query {n}" for n in range(count)]
    found = DenseIndex.open(built, corpus, FakeEncoder()).search(queries, 4)
    for hits, expected in zip(found, brute_force(corpus, queries, 4), strict=True):
        assert [hit.row for hit in hits] == [row for row, _ in expected]
        assert [hit.score for hit in hits] == pytest.approx([score for _, score in expected], abs=1e-6)


def test_k_larger_than_the_corpus_no_queries_and_k_below_one(corpus, built):
    index = DenseIndex.open(built, corpus, FakeEncoder())
    assert sorted(hit.row for hit in index.search(["q"], 1000)[0]) == list(range(23))
    assert index.search([], 3) == []
    with pytest.raises(ValueError, match="k is how many"):
        index.search(["q"], 0)


def test_equal_passages_go_by_row(tmp_path):
    path = tmp_path / "same.jsonl"
    path.write_text("".join(json.dumps({"id": str(n), "contents": "same"}) + "\n" for n in range(10)))
    index = DenseIndex.build(Corpus(path), FakeEncoder(), tmp_path / "i", progress=False)
    assert [hit.row for hit in index.search(["q"], 10)[0]] == list(range(10))
    assert [hit.row for hit in index.search(["q"], 3)[0]] == [0, 1, 2]


def test_a_finished_build_leaves_two_files_and_says_what_it_is(corpus, built):
    assert sorted(path.name for path in built.iterdir()) == ["index.faiss", "manifest.json"]
    info = index_info(built)
    assert info["state"] == "built"
    assert info["corpus_sha256"] == corpus.sha256
    assert (info["count"], info["dimension"], info["metric"]) == (23, DIMENSION, "inner_product")
    assert info["encoder"] == {"convention": "fake", "weights": "w"}
    assert info["index_sha256"] == hashlib.sha256((built / "index.faiss").read_bytes()).hexdigest()
    assert set(info["versions"]) == {"faiss", "numpy", "sentence-transformers", "torch", "transformers"}
    assert DenseIndex.open(built, corpus, FakeEncoder()).fingerprint == {
        "kind": "dense",
        "corpus": corpus.sha256,
        "encoder.convention": "fake",
        "encoder.weights": "w",
    }


def test_a_killed_build_goes_on_at_the_next_block(tmp_path, corpus):
    folder = tmp_path / "index"
    with pytest.raises(KeyboardInterrupt):
        DenseIndex.build(corpus, FakeEncoder(break_after=3), folder, block=5, progress=False)
    assert index_info(folder) | {"encoder": 0} == {
        "state": "building",
        "corpus_sha256": corpus.sha256,
        "count": 23,
        "encoder": 0,
        "dimension": DIMENSION,
        "block": 5,
        "done": 15,
    }
    with pytest.raises(IndexRefused, match=r"manifest.json: no such file, so there is no finished index here"):
        DenseIndex.open(folder, corpus, FakeEncoder())
    encoder = FakeEncoder()
    resumed = DenseIndex.build(corpus, encoder, folder, block=5, progress=False)
    assert encoder.passages == [document.contents for document in corpus][15:]
    whole = DenseIndex.build(corpus, FakeEncoder(), tmp_path / "whole", block=5, progress=False)
    assert resumed.manifest == whole.manifest


def test_a_damaged_block_is_encoded_again(tmp_path, corpus, caplog):
    folder = tmp_path / "index"
    with pytest.raises(KeyboardInterrupt):
        DenseIndex.build(corpus, FakeEncoder(break_after=3), folder, block=5, progress=False)
    (folder / "blocks" / "000000000005.npy").write_bytes(b"\x93NUMPY torn")
    np.save(folder / "blocks" / "000000000010.npy", np.zeros((2, DIMENSION), dtype=np.float32))
    encoder = FakeEncoder()
    DenseIndex.build(corpus, encoder, folder, block=5, progress=False)
    assert encoder.passages == [document.contents for document in corpus][5:]
    assert "000000000005.npy: damaged; its passages are encoded again" in caplog.text


@pytest.mark.parametrize("change", ["corpus", "encoder", "block", "owner file"])
def test_blocks_of_another_build_are_not_used(tmp_path, corpus, caplog, change):
    folder = tmp_path / "index"
    with pytest.raises(KeyboardInterrupt):
        DenseIndex.build(corpus, FakeEncoder(break_after=3), folder, block=5, progress=False)
    other = write_corpus(tmp_path / "other.jsonl", word="text") if change == "corpus" else corpus
    encoder = FakeEncoder("other" if change == "encoder" else "fake")
    if change == "owner file":
        (folder / "blocks" / "blocks.json").write_text("{")
    with caplog.at_level(logging.WARNING):
        DenseIndex.build(other, encoder, folder, block=4 if change == "block" else 5, progress=False)
    assert len(encoder.passages) == 23
    assert "starting anew" in caplog.text


@pytest.mark.parametrize("vectors", [np.zeros((23, 3), np.float32), np.full((23, DIMENSION), np.nan, np.float32)])
def test_vectors_that_cannot_be_are_refused(tmp_path, corpus, vectors):
    encoder = FakeEncoder()
    encoder.encode_passages = lambda texts: vectors
    with pytest.raises(ValueError, match=r"vectors of shape .* for rows 0 to 22"):
        DenseIndex.build(corpus, encoder, tmp_path / "i", progress=False)


def edit_manifest(folder, **fields):
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def flip(path, position):
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


REFUSALS = {
    "no manifest": (lambda f: (f / "manifest.json").unlink(), "manifest.json: no such file"),
    "no index": (lambda f: (f / "index.faiss").unlink(), "index.faiss: no such file"),
    "index cut": (lambda f: (f / "index.faiss").write_bytes(b"IxF"), "index.faiss: 3 bytes where"),
    "index flipped": (lambda f: flip(f / "index.faiss", -5), "index.faiss: damaged"),
    "index header flipped": (lambda f: flip(f / "index.faiss", 0), "index.faiss: damaged"),
    "manifest cut": (lambda f: (f / "manifest.json").write_text('{"sch'), "manifest.json: damaged, not JSON"),
    "manifest empty": (lambda f: (f / "manifest.json").write_text(""), "manifest.json: damaged, not JSON"),
    "manifest not UTF-8": (lambda f: (f / "manifest.json").write_bytes(b'"\xff"'), "manifest.json: damaged, not JSON"),
    "manifest other JSON": (lambda f: (f / "manifest.json").write_text("[]"), "manifest.json: not the manifest"),
    "schema": (lambda f: edit_manifest(f, schema=3), "manifest.json: schema 3, this program reads 1 to 2"),
    "count edited": (lambda f: edit_manifest(f, count=24), "manifest.json: damaged or edited"),
    "field missing": (lambda f: edit_manifest(f, checksum=None), "manifest.json: damaged or edited"),
    "field added": (lambda f: edit_manifest(f, more=1), "manifest.json: damaged or edited"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_damaged_index_is_refused(corpus, built, case):
    damage, message = REFUSALS[case]
    damage(built)
    with pytest.raises(IndexRefused) as error:
        DenseIndex.open(built, corpus, FakeEncoder())
    assert str(error.value).startswith(f"{built}/{message}")
    assert "build it again" in str(error.value)
    with pytest.raises(IndexRefused):
        index_info(built)


def test_every_flipped_bit_of_the_manifest_is_noticed(corpus, built):
    path = built / "manifest.json"
    whole = path.read_bytes()
    for position in range(len(whole) - 1):  # The last byte is the newline at the end.
        path.write_bytes(whole)
        flip(path, position)
        with pytest.raises(IndexRefused):
            DenseIndex.open(built, corpus, FakeEncoder())


def test_another_owner_is_refused(tmp_path, corpus, built):
    with pytest.raises(IndexRefused, match=r"manifest.json: built from another corpus \(sha256"):
        DenseIndex.open(built, write_corpus(tmp_path / "o.jsonl", word="text"), FakeEncoder())
    with pytest.raises(IndexRefused, match=r"built with another encoder \(convention 'fake' and not 'e5'\); build it"):
        DenseIndex.open(built, corpus, FakeEncoder("e5"))
    with pytest.raises(IndexRefused, match="vectors of dimension 8, the encoder gives 9"):
        DenseIndex.open(built, corpus, FakeEncoder(dimension=9))


def test_an_index_with_other_vectors_than_its_manifest_says(tmp_path, corpus, built):
    fewer = tmp_path / "fewer"
    DenseIndex.build(write_corpus(tmp_path / "f.jsonl", 22), FakeEncoder(), fewer, progress=False)
    data = (fewer / "index.faiss").read_bytes()
    manifest = DenseIndex.open(built, corpus, FakeEncoder()).manifest
    (built / "index.faiss").write_bytes(data)
    forged = type(manifest)(
        **{
            **{name: getattr(manifest, name) for name in manifest.__slots__},
            "index_sha256": hashlib.sha256(data).hexdigest(),
            "index_bytes": len(data),
        }
    )
    forged.write(built)
    with pytest.raises(IndexRefused, match="22 vectors of dimension 8 for a corpus of 23 passages"):
        DenseIndex.open(built, corpus, FakeEncoder())


def test_build_retriever_builds_once_and_opens_then(tmp_path, corpus):
    folder = tmp_path / "index"
    encoder = FakeEncoder()
    hybrid = build_retriever(corpus.path, folder, "hybrid", encoder, progress=False)
    assert isinstance(hybrid, FusionRetriever)
    dense = build_retriever(corpus, folder, "dense", encoder, progress=False)
    assert isinstance(dense, DenseIndex)
    assert len(encoder.passages) == 23
    build_retriever(corpus, folder, "dense", encoder, rebuild=True, progress=False)
    assert len(encoder.passages) == 46
    with pytest.raises(IndexRefused, match="another encoder"):
        build_retriever(corpus, folder, "dense", FakeEncoder("other"), progress=False)


def test_build_retriever_for_words_needs_no_encoder_and_no_folder(tmp_path, corpus):
    retriever = build_retriever(corpus, tmp_path / "index", "bm25", "no such encoder")
    assert isinstance(retriever, LexicalIndex)
    assert not (tmp_path / "index").exists()


def test_build_retriever_refuses_unknown_names(tmp_path, corpus):
    with pytest.raises(ValueError, match="unknown retriever 'sparse'; choose from hybrid, dense, bm25"):
        build_retriever(corpus, tmp_path, "sparse")
    with pytest.raises(ValueError, match="unknown encoder 'e6'; choose from minilm, e5, bge"):
        build_retriever(corpus, tmp_path, "dense", "e6")


def test_an_encoder_is_named_with_its_weights(tmp_path, corpus, monkeypatch):
    asked = []
    monkeypatch.setattr(encoder_module, "load_encoder", lambda *names: asked.append(names) or FakeEncoder())
    build_retriever(corpus, tmp_path / "i", "dense", "bge=some/model", progress=False)
    build_retriever(corpus, tmp_path / "i", "dense", "bge", progress=False)
    assert asked == [("bge", "some/model", "cpu"), ("bge", None, "cpu")]


def test_builders_of_one_folder_take_turns(tmp_path, corpus):
    encoder = FakeEncoder()
    threads = [
        threading.Thread(target=build_retriever, args=(corpus, tmp_path / "i", "dense", encoder, False, False))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(encoder.passages) == 23


def test_index_info_of_a_folder_without_one(tmp_path):
    with pytest.raises(IndexRefused, match="no finished index here"):
        index_info(tmp_path)


def test_progress_is_shown_on_standard_error(tmp_path, corpus, capsys):
    DenseIndex.build(corpus, FakeEncoder(), tmp_path / "i", block=5)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "encoding" in shown.err
    assert "23/23" in shown.err


def test_others_may_encode_the_blocks_in_any_order(tmp_path, corpus, built):
    def backwards(opened, blocks):
        assert opened is corpus
        for rows in reversed(blocks):
            yield rows, FakeEncoder().encode_passages([corpus.passage(row).contents for row in rows])

    never = FakeEncoder(break_after=0)
    found = DenseIndex.build(corpus, never, tmp_path / "other", block=5, progress=False, encode=backwards)
    wanted = DenseIndex.open(built, corpus, FakeEncoder())
    assert found.manifest.index_sha256 == wanted.manifest.index_sha256
