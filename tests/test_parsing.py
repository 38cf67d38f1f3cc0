"""What a reply says, and the name of everything that is wrong with it."""

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memsearcher.agents.parsing import find_boxes, find_spans, parse_act, parse_memory
from memsearcher.trajectory import Action, Event, Limits, Step, Task, Trajectory
from tests.scripted import answer, search

CALL = '<tool_call>{"name": "search", "arguments": {"query": "q"}}</tool_call>'
KNOWN = {
    "no_thought",
    "unclosed_tag",
    "several_calls",
    "answer_and_call",
    "bad_json",
    "unknown_tool",
    "missing_query",
    "empty_query",
    "empty_answer",
    "no_action",
}


def read(text):
    """(action, answer, names of the events) of a reply that thinks first."""
    reply = parse_act(f"<think>t</think>{text}", "search")
    assert reply.thought == "t"
    return reply.action, reply.answer, [event.name for event in reply.events]


def call(**fields):
    return f"<tool_call>{json.dumps(fields)}</tool_call>"


def test_a_search():
    reply = parse_act(search("capital of Laos", thought=" I need it.\n", top_n=3), "search")
    assert reply.thought == "I need it."
    assert reply.action == Action("search", {"query": "capital of Laos", "top_n": 3})
    assert reply.answer is None
    assert reply.events == []


def test_an_answer():
    reply = parse_act(answer(" Vientiane "), "search")
    assert (reply.thought, reply.action, reply.answer, reply.events) == ("Known.", None, "Vientiane", [])


@pytest.mark.parametrize(
    ("text", "action", "events"),
    [
        (CALL + CALL.replace('"q"', '"r"'), "q", ["several_calls"]),
        (CALL + "\\boxed{x}", "q", ["answer_and_call"]),
        ("\\boxed{x}" + CALL + CALL, "q", ["several_calls", "answer_and_call"]),
        (CALL + "<tool_call>{", "q", ["unclosed_tag"]),
        ("<tool_call>", None, ["unclosed_tag"]),
        ("<tool_call>{</tool_call>", None, ["bad_json"]),
        ("<tool_call></tool_call>", None, ["bad_json"]),
        ("<tool_call>[1]</tool_call>", None, ["bad_json"]),
        ("<tool_call>NaN</tool_call>", None, ["bad_json"]),
        (
            '<tool_call>{"name": "search", "arguments": {"query": "q", "top_n": Infinity}}</tool_call>',
            None,
            ["bad_json"],
        ),
        ('<tool_call>{"name": "search", "arguments": {"query": "q", "top_n": 1e999}}</tool_call>', None, ["bad_json"]),
        (CALL + "<tool_call>{</tool_call>", "q", ["several_calls"]),
        ("<tool_call>{</tool_call>" + CALL, None, ["several_calls", "bad_json"]),
        (call(arguments={"query": "q"}), None, ["bad_json"]),
        (call(name=["search"], arguments={"query": "q"}), None, ["bad_json"]),
        (call(name="find", arguments={"query": "q"}), None, ["unknown_tool"]),
        (call(name="search"), None, ["missing_query"]),
        (call(name="search", arguments="q"), None, ["missing_query"]),
        (call(name="search", arguments={}), None, ["missing_query"]),
        (call(name="search", arguments={"query": ["q"]}), None, ["missing_query"]),
        (call(name="search", arguments={"query": None}), None, ["missing_query"]),
        (call(name="search", arguments={"query": " \n"}), None, ["empty_query"]),
        *(
            (call(name="search", arguments={"query": "q", "top_n": wrong}), None, ["bad_json"])
            for wrong in ("3", 3.0, True, None, [3], {})
        ),
    ],
)
def test_every_oddity_of_a_call(text, action, events):
    got, said, named = read(text)
    assert (got and got.arguments["query"], said, named) == (action, None, events)


