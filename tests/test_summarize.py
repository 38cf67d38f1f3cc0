"""Summarize, word for word, with a scripted model."""

import pytest

from memsearcher.agents.protocol import Reply
from memsearcher.agents.summarize import Summarize
from memsearcher.engines.chat import ChatFormat
from memsearcher.rollout import rollout
from memsearcher.trajectory import Call, Event, Limits, Task
from tests.scripted import ScriptedEngine, ScriptedEnvironment, answer, names, passage, search
from tests.tiny import tiny_tokenizer

QUESTION = "What is the currency of the country whose capital is Vientiane?"
LAOS = passage(1, "Vientiane is the capital of Laos.", "Laos", 2.5)
CHAT = ChatFormat.from_tokenizer(tiny_tokenizer())
ASK = "Summarize everything that happened so far. The summary takes its place."


def play(script, question=QUESTION, chat=None, **options):
    """One trajectory, with the engine and the environment that it was played on."""
    engine, environment = ScriptedEngine(script, chat), ScriptedEnvironment({"Vientiane": [LAOS]})
    agent = Summarize(**{"limits": Limits(turns=3), **options})
    (trajectory,) = rollout(agent, environment, engine, [(Task("t", question, ("kip",)), 0)])
    return trajectory, engine, environment


def user(text):
    return {"role": "user", "content": text}


def said(text):
    return {"role": "assistant", "content": text}


def test_two_turns_that_succeed_word_for_word():
    script = [search("Vientiane"), " It is Laos.\n", "Hm.", "Still Laos.", answer("kip")]
    trajectory, engine, _ = play(script)
    first, second, third = (talk.messages()[1:] for talk in trajectory.conversations)
    assert first == [
        user(f"<question>{QUESTION}</question>\n<summary></summary>"),
        said(script[0]),
        user(f"<tool_response>\n[1] Laos\nVientiane is the capital of Laos.\n</tool_response>\n{ASK}"),
        said(script[1]),
    ]
    invalid = "Either search, with one call in the form shown above, or answer in \\boxed{}."
    assert second == [
        user(f"<question>{QUESTION}</question>\n<summary>It is Laos.</summary>"),
        said("Hm."),
        user(f"<tool_response>\nThe turn could not be carried out. {invalid}\n</tool_response>\n{ASK}"),
        said("Still Laos."),
    ]
    last = "\nThis is the last turn: answer in \\boxed{} now."
    assert third == [user(f"<question>{QUESTION}</question>\n<summary>Still Laos.</summary>{last}"), said(script[4])]
    assert [(turn.memory_before, turn.memory_after) for turn in trajectory.turns] == [
        ("", "It is Laos."),
        ("It is Laos.", "Still Laos."),
        ("Still Laos.", "Still Laos."),
    ]
    assert list(trajectory.calls)[:2] == [
        Call("act", 0, 8, "eos", None, None),
        Call("remember", 0, 12, "eos", None, None),
    ]
    assert trajectory.answer == "kip"
    assert names(trajectory) == [(2, "no_thought"), (2, "no_action")]
    assert [(request.limit, request.stop) for request in engine.requests[:2]] == [(512, ("</tool_call>",)), (512, ())]


@pytest.mark.parametrize(
    ("policy", "after", "turns"), [("keep", "fact", 3), ("wipe", "", 3), ("end", "", 2)], ids=["keep", "wipe", "end"]
)
def test_the_policy_for_an_empty_summary(policy, after, turns):
    trajectory, _, _ = play(
        [search("a"), "fact", search("b"), " \n", answer("kip")], limits=Limits(turns=3, on_bad_memory=policy)
    )
    assert trajectory.turns[1].events == [Event("missing_memory", policy)]
    assert (trajectory.turns[1].memory_before, trajectory.turns[1].memory_after) == ("fact", after)
    assert len(trajectory.turns) == turns
    assert trajectory.answer == (None if policy == "end" else "kip")


def test_a_summary_cut_at_its_limit_is_kept():
    trajectory, engine, _ = play(
        [search("a"), Reply("half of", "length"), answer("kip")], limits=Limits(turns=3, memory_tokens=9)
    )
    assert trajectory.turns[0].events == [Event("memory_cut", "at 9 tokens")]
    assert trajectory.turns[0].memory_after == "half of"
    assert engine.requests[1].limit == 9


def test_tokens():
    trajectory, _, _ = play([search("Vientiane"), "It is Laos.", answer("kip")], chat=CHAT)
    first, second = trajectory.conversations
    act, remember, final = trajectory.calls
    assert trajectory.context_tokens == [len(first.token_ids), len(second.token_ids)]
    assert trajectory.peak_tokens == len(first.token_ids)
    observed = sum(len(each.token_ids) for each in first.segments if each.part == "observation")
    start = act.context_tokens + act.sampled_tokens + observed
    assert trajectory.react_tokens == [start, start + final.sampled_tokens]
    assert remember.context_tokens + remember.sampled_tokens == len(first.token_ids)


def test_limits_and_oddities_are_as_memsearchers():
    trajectory, _, environment = play([search("a"), "m", search("a"), "m", search("b")])
    assert names(trajectory) == [(2, "duplicate_query"), (3, "turn_limit")]
    assert len(environment.batches) == 2
    assert (trajectory.answer, trajectory.error) == (None, None)
    trajectory, _, _ = play([], question="")
    assert trajectory.error == "ValueError: the question is empty"
