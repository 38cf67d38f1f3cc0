import email.utils
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from memsearcher.engines import openai
from memsearcher.engines.chat import ChatFormat
from memsearcher.engines.openai import OpenAIEngine
from memsearcher.engines.protocol import EngineFailure, Request, Sampling
from memsearcher.trajectory import Conversation, Segment
from tests.tiny import tiny_tokenizer


def completion(content, reason="stop", usage=None, **more):
    choice = {"message": {"role": "assistant", "content": content}, "finish_reason": reason, **more}
    return {"choices": [choice], **({"usage": usage} if usage else {})}


class Fake:
    """A server whose answers are scripted: a function from the request's body to (status, headers, body)."""

    def __init__(self):
        self.answer = lambda body: (200, {}, completion("hello"))
        self.bodies, self.headers, self.paths = [], [], []
        self.now = self.most = 0
        lock = threading.Lock()
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with lock:
                    fake.bodies.append(body)
                    fake.headers.append(dict(self.headers))
                    fake.paths.append(self.path)
                    fake.now += 1
                    fake.most = max(fake.most, fake.now)
                status, headers, answer = fake.answer(body)
                with lock:
                    fake.now -= 1
                if status == 0:
                    self.connection.close()
                    return
                data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                for name, value in {"Content-Length": str(len(data)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args):
                pass

        class Server(ThreadingHTTPServer):
            def handle_error(self, request, client_address):
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1/"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def script(self, *answers):
        """Give these answers in order, the last one forever."""
        left = list(answers)
        self.answer = lambda body: left.pop(0) if len(left) > 1 else left[0]


@pytest.fixture
def fake(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = Fake()
    yield server
    server.close()


@pytest.fixture
def make(fake):
    made = []

    def build(**options):
        made.append(OpenAIEngine(fake.url, "some-model", **{"backoff": 0.001, **options}))
        return made[-1]

    yield build
    for engine in made:
        engine.close()


def talk(question="Why?", limit=None):
    return Conversation.start(
        [Segment("system", "system", "Be brief.")],
        [Segment("user", "instruction", "Q: "), Segment("user", "question", question, limit=limit)],
    )


GREEDY = Sampling()


def ask(engine, *questions, sampling=GREEDY, stop=(), limit=9):
    return engine.generate(
        [Request(talk(q), limit, stop, seed=n) for n, q in enumerate(questions or ["Why?"])], sampling
    )


def test_what_is_sent(fake, make):
    (reply,) = ask(make(), sampling=Sampling(0.5, 0.9, 7))
    assert reply.text == "hello"
    assert reply.token_ids is None
    assert fake.paths == ["/v1/chat/completions"]
    assert fake.bodies == [
        {
            "model": "some-model",
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Q: Why?"}],
            "max_tokens": 9,
            "temperature": 0.5,
            "top_p": 0.9,
            "top_k": 7,
            "seed": 0,
        }
    ]
    ask(make())
    assert set(fake.bodies[1]) == {"model", "messages", "max_tokens", "temperature"}


def test_answers_keep_their_order_and_concurrency_is_bounded(fake, make):
    def answer(body):
        question = body["messages"][-1]["content"]
        time.sleep(0.02 if question.endswith("0") else 0.005)
        return 200, {}, completion(question)

    fake.answer = answer
    replies = ask(make(concurrency=3), *[str(number) for number in range(12)])
    assert [reply.text for reply in replies] == [f"Q: {number}" for number in range(12)]
    assert 1 < fake.most <= 3


@pytest.mark.parametrize("status", [429, 500, 503, 0])
def test_passing_failures_are_tried_again(fake, make, status):
    fake.script((status, {}, {"error": "busy"}), (status, {}, {"error": "busy"}), (200, {}, completion("at last")))
    (reply,) = ask(make())
    assert reply.text == "at last"
    assert len(fake.bodies) == 3


def test_lasting_failures_end_with_their_cause(fake, make):
    fake.script((503, {}, {"error": "overloaded"}))
    good, bad = make(), make(tries=2)
    (failure,) = ask(bad)
    assert isinstance(failure, EngineFailure)
    assert "503" in str(failure)
    assert "overloaded" in str(failure)
    assert "tried 2 times" in str(failure)
    assert failure.__cause__.response.status_code == 503
    fake.script((0, {}, {}))
    (failure,) = ask(bad)
    assert "no answer from http://127.0.0.1" in str(failure)
    fake.script((400, {}, {"error": "x" * 5000}))
    before = len(fake.bodies)
    (failure,) = ask(good)
    assert len(fake.bodies) == before + 1
    assert "400" in str(failure)
    assert len(str(failure)) < 400


def test_one_failure_leaves_the_others(fake, make):
    fake.answer = lambda body: (
        (400, {}, {"error": "no"}) if body["messages"][-1]["content"] == "Q: b" else (200, {}, completion("yes"))
    )
    first, second, third = ask(make(), "a", "b", "c")
    assert (first.text, third.text) == ("yes", "yes")
    assert isinstance(second, EngineFailure)
    (empty,) = make().generate([Request(Conversation(), 5)], Sampling())
    assert "empty conversation" in str(empty)


def test_retry_after_is_heeded(fake, make, monkeypatch):
    waits = []
    monkeypatch.setattr(openai.time, "sleep", waits.append)
    soon = email.utils.formatdate(time.time() + 30, usegmt=True)
    fake.script(
        (429, {"Retry-After": "7"}, {}),
        (429, {"Retry-After": soon}, {}),
        (429, {"Retry-After": "99999"}, {}),
        (429, {"Retry-After": "whenever"}, {}),
        (200, {}, completion("x")),
    )
    ask(make())
    assert waits[0] == 7
    assert 25 < waits[1] <= 30
    assert waits[2] == openai.LONGEST_WAIT
    assert waits[3] < 1


def test_a_timeout_is_a_passing_failure(fake, make):
    answers = iter([0.5, 0.0])
    fake.answer = lambda body: (time.sleep(next(answers)), (200, {}, completion("x")))[1]
    (reply,) = ask(make(timeout=0.1))
    assert reply.text == "x"


@pytest.mark.parametrize(
    "answer", [b"<html>", b"[]", {"choices": []}, {"choices": [{"message": {"content": 5}}]}, {"choices": [None]}]
)
def test_answers_that_are_none(fake, make, answer):
    fake.script((200, {}, answer))
    (failure,) = ask(make())
    assert "not a chat completion" in str(failure)
    assert len(fake.bodies) == 1


def test_the_key_is_sent_and_never_shown(fake, make, monkeypatch):
    monkeypatch.setenv("SOME_KEY", "secret-key")
    fake.script((401, {}, {"error": "wrong key secret-key"}))
    engine = make(api_key_env="SOME_KEY")
    (failure,) = ask(engine)
    assert fake.headers[0]["Authorization"] == "Bearer secret-key"
    assert "***" in str(failure)
    assert "secret" not in f"{failure} {engine.fingerprint} {engine!r} {failure.__cause__}"
    monkeypatch.delenv("SOME_KEY")
    with pytest.raises(ValueError, match="SOME_KEY is not set"):
        make(api_key_env="SOME_KEY")
    with pytest.raises(ValueError, match="at least 1"):
        make(tries=0)
    assert "secret" not in str(OpenAIEngine("http://user:secret@127.0.0.1:1/v1", "m").fingerprint)


STOP = ("</a>", "</b>")


@pytest.mark.parametrize(
    ("answer", "text", "finish"),
    [
        (completion("x", stop_reason="</b>"), "x</b>", "stop"),  # vLLM
        (completion("x</b>", stop_reason="</b>"), "x</b>", "stop"),  # told to keep it
        (completion("x", stop_reason=None), "x", "eos"),
        (completion("x", matched_stop="</a>"), "x</a>", "stop"),  # SGLang
        (completion("x", matched_stop=151645), "x", "eos"),
        (completion("x", "length", stop_reason=None), "x", "length"),
        (completion(None, "length"), "", "length"),
    ],
)
def test_servers_that_say_what_stopped_them(fake, make, answer, text, finish):
    fake.script((200, {}, answer))
    (reply,) = ask(make(), stop=STOP)
    assert (reply.text, reply.finish) == (text, finish)
    assert fake.bodies[0]["stop"] == list(STOP)
    assert len(fake.bodies) == 1


def test_servers_that_do_not_say_are_cut_here(fake, make):
    def answer(body):
        return 200, {}, completion("x" if "stop" in body else "x</b> and </a> more")

    fake.answer = answer
    engine = make()
    for _ in range(2):
        (reply,) = ask(engine, stop=STOP)
        assert (reply.text, reply.finish) == ("x</b>", "stop")
    assert ["stop" in body for body in fake.bodies] == [True, False, False]
    fake.script((200, {}, completion("x")))
    (reply,) = ask(engine, stop=STOP)
    assert (reply.text, reply.finish) == ("x", "eos")


def test_a_reply_that_the_server_refuses(fake, make):
    fake.script((200, {}, completion("", "content_filter")))
    (failure,) = ask(make())
    assert "content_filter" in str(failure)


def test_counts_come_from_the_server_or_not_at_all(fake, make):
    fake.script((200, {}, completion("x", usage={"prompt_tokens": 11, "completion_tokens": 3})))
    (reply,) = ask(make())
    assert (reply.context_tokens, reply.sampled_tokens) == (11, 3)
    fake.script((200, {}, completion("x")))
    (reply,) = ask(make())
    assert (reply.context_tokens, reply.sampled_tokens) == (None, None)


def test_with_a_tokenizer_counts_and_limits_are_exact(fake, make):
    chat = ChatFormat.from_tokenizer(tiny_tokenizer())
    conversation, twin = talk("the capital of France <|im_end|>", limit=4), talk("the capital of France <|im_end|>", 4)
    chat.encode(twin)
    fake.script((200, {}, completion("Paris é", usage={"prompt_tokens": 1, "completion_tokens": 1})))
    (reply,) = make(tokenizer=tiny_tokenizer()).generate([Request(conversation, 9)], Sampling())
    assert conversation == twin
    assert reply.context_tokens == len(twin.token_ids)
    assert reply.sampled_tokens == len(chat.encode_reply("Paris é", end=True))
    assert fake.bodies[0]["messages"] == twin.messages()


def test_without_one_a_token_is_four_characters(fake, make):
    conversation = talk("abcdefghij\ud800", limit=2)
    for _ in range(2):
        make().generate([Request(conversation, 9)], Sampling())
        segment = conversation.segments[-1]
        assert (segment.text, segment.dropped, segment.token_ids) == ("abcdefgh", 1, None)
    make().generate([Request(talk("\ud800\x00"), 9)], Sampling())
    assert fake.bodies[-1]["messages"][-1]["content"] == "Q: \ufffd\x00"
