"""Replies in tags, as ReAct's dialects and MEM1 write them, and a policy whose tokens are no encoder's."""

from __future__ import annotations

from memsearcher.agents.protocol import Reply


def look(query, thought="Search."):
    return f"<think>{thought}</think>\n<search>{query}</search>"


def tell(text, thought="Known."):
    return f"<think>{thought}</think>\n<answer>{text}</answer>"


def boxed(text, thought="Known."):
    return tell(f"\\boxed{{{text}}}", thought)


def stopped(chat, request, text, finish="stop"):
    """A reply sampled byte by byte, which no encoder would give; it ends at a stop string or with the end token."""
    ids = [token for character in text for token in chat.encode_reply(character)]
    ids += [chat.end_id] if finish == "eos" else []
    return Reply(text, finish, ids, [-0.5] * len(ids), len(request.conversation.token_ids), len(ids))
