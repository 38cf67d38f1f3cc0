"""A model's chat template, learned once and then applied to segments instead of strings.

`ChatFormat.from_tokenizer` renders the template with sentinels for contents and reads
off what stands between them. `encode` then puts those markers between the segments of
a conversation and encodes what is not encoded yet, so that sampled tokens stay as they
were sampled and no text can pass for a marker. Contents are taken as they are: a
template that strips or rewrites them (Qwen3 drops earlier thoughts) is not followed there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from memsearcher.engines.encoding import EncodingError, TextEncoder, cut, cut_front
from memsearcher.trajectory import OUTSIDE, Conversation, Role, Segment

__all__ = ["ChatFormat", "ChatFormatError", "EncodingError"]

Seam = tuple[Role | None, Role]
"""The role of a message (None at the start) and that of the next."""


class ChatFormatError(ValueError):
    """A chat template that cannot be worked with, or a conversation that it has no form for."""


@dataclass(frozen=True, slots=True)
class Marker:
    """What a template writes at a seam between two messages."""

    text: str
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ChatFormat:
    """How one model's conversations look, token by token.

    Attributes:
        encoder: the tokenizer, by kind of text.
        seams: the marker between a message and the next; towards "assistant" it is the
            header after which the model writes.
        end_id: the token that ends an assistant's message, None if the template uses none.
        end_ids: tokens at which sampling ends: `end_id`, and the tokenizer's end of text.
        reason: why a conversation without a system message has no form, where it has none.
    """

    encoder: TextEncoder
    seams: Mapping[Seam, Marker]
    end_id: int | None
    end_ids: frozenset[int]
    reason: str = ""

    @classmethod
    def from_tokenizer(cls, tokenizer: PreTrainedTokenizerBase, **options: Any) -> Self:
        """Derive the format from a tokenizer's chat template.

        A default system prompt that the template would slip in (Qwen2.5's, SmolLM2's) is
        left out: an agent's context holds what the agent put there.

        Args:
            tokenizer: a fast tokenizer with a chat template.
            options: passed on to the template, such as `enable_thinking=False`.

        Raises:
            ChatFormatError: no template, or one that does not keep contents apart and in order.
        """
        if not tokenizer.chat_template:
            raise ChatFormatError(
                f"the tokenizer {tokenizer.name_or_path!r} has no chat template; "
                "take an instruct model or set tokenizer.chat_template"
            )
        encoder = TextEncoder(tokenizer)
        texts = _seams(tokenizer, options)
        between = encoder.markers(texts["assistant", "user"])
        end_id = next((token for token in between if token in encoder.special_ids), None)
        markers = {token for text in texts.values() for token in encoder.markers(text)}
        # The wrong end token of some conversions (SmolLM2's <|im_start|>) opens messages; it cannot end them.
        ends = {end_id} if tokenizer.eos_token_id in markers else {end_id, tokenizer.eos_token_id}
        reason = _leave_out_default(texts, encoder, end_id)
        seams = {seam: Marker(text, tuple(encoder.markers(text))) for seam, text in texts.items()}
        return cls(encoder, seams, end_id, frozenset(end for end in ends if end is not None), reason)

    def encode(self, conversation: Conversation) -> None:
        """Encode in place what is not encoded yet, markers included, up to where the model writes.

        Segments that have token ids are left alone. Where the last message is not the
        assistant's, its header is added at the end. A segment over its `limit` keeps that
        many tokens, fewer where a character would be torn: the first ones, of a history the
        last ones; `text` then is what is left.

        Raises:
            ChatFormatError: an empty conversation, or messages in an order the template has no form for.
        """
        if not conversation.segments:
            raise ChatFormatError("an empty conversation; it needs a user message at least")
        segments: list[Segment] = []
        role: Role | None = None
        for segment in conversation.segments:
            if segment.part != "template" and segment.role != role:
                segments.append(self._marker(role, segment.role, segments))
            if segment.token_ids is None:
                self._fill(segment)
            segments.append(segment)
            role = segment.role
        if role != "assistant":
            segments.append(self._marker(role, "assistant", segments))
        conversation.segments[:] = segments

    def encode_reply(self, text: str, end: bool = False) -> list[int]:
        """Token ids of a reply that we write for the model, closed by `end_id` if `end`.

        Raises:
            ChatFormatError: `end` with a template that ends messages without a token.
        """
        ids, _ = self.encoder.own(text)
        if not end:
            return ids
        if self.end_id is None:
            raise ChatFormatError("this chat template ends messages without a special token")
        return [*ids, self.end_id]

    def decode_reply(self, ids: list[int]) -> str:
        """The text of sampled ids, without the token that ended them."""
        return self.encoder.decode(ids[:-1] if ids and ids[-1] in self.end_ids else ids)

    def ended(self, conversation: Conversation) -> bool:
        """Whether the conversation's last token closes the assistant's message."""
        ids = conversation.segments[-1].token_ids if conversation.segments else None
        return bool(ids) and conversation.segments[-1].part == "reply" and ids is not None and ids[-1] in self.end_ids

    def _marker(self, before: Role | None, role: Role, segments: list[Segment]) -> Segment:
        """The marker of a seam as a segment; what a sampled end token already said is not said again."""
        if (before, role) not in self.seams:
            place = (
                f"a {role} message after a {before} message" if before else f"a conversation that starts with {role}"
            )
            raise ChatFormatError(f"this chat template has no form for {place}{self.reason and ': '}{self.reason}")
        marker = self.seams[before, role]
        ids = list(marker.token_ids)
        text = marker.text
        last = segments[-1] if segments else None
        if last is not None and last.part == "reply" and last.token_ids and last.token_ids[-1] == self.end_id:
            ids = ids[ids.index(self.end_id) + 1 :]
            text = self.encoder.decode(ids)
        return Segment(role, "template", text, ids)

    def _fill(self, segment: Segment) -> None:
        """Encode one segment in place, by its part."""
        if segment.part == "template":
            segment.token_ids = self.encoder.markers(segment.text)
            return
        encode = self.encoder.outside if segment.part in OUTSIDE else self.encoder.own
        ids, segment.text = encode(segment.text)
        segment.token_ids = ids
        if segment.limit is not None and len(ids) > segment.limit:
            shorten = cut_front if segment.part == "history" else cut
            segment.token_ids, segment.text = shorten(self.encoder, ids, segment.text, segment.limit)
            segment.dropped = len(ids) - len(segment.token_ids)


def _seams(tokenizer: PreTrainedTokenizerBase, options: dict[str, Any]) -> dict[Seam, str]:
    """What the template writes at every seam that an agent can make.

    Raises:
        ChatFormatError: contents that get lost, doubled or moved, or markers that depend on what follows.
    """
    texts: dict[Seam, str] = {}
    starts: tuple[tuple[Role, ...], ...] = ((), ("system",))
    for start in starts:
        short: tuple[Role, ...] = (*start, "user")
        long: tuple[Role, ...] = (*short, "assistant", "user")
        try:
            first = _render(tokenizer, short, True, options)
            whole = _render(tokenizer, long, True, options)
            closed = _render(tokenizer, short, False, options)
        except TemplateError as error:
            if start:
                continue  # a template without system messages, such as Gemma's
            raise ChatFormatError(f"the chat template of {tokenizer.name_or_path!r} fails: {error}") from error
        if first[:-1] != whole[: len(short)]:
            raise ChatFormatError(
                f"the chat template of {tokenizer.name_or_path!r} writes the start of a conversation "
                "differently once it goes on, so contexts cannot grow at their end"
            )
        # Templates without a generation prompt write the header with the assistant's message.
        header = whole[len(short)] if first[-1] == closed[-1] else first[-1]
        found = dict(zip(zip((None, *short), short, strict=False), first, strict=False))
        texts.update(found)
        texts["user", "assistant"] = header
        texts["assistant", "user"] = whole[len(short) + 1]
    return texts


def _render(
    tokenizer: PreTrainedTokenizerBase, roles: tuple[Role, ...], generate: bool, options: dict[str, Any]
) -> list[str]:
    """The texts before, between and behind the contents of messages of these roles."""
    contents = [f"SentinelOf{number}Content" for number in range(len(roles))]
    messages = [{"role": role, "content": content} for role, content in zip(roles, contents, strict=True)]
    rendered: str = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=generate, **options)
    gaps = re.split("|".join(contents), rendered)
    if re.findall("|".join(contents), rendered) != contents:
        raise ChatFormatError(
            f"the chat template of {tokenizer.name_or_path!r} loses, doubles or moves contents: {', '.join(roles)}"
        )
    return gaps


def _leave_out_default(texts: dict[Seam, str], encoder: TextEncoder, end_id: int | None) -> str:
    """Take the template's default system prompt out of the bare start, in place; a reason if that cannot be done."""
    bare = texts[None, "user"]
    if (None, "system") not in texts:
        return ""
    opening, turn = texts[None, "system"], texts["system", "user"]
    if len(bare) <= len(opening) + len(turn) or not (bare.startswith(opening) and bare.endswith(turn)):
        return ""
    # The user's opening follows the end of the system message; what precedes every opening is the text's beginning.
    end = encoder.decode([end_id]) if end_id is not None else ""
    user = turn.partition(end)[2].lstrip() if end else ""
    marks = [token for token in encoder.markers(user) if token in encoder.special_ids]
    if not marks or not user.startswith(mark := encoder.decode(marks[:1])):
        del texts[None, "user"]
        return "it puts in a default system prompt, so the conversation needs a system message of its own"
    texts[None, "user"] = bare[: bare.index(mark)] + user
    return ""
