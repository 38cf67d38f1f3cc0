"""The agent, word for word, with a scripted model."""

import pytest

from memsearcher.agents.memsearcher import MemSearcher
from memsearcher.agents.protocol import Reply
from memsearcher.rollout import rollout
from memsearcher.trajectory import Action, Call, Event, Limits, Observation, Step, Task, Turn
from tests.scripted import ScriptedEngine, ScriptedEnvironment, answer, memory, names, passage, search

QUESTION = "What is the currency of the country whose capital is Vientiane?"
VIENTIANE = passage(1, "Vientiane is the capital of Laos.", "Laos", 2.5)
OTHER = passage(2, "Hanoi is the capital of Vietnam.", "Vietnam", 0.5)
KIP = passage(1, "The currency of Laos is the kip.", "Laos")
SYSTEM = (
    "You answer a question with the help of a search tool and a short memory. In each turn you see only the question "
    "and your memory of the turns before. First think inside <think> and </think>. Then do one of two things:\n"
    '- search: <tool_call>{"name": "search", "arguments": {"query": "what to look for"}}</tool_call>\n'
    "- answer, once the memory is enough: \\boxed{a few words}"
)
REWRITE = (
    "Rewrite your memory: keep what the question needs, add what is new. "
    "Write it inside <memory> and </memory>, and nothing else."
)


def play(script, books=None, question=QUESTION, golds=("kip",), **options):
    """One trajectory, with the engine and the environment that it was played on."""
    engine, environment = ScriptedEngine(script), ScriptedEnvironment(books)
    agent = MemSearcher(**{"limits": Limits(turns=3), **options})
    (trajectory,) = rollout(agent, environment, engine, [(Task("t", question, golds), 0)])
    return trajectory, engine, environment


def user(text):
    return {"role": "user", "content": text}


def said(text):
    return {"role": "assistant", "content": text}


def test_two_turns_that_succeed_word_for_word():
    fact = "Vientiane is the capital of Laos."
    script = [search("Vientiane"), memory(fact), search("currency of Laos"), memory(fact + " Kip."), answer("kip")]
    books = {"Vientiane": [VIENTIANE, OTHER], "currency of Laos": [KIP]}
    trajectory, engine, environment = play(script, books)

    system = {"role": "system", "content": SYSTEM}
    first, second, third = (talk.messages() for talk in trajectory.conversations)
    assert first == [
        system,
        user(f"<question>{QUESTION}</question>\n<memory></memory>"),
        said(script[0]),
        user(
            "<tool_response>\n[1] Laos\nVientiane is the capital of Laos.\n[2] Vietnam\nHanoi is the capital of "
            f"Vietnam.\n</tool_response>\n{REWRITE}"
        ),
        said(script[1]),
    ]
    assert second[:2] == [system, user(f"<question>{QUESTION}</question>\n<memory>{fact}</memory>")]
    shown = f"<question>{QUESTION}</question>\n<memory>{fact} Kip.</memory>"
    assert third == [system, user(f"{shown}\nThis is the last turn: answer in \\boxed{{}} now."), said(script[4])]

    query = Action("search", {"query": "Vientiane"})
    assert trajectory.turns[0] == Turn(
        "",
        fact,
        "Search.",
        [Call("act", 0, 8, "eos", None, None), Call("remember", 0, 14, "eos", None, None)],
        [Step(query, Observation(passages=(VIENTIANE, OTHER)))],
    )
    assert trajectory.turns[2] == Turn(fact + " Kip.", fact + " Kip.", "Known.", [Call("act", 2, 8, "eos", None, None)])
    assert trajectory.answer == "kip"
    assert trajectory.error is None
    assert [request.action for batch in environment.batches for request in batch] == trajectory.actions
    assert [(request.limit, request.stop) for request in engine.requests] == [
        (512, ("</tool_call>",)),
        (512, ("</memory>",)),
    ] * 2 + [(512, ("</tool_call>",))]


