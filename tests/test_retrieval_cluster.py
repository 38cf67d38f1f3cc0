"""A corpus encoded by a Ray cluster on this machine: the same index as at home, and nothing encoded twice."""

import json
import shutil

import numpy as np
import pytest
import ray

from memsearcher.retrieval.cluster import RayEncoding
from memsearcher.retrieval.corpus import Corpus
from memsearcher.retrieval.encoder import load_named
from memsearcher.retrieval.vectors import VectorBlocks
from tests.test_retrieval_index import write_corpus

# Ray does not close what it opened for the processes that it starts, and uses what it has deprecated itself.
pytestmark = [
    pytest.mark.filterwarnings(r"ignore::DeprecationWarning:ray\."),
    pytest.mark.filterwarnings(r"ignore::FutureWarning:ray\."),
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module", autouse=True)
def cluster():
    """A small one, which `RayEncoding` then joins."""
    ray.init(
        num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR", object_store_memory=100_000_000
    )
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def encoder():
    return load_named("minilm")


def blocks_of(folder):
    return {path.name: np.load(path) for path in sorted(folder.glob("*.npy"))}


def test_the_same_vectors_as_at_home_and_only_those_that_are_missing(tmp_path, encoder):
    corpus = write_corpus(tmp_path / "c.jsonl")
    here, there = (VectorBlocks(corpus, encoder, tmp_path / name, 5) for name in ("here", "there"))
    for each in (here, there):
        each.prepare()
    here.encode(False)
    wanted = blocks_of(tmp_path / "here")
    # Another build was stopped behind two blocks, one of which is recognized by what it holds.
    kept = {name: wanted[name] + 1 for name in list(wanted)[1:3]}
    for name, held in kept.items():
        np.save(tmp_path / "there" / name, held)
    there.encode(False, RayEncoding("minilm", "cpu", 2))
    found = blocks_of(tmp_path / "there")
    assert found.keys() == wanted.keys()
    for name, held in found.items():
        assert np.allclose(held, kept.get(name, wanted[name]), atol=1e-6)


def test_a_machine_with_another_corpus_fails_the_build(tmp_path, encoder):
    corpus = write_corpus(tmp_path / "c.jsonl")
    changed = tmp_path / "changed.jsonl"
    shutil.copy(corpus.path, changed)
    opened = Corpus(changed)
    changed.write_text(json.dumps({"id": "1", "contents": "another"}) + "\n")
    with pytest.raises(RuntimeError, match="another corpus than where the build was started"):
        list(RayEncoding("minilm", "cpu", 1)(opened, [range(2)]))
