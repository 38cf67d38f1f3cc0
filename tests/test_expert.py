"""The expert plays by the rules: it searches, notes what is not there, asks again, and answers."""

import pytest

from memsearcher.agents.memsearcher import MemSearcher
from memsearcher.agents.parsing import parse_act, parse_memory
from memsearcher.agents.tags import parse_tags
from memsearcher.assemble import make_agent
from memsearcher.engines.chat import ChatFormat
from memsearcher.environments.protocol import EnvironmentFailure
from memsearcher.objective_scoring import write_answers
from memsearcher.recipe import Recipe
from memsearcher.training.expert import HANDS, Expert, Step, _last, as_in, demonstrate
from memsearcher.training.warmstart import ends_right, examples
from memsearcher.trajectory import Limits, Task
from tests.scripted import ScriptedEnvironment, answer, names, passage
from tests.tagged import boxed, look, tell
from tests.tiny import tiny_tokenizer

CAPITAL = {
    "ask": "country whose capital is Vientiane",
    "relation": "capital^-1",
    "subject": "Vientiane",
    "answers": ["Laos"],
    "passage_id": "p1",
    "fact": "Vientiane is the capital of Laos.",
}
CURRENCY = {
    "ask": "currency of Laos",
    "relation": "currency",
    "subject": "Laos",
    "answers": ["kip", "Lao kip"],
    "passage_id": "p1",
    "fact": "The currency of Laos is the kip.",
}
BOOKS = {
    CAPITAL["ask"]: [passage(2, "Hanoi is the capital of Vietnam."), passage(1, "The capital of Laos is Vientiane.")],
    CURRENCY["ask"]: [passage(1, "In Laos people pay in kip.")],
}
CHAT = ChatFormat.from_tokenizer(tiny_tokenizer())
ROOMY = Limits(turns=6, context_tokens=100_000, history_tokens=10_000)
ALL = pytest.mark.parametrize("agent", HANDS)


def task(number=0, golds=("kip",), steps=(CAPITAL, CURRENCY)):
    return Task(f"t{number}", "What is the currency of the country?", golds, {"steps": list(steps)})


def demonstrations(books=BOOKS, tasks=None, expert=None, limits=None, tool="search", agent="memsearcher"):
    agent = make_agent(Recipe(agent=agent, limits=limits or ROOMY, tool=tool))
    return list(demonstrate(agent, ScriptedEnvironment(books), expert or Expert(tool=tool), CHAT, tasks or [task()]))


def queries(trajectory):
    return [action.arguments["query"] for action in trajectory.actions]


def replies(trajectory):
    return [
        (call.purpose, trajectory.conversations[call.conversation].segments[call.segment].text)
        for call in trajectory.calls
    ]


def test_word_for_word():
    (trajectory,) = demonstrations()
    assert replies(trajectory) == [
        (
            "act",
            "<think>I need the country whose capital is Vientiane.</think>\n"
            '<tool_call>{"name": "search", "arguments": {"query": "country whose capital is Vientiane"}}</tool_call>',
        ),
        ("remember", "<memory>Vientiane is the capital of Laos.</memory>"),
        (
            "act",
            "<think>Vientiane is the capital of Laos. I need the currency of Laos.</think>\n"
            '<tool_call>{"name": "search", "arguments": {"query": "currency of Laos"}}</tool_call>',
        ),
        ("remember", "<memory>Vientiane is the capital of Laos. The currency of Laos is the kip.</memory>"),
        ("act", "<think>The currency of Laos is the kip. That answers the question.</think>\n\\boxed{kip}"),
    ]
    assert trajectory.answer == "kip"
    assert trajectory.events == []
    assert trajectory.provenance["engine"] == "scripted expert"


FIRST, SECOND, THIRD = CAPITAL["fact"], CURRENCY["fact"], "That answers the question."
NEEDS = [f"I need the {step['ask']}." for step in (CAPITAL, CURRENCY)]


def called(query, thought):
    call = f'<tool_call>{{"name": "search", "arguments": {{"query": "{query}"}}}}</tool_call>'
    return f"<think>{thought}</think>\n{call}"


ASK, THEN = CAPITAL["ask"], CURRENCY["ask"]
TWO = f"{FIRST} {NEEDS[1]}"
END = f"{SECOND} {THIRD}"


