"""`memsearcher index`, `serve` and `ask --retriever` at the command line."""

import json

import pytest
import uvicorn
from typer.testing import CliRunner

from memsearcher import assemble, cli
from memsearcher.commands import index as index_command
from memsearcher.commands import serve as serve_command
from memsearcher.doctor import examine
from memsearcher.recipe import RecipeError, Retrieval, load_recipe
from memsearcher.retrieval.client import RemoteRetriever
from memsearcher.retrieval.lexical import LexicalIndex
from memsearcher.retrieval.server import create_app
from tests.scripted import ScriptedEngine, answer, memory, search
from tests.serving import serving, write_corpus
from tests.test_retrieval_index import FakeEncoder


def run(*arguments):
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


@pytest.fixture
def corpus(tmp_path):
    return write_corpus(tmp_path / "c.jsonl", 120)


@pytest.fixture
def settings(corpus, tmp_path, monkeypatch):
    """Options that name the corpus, with a cache of its own for indexes and an encoder without weights."""
    monkeypatch.setattr(index_command, "load_named", lambda name, device: FakeEncoder())
    monkeypatch.setenv("MEMSEARCHER_CACHE", str(tmp_path / "cache"))
    return ("-s", f"retrieval.corpus={corpus.path}")


def test_an_index_of_a_type_has_a_folder_of_its_own(settings, tmp_path):
    built = run("index", "build", *settings, "--type", "hnsw", "--recall", "0.5")
    assert built.exit_code == 0, built.output
    facts = json.loads(built.stdout)
    assert (facts["index_type"], facts["count"]) == ("hnsw", 120)
    assert facts["recall"]["value"] >= 0.5
    shown = json.loads(run("index", "info", *settings, "-s", "retrieval.type=hnsw").stdout)
    assert shown["folder"].endswith("c-minilm-hnsw")
    assert run("index", "info", *settings).exit_code == 1


def test_memory_picks_the_type_and_says_why(settings):
    built = run("index", "build", *settings, "--memory", "3KB")
    assert built.exit_code == 0, built.output
    assert json.loads(built.stdout)["index_type"] == "flat-fp16"
    assert "flat needs 3.84 KB; flat-fp16 needs 1.92 KB of 3 KB and is expected to reach 0.95" in " ".join(
        built.stderr.split()
    )
    assert "retrieval.type=flat-fp16" in built.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--memory", "1KB"), "no type of index fits"),
        (("--memory", "much"), "'much' is not a size"),
        (("--memory", "1GB", "--type", "flat"), "--type and --memory exclude each other"),
        (("--type", "tree"), "field retrieval.type"),
        (("--type", "ivf-pq"), "ivf-pq needs at least 9984 passages"),
    ],
)
def test_what_cannot_be_built_is_one_clear_error(settings, options, message):
    failed = run("index", "build", *settings, *options)
    assert failed.exit_code == 1
    assert message in " ".join(failed.stderr.split())


def test_a_plan_needs_no_corpus():
    shown = run("index", "info", "--plan", 21_015_324, 768)
    assert shown.exit_code == 0
    for text in ("flat-fp16", "64.6 GB", "ivf-pq", "4.25 GB"):
        assert text in shown.stdout
    assert run("index", "info", "--plan", 0, 768).exit_code == 1


def test_serve_gives_the_recipe_s_retriever_to_uvicorn(corpus, monkeypatch):
    served = []
    monkeypatch.setattr(uvicorn, "run", lambda app, **options: served.append((app, options)))
    result = run("serve", "-s", f"retrieval.corpus={corpus.path}", "--port", 0, "--topk", 1)
    assert result.exit_code == 0, result.output
    (app, options) = served[0]
    assert (options["host"], options["port"], options["access_log"]) == ("127.0.0.1", 0, False)
    assert "warning" not in result.stderr
    with serving(app) as url:
        remote = RemoteRetriever([url])
        assert remote.fingerprint == LexicalIndex(corpus).fingerprint
        remote.close()


@pytest.mark.parametrize(
    ("host", "token", "warned"),
    [
        ("0.0.0.0", None, True),
        ("example", None, True),
        ("0.0.0.0", "t", False),
        ("localhost", None, False),
        ("::1", None, False),
    ],
)
def test_serving_others_without_a_token_is_warned_of(corpus, monkeypatch, host, token, warned):
    monkeypatch.setattr(uvicorn, "run", lambda app, **options: None)
    monkeypatch.delenv(assemble.TOKEN_ENV, raising=False)
    if token:
        monkeypatch.setenv(assemble.TOKEN_ENV, token)
    result = run("serve", "-s", f"retrieval.corpus={corpus.path}", "--host", host)
    assert ("may be reached by others" in " ".join(result.stderr.split())) == warned


def test_serve_without_a_corpus_is_one_clear_error(tmp_path):
    failed = run("serve", "-s", f"retrieval.corpus={tmp_path / 'no.jsonl'}")
    assert failed.exit_code == 1
    assert "no such file" in " ".join(failed.stderr.split())
    assert serve_command.IDLE_SECONDS > 0


def test_ask_through_a_server_is_as_in_process(corpus, monkeypatch):
    def scripted(model):
        return ScriptedEngine([search("title 7"), memory("seen"), answer("text 7")])

    monkeypatch.setattr(cli, "make_engine", scripted)
    local = run("ask", "what?", "--json", "-s", f"retrieval.corpus={corpus.path}")
    assert local.exit_code == 0, local.output
    with serving(create_app(LexicalIndex(corpus), {})) as url:
        remote = run("ask", "what?", "--json", "--retriever", url)
        looked = {each.name: each for each in examine(load_recipe("pocket", remote_settings(url)))}
    assert remote.exit_code == 0, remote.output
    records = [json.loads(result.stdout) for result in (local, remote)]
    assert timeless(records[0]) == timeless(records[1])
    assert looked["index"].ok
    gone = run("ask", "what?", "--retriever", url)
    assert gone.exit_code == 1
    assert "no answer from" in " ".join(gone.stderr.split())


def remote_settings(url):
    return ["retrieval.kind=http", f"retrieval.url={url}"]


def timeless(value):
    """A record without its times."""
    if isinstance(value, dict):
        return {key: timeless(each) for key, each in value.items() if "seconds" not in key}
    return [timeless(each) for each in value] if isinstance(value, list) else value


def test_a_remote_retriever_needs_a_url():
    with pytest.raises(RecipeError, match=r"retrieval\.url is needed with kind: http"):
        assemble.make_retriever(Retrieval(kind="http"))
