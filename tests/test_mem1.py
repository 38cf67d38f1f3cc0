"""MEM1, word for word, with a scripted model."""

import pytest

from memsearcher.agents.mem1 import MEM1
from memsearcher.agents.protocol import Reply
from memsearcher.engines.chat import ChatFormat
from memsearcher.rollout import rollout
from memsearcher.trajectory import Event, Limits, Task
from tests.scripted import ScriptedEngine, ScriptedEnvironment, names, passage
from tests.tagged import look, stopped, tell
from tests.tiny import tiny_tokenizer

QUESTION = "What is the currency of the country whose capital is Vientiane?"
LAOS = passage(1, "Vientiane is the capital of Laos.", "Laos", 2.5)
CHAT = ChatFormat.from_tokenizer(tiny_tokenizer())
INVALID = (
    "The turn could not be carried out. Either search inside <search> and </search>, "
    "or answer inside <answer> and </answer>."
)
LAST = "\nThis is the last turn: answer inside <answer> and </answer> now."


def play(script, question=QUESTION, chat=None, **options):
    """One trajectory, with the engine and the environment that it was played on."""
    engine, environment = ScriptedEngine(script, chat), ScriptedEnvironment({"Vientiane": [LAOS]})
    agent = MEM1(**{"limits": Limits(turns=4), **options})
    (trajectory,) = rollout(agent, environment, engine, [(Task("t", question, ("kip",)), 0)])
    return trajectory, engine, environment


def user(text):
    return {"role": "user", "content": text}


def said(text):
    return {"role": "assistant", "content": text}


def test_each_turn_sees_the_task_the_last_state_and_action_and_what_came_back():
    script = [look("Vientiane", "Start."), look("Laos kip", "It is Laos."), tell("kip", "Laos; kip.")]
    trajectory, engine, _ = play(script, limits=Limits(turns=3))
    first, second, third = (talk.messages() for talk in trajectory.conversations)
    question = user(f"<question>{QUESTION}</question>")
    assert "<information> and </information>" in first[0]["content"]
    assert first[1:] == [question, said(script[0])]
    found = "<information>\n[1] Laos\nVientiane is the capital of Laos.\n</information>\nTurns left: 2."
    assert second[1:] == [question, said(script[0]), user(found), said(script[1])]
    nothing = f"<information>\nNo passages found.\n</information>{LAST}"
    assert third[1:] == [question, said(script[1]), user(nothing), said(script[2])]
    assert [(turn.memory_before, turn.memory_after) for turn in trajectory.turns] == [
        ("", "Start."),
        ("Start.", "It is Laos."),
        ("It is Laos.", "Laos; kip."),
    ]
    assert [turn.thought for turn in trajectory.turns] == [turn.memory_after for turn in trajectory.turns]
    assert [(call.purpose, call.conversation) for call in trajectory.calls] == [("act", 0), ("act", 1), ("act", 2)]
    assert (trajectory.answer, trajectory.error, trajectory.events) == ("kip", None, [])
    assert {(request.limit, request.stop) for request in engine.requests} == {(512, ("</search>", "</answer>"))}


@pytest.mark.parametrize("finish", ["stop", "eos"])
def test_the_last_reply_is_carried_over_token_by_token_and_not_trained_again(finish):
    texts = iter([look("Vientiane", "Start."), look("b", "It is Laos."), tell("kip")])
    trajectory, _, _ = play(lambda request: stopped(CHAT, request, next(texts), finish), chat=CHAT)
    for before, after in zip(trajectory.conversations, trajectory.conversations[1:], strict=False):
        (sampled,) = [each for each in before.segments if each.trained]
        carried, own = [each for each in after.segments if each.part == "reply"]
        assert carried.token_ids == sampled.token_ids
        assert carried.token_ids is not sampled.token_ids
        assert (carried.role, carried.text, carried.trained, carried.logprobs) == (
            "assistant",
            sampled.text,
            False,
            None,
        )
        assert own.trained
        assert after.token_ids.count(CHAT.end_id) == len(after.messages()) - (finish == "stop")
    # The second turn goes on where the first one ended.
    first, second = (talk.token_ids for talk in trajectory.conversations[:2])
    assert second[: len(first)] == first


