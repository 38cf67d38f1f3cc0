"""The engine for any server that speaks OpenAI's chat completions (vLLM, SGLang, llama.cpp, hosted models)."""

from __future__ import annotations

import email.utils
import os
import random
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx
from transformers import PreTrainedTokenizerBase

from memsearcher.agents.protocol import Reply
from memsearcher.engines.chat import ChatFormat, ChatFormatError
from memsearcher.engines.encoding import EncodingError, without_surrogates
from memsearcher.engines.protocol import ContinuousEngine, EngineFailure, Request, Sampling, failure
from memsearcher.trajectory import Conversation, Finish

CHARACTERS_PER_TOKEN = 4
"""What a token is taken for where no tokenizer is given; about right for English."""
LONGEST_WAIT = 60.0
"""Seconds between two tries at most, whatever the server asks for."""
_SHOWN = 300


class OpenAIEngine(ContinuousEngine):
    """Answers model calls through `{base_url}/chat/completions`.

    The server sees text and encodes it itself: a special token spelled out in text from
    outside may count as one there, which only an engine on tokens can rule out.

    Stop strings: a server leaves the one that ended a reply out of it. vLLM (`stop_reason`)
    and SGLang (`matched_stop`) say which it was, and it is put back. At the first reply of a
    server that does not say, stop strings are no longer sent: the call is made again, and
    that and all later replies are cut here behind the first stop string, which costs the
    tokens the model writes after it.

    Tokens: with a tokenizer, contexts and replies are counted by it, and conversations are
    encoded in place. Without, counts are the server's `usage` (None where it gives none),
    and a segment's `limit` is applied at four characters a token, `dropped` being an
    estimate by the same measure. Token ids and log-probabilities of replies are not known.

    Args:
        base_url: up to and including the version, as `http://127.0.0.1:8000/v1`.
        model: the name the server knows it by.
        api_key: sent as a bearer token; it is never on a record or in a message.
        api_key_env: name of the environment variable that holds it, instead.
        tokenizer: the model's own, for exact counts and limits.
        concurrency: calls under way at once, at most.
        tries: how often a call is made at most; after 429, 5xx, timeouts and lost connections it is made again.
        backoff: seconds before the second try; doubled each time, with jitter. `Retry-After` is heeded.
        timeout: seconds that the server may take for one reply.

    Raises:
        ValueError: options out of range, or an `api_key_env` that is not set.
        ChatFormatError: a tokenizer without a usable chat template.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        api_key: str | None = None,
        api_key_env: str | None = None,
        tokenizer: PreTrainedTokenizerBase | None = None,
        concurrency: int = 16,
        tries: int = 5,
        backoff: float = 0.5,
        timeout: float = 300.0,
    ) -> None:
        if concurrency < 1 or tries < 1:
            raise ValueError(f"concurrency and tries must be at least 1, not {concurrency} and {tries}")
        if api_key_env is not None and not api_key:
            if api_key_env not in os.environ:
                raise ValueError(f"the environment variable {api_key_env} is not set; it should hold the API key")
            api_key = os.environ[api_key_env]
        self.chat = None if tokenizer is None else ChatFormat.from_tokenizer(tokenizer)
        self._tokenizer_name = "none" if tokenizer is None else str(tokenizer.name_or_path)
        self._url = httpx.URL(base_url.rstrip("/") + "/chat/completions")
        self._model = model
        self._key = api_key
        self._pool = ThreadPoolExecutor(concurrency, thread_name_prefix="openai")
        self._tries = tries
        self._backoff = backoff
        self._send_stops = True
        self._client = httpx.Client(
            timeout=httpx.Timeout(timeout, connect=min(timeout, 10.0)),
            headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
            limits=httpx.Limits(max_connections=concurrency),
        )

    @property
    def fingerprint(self) -> dict[str, str]:
        port = f":{self._url.port}" if self._url.port else ""
        return {
            "engine": "openai",
            "model": self._model,
            "server": f"{self._url.scheme}://{self._url.host}{port}{self._url.path.removesuffix('/chat/completions')}",
            "tokenizer": self._tokenizer_name,
        }

    def close(self) -> None:
        """Give up what has not been sent yet, and close the connections."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._client.close()

    def submit(self, request: Request, sampling: Sampling) -> Future[Reply | EngineFailure]:
        """Call the server in a thread of its own; a failure has the last try's error as its cause."""
        return self._pool.submit(self._answer, request, sampling)

    def _answer(self, request: Request, sampling: Sampling) -> Reply | EngineFailure:
        try:
            self._prepare(request.conversation)
            stops_sent = self._send_stops
            choice, usage = self._complete(request, sampling, stops_sent)
            if stops_sent and request.stop and not _says_why(choice):
                self._send_stops = False
                choice, usage = self._complete(request, sampling, False)
            return self._reply(request, choice, usage)
        except EngineFailure as error:
            return error
        except (ChatFormatError, EncodingError) as error:
            return failure(str(error), error)

    def _prepare(self, conversation: Conversation) -> None:
        """Encode the conversation, or apply its limits by characters; segments then say what is sent."""
        if not conversation.segments:
            raise EngineFailure("an empty conversation; it needs a user message at least")
        if self.chat is not None:
            self.chat.encode(conversation)
            return
        for segment in conversation.segments:
            segment.text = without_surrogates(segment.text)
            if segment.limit is not None and len(segment.text) > segment.limit * CHARACTERS_PER_TOKEN:
                over = len(segment.text) - segment.limit * CHARACTERS_PER_TOKEN
                segment.text = segment.text[over:] if segment.part == "history" else segment.text[:-over]
                segment.dropped = -(-over // CHARACTERS_PER_TOKEN)

    def _complete(self, request: Request, sampling: Sampling, stops: bool) -> tuple[dict[str, Any], dict[str, Any]]:
        """One completion: the server's choice and usage.

        Raises:
            EngineFailure: an answer that is not one, or no answer.
        """
        body: dict[str, Any] = {
            "model": self._model,
            "messages": request.conversation.messages(),
            "max_tokens": request.limit,
            "temperature": sampling.temperature,
        }
        if sampling.temperature > 0:
            body |= {"top_p": sampling.top_p, "seed": request.seed & (2**63 - 1)}
            body |= {"top_k": sampling.top_k} if sampling.top_k else {}
        if stops and request.stop:
            body["stop"] = list(request.stop)
        response = self._post(body)
        try:
            answer = response.json()
            choice = answer["choices"][0]
            if not isinstance(choice["message"]["content"] or "", str):
                raise TypeError("content is not text")
            return choice, answer.get("usage") or {}
        except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
            raise failure(f"the server's answer is not a chat completion: {self._shown(response)}", error) from error

    def _post(self, body: dict[str, Any]) -> httpx.Response:
        """Post until it works, is refused or has been tried often enough.

        Raises:
            EngineFailure: with the last error as its cause.
        """
        for number in range(1, self._tries + 1):
            wait = self._backoff * 2 ** (number - 1) * random.uniform(0.5, 1.5)
            try:
                response = self._client.post(self._url, json=body)
                response.raise_for_status()
                return response
            except httpx.HTTPStatusError as caught:
                error: httpx.HTTPError = caught
                status = caught.response.status_code
                message = f"the server answered {status}: {self._shown(caught.response)}"
                if status != 429 and status < 500:
                    raise failure(message, caught) from caught
                wait = max(wait, _retry_after(caught.response))
            except httpx.TransportError as caught:
                error = caught
                message = f"no answer from {self.fingerprint['server']}: {type(caught).__name__} {caught}"
            except httpx.HTTPError as caught:
                raise failure(f"the call failed: {type(caught).__name__} {caught}", caught) from caught
            if number < self._tries:
                time.sleep(min(wait, LONGEST_WAIT))
        raise failure(f"{message} (tried {self._tries} times)", error) from error

    def _reply(self, request: Request, choice: dict[str, Any], usage: dict[str, Any]) -> Reply:
        """The reply with its stop string in place.

        Raises:
            EngineFailure: the server ended the reply for a reason of its own.
        """
        text = choice["message"]["content"] or ""
        reason = choice.get("finish_reason")
        if reason not in ("stop", "length"):
            raise EngineFailure(f"the server ended the reply with {reason!r}")
        matched = choice.get("stop_reason") or choice.get("matched_stop")
        finish: Finish = "length" if reason == "length" else "eos"
        if matched in request.stop:
            finish = "stop"
            text = text if text.endswith(matched) else text + matched
        else:
            ends = [text.find(stop) + len(stop) for stop in request.stop if stop in text]
            if ends:
                finish, text = "stop", text[: min(ends)]
        if self.chat is None:
            return Reply(
                text,
                finish,
                context_tokens=usage.get("prompt_tokens"),
                sampled_tokens=usage.get("completion_tokens"),
            )
        context = request.conversation.token_ids
        assert context is not None
        sampled = self.chat.encode_reply(text, end=finish == "eos" and self.chat.end_id is not None)
        return Reply(text, finish, context_tokens=len(context), sampled_tokens=len(sampled))

    def _shown(self, response: httpx.Response) -> str:
        """The beginning of what the server said, without our key, which some servers echo."""
        text = response.text
        return (text.replace(self._key, "***") if self._key else text)[:_SHOWN]


def _says_why(choice: dict[str, Any]) -> bool:
    """Whether the server would have said that a stop string ended the reply."""
    return choice.get("finish_reason") != "stop" or "stop_reason" in choice or "matched_stop" in choice


def _retry_after(response: httpx.Response) -> float:
    """Seconds that the server asks to wait: a number or a date; 0 where it asks for nothing readable."""
    value = response.headers.get("retry-after", "")
    try:
        return max(0.0, float(value))
    except ValueError:
        date = email.utils.parsedate_tz(value)
        return max(0.0, email.utils.mktime_tz(date) - time.time()) if date else 0.0