@pytest.mark.parametrize(
    ("agent", "written"),
    [
        ("react", [look(ASK, NEEDS[0]), look(THEN, TWO), boxed("kip", END)]),
        ("search-r1", [look(ASK, NEEDS[0]), look(THEN, TWO), tell("kip", END)]),
        ("mem1", [look(ASK, NEEDS[0]), look(THEN, TWO), tell("kip", f"{FIRST} {END}")]),
        ("truncate", [called(ASK, NEEDS[0]), called(THEN, TWO), answer("kip", END)]),
        ("summarize", [called(ASK, NEEDS[0]), FIRST, called(THEN, TWO), f"{FIRST} {SECOND}", answer("kip", END)]),
    ],
)
def test_the_other_agents_word_for_word(agent, written):
    (trajectory,) = demonstrations(agent=agent)
    assert [text for _, text in replies(trajectory)] == written
    assert (trajectory.agent, trajectory.answer, trajectory.events) == (agent, "kip", [])


def test_a_thought_begins_with_the_note_that_stands_last():
    steps = [Step.of(each, careless=True, objective=number) for number, each in ((None, CAPITAL), (2, CURRENCY))]
    failed = f"{CURRENCY['subject']} - not found."
    for memory, last in (
        ("", ""),
        ("Nothing that was asked for.", ""),
        (f"{FIRST} {failed}", failed),
        (f"{failed} {FIRST}", FIRST),
        (f"{FIRST} {SECOND}", SECOND),
        (f"{FIRST.upper()}", FIRST.upper()),
        (f"{FIRST} (2) kip.", "(2) kip."),
    ):
        assert _last(steps, memory) == last


def test_a_note_that_is_not_shown_begins_no_thought():
    class Forgetful(MemSearcher):
        """Its memory never reaches the next turn."""

        def _context(self, task, memory, last):
            return super()._context(task, "", last)

    environment = ScriptedEnvironment(BOOKS)
    (trajectory,) = demonstrate(Forgetful(Limits(turns=3)), environment, Expert(), CHAT, [task()])
    thoughts = [text for purpose, text in replies(trajectory) if purpose == "act"]
    assert len(thoughts) == 3 and all(each.startswith(f"<think>{NEEDS[0]}") for each in thoughts)


@ALL
def test_in_every_format_it_asks_again_in_other_words(agent):
    books = {
        None: "No passages found.",
        "Vientiane capital": BOOKS[CAPITAL["ask"]],
        "currency Laos country": BOOKS[CURRENCY["ask"]],
    }
    (trajectory,) = demonstrations(books, agent=agent)
    assert queries(trajectory) == [
        CAPITAL["ask"],
        "Vientiane capital",
        CURRENCY["ask"],
        "Laos currency",
        "currency Laos country",
    ]
    assert (trajectory.answer, trajectory.events) == ("kip", [])


@ALL
def test_names_are_spelled_as_they_were_read(agent):
    """In capitals, as the Factbook writes surnames, wherever the agent's format has them."""
    head = {
        **CURRENCY,
        "ask": "head of government of Laos",
        "answers": ["Thongloun Sisoulith"],
        "fact": "The head of government of Laos is Thongloun Sisoulith.",
    }
    books = {**BOOKS, head["ask"]: [passage(1, "Prime Minister of Laos Thongloun SISOULITH, since 2016.")]}
    asked = [task(golds=("Thongloun Sisoulith", "Sisoulith"), steps=[CAPITAL, head])]
    (trajectory,) = demonstrations(books, asked, agent=agent)
    assert trajectory.answer == "Thongloun SISOULITH"
    assert queries(trajectory) == [CAPITAL["ask"], head["ask"]]
    written = " ".join(text for _, text in replies(trajectory))
    assert "Thongloun SISOULITH" in written and "Sisoulith" not in written
    assert len(examples([trajectory], 0)[0]) == len(trajectory.conversations)


def test_a_phrase_as_a_text_spells_it():
    assert as_in("the Euro, or euro (EUR)", "euro") == "euro"
    assert as_in("Taavi ROIVAS (since 2014)", "Taavi Roivas") == "Taavi ROIVAS"
    assert as_in("a+B (x)", "A+b") == "a+B"
    assert as_in("", "kip") == "kip"