def test_parts_say_where_text_comes_from():
    trajectory, _, _ = play([search("Vientiane"), memory("m"), answer("kip")], {"Vientiane": [VIENTIANE, OTHER]})
    parts = [(each.part, each.limit, each.trained) for each in trajectory.conversations[0].segments]
    limits = Limits()
    assert parts == [
        ("system", None, False),
        ("system", None, False),
        ("system", None, False),
        ("instruction", None, False),
        ("question", limits.question_tokens, False),
        ("instruction", None, False),
        ("memory", 2 * limits.memory_tokens, False),
        ("instruction", None, False),
        ("reply", None, False),
        ("instruction", None, False),
        ("observation", limits.passage_tokens, False),
        ("instruction", None, False),
        ("observation", limits.passage_tokens, False),
        ("instruction", None, False),
        ("reply", None, False),
    ]


def test_passages_are_bounded():
    many = [passage(number, f"text {number}") for number in range(1, 9)]
    trajectory, _, _ = play(
        [search("all", top_n=100), memory("m"), answer("x")], {"all": many}, limits=Limits(turns=3, passages=2)
    )
    shown = [each.text for each in trajectory.conversations[0].segments if each.part == "observation"]
    assert shown == ["[1] Title\ntext 1", "[2] Title\ntext 2"]
    assert len(trajectory.turns[0].steps[0].observation.passages) == 8


def test_an_observation_without_passages():
    trajectory, _, _ = play([search("x"), memory("m"), answer("x")])
    assert (
        "<tool_response>\nNo passages found.\n</tool_response>" in trajectory.conversations[0].messages()[3]["content"]
    )
    (shown,) = [each for each in trajectory.conversations[0].segments if each.part == "observation"]
    assert shown.limit == Limits().passage_tokens


@pytest.mark.parametrize(
    ("policy", "after", "turns"),
    [("keep", "fact", 3), ("wipe", "", 3), ("end", "fact", 2)],
    ids=["keep", "wipe", "end"],
)
@pytest.mark.parametrize(("bad", "event"), [("no tags", "missing_memory"), ("<memory>open", "unclosed_memory")])
def test_the_policy_for_a_malformed_memory(policy, after, turns, bad, event):
    trajectory, engine, _ = play(
        [search("a"), memory("fact"), search("b"), bad, answer("kip")], limits=Limits(turns=3, on_bad_memory=policy)
    )
    assert names(trajectory) == [(2, event)]
    assert trajectory.turns[1].events == [Event(event, policy)]
    assert trajectory.turns[1].memory_before == "fact"
    assert trajectory.turns[1].memory_after == after
    assert len(trajectory.turns) == turns
    assert trajectory.answer == (None if policy == "end" else "kip")
    assert trajectory.error is None
    if policy != "end":
        assert f"<memory>{after}</memory>" in engine.requests[-1].conversation.messages()[1]["content"]


def test_a_memory_cut_at_its_limit_is_kept():
    cut = Reply("<memory> half of ", "length")
    for policy in ("keep", "wipe", "end"):
        trajectory, engine, _ = play(
            [search("a"), cut, answer("kip")], limits=Limits(turns=3, memory_tokens=9, on_bad_memory=policy)
        )
        assert trajectory.turns[0].events == [Event("memory_cut", "at 9 tokens")]
        assert trajectory.turns[0].memory_after == "half of"
        assert engine.requests[1].limit == 9
        assert trajectory.answer == "kip"


def test_a_memory_cut_before_its_tag_is_missing():
    trajectory, _, _ = play([search("a"), Reply("so", "length"), answer("kip")])
    assert names(trajectory) == [(1, "missing_memory")]


def test_a_call_cut_at_its_limit():
    cut = Reply("<think>on and on", "length")
    trajectory, engine, environment = play([cut, memory("m"), answer("kip")], limits=Limits(turns=3, call_tokens=7))
    assert trajectory.turns[0].events == [Event("call_cut", "at 7 tokens"), Event("unclosed_tag", "think")]
    assert trajectory.turns[0].thought == "on and on"
    assert engine.requests[0].limit == 7
    assert environment.batches == []
    assert trajectory.answer == "kip"