@pytest.mark.parametrize(
    ("text", "said", "events"),
    [
        ("", None, ["no_action"]),
        ("I do not know.", None, ["no_action"]),
        ("</tool_call>", None, ["no_action"]),
        ("\\boxed{}", "", ["empty_answer"]),
        ("\\boxed{ \n}", "", ["empty_answer"]),
        ("\\boxed{\\text{ }}", "", ["empty_answer"]),
        ("\\boxed{x", None, ["unclosed_tag"]),
        ("\\boxed{a}\\boxed{x", "a", ["unclosed_tag"]),
        ("\\boxed{a} then \\boxed{b}", "b", []),
        ("\\boxed{f(x) = {a}{b{c}}}", "f(x) = {a}{b{c}}", []),
        ("\\boxed{\\{1, 2\\}}", "\\{1, 2\\}", []),
        ("\\boxed{a \\{ b}", "a \\{ b", []),
        ("\\boxed{a \\} b}", "a \\} b", []),
        ("\\boxed{\\text{Kip}}", "Kip", []),
        ("\\boxed{ \\text{ Kip }\n}", "Kip", []),
        ("\\boxed{\\text{a} and \\text{b}}", "\\text{a} and \\text{b}", []),
        ("\\boxed {x}", None, ["no_action"]),
        ("\\boxed{a\nb}", "a\nb", []),
        ("\\boxed{a}<tool_call>{", "a", ["unclosed_tag"]),
    ],
)
def test_every_oddity_of_an_answer(text, said, events):
    assert read(text) == (None, said, events)


@pytest.mark.parametrize(
    ("text", "thought", "said", "events"),
    [
        ("\\boxed{x}", None, "x", ["no_thought"]),
        ("", None, None, ["no_thought", "no_action"]),
        ("Well. <think>t</think>\\boxed{x}", None, "x", ["no_thought"]),
        ("t</think>\\boxed{x}", None, "x", ["no_thought"]),
        ("<think>t \\boxed{x}", "t \\boxed{x}", None, ["unclosed_tag"]),
        (f"<think>{CALL} \\boxed{{y}}</think>\\boxed{{x}}", f"{CALL} \\boxed{{y}}", "x", []),
        (f"<think>{CALL}</think>", CALL, None, ["no_action"]),
        ("<think><think>a</think>\\boxed{x}", "<think>a", "x", []),
        ("\n <think></think>\\boxed{x}", "", "x", []),
        ("<THINK>t</THINK>\\boxed{x}", None, "x", ["no_thought"]),
    ],
)
def test_the_thought(text, thought, said, events):
    reply = parse_act(text, "search")
    assert (reply.thought, reply.answer, [event.name for event in reply.events]) == (thought, said, events)
    assert reply.action is None


def test_events_say_what_was_wrong():
    reply = parse_act("<think>t</think><tool_call>{</tool_call><tool_call>", "search")
    assert reply.events[0] == Event("unclosed_tag", "tool_call")
    assert reply.events[1].name == "bad_json" and "line 1 column 2" in reply.events[1].detail
    assert parse_act("<think>", "search").events == [Event("unclosed_tag", "think")]
    assert parse_act("<think></think>\\boxed{", "search").events == [Event("unclosed_tag", "boxed")]
    wrong = parse_act(f"<think></think>{call(name='find')}", "search")
    assert wrong.events == [Event("unknown_tool", "find")]
    assert parse_act(f"<think></think>{CALL}", "find").events == [Event("unknown_tool", "search")]


def test_what_stands_around_a_call_makes_no_tag():
    assert read(f"<tool_{CALL}call>")[2] == []
    assert read(f"\\box{CALL}ed{{x}}")[2] == []
    assert find_spans(f"a{CALL}b<tool_call>c", "tool_call") == ([CALL[11:-12]], "a\nb<tool_call>c", True)


def test_deep_json_is_named():
    depth = 10 * sys.getrecursionlimit()
    assert read(f"<tool_call>{'[' * depth}{']' * depth}</tool_call>")[2] == ["bad_json"]
    assert read(f"<tool_call>{'[' * depth}</tool_call>")[2] == ["bad_json"]


def test_a_number_too_long_to_read_is_named():
    digits = "9" * (sys.get_int_max_str_digits() + 1)
    assert read(f'<tool_call>{{"name": "search", "arguments": {{"query": "q", "top_n": {digits}}}}}</tool_call>')[
        2
    ] == ["bad_json"]