def test_what_the_agent_cannot_see_it_does_not_know():
    """Two facts that the answer needs, and a history that holds no note: each is searched for again and again."""
    one = {**CURRENCY, "ask": "area of Laos", "answers": ["230"], "fact": "The area of Laos is 230."}
    other = {
        **CURRENCY,
        "ask": "area of Mali",
        "subject": "Mali",
        "answers": ["1240"],
        "fact": "The area of Mali is 1240.",
    }
    books = {"area of Laos": [passage(1, "230")], "area of Mali": [passage(1, "1240")]}
    asked = [task(steps=[one, other])]
    (short,) = demonstrations(books, asked, limits=Limits(turns=5, history_tokens=5), agent="truncate")
    assert queries(short) == ["area of Laos", "area of Mali", "area of Laos", "area of Mali"]
    assert short.answer is None
    (whole,) = demonstrations(books, asked, agent="truncate")
    assert queries(whole) == ["area of Laos", "area of Mali"]
    assert whole.answer == "kip"
    # A fact that a later one rests on is not needed any more.
    (chain,) = demonstrations(limits=Limits(turns=5, history_tokens=5), agent="truncate")
    assert (len(chain.actions), chain.answer) == (2, "kip")


def test_an_agent_whose_format_it_does_not_know():
    agent = MemSearcher(name="mine")
    with pytest.raises(KeyError, match="mine"):
        list(demonstrate(agent, ScriptedEnvironment(BOOKS), Expert(), CHAT, [task()]))


def test_it_notes_what_is_not_there_and_asks_in_other_words():
    books = {
        None: "No passages found.",
        "Vientiane capital": BOOKS[CAPITAL["ask"]],
        "currency Laos country": BOOKS[CURRENCY["ask"]],
    }
    (trajectory,) = demonstrations(books)
    assert queries(trajectory) == [
        CAPITAL["ask"],
        "Vientiane capital",
        CURRENCY["ask"],
        "Laos currency",
        "currency Laos country",
    ]
    assert trajectory.turns[-1].memory_before == (
        "country whose capital is Vientiane - not found. Vientiane is the capital of Laos. "
        "currency of Laos - not found. Laos currency - not found. The currency of Laos is the kip."
    )
    assert (trajectory.answer, trajectory.events) == ("kip", [])


@pytest.mark.parametrize(
    "found",
    [
        [passage(3, "Vientiane is in Laos.")],  # another passage
        [passage(1, "Vientiane is a city.")],  # the passage without its answer
        [passage(1, "Vientiane " + "and more " * 60 + " Laos")],  # cut before its answer
    ],
)
def test_it_believes_only_what_the_agent_is_shown(found):
    (trajectory,) = demonstrations({CAPITAL["ask"]: found}, limits=Limits(turns=2, passage_tokens=60))
    assert trajectory.turns[0].memory_after == "country whose capital is Vientiane - not found."


def test_passages_beyond_the_agents_limit_are_not_seen():
    (trajectory,) = demonstrations(limits=Limits(turns=2, passages=1))
    assert trajectory.turns[0].memory_after == "country whose capital is Vientiane - not found."


def test_it_ends_at_the_turn_limit_when_nothing_helps():
    (trajectory,) = demonstrations({})
    assert queries(trajectory) == [CAPITAL["ask"], "Vientiane capital", *["capital Vientiane country"] * 3]
    assert trajectory.answer is None
    assert {name for _, name in names(trajectory)} == {"duplicate_query", "turn_limit"}


def test_careless_steps_start_with_the_bare_name():
    (trajectory,) = demonstrations(expert=Expert(careless=1.0))
    assert queries(trajectory) == ["Vientiane", CAPITAL["ask"], "Laos", CURRENCY["ask"]]
    assert trajectory.answer == "kip"
    assert Step.of(CAPITAL, True).queries[1:] == Step.of(CAPITAL, False).queries


@pytest.mark.parametrize("agent", ["memsearcher", "summarize", "mem1"])
def test_a_frugal_expert_drops_what_is_used_up(agent):
    books = {"Vientiane": [], **BOOKS}
    (whole,) = demonstrations(books, expert=Expert(careless=1.0), agent=agent)
    (frugal,) = demonstrations(books, expert=Expert(careless=1.0, frugal=True), agent=agent)
    assert queries(frugal) == queries(whole) == ["Vientiane", CAPITAL["ask"], "Laos", CURRENCY["ask"]]
    assert frugal.answer == whole.answer == "kip"
    missed, used = "Vientiane - not found.", CAPITAL["fact"]
    assert all(sentence in replies(whole)[-2][1] for sentence in (missed, used))
    written = [text for purpose, text in replies(frugal) if purpose == "remember" or agent == "mem1"]
    assert any(missed in text for text in written) and any(used in text for text in written)
    assert missed not in written[-1] and used not in written[-1]
    assert CURRENCY["fact"] in written[-1]


