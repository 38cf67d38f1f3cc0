"""The types of index: what they find, what they need, and how they are built, kept and opened."""

import json
import logging

import faiss
import numpy as np
import pytest

from memsearcher.retrieval import index as index_module
from memsearcher.retrieval import plan as plan_module
from memsearcher.retrieval.build import build_retriever, index_info
from memsearcher.retrieval.corpus import Corpus
from memsearcher.retrieval.index import DenseIndex
from memsearcher.retrieval.manifest import IndexRefused, Manifest, _checksum
from memsearcher.retrieval.plan import choose, human, parse_size, plan
from memsearcher.retrieval.recall import exact, held_out_queries, measure, tune
from memsearcher.retrieval.types import INDEX_TYPES, check_buildable, efforts, empty_index, index_bytes, lists

COUNT, DIMENSION = 10_000, 16


class Points:
    """Unit vectors around a few centres, one for each number in a text; a query lies beside its passage."""

    def __init__(self, count=COUNT):
        self.fingerprint = {"convention": "points"}
        self.dimension = DIMENSION
        random = np.random.default_rng(0)
        points = random.normal(size=(40, DIMENSION))[random.integers(40, size=count)]
        points += 0.7 * random.normal(size=points.shape)
        self.points = (points / np.linalg.norm(points, axis=1, keepdims=True)).astype(np.float32)
        self.aside = 0.1 * random.normal(size=points.shape).astype(np.float32)
        self.encoded = 0

    def encode_passages(self, texts):
        self.encoded += len(texts)
        return self.points[[int(text.split()[-1]) for text in texts]]

    def encode_queries(self, texts):
        rows = [int(text.split()[-1]) for text in texts]
        return self.points[rows] + self.aside[rows]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "c.jsonl"
    path.write_text("".join(json.dumps({"id": f"p{n}", "contents": f"passage {n}"}) + "\n" for n in range(COUNT)))
    return Corpus(path)


@pytest.fixture(scope="module")
def built(tmp_path_factory, corpus):
    """A folder for each type."""
    root = tmp_path_factory.mktemp("indexes")
    for index_type in INDEX_TYPES:
        DenseIndex.build(corpus, Points(), root / index_type, index_type, 0.9, block=1000, progress=False)
    return root


QUERIES = [f"query {n}" for n in range(0, COUNT, 100)]


def truth(queries, k):
    encoder = Points()
    scores = encoder.encode_queries(queries) @ encoder.points.T
    return np.argsort(-scores, axis=1, kind="stable")[:, :k]


@pytest.mark.parametrize("index_type", INDEX_TYPES)
def test_each_type_finds_what_its_manifest_says(corpus, built, index_type):
    index = DenseIndex.open(built / index_type, corpus, Points())
    assert index.manifest.index_type == index_type
    rankings = index.search(QUERIES, 10)
    expected = truth(QUERIES, 10)
    shared = [
        len({hit.row for hit in hits} & set(rows)) for hits, rows in zip(rankings, expected.tolist(), strict=True)
    ]
    recall = sum(shared) / expected.size
    told = index.manifest.recall
    if index_type == "flat":
        assert (recall, told) == (1.0, None)
    else:
        assert told["k"] == 10
        assert told["queries"] == 256
        assert recall == pytest.approx(told["value"], abs=0.05)
        assert told["value"] >= 0.9 or index_type == "ivf-pq"
        assert (told["effort"] is None) == (index_type == "flat-fp16")


@pytest.mark.parametrize("index_type", INDEX_TYPES)
def test_memory_mapped_finds_the_same(corpus, built, index_type):
    opened = [DenseIndex.open(built / index_type, corpus, Points(), mapped) for mapped in (False, True)]
    assert opened[0].search(QUERIES, 5) == opened[1].search(QUERIES, 5)


@pytest.mark.parametrize("index_type", INDEX_TYPES)
def test_a_plan_has_the_size_of_the_file(built, index_type):
    # What FAISS writes beside the vectors is a few hundred bytes; the floors of a graph are drawn by lot.
    size = (built / index_type / "index.faiss").stat().st_size
    assert plan(index_type, COUNT, DIMENSION).memory == pytest.approx(size, rel=0.01)


