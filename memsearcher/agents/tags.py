"""What a reply in tags says: `<think>`, `<search>`, `<answer>`, as ReAct's dialects and MEM1 write it."""

from __future__ import annotations

from memsearcher.agents.parsing import ActReply, find_boxes, find_spans, unwrap
from memsearcher.trajectory import Action

STOPS = ("</search>", "</answer>")


def parse_tags(text: str, tool: str, boxed: bool = False) -> ActReply:
    """Read `<think>…</think>` and then one `<search>query</search>` or one `<answer>…</answer>`.

    What stands inside any thought is thought, tags too. A search beats an answer beside it, the
    first of several searches beats the others, the last of several answers counts, as in `parse_act`.

    Args:
        boxed: the answer stands in a box inside its tag; one without a box is taken and named.

    Events: no_thought, unclosed_tag, several_calls, answer_and_call, empty_query, empty_answer,
    missing_box, no_action.
    """
    reply = ActReply()
    rest = _take_thoughts(text, reply)
    searches, around, open_search = find_spans(rest, "search")
    answers, _, open_answer = find_spans(around, "answer")
    if open_search or open_answer:
        reply.event("unclosed_tag", "search" if open_search else "answer")
    if searches:
        if len(searches) > 1:
            reply.event("several_calls", f"{len(searches)}, the first one counts")
        if answers:
            reply.event("answer_and_call", "the call counts")
        if query := searches[0].strip():
            reply.action = Action(tool, {"query": query})
        else:
            reply.event("empty_query")
    elif answers:
        reply.answer = _unbox(answers[-1], reply) if boxed else answers[-1].strip()
        if reply.answer == "":
            reply.event("empty_answer")
    elif not any(event.name == "unclosed_tag" for event in reply.events):
        reply.event("no_action")
    return reply


def _take_thoughts(text: str, reply: ActReply) -> str:
    """Move all thoughts into `reply` and give what stands around them."""
    thoughts, rest, still_open = find_spans(text, "think")
    if still_open:
        rest, _, unfinished = rest.partition("<think>")
        thoughts.append(unfinished)
        reply.event("unclosed_tag", "think")
    if not text.lstrip().startswith("<think>"):
        reply.event("no_thought")
    if thoughts:
        reply.thought = "\n".join(thought.strip() for thought in thoughts)
    return rest


def _unbox(answer: str, reply: ActReply) -> str | None:
    """The last box of an answer; all of it where there is none, and nothing where one stays open."""
    boxes, open_box = find_boxes(answer)
    if open_box:
        reply.event("unclosed_tag", "boxed")
    elif not boxes:
        reply.event("missing_box")
        return answer.strip()
    return unwrap(boxes[-1]) if boxes else None
