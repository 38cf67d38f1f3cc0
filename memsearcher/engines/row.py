"""One request on its way through an engine that works on tokens, whoever draws them.

Such engines take and refuse the same requests and end replies at the same tokens, because
all of them start, extend and read a `Row`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from memsearcher.agents.protocol import Reply
from memsearcher.engines.chat import ChatFormat, ChatFormatError
from memsearcher.engines.encoding import EncodingError
from memsearcher.engines.protocol import EngineFailure, Request, failure
from memsearcher.trajectory import Finish


@dataclass(slots=True)
class Row:
    """A request, its context, what was sampled so far, and how it ended."""

    request: Request
    context: list[int]
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish: Finish | None = None
    failure: EngineFailure | None = None

    @classmethod
    def start(cls, request: Request, chat: ChatFormat, longest: int) -> Row | EngineFailure:
        """Encode a request's conversation in place; a failure if it cannot be continued.

        Args:
            longest: tokens that a context and its reply may take together.
        """
        try:
            chat.encode(request.conversation)
        except (ChatFormatError, EncodingError) as error:
            return failure(str(error), error)
        context = request.conversation.token_ids
        assert context is not None
        if request.limit < 1:
            return EngineFailure(f"a request for {request.limit} tokens; at least 1 is needed")
        if len(context) + request.limit > longest:
            return EngineFailure(
                f"a context of {len(context)} tokens and a reply of up to {request.limit} "
                f"do not fit the model's {longest} positions"
            )
        if chat.ended(request.conversation):
            return EngineFailure("the conversation ends with a finished reply; there is nothing to answer")
        return cls(request, context)

    @property
    def done(self) -> bool:
        return self.finish is not None or self.failure is not None

    def take(self, token: int, logprob: float, chat: ChatFormat) -> None:
        """Add a sampled token and see whether it ends the row."""
        self.ids.append(token)
        self.logprobs.append(logprob)
        if token in chat.end_ids:
            self.finish = "eos"
        elif self._stopped(chat):
            self.finish = "stop"
        elif len(self.ids) >= self.request.limit:
            self.finish = "length"

    def text(self, chat: ChatFormat) -> str:
        """What was written: without the end token, and cut behind the first stop string.

        The ids are kept as sampled, so a last token that runs on behind the stop string
        (`>\\n`) is in the ids as a whole and in the text in part.
        """
        text = chat.decode_reply(self.ids)
        if self.finish == "stop":
            ends = [text.find(stop) + len(stop) for stop in self.request.stop if stop in text]
            text = text[: min(ends, default=len(text))]
        return text

    def reply(self, chat: ChatFormat) -> Reply | EngineFailure:
        """The answer to the request of a row that is done."""
        if self.failure is not None:
            return self.failure
        assert self.finish is not None
        return Reply(self.text(chat), self.finish, self.ids, self.logprobs, len(self.context), len(self.ids))

    def _stopped(self, chat: ChatFormat) -> bool:
        """Whether the newest token completed a stop string; only as many tokens as can spell one are decoded."""
        if not self.request.stop:
            return False
        # A token is a byte at least; four more make sure that a character torn at the left is not the stop's.
        reach = max(len(stop.encode()) for stop in self.request.stop) + 4
        tail = chat.encoder.decode(self.ids[-reach:])
        return any(stop in tail for stop in self.request.stop)
