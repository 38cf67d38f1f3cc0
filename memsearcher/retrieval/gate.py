"""What a request passes before a retrieval server reads it: the token, the size of its body, the log.

Plain ASGI, since a body must be counted while it comes in and not after.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from dataclasses import dataclass

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memsearcher.retrieval.metrics import Metrics

OPEN_PATHS = ("/health",)
KNOWN_PATHS = ("/retrieve", "/search", "/batch_search", "/health", "/metrics")

logger = logging.getLogger("memsearcher.access")


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """How large a body may be, in bytes, and how many seconds it may take to come in."""

    size: int = 8 << 20
    seconds: float = 30.0


class Body:
    """Reads the body of a request, and refuses one that is too large, too slow or not UTF-8.

    What is too large is read to its end and thrown away: a client that is still sending would not
    see the answer.
    """

    def __init__(self, app: ASGIApp, limits: BodyLimits) -> None:
        self._app = app
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            async with asyncio.timeout(self._limits.seconds):
                body, size = await self._read(receive)
        except TimeoutError:
            await _refuse(
                408, f"the body did not come in within {self._limits.seconds:g} seconds", scope, receive, send
            )
            return
        if size is None:
            return
        if size > self._limits.size:
            sentence = f"the body has {size} bytes; a request may have {self._limits.size}"
            await _refuse(422, sentence, scope, receive, send)
            return
        try:
            body.decode()
        except UnicodeDecodeError as error:
            await _refuse(422, f"the body is not UTF-8 ({error.reason} at byte {error.start})", scope, receive, send)
            return
        message: Message | None = {"type": "http.request", "body": bytes(body), "more_body": False}

        async def replay() -> Message:
            nonlocal message
            first, message = message, None
            return first or await receive()

        await self._app(scope, replay, send)

    async def _read(self, receive: Receive) -> tuple[bytearray, int | None]:
        """The body, as far as it is allowed, and the size of all of it; None where the client has left."""
        body, size = bytearray(), 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return body, None
            part = message.get("body", b"")
            size += len(part)
            if size <= self._limits.size:
                body += part
            if not message.get("more_body", False):
                return body, size


class Access:
    """Asks for the token, counts the request and writes a line to the log: path, status and time, no text."""

    def __init__(self, app: ASGIApp, metrics: Metrics, token: str | None) -> None:
        self._app = app
        self._metrics = metrics
        self._expected = None if token is None else f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        status = 0

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        if self._lets_in(scope):
            await self._app(scope, receive, watched)
        else:
            await _refuse(401, "a bearer token is asked for here, and it is not this one", scope, receive, watched)
        seconds = time.perf_counter() - start
        # Any path can be asked for: unknown ones share a name, or they would fill the memory.
        path = scope["path"] if scope["path"] in KNOWN_PATHS else "other"
        self._metrics.requests.labels(path, str(status)).inc()
        self._metrics.seconds.labels(path).observe(seconds)
        logger.info("%s %s %d %.1f ms", scope["method"], path, status, seconds * 1000)

    def _lets_in(self, scope: Scope) -> bool:
        if self._expected is None or scope["path"] in OPEN_PATHS:
            return True
        given = dict(scope["headers"]).get(b"authorization", b"")
        return hmac.compare_digest(given, self._expected)


async def _refuse(status: int, sentence: str, scope: Scope, receive: Receive, send: Send) -> None:
    await JSONResponse({"detail": sentence}, status)(scope, receive, send)
