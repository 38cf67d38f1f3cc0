"""Qdrant in its local mode: the same answers as the flat index, bound to corpus and encoder."""

import pytest
from typer.testing import CliRunner

from memsearcher import assemble, cli
from memsearcher.commands import index as index_command
from memsearcher.recipe import RecipeError, Retrieval
from memsearcher.retrieval.http import RequestFailed
from memsearcher.retrieval.index import DenseIndex
from memsearcher.retrieval.manifest import IndexRefused
from memsearcher.retrieval.qdrant import QdrantRetriever, connect, push
from tests.serving import free_port, write_corpus
from tests.test_retrieval_index import FakeEncoder


@pytest.fixture
def corpus(tmp_path):
    return write_corpus(tmp_path / "c.jsonl", 23)


@pytest.fixture
def client(tmp_path):
    client = connect(str(tmp_path / "qdrant"))
    yield client
    client.close()


def test_answers_are_those_of_the_flat_index(corpus, client, tmp_path):
    push(corpus, FakeEncoder(), client, block=5, progress=False)
    flat = DenseIndex.build(corpus, FakeEncoder(), tmp_path / "i", progress=False)
    stored = QdrantRetriever(client, corpus.sha256, len(corpus), FakeEncoder())
    queries = ["a", "b", ""]
    for ours, theirs in zip(stored.retrieve(queries, 4), flat.retrieve(queries, 4), strict=True):
        assert [found.document for found in ours] == [found.document for found in theirs]
        assert [found.score for found in ours] == pytest.approx([found.score for found in theirs], abs=2e-6)
    assert stored.retrieve([], 4) == []
    assert stored.fingerprint == flat.fingerprint | {"kind": "qdrant"}
    with pytest.raises(ValueError, match="k is how many"):
        stored.retrieve(["a"], 0)


def test_passages_are_filtered_by_their_metadata(corpus, client):
    push(corpus, FakeEncoder(), client, progress=False)
    some = QdrantRetriever(client, corpus.sha256, len(corpus), FakeEncoder(), {"number": 7})
    (found,) = some.retrieve(["a"], 4)
    assert [(each.document.id, each.document.metadata) for each in found] == [("p7", {"number": 7})]
    assert some.fingerprint["where.number"] == "7"


def test_a_push_that_was_stopped_goes_on(corpus, client):
    with pytest.raises(KeyboardInterrupt):
        push(corpus, FakeEncoder(break_after=3), client, block=5, progress=False)
    with pytest.raises(IndexRefused, match="15 of 23 passages are there; push the corpus"):
        QdrantRetriever(client, corpus.sha256, len(corpus), FakeEncoder())
    encoder = FakeEncoder()
    push(corpus, encoder, client, block=5, progress=False)
    assert len(encoder.passages) == 8
    push(corpus, encoder, client, block=5, progress=False)
    assert len(encoder.passages) == 8


def test_another_corpus_or_encoder_is_not_there(corpus, client, tmp_path):
    push(corpus, FakeEncoder(), client, progress=False)
    other = write_corpus(tmp_path / "o.jsonl", 22)
    for sha256, encoder in ((other.sha256, FakeEncoder()), (corpus.sha256, FakeEncoder("e5"))):
        with pytest.raises(IndexRefused, match="0 of 23 passages are there"):
            QdrantRetriever(client, sha256, 23, encoder)


def test_push_and_search_by_recipe(corpus, tmp_path, monkeypatch):
    for module in (index_command, assemble):
        monkeypatch.setattr(module, "load_named", lambda name, device: FakeEncoder())
    place = str(tmp_path / "store")
    options = ["-s", f"retrieval.corpus={corpus.path}"]
    pushed = CliRunner().invoke(cli.app, ["index", "push", place, *options])
    assert pushed.exit_code == 0, pushed.output
    assert "23 passages" in pushed.stdout
    retriever = assemble.make_retriever(Retrieval(str(corpus.path), "qdrant", url=place))
    assert len(retriever.retrieve(["a"], 3)[0]) == 3
    retriever._client.close()


def test_a_server_that_is_not_there():
    with pytest.raises(RequestFailed, match="no answer from Qdrant at http://127"):
        connect(f"http://127.0.0.1:{free_port()}")


def test_without_the_client_there_is_a_remedy(corpus, monkeypatch):
    def missing(name):
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(assemble, "import_module", missing)
    with pytest.raises(RecipeError, match=r"pip install -e '\.\[qdrant\]'"):
        assemble.make_retriever(Retrieval(str(corpus.path), "qdrant", url="x"))
    with pytest.raises(RecipeError, match=r"retrieval\.url is needed with kind: http"):
        assemble.make_retriever(Retrieval(kind="http"))


def test_a_payload_that_is_no_passage(corpus, client):
    name = push(corpus, FakeEncoder(), client, progress=False)
    client.overwrite_payload(name, {"id": "p0"}, list(range(23)))
    stored = QdrantRetriever(client, corpus.sha256, len(corpus), FakeEncoder())
    with pytest.raises(ValueError, match=r"point .*: no field 'contents'"):
        stored.retrieve(["a"], 1)
