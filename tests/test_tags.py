"""What a reply in tags says, and the name of everything that is wrong with it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memsearcher.agents.tags import parse_tags
from memsearcher.trajectory import Action
from tests.tagged import boxed, look, tell

SEARCH = "<search>q</search>"
KNOWN = {
    "no_thought",
    "unclosed_tag",
    "several_calls",
    "answer_and_call",
    "empty_query",
    "empty_answer",
    "missing_box",
    "no_action",
}


def read(text, in_a_box=False):
    """(query, answer, names of the events) of a reply that thinks first."""
    reply = parse_tags(f"<think>t</think>{text}", "search", in_a_box)
    assert reply.thought == "t"
    return reply.action and reply.action.arguments["query"], reply.answer, [event.name for event in reply.events]


def test_a_search_and_an_answer():
    reply = parse_tags(look(" capital of Laos\n", " I need it.\n"), "look_up")
    assert (reply.thought, reply.action) == ("I need it.", Action("look_up", {"query": "capital of Laos"}))
    assert (reply.answer, reply.events) == (None, [])
    reply = parse_tags(tell(" Vientiane "), "search")
    assert (reply.thought, reply.action, reply.answer, reply.events) == ("Known.", None, "Vientiane", [])
    assert parse_tags(boxed("\\text{Kip}"), "search", boxed=True).answer == "Kip"


@pytest.mark.parametrize(
    ("text", "query", "said", "events"),
    [
        ("", None, None, ["no_action"]),
        ("I do not know.", None, None, ["no_action"]),
        ("</search>", None, None, ["no_action"]),
        ("\\boxed{x}", None, None, ["no_action"]),
        ("<search>", None, None, ["unclosed_tag"]),
        ("<search>q", None, None, ["unclosed_tag"]),
        ("<answer>x", None, None, ["unclosed_tag"]),
        ("<search></search>", None, None, ["empty_query"]),
        ("<search> \n</search>", None, None, ["empty_query"]),
        ("<answer> </answer>", None, "", ["empty_answer"]),
        (SEARCH + "<search>r</search>", "q", None, ["several_calls"]),
        ("<answer>x</answer>" + SEARCH, "q", None, ["answer_and_call"]),
        ("<answer>x" + SEARCH + "y</answer>", "q", None, ["answer_and_call"]),
        (SEARCH + "<answer>x", "q", None, ["unclosed_tag"]),
        ("<answer>x</answer><search>q", None, "x", ["unclosed_tag"]),
        ("<answer>x</answer><answer>y</answer>", None, "y", []),
        ("<search>C++ vs C#</search>", "C++ vs C#", None, []),
        ("<search>!!!</search>", "!!!", None, []),
        ("<sear" + SEARCH + "ch>", "q", None, []),
        ("<Search>q</Search>", None, None, ["no_action"]),
    ],
)
def test_every_oddity(text, query, said, events):
    assert read(text) == (query, said, events)


@pytest.mark.parametrize(
    ("text", "thought", "query", "events"),
    [
        # The query starts at the search, not at the tag that the thought speaks of.
        ("<think>use <search> to look</think><search>capital</search>", "use <search> to look", "capital", []),
        ("Well. <think>use <search> to look</think><search>q</search>", "use <search> to look", "q", ["no_thought"]),
        ("<think>Paris <answer>x</answer></think><search>q</search>", "Paris <answer>x</answer>", "q", []),
        ("<think>a <search>q</search>", "a <search>q</search>", None, ["unclosed_tag"]),
        ("<think>a</think><think><search>r</search></think><search>q</search>", "a\n<search>r</search>", "q", []),
        ("<think>a</think><search>q</search><think>b", "a\nb", "q", ["unclosed_tag"]),
        ("<search>q</search>", None, "q", ["no_thought"]),
        ("t</think><search>q</search>", None, "q", ["no_thought"]),
        ("", None, None, ["no_thought", "no_action"]),
        ("\n <think></think><search>q</search>", "", "q", []),
    ],
)
def test_the_thought(text, thought, query, events):
    reply = parse_tags(text, "search")
    assert reply.thought == thought
    assert (reply.action and reply.action.arguments["query"]) == query
    assert [event.name for event in reply.events] == events


@pytest.mark.parametrize(
    ("text", "said", "events"),
    [
        ("<answer>It is \\boxed{kip}.</answer>", "kip", []),
        ("<answer>\\boxed{a} or \\boxed{b}</answer>", "b", []),
        ("<answer> kip </answer>", "kip", ["missing_box"]),
        ("<answer></answer>", "", ["missing_box", "empty_answer"]),
        ("<answer>\\boxed{}</answer>", "", ["empty_answer"]),
        ("<answer>\\boxed{kip</answer>", None, ["unclosed_tag"]),
        ("<answer>\\boxed{a}\\boxed{b</answer>", "a", ["unclosed_tag"]),
        ("\\boxed{kip}", None, ["no_action"]),
    ],
)
def test_the_box(text, said, events):
    assert read(text, in_a_box=True) == (None, said, events)


FRAGMENTS = [
    "<think>",
    "</think>",
    "<search>",
    "</search>",
    "<answer>",
    "</answer>",
    "\\boxed{",
    "}",
    "{",
    "q",
    " ",
    "\n",
]
FRAGMENTS += ["<result>", "</information>", "<|im_end|>", "\x00", "\ud800"]


def check(text):
    for in_a_box in (False, True):
        reply = parse_tags(text, "search", in_a_box)
        assert not (reply.action and reply.answer is not None)
        assert reply.action or reply.answer is not None or reply.events
        assert {event.name for event in reply.events} <= KNOWN
        assert ("empty_answer" in {event.name for event in reply.events}) == (reply.answer == "")
        assert (reply.thought is None) == ("<think>" not in text)
        if reply.action:
            assert reply.action.arguments["query"].strip()
            json.dumps(reply.action.arguments)


@given(st.text(st.characters(exclude_categories=[])) | st.lists(st.sampled_from(FRAGMENTS), max_size=30).map("".join))
def test_any_text_can_be_read(text):
    check(text)
    check(f"<think>t</think>{text}")


@given(st.text(st.characters(exclude_categories=[]), min_size=1).filter(lambda text: text.strip() and "<" not in text))
def test_every_query_comes_through(query):
    assert parse_tags(look(query), "search").action == Action("search", {"query": query.strip()})


@pytest.mark.parametrize(
    "unit", ["<search>", "<answer>", "<think>", "</search>", "<think></think>", "\\boxed{", "<search></search>"]
)
def test_a_million_characters_of_openings_end(unit):
    for lead in ("", "<think></think>", "<think></think><answer>"):
        check(lead + unit * (1_000_000 // len(unit)))