def several(steps, *objectives):
    listed = [{"id": str(number), "question": "?", "golds": golds} for number, golds in enumerate(objectives)]
    golds = write_answers([golds[0] for golds in objectives])
    return Task("t", "1. What? 2. What?", (golds,), {"steps": steps, "objectives": listed})


@pytest.mark.parametrize("agent", ["memsearcher", "summarize", "mem1"])
def test_a_frugal_expert_keeps_number_and_answer_of_what_answers_a_question(agent):
    both = several([CAPITAL, CURRENCY], CAPITAL["answers"], CURRENCY["answers"])
    (trajectory,) = demonstrations(tasks=[both], expert=Expert(frugal=True), agent=agent)
    written = [text for purpose, text in replies(trajectory) if purpose == "remember" or agent == "mem1"]
    assert "(1) Laos. (2) kip." in written[-1]
    assert CAPITAL["fact"] not in written[-1] and CURRENCY["fact"] not in written[-1]
    assert len(queries(trajectory)) == 2
    assert trajectory.answer == "Laos; kip"
    (whole,) = demonstrations(tasks=[both], agent=agent)
    assert all(each["fact"] in " ".join(text for _, text in replies(whole)) for each in (CAPITAL, CURRENCY))


def test_a_fact_that_answers_two_questions_is_found_once():
    twice = several([CURRENCY, CAPITAL, CURRENCY], CURRENCY["answers"], CAPITAL["answers"], CURRENCY["answers"])
    (trajectory,) = demonstrations(tasks=[twice], expert=Expert(frugal=True))
    assert replies(trajectory)[-2][1] == "<memory>(1) kip. (3) kip. (2) Laos.</memory>"
    assert trajectory.answer == "kip; Laos; kip"


def test_a_fact_that_also_leads_to_another_stays_whole():
    lead = several([CAPITAL, CAPITAL, CURRENCY], CAPITAL["answers"], CURRENCY["answers"])
    (trajectory,) = demonstrations(tasks=[lead], expert=Expert(frugal=True))
    assert replies(trajectory)[-2][1] == f"<memory>{CAPITAL['fact']} (2) kip.</memory>"
    assert len(queries(trajectory)) == 2


def test_questions_that_no_fact_answers_have_no_number():
    odd = several([CAPITAL, CURRENCY], ["yes"], CURRENCY["answers"])
    (trajectory,) = demonstrations(tasks=[odd], expert=Expert(frugal=True))
    assert replies(trajectory)[-2][1] == f"<memory>{CURRENCY['fact']}</memory>"


def test_which_steps_are_careless_follows_from_the_task():
    many = [task(number) for number in range(40)]

    def firsts(order):
        return {each.id: queries(each)[0] for each in demonstrations(tasks=order, expert=Expert(careless=0.5))}

    chosen = firsts(many)
    assert chosen == firsts(many[::-1])
    assert 10 < sum(query == "Vientiane" for query in chosen.values()) < 30


@ALL
def test_a_wordy_expert_answers_with_the_fact(agent):
    (trajectory,) = demonstrations(expert=Expert(wordy=1.0), agent=agent)
    assert trajectory.answer == CURRENCY["fact"] and ends_right(trajectory)
    (terse,) = demonstrations(agent=agent)
    assert terse.answer == "kip" and ends_right(terse)
    assert replies(trajectory)[:-1] == replies(terse)[:-1]


def test_a_wordy_expert_is_brief_where_the_last_fact_is_not_the_answer():
    yes = task(golds=("yes",))
    (trajectory,) = demonstrations(tasks=[yes], expert=Expert(wordy=1.0))
    assert trajectory.answer == "yes" and ends_right(trajectory)


def test_the_fact_of_an_earlier_step_is_no_right_answer():
    (trajectory,) = demonstrations()
    trajectory.answer = CAPITAL["fact"]
    assert not ends_right(trajectory)


def test_who_is_answered_in_a_sentence_follows_from_the_task():
    many = [task(number) for number in range(40)]

    def wordy(order):
        played = demonstrations(tasks=order, expert=Expert(wordy=0.5, careless=0.5))
        return {each.task.id for each in played if each.answer == CURRENCY["fact"]}

    assert wordy(many) == wordy(many[::-1])
    assert 10 < len(wordy(many)) < 30