@pytest.mark.parametrize("index_type", INDEX_TYPES)
def test_a_flipped_bit_is_refused_for_each_type(corpus, built, index_type, tmp_path):
    for name in ("manifest.json", "index.faiss"):
        (tmp_path / name).write_bytes((built / index_type / name).read_bytes())
    data = bytearray((tmp_path / "index.faiss").read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "index.faiss").write_bytes(data)
    for mapped in (False, True):
        with pytest.raises(IndexRefused, match=r"index\.faiss: damaged"):
            DenseIndex.open(tmp_path, corpus, Points(), mapped)


def test_swapped_files_are_refused(corpus, built, tmp_path):
    (tmp_path / "manifest.json").write_bytes((built / "hnsw" / "manifest.json").read_bytes())
    (tmp_path / "index.faiss").write_bytes((built / "flat" / "index.faiss").read_bytes())
    with pytest.raises(IndexRefused, match=r"index\.faiss: \d+ bytes where \d+ were written"):
        DenseIndex.open(tmp_path, corpus, Points())


def test_an_approximate_index_is_bound_to_its_file(corpus, built):
    prints = {name: DenseIndex.open(built / name, corpus, Points()).fingerprint for name in ("flat", "hnsw")}
    assert "index" not in prints["flat"]
    assert prints["hnsw"] == prints["flat"] | {
        "index": "hnsw",
        "index_sha256": Manifest.read(built / "hnsw").index_sha256,
    }


def test_a_query_finds_the_same_alone_and_in_a_batch(corpus, built):
    index = DenseIndex.open(built / "ivf-sq8", corpus, Points())
    assert index.search(QUERIES, 5)[7] == index.search([QUERIES[7]], 5)[0]


def test_fewer_hits_than_asked_for_are_no_hits_of_row_minus_one(corpus, built):
    index = DenseIndex.open(built / "ivf-pq", corpus, Points())
    index._vectors.nprobe = 1
    hits = index.search(["query 1"], COUNT)[0]
    assert 0 < len(hits) < COUNT
    assert min(hit.row for hit in hits) >= 0


@pytest.mark.parametrize("index_type", ["hnsw", "ivf-sq8"])
def test_a_killed_build_goes_on_where_it_was_saved(corpus, built, tmp_path, monkeypatch, index_type):
    def interrupted(index, path, calls=[]):  # noqa: B006
        calls.append(path)
        write(index, path)
        if len(calls) == 3:
            raise KeyboardInterrupt

    write = index_module._write_index
    monkeypatch.setattr(index_module, "SAVE_SECONDS", -1)
    encoder = Points()
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(index_module, "_write_index", interrupted)
        DenseIndex.build(corpus, encoder, tmp_path, index_type, 0.9, block=1000, progress=False)
    assert index_info(tmp_path)["state"] == "building"
    saved = faiss.read_index(str(tmp_path / "blocks" / f"{index_type}.faiss")).ntotal
    assert saved in (2000, 3000)
    trained = []
    monkeypatch.setattr(index_module, "empty_index", lambda *options: trained.append(options))
    monkeypatch.setattr(index_module, "SAVE_SECONDS", 300.0)
    resumed = DenseIndex.build(corpus, encoder, tmp_path, index_type, 0.9, block=1000, progress=False)
    assert trained == []
    assert encoder.encoded == COUNT
    whole = DenseIndex.open(built / index_type, corpus, encoder)
    # The floors of a graph are drawn by lot, and FAISS does not keep where the draw stood.
    assert resumed.manifest.recall["value"] == pytest.approx(whole.manifest.recall["value"], abs=0.02)
    if index_type == "ivf-sq8":
        assert resumed.search(QUERIES, 5) == whole.search(QUERIES, 5)
    assert not (tmp_path / "blocks").exists()


