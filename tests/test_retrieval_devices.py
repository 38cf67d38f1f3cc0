"""Search by PyTorch finds what FAISS finds; its devices are CPUs here, several of them where GPUs would be."""

import json
from typing import ClassVar

import faiss
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from memsearcher.recipe import load_recipe
from memsearcher.retrieval import devices as module
from memsearcher.retrieval.build import build_retriever
from memsearcher.retrieval.corpus import Corpus
from memsearcher.retrieval.devices import DeviceVectors, parse_devices
from memsearcher.retrieval.index import DenseIndex
from memsearcher.retrieval.manifest import IndexRefused
from memsearcher.retrieval.types import empty_index

CPU = torch.device("cpu")
COUNT = 60


class Points:
    """Unit vectors, one for each number in a text; every two passages share theirs, so there are ties."""

    fingerprint: ClassVar = {"convention": "points"}
    dimension = 12

    def encode_passages(self, texts):
        return unit(COUNT // 2, self.dimension, 0)[[int(text.split()[-1]) // 2 for text in texts]]

    encode_queries = encode_passages


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "c.jsonl"
    path.write_text("".join(json.dumps({"id": f"p{n}", "contents": f"passage {n}"}) + "\n" for n in range(COUNT)))
    return Corpus(path)


def unit(count: int, dimension: int, seed: int) -> np.ndarray:
    vectors = np.random.default_rng(seed).normal(size=(count, dimension)).astype(np.float32)
    faiss.normalize_L2(vectors)
    return vectors


@settings(max_examples=40, deadline=None)
@given(
    count=st.integers(1, 90),
    parts=st.integers(1, 4),
    k=st.integers(1, 100),
    half=st.booleans(),
    block=st.sampled_from([1, 7, 64]),
    seed=st.integers(0, 9),
)
def test_the_scores_and_rows_are_those_of_faiss(tmp_path_factory, count, parts, k, half, block, seed):
    index = empty_index("flat-fp16" if half else "flat", count, 12)
    index.add(unit(count, 12, seed))
    asked = unit(5, 12, seed + 100)
    wanted = min(k, count)
    scores, rows = index.search(asked, wanted)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK", block)
        patch.setattr(module, "QUERIES", 2)
        found = DeviceVectors(index, [CPU] * parts, half, tmp_path_factory.getbasetemp()).search(asked, k)
    assert found[0].shape == found[1].shape == (5, wanted)
    np.testing.assert_allclose(found[0], scores, atol=1e-6)
    # Neighbours whose scores differ by no more than that may change places.
    assert [set(each) for each in found[1].tolist()] == [set(each) for each in rows.tolist()]
    np.testing.assert_allclose(found[0], np.take_along_axis(exact(index, asked), found[1], 1), atol=1e-6)


def exact(index, asked):
    return asked @ index.reconstruct_n(0, index.ntotal).T


def test_half_stays_half_on_the_device(tmp_path):
    index = empty_index("flat-fp16", 10, 12)
    index.add(unit(10, 12, 0))
    vectors = DeviceVectors(index, [CPU, CPU, CPU], True, tmp_path)
    assert [part.vectors.dtype for part in vectors._parts] == [torch.float16] * 3
    assert [len(part.vectors) for part in vectors._parts] == [3, 3, 4]


@pytest.mark.parametrize("index_type", ["flat", "flat-fp16"])
def test_a_retriever_on_devices_gives_the_same_hits(tmp_path, corpus, index_type):
    folder = tmp_path / "index"
    by_faiss = build_retriever(corpus, folder, "dense", Points(), index_type=index_type)
    by_torch = build_retriever(corpus, folder, "dense", Points(), search_device="cpu,cpu,cpu")
    queries = [f"query {number}" for number in range(0, COUNT, 7)]
    for ours, theirs in zip(by_torch.search(queries, 7), by_faiss.search(queries, 7), strict=True):
        assert [hit.row for hit in ours] == [hit.row for hit in theirs]
        assert [hit.score for hit in ours] == pytest.approx([hit.score for hit in theirs], abs=2e-6)
    assert by_torch.fingerprint == by_faiss.fingerprint


def test_an_approximate_index_is_not_searched_on_devices(tmp_path, corpus):
    DenseIndex.build(corpus, Points(), tmp_path / "index", "hnsw", progress=False)
    with pytest.raises(IndexRefused, match=r"of type hnsw, where retrieval.search_device wants one of flat, flat-fp16"):
        build_retriever(corpus, tmp_path / "index", "dense", Points(), search_device="cpu,cpu")


def test_vectors_that_do_not_fit_on_a_device_are_refused_with_both_numbers(tmp_path, monkeypatch):
    index = empty_index("flat", 10, 12)
    index.add(unit(10, 12, 0))
    gpus = [torch.device("cuda", number) for number in range(2)]
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (10**9 if device.index == 0 else 5 * 10**6, 10**9))
    with pytest.raises(IndexRefused, match=r"flat: needs 543 MB on cuda:1 and 5 MB are free there; name more devices"):
        DeviceVectors(index, gpus, False, tmp_path / "flat")


def test_names_of_devices(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    assert parse_devices("cpu") == []
    assert parse_devices("cpu, cpu") == [CPU, CPU]
    assert parse_devices("cuda") == [torch.device("cuda", number) for number in range(3)]
    assert parse_devices("cuda:2,cuda:0") == [torch.device("cuda", 2), torch.device("cuda", 0)]


@pytest.mark.parametrize(
    ("names", "fault"),
    [
        ("cuda", "there is no cuda; PyTorch sees 0 GPUs here"),
        ("cpu,cuda:1", "there is no cuda:1; PyTorch sees 0 GPUs here"),
        ("gpu", "'gpu' is no device"),
        ("", "'' is no device"),
        ("meta", "meta is neither cuda nor cpu"),
    ],
)
def test_a_device_that_is_not_there_is_named(monkeypatch, names, fault):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ValueError, match=f"retrieval.search_device: {fault}"):
        parse_devices(names)


def test_a_recipe_says_where_to_search():
    assert load_recipe("pocket", ["retrieval.search_device=cuda"]).retrieval.search_device == "cuda"