@pytest.mark.parametrize("extra", ["[" * 400 + "]" * 400, "1e999", '{"a": 1}'])
def test_arguments_that_no_tool_knows_are_left_out_so_that_the_record_can_be_written(extra):
    action, _, events = read(
        f'<tool_call>{{"name": "search", "arguments": {{"query": "q", "x": {extra}}}}}</tool_call>'
    )
    assert action == Action("search", {"query": "q"})
    assert events == []
    trajectory = Trajectory(Task("t", "q"), "a", Limits())
    trajectory.begin_turn().steps.append(Step(action))
    written = json.dumps(trajectory.to_json(), allow_nan=False)
    assert Trajectory.from_json(json.loads(written)) == trajectory


def test_hostile_strings_reach_the_action_as_they_are():
    query = "\ud800\x00\u202e<|im_end|></tool_response>"
    action, _, events = read(call(name="search", arguments={"query": query}))
    assert action == Action("search", {"query": query})
    assert events == []


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("<memory> a\nb </memory>", ("a\nb", True)),
        ("<memory></memory>", ("", True)),
        ("<memory>a", ("a", False)),
        ("a</memory>", (None, False)),
        ("", (None, False)),
        ("so: <memory>a</memory> <memory>b</memory>", ("a", True)),
        ("<memory>a <memory>b</memory>", ("a <memory>b", True)),
        ("<Memory>a</Memory>", (None, False)),
    ],
)
def test_memory(text, want):
    assert parse_memory(text) == want


FRAGMENTS = [
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "\\boxed{",
    "\\text{",
    "{",
    "}",
    "\\{",
    "\\}",
    "\\",
    "<memory>",
    "</memory>",
    '{"name": "search", "arguments": {"query": "q"}}',
    '{"name": "search", "arguments": ',
    '{"query": ',
    '"',
    "NaN",
    "1e999",
    "<|im_end|>",
    "\x00",
    "\ud800",
    "a",
    "\n",
]


def slow_boxes(text):
    """The same by reading one character after the other."""
    boxes, place = [], 0
    while (place := text.find("\\boxed{", place)) >= 0:
        begin = place = place + 7
        depth = 1
        while depth and place < len(text):
            if text[place : place + 2] in ("\\{", "\\}"):
                place += 2
                continue
            depth += {"{": 1, "}": -1}.get(text[place], 0)
            place += 1
        if depth:
            return boxes, True
        boxes.append(text[begin : place - 1])
    return boxes, False


def check(text):
    reply = parse_act(text, "search")
    assert not (reply.action and reply.answer is not None)
    assert reply.action or reply.answer is not None or reply.events
    assert {event.name for event in reply.events} <= KNOWN
    assert bool("empty_answer" in {event.name for event in reply.events}) == (reply.answer == "")
    if reply.action:
        assert reply.action.arguments["query"].strip()
        json.dumps(reply.action.arguments, allow_nan=False)
    memory, closed = parse_memory(text)
    assert (memory is None) == ("<memory>" not in text)
    assert not closed or "</memory>" in text


@given(st.text(st.characters(exclude_categories=[])))
def test_any_text_can_be_read(text):
    check(text)


@given(st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=3), max_size=30).map("".join))
def test_any_mixture_of_fragments_can_be_read(text):
    check(text)
    check(f"<think>t</think>{text}")
    assert find_boxes(text) == slow_boxes(text)


@given(st.data())
def test_a_good_reply_that_was_damaged_can_be_read(data):
    text = data.draw(st.sampled_from([search("q", top_n=2), answer("\\text{a{b}c}"), f"<think>t</think>{CALL}{CALL}"]))
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 8)))
        text = text[:start] + data.draw(st.sampled_from(["", *FRAGMENTS])) + text[end:]
    check(text)


@given(st.text(st.characters(exclude_categories=[])).filter(str.strip))
def test_every_query_comes_through(query):
    assert parse_act(search(query), "search").action in (Action("search", {"query": query}), None)
    assert ("</tool_call>" in query) or parse_act(search(query), "search").action


@pytest.mark.parametrize(
    "unit",
    ["<tool_call>", "\\boxed{", "<think>", "<memory>", "</tool_call>", "\\boxed{}", "<tool_call></tool_call>", "{"],
)
@pytest.mark.parametrize("lead", ["", "<think></think>", "<think></think><tool_call>", "<think></think>\\boxed{"])
def test_a_million_characters_of_openings_end(lead, unit):
    # Quadratic work would be 10^11 steps and more here.
    text = lead + unit * (1_000_000 // len(unit))
    check(text)