def test_a_damaged_save_is_made_again(corpus, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(index_module, "held_out_queries", interrupt)
    with pytest.raises(KeyboardInterrupt):
        DenseIndex.build(corpus, Points(), tmp_path, "ivf-sq8", block=1000, progress=False)
    (tmp_path / "blocks" / "ivf-sq8.faiss").write_bytes(b"torn")
    with pytest.raises(KeyboardInterrupt):
        DenseIndex.build(corpus, Points(), tmp_path, "ivf-sq8", block=1000, progress=False)
    assert "ivf-sq8.faiss: damaged; its vectors are added again" in caplog.text


def interrupt(*_):
    raise KeyboardInterrupt


def test_a_recall_that_is_not_reached_is_told(corpus, tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        DenseIndex.build(corpus, Points(), tmp_path, "ivf-pq", 1.0, block=1000, progress=False)
    assert "recall@10 is 0." in caplog.text
    assert Manifest.read(tmp_path).recall["effort"] == lists(COUNT)


def test_more_recall_takes_more_effort(built, corpus):
    index = DenseIndex.open(built / "ivf-sq8", corpus, Points())._vectors
    queries = held_out_queries(corpus, Points())
    right = exact(queries, [Points().points], 10)
    found = [tune(index, "ivf-sq8", queries, right, target) for target in (0.3, 0.9, 0.99)]
    assert found[0].effort < found[1].effort < found[2].effort
    assert found[0].value < found[1].value < found[2].value
    assert measure(index, queries, right) == found[2].value


def test_exact_is_brute_force_over_blocks():
    points = Points(500).points
    queries = Points(500).encode_queries([f"q {n}" for n in range(20)])
    found = exact(queries, [points[:3], points[3:200], points[200:]], 10)
    assert found.tolist() == np.argsort(-(queries @ points.T), axis=1, kind="stable")[:, :10].tolist()


def test_queries_are_titles_or_first_words(tmp_path):
    path = tmp_path / "c.jsonl"
    texts = ['"The title 1"\ntext', "no title " + "word " * 20]
    path.write_text("".join(json.dumps({"id": str(n), "contents": text}) + "\n" for n, text in enumerate(texts)))
    asked = []

    class Encoder:
        def encode_queries(self, texts):
            asked.extend(texts)

    held_out_queries(Corpus(path), Encoder())
    assert sorted(asked) == ["The title 1", "no title " + " ".join(["word"] * 10)]


@pytest.mark.parametrize(
    ("count", "expected"), [(1, 1), (38, 1), (78, 2), (10_000, 256), (20_000, 512), (21_015_324, 16_384)]
)
def test_lists_grow_with_the_root_and_leave_enough_to_train_on(count, expected):
    assert lists(count) == expected


def test_efforts():
    assert efforts("flat", 10) == efforts("flat-fp16", 10) == []
    assert efforts("ivf-pq", 100) == [1, 2]
    assert efforts("ivf-sq8", COUNT)[-1] == lists(COUNT)
    assert efforts("hnsw", 5)[0] == 16


def test_what_cannot_be_built_is_refused_before_anything_is_encoded(tmp_path):
    with pytest.raises(ValueError, match="ivf-pq needs at least 9984 passages to train on, this corpus has 9"):
        check_buildable("ivf-pq", 9, 16)
    with pytest.raises(ValueError, match="ivf-pq needs a dimension that 4 divides, not 6; use ivf-sq8"):
        check_buildable("ivf-pq", COUNT, 6)
    for index_type in INDEX_TYPES:
        check_buildable(index_type, COUNT, 16)


@pytest.mark.parametrize("index_type", ["flat-fp16", "hnsw", "ivf-sq8"])
def test_a_single_passage_is_an_index(tmp_path, index_type):
    path = tmp_path / "c.jsonl"
    path.write_text(json.dumps({"id": "p", "contents": "passage 0"}) + "\n")
    index = DenseIndex.build(Corpus(path), Points(), tmp_path / "i", index_type, progress=False)
    assert [hit.row for hit in index.search(["query 0"], 3)[0]] == [0]


def test_what_does_not_fit_is_refused_with_the_number(corpus, built, tmp_path, monkeypatch):
    class Memory:
        available = 1_000_000

    monkeypatch.setattr(plan_module.psutil, "virtual_memory", lambda: Memory)
    expected = r"index\.faiss: needs 640 KB of memory and 500 KB are free; open it memory-mapped"
    Memory.available = 500_000
    with pytest.raises(IndexRefused, match=expected):
        DenseIndex.open(built / "flat", corpus, Points())
    DenseIndex.open(built / "flat", corpus, Points(), mapped=True)
    encoder = Points()
    with pytest.raises(IndexRefused, match="are free; build a smaller type"):
        DenseIndex.build(corpus, encoder, tmp_path, "flat", progress=False)
    assert encoder.encoded == 0


def test_a_type_is_taken_as_it_is_or_refused(corpus, tmp_path):
    folder = tmp_path / "i"
    one = build_retriever(corpus, folder, "dense", Points(), index_type="ivf-sq8", progress=False)
    assert one.manifest.index_type == "ivf-sq8"
    assert build_retriever(corpus, folder, "dense", Points(), mapped=True).manifest == one.manifest
    with pytest.raises(IndexRefused, match=r"manifest\.json: an index of type ivf-sq8, where hnsw was asked for"):
        build_retriever(corpus, folder, "dense", Points(), index_type="hnsw")
    again = build_retriever(corpus, folder, "dense", Points(), index_type="flat-fp16", rebuild=True, progress=False)
    assert again.manifest.index_type == "flat-fp16"


def test_an_index_from_before_there_were_types_is_flat(corpus, built, tmp_path):
    record = json.loads((built / "flat" / "manifest.json").read_text())
    fields = {name: record[name] for name in record if name not in ("schema", "checksum", "index_type", "recall")}
    (tmp_path / "manifest.json").write_text(json.dumps({"schema": 1, **fields, "checksum": _checksum(fields)}))
    (tmp_path / "index.faiss").write_bytes((built / "flat" / "index.faiss").read_bytes())
    opened = DenseIndex.open(tmp_path, corpus, Points())
    assert (opened.manifest.index_type, opened.manifest.recall) == ("flat", None)


WIKI = 21_015_324


@pytest.mark.parametrize(
    ("count", "memory", "recall", "expected"),
    [
        (1000, None, 1.0, "flat"),
        (1000, None, 0.95, "flat"),
        (WIKI, None, 0.95, "hnsw"),
        (WIKI, "32GiB", 0.95, "ivf-sq8"),
        (WIKI, "16GB", 0.7, "ivf-pq"),
        (WIKI, "64GiB", 0.99, "flat-fp16"),
        (WIKI, None, 1.0, "flat"),
    ],
)
def test_the_choice(count, memory, recall, expected):
    found, why = choose(count, 768, parse_size(memory) if memory else None, recall)
    assert found.index_type == expected
    assert why.split("; ")[-1].startswith(f"{expected} needs ")
    assert found.memory == index_bytes(expected, count, 768)


def test_the_choice_says_why():
    _, why = choose(WIKI, 768, 16 * 10**9, 0.7)
    assert why == (
        "hnsw needs 38 GB; ivf-sq8 needs 16.4 GB; ivf-pq needs 4.25 GB of 16 GB and is expected to reach 0.7"
    )
    with pytest.raises(ValueError, match=r"no type of index fits: hnsw needs .*; allow more memory or less recall"):
        choose(WIKI, 768, 10**9, 0.95)
    with pytest.raises(ValueError, match="recall is a share"):
        choose(WIKI, 768, None, 0)
    with pytest.raises(ValueError, match="must be at least 1, not 0 and 768"):
        plan("flat", 0, 768)


def test_plan_of_wiki_18_as_published():
    """FlashRAG's flat index of e5 is a file of 64,559,075,373 bytes for these passages."""
    assert plan("flat", WIKI, 768).disk == WIKI * 768 * 4 == 64_559_075_328


@pytest.mark.parametrize(
    ("text", "size"), [("16GB", 16 * 10**9), ("16 gib", 16 * 2**30), ("1.5MB", 1_500_000), ("7B", 7)]
)
def test_sizes_are_read(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["16", "GB", "-1GB", "16XB", "16IB", ""])
def test_sizes_that_are_none(text):
    with pytest.raises(ValueError, match="is not a size; write it as 16GB"):
        parse_size(text)


def test_sizes_are_shown():
    sizes = {7: "7 B", 999: "999 B", 999_600: "1 MB", 64_559_075_328: "64.6 GB", 10**14: "100 TB"}
    assert {size: human(size) for size in sizes} == sizes


def test_an_empty_index_is_trained_where_it_needs_no_training():
    assert [name for name in INDEX_TYPES if not empty_index(name, COUNT, DIMENSION).is_trained] == ["ivf-sq8", "ivf-pq"]
