"""What a reply says: thought, action or answer, memory. Everything odd has a name.

Only text the model sampled is parsed, never a prompt or a passage.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, NoReturn

from memsearcher.trajectory import Action, Event

BOX = "\\boxed{"
CALL_END = "</tool_call>"


@dataclass(slots=True)
class ActReply:
    """The first reply of a turn. At most one of `action` and `answer` is set."""

    thought: str | None = None
    action: Action | None = None
    answer: str | None = None
    events: list[Event] = field(default_factory=list)

    def event(self, name: str, detail: str = "") -> None:
        self.events.append(Event(name, detail))


def parse_act(text: str, tool: str) -> ActReply:
    """Read `<think>…</think>` and then one tool call or one `\\boxed{answer}`.

    What stands inside the thought is thought, tags and boxes too. A call beats an answer
    beside it, the first of several calls beats the others (both recorded), and a call that
    cannot be carried out is named and gives no action.

    Events: no_thought, unclosed_tag, several_calls, answer_and_call, bad_json, unknown_tool,
    missing_query, empty_query, empty_answer, no_action.
    """
    reply = ActReply()
    rest = _take_thought(text, reply)
    if rest is None:
        return reply
    calls, around, open_call = find_spans(rest, "tool_call")
    boxes, open_box = find_boxes(around)
    if open_call or open_box:
        reply.event("unclosed_tag", "tool_call" if open_call else "boxed")
    if calls:
        if len(calls) > 1:
            reply.event("several_calls", f"{len(calls)}, the first one counts")
        if boxes:
            reply.event("answer_and_call", "the call counts")
        reply.action = _read_call(calls[0], tool, reply)
    elif boxes:
        reply.answer = unwrap(boxes[-1])
        if not reply.answer:
            reply.event("empty_answer")
    elif not any(event.name == "unclosed_tag" for event in reply.events):
        reply.event("no_action")
    return reply


def parse_memory(text: str) -> tuple[str | None, bool]:
    """Read `<memory>…</memory>`.

    Returns:
        The memory and whether its tag was closed; None where there is no opening tag.
        Of an unclosed memory, all that follows the tag.
    """
    _, opened, rest = text.partition("<memory>")
    if not opened:
        return None, False
    memory, closed, _ = rest.partition("</memory>")
    return memory.strip(), bool(closed)


def find_spans(text: str, tag: str) -> tuple[list[str], str, bool]:
    """The contents of all closed `<tag>…</tag>`, the text around them, and whether one stays open."""
    opening, closing = f"<{tag}>", f"</{tag}>"
    spans: list[str] = []
    around: list[str] = []
    end = 0
    while (start := text.find(opening, end)) >= 0 and (close := text.find(closing, start)) >= 0:
        spans.append(text[start + len(opening) : close])
        around.append(text[end:start])
        end = close + len(closing)
    around.append(text[end:])
    # Joined by a line break, so that what stood on both sides of a span cannot make a tag together.
    return spans, "\n".join(around), start >= 0


def find_boxes(text: str) -> tuple[list[str], bool]:
    """The contents of all closed `\\boxed{…}`, nested braces kept, and whether one stays open.

    `\\{` and `\\}` are characters of the answer and do not nest.
    """
    boxes: list[str] = []
    start = text.find(BOX)
    while start >= 0:
        begin = start + len(BOX)
        depth = 1
        for brace in re.compile(r"\\[{}]|[{}]").finditer(text, begin):
            depth += {"{": 1, "}": -1}.get(brace.group(), 0)
            if depth == 0:
                boxes.append(text[begin : brace.start()])
                start = text.find(BOX, brace.end())
                break
        else:
            return boxes, True
    return boxes, False


def unwrap(answer: str) -> str:
    """The answer without white space and without a `\\text{…}` around all of it."""
    answer = answer.strip()
    wrapped: Any = re.fullmatch(r"\\text\{([^{}]*)\}", answer)
    return wrapped.group(1).strip() if wrapped else answer


def _take_thought(text: str, reply: ActReply) -> str | None:
    """Move the thought into `reply` and give what follows it; None where it never ends."""
    lead, opened, rest = text.partition("<think>")
    if not opened or lead.strip():
        reply.event("no_thought")
        return text
    thought, closed, rest = rest.partition("</think>")
    reply.thought = thought.strip()
    if not closed:
        reply.event("unclosed_tag", "think")
        return None
    return rest


def _read_call(text: str, tool: str, reply: ActReply) -> Action | None:
    """A tool call read strictly; None and an event where it cannot be carried out.

    The action has the arguments that the tool knows, `query` and `top_n`, and no others: the
    model may have written any JSON into those, too deep or too large for the record.
    """
    try:
        call = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        reply.event("bad_json", str(error))
        return None
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        reply.event("bad_json", 'an object with a "name" was expected')
        return None
    if call["name"] != tool:
        reply.event("unknown_tool", call["name"])
        return None
    arguments = call.get("arguments")
    if not isinstance(arguments, dict) or not isinstance(arguments.get("query"), str):
        reply.event("missing_query", "arguments.query must be a string")
        return None
    if not arguments["query"].strip():
        reply.event("empty_query")
        return None
    if "top_n" in arguments and type(arguments["top_n"]) is not int:
        reply.event("bad_json", "arguments.top_n must be an integer")
        return None
    return Action(tool, {name: arguments[name] for name in ("query", "top_n") if name in arguments})


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
