"""ReAct, word for word in both dialects, with a scripted model."""

import pytest

from memsearcher.agents.protocol import Reply
from memsearcher.agents.react import RESEARCH, SEARCH_R1, Dialect, ReAct
from memsearcher.engines.chat import ChatFormat
from memsearcher.rollout import rollout
from memsearcher.trajectory import Action, Call, Event, Limits, Observation, Step, Task, Turn
from tests.scripted import ScriptedEngine, ScriptedEnvironment, names, passage
from tests.tagged import boxed, look, stopped, tell
from tests.tiny import tiny_tokenizer

QUESTION = "What is the currency of the country whose capital is Vientiane?"
LAOS = passage(1, "Vientiane is the capital of Laos.", "Laos", 2.5)
HANOI = passage(2, "Hanoi is the capital of Vietnam.", "Vietnam", 0.5)
BOOKS = {"Vientiane": [LAOS, HANOI]}
CHAT = ChatFormat.from_tokenizer(tiny_tokenizer())
STOPS = ("</search>", "</answer>")
INVALID = (
    "The turn could not be carried out. Either search inside <search> and </search>, "
    "or answer inside <answer> and </answer>."
)


def play(script, books=BOOKS, question=QUESTION, chat=None, **options):
    """One trajectory, with the engine and the environment that it was played on."""
    engine, environment = ScriptedEngine(script, chat), ScriptedEnvironment(books)
    agent = ReAct(**{"limits": Limits(turns=4), **options})
    (trajectory,) = rollout(agent, environment, engine, [(Task("t", question, ("kip",)), 0)])
    return trajectory, engine, environment


def user(text):
    return {"role": "user", "content": text}


def said(text):
    return {"role": "assistant", "content": text}


@pytest.mark.parametrize(
    ("dialect", "tag", "first", "second", "final"),
    [
        (
            RESEARCH,
            "result",
            "[1] Laos\nVientiane is the capital of Laos.",
            "[2] Vietnam\nHanoi is the capital of Vietnam.",
            boxed("kip"),
        ),
        (
            SEARCH_R1,
            "information",
            'Doc 1(Title: "Laos") Vientiane is the capital of Laos.',
            'Doc 2(Title: "Vietnam") Hanoi is the capital of Vietnam.',
            tell("kip"),
        ),
    ],
    ids=["react", "search-r1"],
)
def test_three_turns_word_for_word(dialect, tag, first, second, final):
    script = [look("Vientiane"), look("kip"), final]
    trajectory, engine, environment = play(script, dialect=dialect)
    (talk,) = trajectory.conversations
    system, *rest = talk.messages()
    assert system["role"] == "system"
    assert f"<{tag}> and </{tag}>" in system["content"]
    assert rest == [
        user(f"<question>{QUESTION}</question>"),
        said(script[0]),
        user(f"<{tag}>\n{first}\n{second}\n</{tag}>"),
        said(script[1]),
        user(f"<{tag}>\nNo passages found.\n</{tag}>"),
        said(final),
    ]
    assert trajectory.turns[0] == Turn(
        None,
        None,
        "Search.",
        [Call("act", 0, 4, "eos", None, None)],
        [Step(Action("search", {"query": "Vientiane"}), Observation(passages=(LAOS, HANOI)))],
    )
    assert (trajectory.answer, trajectory.error, trajectory.events) == ("kip", None, [])
    assert trajectory.agent == dialect.name
    assert [request.action for batch in environment.batches for request in batch] == trajectory.actions
    assert [(request.limit, request.stop) for request in engine.requests] == [(512, STOPS)] * 3


def test_the_dialects_are_data():
    assert {each.name: each.context_tokens for each in (RESEARCH, SEARCH_R1)} == {"react": 8192, "search-r1": 4096}
    assert ReAct(dialect=SEARCH_R1).fingerprint["prompts"] == "search-r1"
    mine = Dialect("mine", "{title}: {text}", boxed=False, context_tokens=100_000)
    trajectory, _, _ = play([look("Vientiane"), tell("kip")], dialect=mine, prompts="search-r1", tool="look_up")
    assert trajectory.agent == "mine"
    assert trajectory.actions == [Action("look_up", {"query": "Vientiane"})]
    shown = [each.text for each in trajectory.conversations[0].segments if each.part == "observation"]
    assert shown == ["Laos: Vientiane is the capital of Laos.", "Vietnam: Hanoi is the capital of Vietnam."]


def test_an_answer_without_its_box_is_taken_and_named():
    trajectory, _, _ = play([tell("kip")])
    assert (trajectory.answer, names(trajectory)) == ("kip", [(1, "missing_box")])
    trajectory, _, _ = play([tell("kip")], dialect=SEARCH_R1)
    assert (trajectory.answer, names(trajectory)) == ("kip", [])