@pytest.mark.parametrize(
    ("bad", "event"),
    [
        ("<think>t</think><tool_call>{</tool_call>", "bad_json"),
        (search("x", tool="find"), "unknown_tool"),
        (search(""), "empty_query"),
        ("<think>t</think>Hm.", "no_action"),
    ],
)
def test_a_call_that_cannot_be_carried_out(bad, event):
    trajectory, _, environment = play([bad, memory("m"), answer("kip")])
    assert names(trajectory) == [(1, event)]
    assert environment.batches == []
    assert trajectory.turns[0].steps == []
    shown = trajectory.conversations[0].messages()[3]["content"]
    assert shown == (
        "<tool_response>\nThe turn could not be carried out. Either search, with one call in the form shown above, "
        f"or answer in \\boxed{{}}.\n</tool_response>\n{REWRITE}"
    )
    assert not any(each.part == "observation" for each in trajectory.conversations[0].segments)


def test_an_empty_answer_ends_the_attempt():
    trajectory, engine, _ = play([answer("")])
    assert trajectory.answer == ""
    assert names(trajectory) == [(1, "empty_answer")]
    assert len(engine.requests) == 1


def test_the_last_turn_is_announced_and_its_call_not_carried_out():
    trajectory, engine, environment = play([search("a"), memory("m"), search("b")], limits=Limits(turns=2))
    asked = [request.conversation.messages()[1]["content"].endswith("now.") for request in engine.requests]
    assert asked == [False, False, True]
    assert trajectory.answer is None
    assert trajectory.error is None
    assert trajectory.turns[1].events == [Event("turn_limit", "no answer within 2 turns")]
    assert trajectory.turns[1].steps == []
    assert len(environment.batches) == 1


def test_one_turn_is_the_last():
    trajectory, engine, _ = play([answer("kip")], limits=Limits(turns=1))
    assert engine.requests[0].conversation.messages()[1]["content"].endswith("now.")
    assert trajectory.answer == "kip"


def test_queries_that_come_twice_and_memories_that_stay():
    script = [search("a"), memory("m"), search("a"), memory("m"), search("a", top_n=1), memory("n"), answer("kip")]
    trajectory, _, environment = play(script, limits=Limits(turns=4))
    assert names(trajectory) == [(2, "duplicate_query"), (2, "memory_unchanged")]
    assert trajectory.turns[1].events[0].detail == "a"
    assert len(environment.batches) == 3


def test_a_memory_that_stays_without_a_search_is_no_event():
    trajectory, _, _ = play(["<think>t</think>", memory(""), answer("kip")])
    assert names(trajectory) == [(1, "no_action")]


@pytest.mark.parametrize("question", ["", " \n\t"])
def test_an_empty_question_is_an_error_on_the_record(question):
    trajectory, engine, _ = play([], question=question)
    assert trajectory.error == "ValueError: the question is empty"
    assert trajectory.turns == []
    assert engine.batches == []


def test_another_tool_and_another_name():
    trajectory, engine, _ = play([search("x", tool="look_up"), memory("m"), answer("x")], tool="look_up", name="mine")
    assert '{"name": "look_up"' in engine.requests[0].conversation.messages()[0]["content"]
    assert trajectory.actions == [Action("look_up", {"query": "x"})]
    assert trajectory.agent == "mine"


def test_prompts_of_a_folder(tmp_path):
    texts = {
        "system": "Use {tool}.",
        "turn": "{memory}|{question}",
        "last_turn": "{memory}|{question}!",
        "remember": "saw {observation}",
        "bad_call": "bad {observation}",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.txt").write_text(text)
    script = ["<think>t</think>", memory("{question}"), answer("x")]
    trajectory, _, _ = play(script, question="{memory}", prompts=tmp_path, limits=Limits(turns=2))
    assert trajectory.conversations[0].messages() == [
        {"role": "system", "content": "Use search."},
        user("|{memory}"),
        said(script[0]),
        user("saw bad {observation}"),
        said(script[1]),
    ]
    assert trajectory.conversations[1].messages()[1] == user("{question}|{memory}!")
    assert trajectory.provenance["prompts"] == str(tmp_path)
    assert trajectory.provenance["prompts_sha256"] != MemSearcher().fingerprint["prompts_sha256"]


def test_the_agent_is_bound_to_its_prompts():
    assert MemSearcher().fingerprint == MemSearcher().fingerprint
    assert set(MemSearcher().fingerprint) == {"prompts", "prompts_sha256", "tool"}
    assert MemSearcher(tool="find").fingerprint["tool"] == "find"