@ALL
@pytest.mark.parametrize("careless", [0.0, 0.3, 1.0])
@pytest.mark.parametrize(
    "books", [BOOKS, {}, {"Vientiane capital": BOOKS[CAPITAL["ask"]]}], ids=["all", "none", "some"]
)
def test_every_reply_is_well_formed(books, careless, agent):
    for trajectory in demonstrations(books, [task(number) for number in range(8)], Expert(careless), agent=agent):
        for purpose, text in replies(trajectory):
            if purpose == "act":
                tagged = agent in ("react", "search-r1", "mem1")
                reply = parse_tags(text, "search", agent == "react") if tagged else parse_act(text, "search")
                assert reply.events == []
                assert reply.thought
            elif agent == "memsearcher":
                assert parse_memory(text)[1]
            else:
                assert text


def test_another_tool():
    (trajectory,) = demonstrations(tool="look_up")
    assert (trajectory.answer, trajectory.events) == ("kip", [])
    assert {action.name for action in trajectory.actions} == {"look_up"}


def test_quotes_and_letters_come_through():
    step = {**CURRENCY, "ask": 'anthem "Pheng Xat Lāo"'}
    (trajectory,) = demonstrations({step["ask"]: BOOKS[CURRENCY["ask"]]}, [task(steps=[step])])
    assert queries(trajectory) == ['anthem "Pheng Xat Lāo"']
    assert "Lāo" in replies(trajectory)[0][1]
    assert trajectory.answer == "kip"


def test_a_search_that_fails_is_that_demonstrations_error():
    books = {**BOOKS, CAPITAL["ask"]: EnvironmentFailure("no index")}
    good = task(1, steps=[CURRENCY])
    ended = {each.task.id: each.error for each in demonstrations(books, [task(0), good])}
    assert ended == {"t0": "EnvironmentFailure: no index", "t1": None}


@ALL
def test_loss_is_on_the_experts_own_tokens_and_on_no_others(agent):
    (trajectory,) = demonstrations(agent=agent)
    rows, counts = examples([trajectory], seed=0)
    assert len(rows) == counts["conversations"] == (1 if agent in ("react", "search-r1") else 3)
    assert counts["tokens"] == sum(len(row["input_ids"]) for row in rows)
    by_ids = {tuple(talk.token_ids): talk for talk in trajectory.conversations}
    own = 0
    for row in rows:
        assert row["attention_mask"] == [1] * len(row["input_ids"])
        want = []
        for segment in by_ids[tuple(row["input_ids"])].segments:
            want += segment.token_ids if segment.trained else [-100] * len(segment.token_ids)
        assert row["labels"] == want
        own += sum(label != -100 for label in want)
        # The end token is learned too, and what is learned spells the replies.
        assert CHAT.end_id in row["labels"]
    assert counts["trained_tokens"] == own == sum(call.sampled_tokens for call in trajectory.calls)


def test_what_ends_wrong_is_left_out_and_counted():
    wrong = task(1, golds=("dong",), steps=[CURRENCY])
    wrong_answer = Task("t9", "q", ("kip",), {"steps": [CAPITAL]})
    books = {**BOOKS, CAPITAL["ask"]: EnvironmentFailure("no index")}
    played = demonstrations(books, [task(0), wrong, wrong_answer])
    limited = demonstrations({}, [task(2)])
    for each in played:
        if each.task.id == "t1":
            each.answer = "kip"  # not the gold
    rows, counts = examples([*played, *limited, *demonstrations(tasks=[task(3)])], seed=0)
    assert (counts["trajectories"], counts["right"], counts["failed"], counts["conversations"]) == (5, 1, 2, 3)
    assert len(rows) == 3


def test_rows_are_shuffled_by_the_seed():
    played = demonstrations(tasks=[task(number) for number in range(6)], expert=Expert(0.5))
    assert examples(played, 1) == examples(played, 1)
    assert examples(played, 1)[0] != examples(played, 2)[0]
    assert sorted(map(str, examples(played, 1)[0])) == sorted(map(str, examples(played, 2)[0]))


def test_nothing_right_gives_no_rows():
    rows, counts = examples([], 0)
    assert rows == []
    assert set(counts.values()) == {0}