def test_the_context_only_grows_and_sampled_tokens_stay_as_they_were():
    texts = iter([look("Vientiane"), "Hm.", look("Laos"), boxed("kip")])
    finishes = iter(["stop", "eos", "stop", "stop"])
    contexts, replies = [], []

    def script(request):
        contexts.append(request.conversation.token_ids)
        replies.append(stopped(CHAT, request, next(texts), next(finishes)))
        return replies[-1]

    trajectory, _, _ = play(script, chat=CHAT)
    (talk,) = trajectory.conversations
    ids = talk.token_ids
    for context, reply in zip(contexts, replies, strict=True):
        assert ids[: len(context)] == context
        assert ids[len(context) : len(context) + len(reply.token_ids)] == reply.token_ids
    assert [each.token_ids for each in talk.segments if each.trained] == [each.token_ids for each in replies]
    assert sum(talk.loss_mask) == sum(len(each.token_ids) for each in replies)
    # Each message is ended once, by the model or by the template.
    assert ids.count(CHAT.end_id) == len(talk.messages()) - 1
    assert trajectory.answer == "kip"


@pytest.mark.parametrize("dialect", [RESEARCH, SEARCH_R1], ids=["react", "search-r1"])
def test_tokens_are_those_of_its_own_context(dialect):
    trajectory, _, _ = play([look("Vientiane"), "Hm.", look("kip"), boxed("kip")], chat=CHAT, dialect=dialect)
    ids = trajectory.conversations[0].token_ids
    ends = [call.context_tokens + call.sampled_tokens for call in trajectory.calls]
    assert ends == sorted(ends)
    assert ends[-1] == len(ids) == trajectory.peak_tokens
    assert trajectory.context_tokens == trajectory.react_tokens == ends


def test_each_passage_is_cut_on_its_own_and_the_tag_is_closed():
    long = [passage(number, "word " * 400) for number in (1, 2, 3)]
    limits = Limits(turns=3, passages=2, passage_tokens=30)
    trajectory, _, _ = play([look("x"), boxed("kip")], {"x": long}, limits=limits, chat=CHAT)
    shown = [each for each in trajectory.conversations[0].segments if each.part == "observation"]
    assert [len(each.token_ids) for each in shown] == [30, 30]
    content = trajectory.conversations[0].messages()[3]["content"]
    assert content.startswith("<result>\n[1] Title\nword") and content.endswith("\n</result>")
    assert names(trajectory) == [(2, "passage_cut"), (2, "passage_cut")]


@pytest.mark.parametrize(
    ("bad", "event"),
    [
        ("<think>t</think>Hm.", "no_action"),
        (look(" "), "empty_query"),
        ("<think>t</think><search>q", "unclosed_tag"),
        ("<think>t <search>q</search>", "unclosed_tag"),
        (Reply("<think>t</think><search>q", "length"), "call_cut"),
    ],
)
def test_an_invalid_action_gets_a_text_and_an_event(bad, event):
    trajectory, _, environment = play([bad, boxed("kip")])
    assert event in [name for _, name in names(trajectory)]
    assert environment.batches == []
    assert trajectory.turns[0].steps == []
    assert trajectory.conversations[0].messages()[3] == user(INVALID)
    assert trajectory.answer == "kip"


def test_a_query_that_comes_twice():
    trajectory, _, environment = play([look("a"), look("a"), boxed("kip")])
    assert trajectory.turns[1].events == [Event("duplicate_query", "a")]
    assert len(environment.batches) == 2


def test_an_action_that_brings_something_else_each_time_is_no_duplicate():
    class Pages(ScriptedEnvironment):
        def act(self, requests):
            self.books[None] = f"Page {len(self.batches) + 1}."
            return super().act(requests)

    agent, engine = ReAct(Limits(turns=4)), ScriptedEngine([look("Next >"), look("Next >"), boxed("kip")])
    (trajectory,) = rollout(agent, Pages(), engine, [(Task("t", QUESTION, ("kip",)), 0)])
    assert trajectory.events == []


def test_the_last_turn_is_announced_and_its_search_not_carried_out():
    trajectory, engine, environment = play([look("a"), look("b")], limits=Limits(turns=2))
    (talk,) = trajectory.conversations
    assert talk.messages()[1]["content"] == f"<question>{QUESTION}</question>"
    assert talk.messages()[3]["content"].endswith(
        "</result>\nThis is the last turn: answer in <answer>\\boxed{}</answer> now."
    )
    assert trajectory.answer is None
    assert trajectory.error is None
    assert trajectory.turns[1].events == [Event("turn_limit", "no answer within 2 turns")]
    assert len(environment.batches) == 1
    assert len(engine.requests) == 2


def test_one_turn_is_the_last():
    trajectory, _, _ = play([boxed("kip")], limits=Limits(turns=1))
    assert (
        trajectory.conversations[0]
        .messages()[1]["content"]
        .endswith("</question>\nThis is the last turn: answer in <answer>\\boxed{}</answer> now.")
    )
    assert trajectory.answer == "kip"


