"""A retrieval server in a thread, on a free port of the loopback, and what to ask it with."""

from __future__ import annotations

import json
import socket
import threading
import time
from contextlib import contextmanager

import uvicorn

from memsearcher.retrieval.corpus import Corpus
from memsearcher.retrieval.protocol import CorpusRetriever, Hit
from memsearcher.retrieval.server import create_app


def write_corpus(path, count=40):
    """Passage `pN` has the title `Title N`, the text `text N` and a key of its own."""
    lines = [{"id": f"p{n}", "contents": f'"Title {n}"\ntext {n}', "number": n} for n in range(count)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return Corpus(path)


class Numbered(CorpusRetriever):
    """Finds the passage whose number the query starts with, and those behind it; "broken" breaks."""

    def __init__(self, corpus, name="numbered"):
        self.corpus = corpus
        self.name = name
        self.asked = []
        self.pause = threading.Event()
        self.pause.set()
        self.entered = threading.Event()

    @property
    def fingerprint(self):
        return {"kind": self.name, "corpus": self.corpus.sha256}

    def search(self, queries, k):
        self.entered.set()
        self.pause.wait(30)
        self.asked.append((list(queries), k))
        if "broken" in queries:
            raise RuntimeError("no index")
        return [self._find(query.split()[0] if query.split() else "", k) for query in queries]

    def _find(self, word, k):
        if not word.isdecimal():
            return []
        rows = range(int(word), min(int(word) + k, len(self.corpus)))
        return [Hit(row, 1 - rank / 10) for rank, row in enumerate(rows)]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@contextmanager
def serving(app, port=None):
    """The URL of a server that runs until the block ends, and stops as it does on a signal."""
    port = port or free_port()
    server = uvicorn.Server(
        uvicorn.Config(app, host="127.0.0.1", port=port, log_config=None, access_log=False, timeout_graceful_shutdown=5)
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.005)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(15)
        assert not thread.is_alive()


def numbered_app(corpus, **options):
    return create_app(Numbered(corpus), {"version": "0"}, **options)
