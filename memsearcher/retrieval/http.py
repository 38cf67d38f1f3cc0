"""Requests over HTTP to equal servers: in turn, again after a failure, never beyond a deadline."""

from __future__ import annotations

import random
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

import httpx

LONGEST_WAIT = 10.0
"""Seconds between two rounds of tries, at most."""
_SHOWN = 300


class RequestFailed(ConnectionError):
    """A request that was refused, or that no server answered; the last try's error is its cause.

    Attributes:
        status: the HTTP status it ended with; None where there was no answer.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class Servers:
    """A pool of connections to servers that give the same answers.

    Each request goes to the next server. After a lost connection, a timeout, 408, 429 or 5xx it goes to
    the one after that, and when all have been tried there is a pause, which doubles from round to
    round, with jitter; a `Retry-After` in seconds is heeded. Any other status is final. May be
    used by several threads.

    Args:
        urls: of the servers, without a path.
        headers: sent with each request; their values are kept out of messages.
        tries: of one request, at most.
        backoff: seconds of the first pause.
        timeout: seconds for one try.
        deadline: seconds for one request with all its tries and pauses.

    Raises:
        ValueError: no servers, or one that is not an http(s) URL.
    """

    def __init__(
        self,
        urls: Sequence[str],
        headers: Mapping[str, str] | None = None,
        tries: int = 8,
        backoff: float = 0.25,
        timeout: float = 60.0,
        deadline: float = 120.0,
    ) -> None:
        if not urls:
            raise ValueError("at least one server is needed")
        for url in urls:
            if httpx.URL(url).scheme not in ("http", "https") or not httpx.URL(url).host:
                raise ValueError(f"{url!r} is not the address of a server; write it as http://127.0.0.1:8000")
        self.urls = [url.rstrip("/") for url in urls]
        self._secrets = [value.removeprefix("Bearer ") for value in (headers or {}).values()]
        self._tries = tries
        self._backoff = backoff
        self._deadline = deadline
        self._turn = count()
        self._lock = threading.Lock()
        self._client = httpx.Client(headers=dict(headers or {}), timeout=httpx.Timeout(timeout, connect=5.0))
        self.close = weakref.finalize(self, self._client.close)
        """Close the connections; done by itself when nobody holds the servers any more."""

    def get(self, url: str) -> httpx.Response:
        """One GET from one server, tried once.

        Raises:
            RequestFailed: no answer, or a status other than 2xx.
        """
        return self._once("GET", url, None, None)

    def post(self, path: str, body: Any) -> httpx.Response:
        """POST `body` as JSON.

        Raises:
            RequestFailed: refused, or not answered within the tries and the deadline.
        """
        end = time.monotonic() + self._deadline
        with self._lock:
            first = next(self._turn)
        tries = 0
        while True:
            url = self.urls[(first + tries) % len(self.urls)]
            tries += 1
            try:
                return self._once("POST", url + path, body, end - time.monotonic())
            except RequestFailed as error:
                if error.status is not None and error.status not in (408, 429) and error.status < 500:
                    raise
                wait = self._pause(tries, error)
                if tries == self._tries or time.monotonic() + wait > end:
                    raise RequestFailed(f"{error} (tried {tries} times)", error.status) from error.__cause__
            if wait:
                time.sleep(wait)

    def _once(self, method: str, url: str, body: Any, seconds: float | None) -> httpx.Response:
        timeout: Any = httpx.USE_CLIENT_DEFAULT
        if seconds is not None:
            limits = self._client.timeout
            timeout = httpx.Timeout(
                min(limits.read or seconds, seconds), connect=min(limits.connect or seconds, seconds)
            )
        try:
            response = self._client.request(method, url, json=body, timeout=timeout)
            response.raise_for_status()
            return response
        except httpx.HTTPStatusError as error:
            status = error.response.status_code
            raise RequestFailed(f"{url} answered {status}: {self._shown(error.response.text)}", status) from error
        except httpx.HTTPError as error:
            raise RequestFailed(f"no answer from {url}: {type(error).__name__} {error}") from error

    def _pause(self, tries: int, error: RequestFailed) -> float:
        """Seconds before the next try: none while there are servers left in this round."""
        rounds, rest = divmod(tries, len(self.urls))
        if rest:
            return 0.0
        wait = min(self._backoff * 2.0 ** (rounds - 1), LONGEST_WAIT) * random.uniform(0.5, 1.5)
        return max(wait, _retry_after(error))

    def _shown(self, text: str) -> str:
        """The beginning of what a server said, without our secrets, which some servers echo."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text[:_SHOWN]


def _retry_after(error: RequestFailed) -> float:
    """Seconds that the server asks to wait; 0 where it asks for none, or gives a date."""
    cause = error.__cause__
    if not isinstance(cause, httpx.HTTPStatusError):
        return 0.0
    value = cause.response.headers.get("retry-after", "")
    return min(float(value), LONGEST_WAIT) if value.isdecimal() else 0.0