def test_tokens():
    script = [look("Vientiane"), "Hm.", look("b"), tell("kip")]
    trajectory, _, _ = play(script, chat=CHAT)
    sizes = [len(talk.token_ids) for talk in trajectory.conversations]
    assert trajectory.context_tokens == sizes
    assert trajectory.peak_tokens == max(sizes)
    # As one history: the first prompt, then each reply and each observation once; the states shown again are not.
    observed = [
        sum(len(each.token_ids) for each in talk.segments if each.part == "observation")
        for talk in trajectory.conversations
    ]
    replies = [len(talk.segments[-1].token_ids) for talk in trajectory.conversations]
    assert observed[0] == observed[2] == 0 < observed[1]
    expected = [sizes[0]]
    for number in (1, 2, 3):
        expected.append(expected[-1] + observed[number] + replies[number])
    assert trajectory.react_tokens == expected


def test_an_invalid_action_gets_a_text_an_event_and_the_hint():
    trajectory, _, environment = play(["<think>state</think>Hm.", tell("kip")])
    assert names(trajectory) == [(1, "no_action")]
    assert environment.batches == []
    assert trajectory.conversations[1].messages()[2:4] == [
        said("<think>state</think>Hm."),
        user(f"<information>\n{INVALID}\n</information>\nTurns left: 3."),
    ]


@pytest.mark.parametrize(
    ("policy", "after", "carried", "turns"),
    [("keep", "It is Laos.", 1, 3), ("wipe", "", None, 3), ("end", "It is Laos.", None, 2)],
    ids=["keep", "wipe", "end"],
)
def test_the_policy_for_a_reply_without_a_state(policy, after, carried, turns):
    script = [look("Vientiane", "It is Laos."), "<search>kip</search>", tell("kip")]
    trajectory, _, _ = play(script, limits=Limits(turns=4, on_bad_memory=policy))
    assert names(trajectory)[:2] == [(2, "no_thought"), (2, "missing_memory")]
    assert trajectory.turns[1].events[1].detail == policy
    assert (trajectory.turns[1].memory_before, trajectory.turns[1].memory_after) == ("It is Laos.", after)
    assert len(trajectory.turns) == turns
    assert trajectory.answer == (None if policy == "end" else "kip")
    assert trajectory.error is None
    if policy != "end":
        messages = trajectory.conversations[2].messages()[1:-1]
        found = "<information>\nNo passages found.\n</information>\nTurns left: 2."
        question = f"<question>{QUESTION}</question>"
        assert messages == (
            [user(question), said(script[0]), user(found)] if policy == "keep" else [user(question + found)]
        )


def test_a_first_reply_without_a_state_leaves_nothing_to_carry():
    trajectory, _, _ = play(["<search>Vientiane</search>", tell("kip")])
    assert trajectory.turns[0].memory_after == ""
    assert [each["role"] for each in trajectory.conversations[1].messages()] == ["system", "user", "assistant"]


def test_a_state_cut_at_its_limit_is_kept():
    trajectory, _, _ = play([Reply("<think>half of", "length"), tell("kip")], limits=Limits(turns=3, call_tokens=7))
    assert trajectory.turns[0].events == [Event("call_cut", "at 7 tokens"), Event("unclosed_tag", "think")]
    assert trajectory.turns[0].memory_after == "half of"
    assert trajectory.conversations[1].messages()[2] == said("<think>half of")


def test_a_search_at_the_last_turn_is_not_carried_out_and_queries_that_come_twice_are_named():
    trajectory, _, environment = play([look("a"), look("a"), look("b")], limits=Limits(turns=3))
    assert names(trajectory) == [(2, "duplicate_query"), (3, "turn_limit")]
    assert len(environment.batches) == 2
    assert trajectory.answer is None


def test_one_turn_is_the_last():
    trajectory, _, _ = play([tell("kip")], limits=Limits(turns=1))
    assert trajectory.conversations[0].messages()[1] == user(f"<question>{QUESTION}</question>{LAST}")


def test_an_answer_without_a_state_counts():
    trajectory, _, _ = play(["<answer>kip</answer>"])
    assert (trajectory.answer, names(trajectory)) == ("kip", [(1, "no_thought"), (1, "missing_memory")])


def test_an_empty_question_is_an_error_on_the_record():
    trajectory, engine, _ = play([], question=" ")
    assert trajectory.error == "ValueError: the question is empty"
    assert engine.batches == []
