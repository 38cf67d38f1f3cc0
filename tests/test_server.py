"""The retrieval server: both peers' protocols word for word, and every way to ask wrongly."""

import json
import logging
import socket
import threading
import time

import httpx
import pytest

from memsearcher.retrieval.batcher import Batching
from memsearcher.retrieval.gate import BodyLimits
from memsearcher.retrieval.server import Limits, create_app
from tests.serving import Numbered, serving, write_corpus

SMALL_BODY = 200_000


@pytest.fixture(scope="module")
def retriever(tmp_path_factory):
    return Numbered(write_corpus(tmp_path_factory.mktemp("corpus") / "c.jsonl"))


@pytest.fixture(scope="module")
def server(retriever):
    app = create_app(retriever, {"version": "0"}, Limits(most=10, queries=50), body=BodyLimits(size=SMALL_BODY))
    with serving(app) as url:
        yield url


@pytest.fixture(scope="module")
def client(server):
    with httpx.Client(base_url=server, timeout=20) as client:
        yield client


def line(number):
    return {"id": f"p{number}", "contents": f'"Title {number}"\ntext {number}', "number": number}


def short(number):
    return {"id": f"p{number}", "contents": f'"Title {number}"\ntext {number}'}


def test_retrieve_as_search_r1_asks_and_reads(client):
    body = {"queries": ["7", "nothing", "39"], "topk": 2, "return_scores": True}
    assert client.post("/retrieve", json=body).json() == {
        "result": [
            [{"document": line(7), "score": 1.0}, {"document": line(8), "score": 0.9}],
            [],
            [{"document": line(39), "score": 1.0}],
        ]
    }
    assert client.post("/retrieve", json={"queries": ["7"], "topk": 1}).json() == {"result": [[line(7)]]}
    assert client.post("/retrieve", json={"queries": []}).json() == {"result": []}


@pytest.mark.parametrize("more", [{}, {"topk": None}], ids=["left out", "null"])
def test_topk_has_a_default(client, more):
    (found,) = client.post("/retrieve", json={"queries": ["7"], **more}).json()["result"]
    assert [each["id"] for each in found] == ["p7", "p8", "p9"]


def test_search_as_memsearcher_asks_and_reads(client):
    assert client.post("/search", json={"query": "7", "top_n": 2}).json() == [short(7), short(8)]
    assert client.post("/search", json={"query": "7", "top_n": 2, "return_score": True}).json() == [
        [short(7), short(8)],
        [1.0, 0.9],
    ]
    assert len(client.post("/search", json={"query": "7"}).json()) == 10
    assert client.post("/search", json={"query": "nothing", "made": "up"}).json() == []


def test_batch_search(client):
    body = {"query": ["7", "nothing"], "top_n": 1}
    assert client.post("/batch_search", json=body).json() == [[short(7)], []]
    assert client.post("/batch_search", json={**body, "return_score": True}).json() == [[[short(7)], []], [[1.0], []]]


def test_limits_that_refuse_everything_are_refused():
    for wrong in ((0,), (4, 3), (3, 100, 0)):
        with pytest.raises(ValueError, match="topk must be from 1 to most"):
            Limits(*wrong)


def test_health_tells_what_is_served(client, retriever):
    assert client.get("/health").json() == {
        "status": "healthy",
        "retrievers": {"total": 1, "available": 1},
        "fingerprint": {"kind": "numbered", "corpus": retriever.corpus.sha256},
        "version": "0",
    }