@pytest.mark.parametrize("question", ["", " \n\t"])
def test_an_empty_question_is_an_error_on_the_record(question):
    trajectory, engine, _ = play([], question=question)
    assert trajectory.error == "ValueError: the question is empty"
    assert (trajectory.turns, trajectory.conversations, engine.batches) == ([], [], [])


def counted(sizes, texts):
    """Replies as an engine gives them that only counts: (context, sampled) tokens of each call."""
    return [Reply(text, "stop", None, None, *size) for text, size in zip(texts, sizes, strict=True)]


LIMITS = Limits(turns=9, call_tokens=100, passages=2, passage_tokens=50, context_tokens=2000)
SHOWN = 2 * 51
BARE = 100 + 64 + len("<result>\n{observation}\n</result>") + len(INVALID)
BARE += len("\nThis is the last turn: answer in <answer>\\boxed{}</answer> now.")
MUST, NONE = Event("context_limit", "the next turn must answer"), Event("context_limit", "no answer")


@pytest.mark.parametrize(
    ("room", "told", "searches"),
    [
        (SHOWN + 2 * BARE, False, 1),
        (SHOWN + 2 * BARE - 1, True, 1),
        (SHOWN + BARE, True, 1),
        (SHOWN + BARE - 1, True, 0),
        (BARE, True, 0),
    ],
)
def test_the_answer_is_asked_for_while_there_is_room_for_it(room, told, searches):
    replies = counted([(2000 - room - 9, 9), (1990, 9)], [look("a"), boxed("kip")])
    trajectory, engine, environment = play(replies, limits=LIMITS)
    shown = engine.requests[1].conversation.messages()[3]["content"]
    assert shown.endswith("now.") == told
    assert shown.startswith("<result>" if searches else INVALID)
    assert trajectory.turns[0].events == ([MUST] if told else [])
    assert trajectory.turns[1].events == []
    assert trajectory.answer == "kip"
    assert len(trajectory.actions) == len(environment.batches) == searches


def test_who_was_told_to_answer_and_searches_ends_without_an_answer():
    replies = counted([(2000 - SHOWN - BARE - 9, 9), (1900, 9)], [look("a"), look("b")])
    trajectory, _, environment = play(replies, limits=LIMITS)
    assert (trajectory.answer, trajectory.error) == (None, None)
    assert [turn.events for turn in trajectory.turns] == [[MUST], [NONE]]
    assert len(environment.batches) == 1


def test_a_context_without_room_for_an_answer_ends_with_an_event():
    trajectory, _, environment = play(counted([(2000 - BARE - 8, 9)], [look("a")]), limits=LIMITS)
    assert trajectory.turns[0].events == [NONE]
    assert (trajectory.answer, trajectory.error, environment.batches) == (None, None, [])


def test_an_answer_is_taken_however_full_the_context_is():
    trajectory, _, _ = play(counted([(5000, 9)], [boxed("kip")]), limits=LIMITS)
    assert (trajectory.answer, trajectory.events) == ("kip", [])


def test_both_limits_at_once():
    replies = counted([(2000 - SHOWN - BARE - 9, 9), (1900, 9)], [look("a"), look("b")])
    trajectory, _, _ = play(replies, limits=Limits(2, 100, passages=2, passage_tokens=50, context_tokens=2000))
    assert names(trajectory) == [(1, "context_limit"), (2, "turn_limit")]


@pytest.mark.parametrize(("dialect", "limit"), [(RESEARCH, 8192), (SEARCH_R1, 4096)], ids=["react", "search-r1"])
def test_without_a_limit_the_dialects_own_holds(dialect, limit):
    ends = {}
    for used in (limit - 3500, limit - 600):
        trajectory, _, _ = play(counted([(used, 9), (used, 9)], [look("a"), tell("kip")]), dialect=dialect)
        ends[limit - used] = [event.detail for _, event in trajectory.events if event.name == "context_limit"]
    assert ends == {3500: [], 600: ["no answer"]}


def test_what_is_not_counted_has_no_limit():
    trajectory, _, _ = play([look("a"), look("b"), boxed("kip")], limits=Limits(turns=3, context_tokens=1))
    assert names(trajectory) == []


@pytest.mark.parametrize("limit", [700, 1100, 1500, 2500])
@pytest.mark.parametrize("words", [1, 30])
def test_the_context_never_passes_its_limit_and_keeps_the_question(limit, words):
    found = [passage(number, "word " * 40) for number in (1, 2)]
    limits = Limits(turns=40, call_tokens=60, passages=2, passage_tokens=40, context_tokens=limit)
    numbers = iter(range(100))
    trajectory, engine, _ = play(
        lambda _: look(f"{next(numbers)}", "why " * words), {None: found}, "Who?", CHAT, limits=limits
    )
    assert trajectory.error is None
    assert trajectory.peak_tokens <= limit
    assert trajectory.events[-1] == (len(trajectory.turns), NONE)
    assert len(trajectory.turns) < 40
    assert all("<question>Who?</question>" in each.conversation.messages()[1]["content"] for each in engine.requests)
