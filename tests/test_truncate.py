"""Truncate, word for word, with a scripted model."""

import pytest

from memsearcher.agents.truncate import Truncate
from memsearcher.engines.chat import ChatFormat
from memsearcher.engines.encoding import cut_front
from memsearcher.engines.openai import CHARACTERS_PER_TOKEN, OpenAIEngine
from memsearcher.rollout import rollout
from memsearcher.trajectory import Conversation, Event, Limits, Segment, Task
from tests.scripted import ScriptedEngine, ScriptedEnvironment, answer, names, passage, search
from tests.tiny import tiny_tokenizer

QUESTION = "What is the currency of the country whose capital is Vientiane?"
LAOS = passage(1, "Vientiane is the capital of Laos.", "Laos", 2.5)
CHAT = ChatFormat.from_tokenizer(tiny_tokenizer())
FOUND = "\n<tool_response>\n[1] Laos\nVientiane is the capital of Laos.\n</tool_response>"
NOTHING = "\n<tool_response>\nNo passages found.\n</tool_response>"
INVALID = (
    "\nThe turn could not be carried out. Either search, with one call in the form shown above, or answer in \\boxed{}."
)
LAST = "\nThis is the last turn: answer in \\boxed{} now."


def play(script, question=QUESTION, chat=None, books=None, **options):
    """One trajectory, with the engine and the environment that it was played on."""
    engine, environment = ScriptedEngine(script, chat), ScriptedEnvironment(books or {"Vientiane": [LAOS]})
    agent = Truncate(**{"limits": Limits(turns=4), **options})
    (trajectory,) = rollout(agent, environment, engine, [(Task("t", question, ("kip",)), 0)])
    return trajectory, engine, environment


def shown(trajectory):
    """The user's message of each turn, behind the question."""
    contents = [talk.messages()[1]["content"] for talk in trajectory.conversations]
    assert all(content.startswith(f"<question>{QUESTION}</question>\n<history>") for content in contents)
    return [content.partition("\n<history>")[2] for content in contents]


def test_the_history_grows_word_for_word():
    script = [search("Vientiane"), "Hm.", search("Laos"), answer("kip")]
    trajectory, engine, _ = play(script)
    assert shown(trajectory) == [
        "</history>",
        f"{script[0]}</history>{FOUND}",
        f"{script[0]}{FOUND}\nHm.</history>{INVALID}",
        f"{script[0]}{FOUND}\nHm.{INVALID}\n{script[2]}</history>{NOTHING}{LAST}",
    ]
    assert [(call.purpose, call.conversation) for call in trajectory.calls] == [("act", number) for number in range(4)]
    assert [(turn.memory_before, turn.memory_after) for turn in trajectory.turns] == [(None, None)] * 4
    assert (trajectory.answer, trajectory.error) == ("kip", None)
    assert names(trajectory) == [(2, "no_thought"), (2, "no_action")]
    assert {(request.limit, request.stop) for request in engine.requests} == {(512, ("</tool_call>",))}


def test_only_the_last_tokens_of_the_history_are_shown_and_the_question_always():
    script = [search("Vientiane"), search("a"), search("b"), answer("kip")]
    whole, _, _ = play(script, chat=CHAT)
    trajectory, _, _ = play(script, chat=CHAT, limits=Limits(turns=4, history_tokens=60))
    for number in range(4):
        (part,) = [each for each in trajectory.conversations[number].segments if each.part == "history"]
        (full,) = [each for each in whole.conversations[number].segments if each.part == "history"]
        assert len(part.token_ids) <= 60
        assert full.text.endswith(part.text)
        assert part.dropped > 0 or part.text == full.text
        question = [each.text for each in trajectory.conversations[number].segments if each.part == "question"]
        assert question == [QUESTION]
    assert [name for _, name in names(trajectory)] == ["history_cut"] * 3
    dropped = [each.dropped for talk in trajectory.conversations for each in talk.segments if each.part == "history"]
    assert trajectory.turns[2].events == [Event("history_cut", f"{dropped[2]} tokens left out")]
    assert whole.events == []
    assert trajectory.peak_tokens < whole.peak_tokens


def test_passages_go_into_the_history_as_far_as_they_were_read():
    limits = Limits(turns=4, passage_tokens=20)
    trajectory, _, _ = play(
        [search("x"), search("y"), answer("kip")], chat=CHAT, books={"x": [passage(1, "word " * 99)]}, limits=limits
    )
    (read,) = [each for each in trajectory.conversations[1].segments if each.part == "observation"]
    assert (len(read.token_ids), read.dropped > 0) == (20, True)
    assert f"\n<tool_response>\n{read.text}\n</tool_response>\n" in shown(trajectory)[2]
    assert len(shown(trajectory)[2]) < 400


def test_tokens():
    trajectory, _, _ = play([search("Vientiane"), "Hm.", search("b"), answer("kip")], chat=CHAT)
    sizes = [len(talk.token_ids) for talk in trajectory.conversations]
    assert trajectory.context_tokens == sizes
    assert trajectory.peak_tokens == sizes[-1]
    expected = [sizes[0]]
    for talk in trajectory.conversations[1:]:
        new = [each for each in talk.segments if each.part in ("observation", "reply")]
        expected.append(expected[-1] + sum(len(each.token_ids) for each in new))
    assert trajectory.react_tokens == expected
    short, _, _ = play(
        [search("Vientiane"), "Hm.", search("b"), answer("kip")], chat=CHAT, limits=Limits(4, history_tokens=9)
    )
    assert short.react_tokens == expected  # what was cut was there


def test_limits_and_oddities_are_as_memsearchers():
    trajectory, _, environment = play([search("a"), search("a"), search("b")], limits=Limits(turns=3))
    assert names(trajectory) == [(2, "duplicate_query"), (3, "turn_limit")]
    assert len(environment.batches) == 2
    assert (trajectory.answer, trajectory.error) == (None, None)
    trajectory, _, _ = play([], question="")
    assert trajectory.error == "ValueError: the question is empty"
    trajectory, engine, _ = play([search("x", tool="look_up"), answer("kip")], tool="look_up")
    assert '{"name": "look_up"' in engine.requests[0].conversation.messages()[0]["content"]
    assert trajectory.actions[0].name == "look_up"


@pytest.mark.parametrize("limit", range(0, 12))
def test_a_history_is_cut_at_its_front_and_never_through_a_character(limit):
    text = "capital é 日本 end"
    ids, text = CHAT.encoder.outside(text)
    kept, left = cut_front(CHAT.encoder, list(ids), text, limit)
    assert len(kept) <= limit
    assert ids[len(ids) - len(kept) :] == kept
    assert text.endswith(left)
    assert CHAT.encoder.decode(kept) == left
    # No more than a character is lost beyond the limit.
    assert len(kept) >= min(limit, len(ids)) - 2
    assert cut_front(CHAT.encoder, list(ids), text, len(ids)) == (ids, text)


def test_a_server_without_a_tokenizer_gets_the_end_of_the_history_by_characters():
    engine = OpenAIEngine("http://127.0.0.1:9/v1", "m")
    parts = [Segment("user", part, "a" * 40 + "b" * 40, limit=5) for part in ("history", "observation")]
    engine._prepare(Conversation(parts))
    engine.close()
    assert [each.text for each in parts] == ["b" * 5 * CHARACTERS_PER_TOKEN, "a" * 5 * CHARACTERS_PER_TOKEN]
    assert [each.dropped for each in parts] == [15, 15]