REFUSED = {
    "topk 0": ("/retrieve", {"queries": ["7"], "topk": 0}, 422, "topk must be from 1 to 10, not 0"),
    "topk -1": ("/retrieve", {"queries": ["7"], "topk": -1}, 422, "topk must be from 1 to 10, not -1"),
    "topk 1e9": ("/retrieve", {"queries": ["7"], "topk": 1e9}, 422, "topk must be from 1 to 10, not 1000000000"),
    "topk 1.5": ("/retrieve", {"queries": ["7"], "topk": 1.5}, 422, "body.topk: Input should be a valid integer"),
    "top_n 11": ("/search", {"query": "7", "top_n": 11}, 422, "top_n must be from 1 to 10, not 11"),
    "top_n null": ("/search", {"query": "7", "top_n": None}, 422, "body.top_n: Input should be a valid integer"),
    "top_n 0": ("/batch_search", {"query": ["7"], "top_n": 0}, 422, "top_n must be from 1 to 10, not 0"),
    "no queries": ("/retrieve", {"topk": 3}, 422, "body.queries: Field required"),
    "a text": ("/retrieve", {"queries": "7"}, 422, "body.queries: Input should be a valid list"),
    "a number": ("/batch_search", {"query": [7]}, 422, "body.query.0: Input should be a valid string"),
    "a list": ("/retrieve", ["7"], 422, "body: "),
    "null": ("/retrieve", None, 422, "body: "),
    "empty": ("/search", {"query": " \n"}, 400, "query is empty; it must be a text to search for"),
    "too many": ("/retrieve", {"queries": ["7"] * 51}, 422, "51 queries; a request may have 50"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_makes_no_sense_is_refused_with_a_sentence(client, case):
    path, body, status, sentence = REFUSED[case]
    refused = client.post(path, json=body)
    assert refused.status_code == status
    assert refused.json()["detail"].startswith(sentence)


RAW = {
    "not UTF-8": (b'{"queries": ["\xff"]}', 422, "the body is not UTF-8 (invalid start byte at byte 14)"),
    "not JSON": (b'{"queries"', 422, "body."),
    "nothing": (b"", 422, "body: Field required"),
    "deep": (b"[" * 150_000, 400, ""),
    "too large": (b'{"queries": ["' + b"x" * SMALL_BODY, 422, f"the body has {SMALL_BODY + 14} bytes; a request may"),
}


@pytest.mark.parametrize("case", RAW)
def test_bodies_that_are_none(client, case):
    content, status, sentence = RAW[case]
    refused = client.post("/retrieve", content=content, headers={"content-type": "application/json"})
    assert refused.status_code == status
    assert refused.json()["detail"].startswith(sentence)


def test_a_body_of_50_mb_is_read_to_its_end_and_refused(client):
    def parts():
        for _ in range(50):
            yield b"x" * 1_000_000

    refused = client.post("/retrieve", content=parts(), headers={"content-type": "application/json"})
    assert refused.status_code == 422
    assert refused.json()["detail"] == f"the body has 50000000 bytes; a request may have {SMALL_BODY}"


HOSTILE = ["", " ", "\0", "7 " + "x" * 100_000, "<|im_end|></tool_response>", "日本", "\ud800"]


@pytest.mark.parametrize("query", HOSTILE, ids=ascii)
def test_any_string_is_a_query(client, query):
    body = json.dumps({"queries": [query], "topk": 1})
    answer = client.post("/retrieve", content=body, headers={"content-type": "application/json"})
    (found,) = answer.json()["result"]
    assert found == ([line(7)] if query.startswith("7") else [])


def test_a_slow_client_holds_nobody_up_and_is_let_go(retriever):
    with (
        serving(create_app(retriever, {}, body=BodyLimits(seconds=2))) as url,
        socket.create_connection((httpx.URL(url).host, httpx.URL(url).port)) as slow,
    ):
        slow.sendall(b"POST /retrieve HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        assert httpx.post(f"{url}/retrieve", json={"queries": ["7"]}).status_code == 200
        slow.settimeout(0)
        with pytest.raises(BlockingIOError):  # Still waiting: nobody has answered it yet.
            slow.recv(1000)
        slow.settimeout(10)
        assert slow.recv(1000).startswith(b"HTTP/1.1 408")


def test_a_client_that_leaves_costs_nobody_an_answer(server, client):
    host, port = httpx.URL(server).host, httpx.URL(server).port
    body = json.dumps({"queries": ["7"]}).encode()
    fields = ("POST /retrieve HTTP/1.1", "Host: x", "Content-Type: application/json", f"Content-Length: {len(body)}")
    head = "\r\n".join([*fields, "", ""]).encode()
    for sent in (head + body, head + body[:5], head[:10]):
        with socket.create_connection((host, port)) as leaving:
            leaving.sendall(sent)
    assert client.post("/retrieve", json={"queries": ["7"], "topk": 1}).json() == {"result": [[line(7)]]}


def test_a_failed_search_is_an_error_of_its_request_only(client, retriever, caplog):
    failed = client.post("/retrieve", json={"queries": ["9", "broken"]})
    assert failed.status_code == 500
    assert failed.json() == {"detail": "the search failed: RuntimeError: no index"}
    assert client.post("/retrieve", json={"queries": ["9"], "topk": 1}).json() == {"result": [[line(9)]]}
    assert "a search failed" in caplog.text


def test_metrics_count(client):
    client.get("/nowhere")
    text = client.get("/metrics").text
    assert 'memsearcher_requests_total{path="/retrieve",status="200"}' in text
    assert 'memsearcher_requests_total{path="other",status="404"} ' in text
    assert 'memsearcher_request_seconds_bucket{le="0.1",path="/search"}' in text
    assert "memsearcher_batch_queries_count" in text
    assert "memsearcher_cached_queries_total" in text
    assert "memsearcher_waiting_queries 0.0" in text


def test_the_log_has_no_query_unless_it_is_asked_for(retriever, caplog):
    for told in (False, True):
        caplog.clear()
        with (
            caplog.at_level(logging.INFO, "memsearcher"),
            serving(create_app(retriever, {}, log_queries=told)) as url,
        ):
            httpx.post(f"{url}/search", json={"query": "7 secret\nline"})
        assert "POST /search 200" in caplog.text
        assert ("secret" in caplog.text) == told
        assert "\nline" not in caplog.text


def test_a_token_is_asked_for(retriever):
    with serving(create_app(retriever, {}, token="right")) as url:
        assert httpx.get(f"{url}/health").status_code == 200
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "right"}):
            refused = httpx.post(f"{url}/search", json={"query": "7"}, headers=headers)
            assert refused.status_code == 401
            assert "bearer token" in refused.json()["detail"]
            assert httpx.get(f"{url}/metrics", headers=headers).status_code == 401
        headers = {"Authorization": "Bearer right"}
        assert httpx.post(f"{url}/search", json={"query": "7"}, headers=headers).status_code == 200


def wait_for(condition):
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_full_queue_is_429_and_health_says_so(tmp_path):
    slow = Numbered(write_corpus(tmp_path / "c.jsonl"))
    slow.pause.clear()
    batching = Batching(size=1, wait=0, queue=2)
    with serving(create_app(slow, {}, batching=batching)) as url, httpx.Client(base_url=url, timeout=20) as client:
        answers = []

        def ask(number):
            answers.append(client.post("/retrieve", json={"queries": [str(number)], "topk": 1}))

        threads = []
        for number in range(3):  # One runs, two wait.
            threads.append(threading.Thread(target=ask, args=(number,)))
            threads[-1].start()
            assert slow.entered.wait(10)
            wait_for(lambda waiting=number: f"waiting_queries {waiting}.0" in client.get("/metrics").text)
        assert client.get("/health").json()["retrievers"]["available"] == 0
        refused = client.post("/retrieve", json={"queries": ["3"]})
        assert refused.status_code == 429
        assert refused.headers["retry-after"] == "1"
        assert refused.json()["detail"] == "2 queries are waiting and 2 are let in; try again later"
        slow.pause.set()
        for thread in threads:
            thread.join()
        assert {each.json()["result"][0][0]["id"] for each in answers} == {"p0", "p1", "p2"}


def test_what_is_under_way_is_answered_before_the_server_stops(tmp_path):
    slow = Numbered(write_corpus(tmp_path / "c.jsonl"))
    slow.pause.clear()
    answers = []
    with serving(create_app(slow, {})) as url:
        thread = threading.Thread(
            target=lambda: answers.append(httpx.post(f"{url}/retrieve", json={"queries": ["7"], "topk": 1}))
        )
        thread.start()
        assert slow.entered.wait(10)
        threading.Timer(0.3, slow.pause.set).start()
    thread.join()
    assert answers[0].json() == {"result": [[line(7)]]}
