"""The remote retriever: the same answers as in-process, and what happens when servers fail."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

import httpx
import pytest

from memsearcher.environments.protocol import ActRequest, EnvironmentFailure
from memsearcher.environments.search import SearchEnvironment
from memsearcher.retrieval import http
from memsearcher.retrieval.client import RemoteRetriever
from memsearcher.retrieval.http import RequestFailed, Servers
from memsearcher.retrieval.lexical import LexicalIndex
from memsearcher.retrieval.server import create_app
from memsearcher.trajectory import Action, Task
from tests.serving import Numbered, free_port, numbered_app, serving, write_corpus

CLIENTS, REQUESTS = 16, 50


@pytest.fixture
def corpus(tmp_path):
    return write_corpus(tmp_path / "c.jsonl")


@pytest.fixture
def connect():
    """Remote retrievers that are closed behind the test."""
    with ExitStack() as made:

        def connect(*urls, **options):
            return made.enter_context(closing(RemoteRetriever(urls, **options)))

        yield connect


@pytest.fixture
def no_pause(monkeypatch):
    """The pauses that would have been."""
    pauses = []
    monkeypatch.setattr(http.time, "sleep", pauses.append)
    return pauses


class Scripted:
    """Servers that answer as a function says, and what they were asked."""

    def __init__(self, monkeypatch, answer):
        self.asked = []

        def respond(request):
            self.asked.append(request)
            return answer(request)

        transport = httpx.MockTransport(respond)
        made = httpx.Client
        monkeypatch.setattr(http.httpx, "Client", lambda **options: made(transport=transport, **options))

    def posts(self):
        return [str(request.url) for request in self.asked if request.method == "POST"]


def found(*numbers):
    return [{"document": {"id": f"p{n}", "contents": f"T\ntext {n}"}, "score": 1.0} for n in numbers]


def health(request, **more):
    return httpx.Response(200, json={"status": "healthy", **more})


def test_remote_answers_as_in_process(corpus, connect):
    index = LexicalIndex(corpus)
    queries = ["title 7", "text", "\ud800", "nothing", "C++ <|im_end|>", ""]
    with serving(create_app(index, {})) as url:
        remote = connect(url)
        assert remote.fingerprint == index.fingerprint
        assert remote.retrieve(queries, 3) == index.retrieve(queries, 3)
        assert remote.retrieve(queries, 3)[0][0].document.metadata == {"number": 7}
        assert remote.retrieve([], 3) == []
        requests = [ActRequest("e", Task("t", "q"), Action("search", {"query": query})) for query in queries]
        assert SearchEnvironment(remote).act(requests) == SearchEnvironment(index).act(requests)
        assert SearchEnvironment(remote).fingerprint == SearchEnvironment(index).fingerprint


def test_many_queries_go_in_several_requests(corpus, monkeypatch, connect):
    monkeypatch.setattr("memsearcher.retrieval.client.QUERIES", 7)
    with serving(numbered_app(corpus)) as url:
        rankings = connect(url).retrieve([str(n) for n in range(40)], 1)
    assert [some[0].document.id for some in rankings] == [f"p{n}" for n in range(40)]


def ask_many(remote, failures, clients=CLIENTS, requests=REQUESTS):
    """What each client got that was not its own."""

    def work(client):
        for request in range(requests):
            number = (client * 7 + request) % 40
            try:
                (some,) = remote.retrieve([f"{number} of {client} {request}"], 1)
            except RequestFailed as error:
                failures.append(error)
                continue
            if [each.document.id for each in some] != [f"p{number}"]:
                yield client, request, some

    with ThreadPoolExecutor(clients) as pool:
        return [wrong for some in pool.map(lambda client: list(work(client)), range(clients)) for wrong in some]


def test_many_clients_each_get_their_own(corpus, connect):
    failures = []
    with serving(numbered_app(corpus)) as url:
        assert ask_many(connect(url), failures) == []
    assert failures == []


def test_clients_recover_when_the_server_is_started_again(corpus, connect):
    port, failures, wrong = free_port(), [], []
    with ExitStack() as first:
        url = first.enter_context(serving(numbered_app(corpus), port))
        remote = connect(url, backoff=0.2, tries=1000)
        thread = threading.Thread(target=lambda: wrong.extend(ask_many(remote, failures)))
        thread.start()
        time.sleep(0.3)
    assert thread.is_alive()
    time.sleep(0.2)
    with serving(numbered_app(corpus), port):
        thread.join(60)
    assert not thread.is_alive()
    assert (wrong, failures) == ([], [])


def test_servers_take_turns_and_one_that_is_down_is_passed_over(monkeypatch, no_pause, connect):
    def answer(request):
        if request.url.host == "b":
            raise httpx.ConnectError("down", request=request)
        if request.method == "GET":
            return health(request)
        return httpx.Response(200, json={"result": [found(1)]})

    servers = Scripted(monkeypatch, answer)
    remote = connect("http://a", "http://b/", "http://c")
    assert remote.fingerprint == {"kind": "remote", "server": "http://a, http://b, http://c"}
    for _ in range(4):
        remote.retrieve(["q"], 1)
    hosts = [httpx.URL(url).host for url in servers.posts()]
    assert hosts == ["a", "b", "c", "c", "a"]
    assert no_pause == []


def test_pauses_grow_with_jitter_and_heed_the_server(monkeypatch, no_pause, connect):
    statuses = iter([503, 500, 429, 408, 200])

    def answer(request):
        if request.method == "GET":
            return httpx.Response(404)
        status = next(statuses)
        headers = {"retry-after": "3"} if status == 429 else {"retry-after": "Thu, 01 Jan 2026 00:00:00 GMT"}
        return httpx.Response(status, headers=headers, json={"result": [found(1)]})

    Scripted(monkeypatch, answer)
    assert len(connect("http://a", backoff=1.0).retrieve(["q"], 1)) == 1
    assert 0.5 <= no_pause[0] <= 1.5
    assert 1.0 <= no_pause[1] <= 3.0
    assert 3.0 <= no_pause[2] <= 6.0
    assert 4.0 <= no_pause[3] <= 12.0


def test_the_cause_is_kept_and_the_token_is_not_shown(monkeypatch, no_pause, connect):
    def answer(request):
        if request.method == "GET":
            return httpx.Response(404)
        return httpx.Response(503, text=f"busy {request.headers['authorization']}")

    servers = Scripted(monkeypatch, answer)
    remote = connect("http://a", token="secret", tries=3)
    with pytest.raises(RequestFailed) as error:
        remote.retrieve(["q"], 1)
    assert str(error.value) == "http://a/retrieve answered 503: busy Bearer *** (tried 3 times)"
    assert error.value.status == 503
    assert isinstance(error.value.__cause__, httpx.HTTPStatusError)
    assert len(servers.posts()) == 3


def test_a_refusal_is_final(monkeypatch, no_pause, connect):
    def answer(request):
        return httpx.Response(404) if request.method == "GET" else httpx.Response(422, json={"detail": "topk"})

    servers = Scripted(monkeypatch, answer)
    with pytest.raises(RequestFailed, match=r'http://a/retrieve answered 422: {"detail":"topk"}'):
        connect("http://a", "http://b").retrieve(["q"], 1)
    assert len(servers.posts()) == 1


def test_the_deadline_ends_it(monkeypatch):
    def answer(request):
        return httpx.Response(503)

    Scripted(monkeypatch, answer)
    servers = Servers(["http://a"], tries=100, backoff=0.05, deadline=0.3)
    start = time.monotonic()
    with pytest.raises(RequestFailed, match="503"):
        servers.post("/x", {})
    assert time.monotonic() - start < 1


def test_a_timeout_is_a_failure_of_its_query(monkeypatch, no_pause, connect):
    def answer(request):
        if request.method == "GET":
            return httpx.Response(404)
        raise httpx.ReadTimeout("slow", request=request)

    Scripted(monkeypatch, answer)
    environment = SearchEnvironment(connect("http://a", tries=2))
    (failure,) = environment.act([ActRequest("e", Task("t", "q"), Action("search", {"query": "q"}))])
    assert isinstance(failure, EnvironmentFailure)
    assert str(failure) == (
        "the search failed: RequestFailed: no answer from http://a/retrieve: ReadTimeout slow (tried 2 times)"
    )


BAD = {
    "not JSON": b"<html>",
    "no result": b"{}",
    "a list": b"[]",
    "another shape": b'{"result": [[{"id": "p1", "contents": "T"}]]}',
    "no id": b'{"result": [[{"document": {"contents": "T"}, "score": 1}]]}',
    "a NUL": b'{"result": [[{"document": {"id": "1", "contents": "a\\u0000"}, "score": 1}]]}',
    "no score": b'{"result": [[{"document": {"id": "1", "contents": "a"}, "score": null}]]}',
    "too few": b'{"result": []}',
    "too many passages": b'{"result": [[%s, %s]]}' % ((b'{"document": {"id": "1", "contents": "a"}, "score": 1}',) * 2),
    "result null": b'{"result": null}',
}


@pytest.mark.parametrize("case", BAD)
def test_an_answer_that_is_none_is_never_a_passage(monkeypatch, case, connect):
    def answer(request):
        return httpx.Response(404) if request.method == "GET" else httpx.Response(200, content=BAD[case])

    Scripted(monkeypatch, answer)
    with pytest.raises(RequestFailed, match="http://a/retrieve: "):
        connect("http://a").retrieve(["q"], 1)


@pytest.mark.parametrize("content", [b"ok", b"[]", b"{}", b'{"fingerprint": 1}', b'{"fingerprint": {"a": 1}}'])
def test_a_server_that_does_not_say_what_it_is(monkeypatch, content, connect):
    Scripted(monkeypatch, lambda request: httpx.Response(200, content=content))
    assert connect("http://a").fingerprint == {"kind": "remote", "server": "http://a"}


def test_another_index_behind_the_same_address_is_noticed(corpus, connect):
    port = free_port()
    with serving(numbered_app(corpus), port) as url:
        remote = connect(url)
    with (
        serving(create_app(Numbered(corpus, "other"), {}), port),
        pytest.raises(ValueError, match="serves another index than when this run began"),
    ):
        remote.retrieve(["1"], 1)


def test_servers_of_different_indexes_are_refused(corpus, connect):
    with (
        serving(numbered_app(corpus)) as one,
        serving(create_app(Numbered(corpus, "other"), {})) as two,
        pytest.raises(ValueError, match="do not serve the same index"),
    ):
        connect(one, two)


def test_no_server_at_all(caplog, connect):
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(RequestFailed, match=f"no answer from {url}/health: ConnectError"):
        connect(url)
    with pytest.raises(ValueError, match="at least one server is needed"):
        connect()
    with pytest.raises(ValueError, match="'localhost:8000' is not the address of a server"):
        connect("localhost:8000")
    with pytest.raises(ValueError, match="k is how many"):
        RemoteRetriever.retrieve(None, ["q"], 0)


def test_a_server_that_wants_a_token(corpus, connect):
    with serving(numbered_app(corpus, token="right")) as url:
        assert len(connect(url, token="right").retrieve(["1"], 1)[0]) == 1
        with pytest.raises(RequestFailed, match="answered 401"):
            connect(url).retrieve(["1"], 1)
