"""Many agents at once: in lockstep, each with its own luck."""

import hashlib
from dataclasses import dataclass, field, replace

import pytest

from memsearcher.agents.memsearcher import MemSearcher
from memsearcher.agents.protocol import Act, Generate, Reply
from memsearcher.engines.chat import ChatFormat
from memsearcher.engines.protocol import EngineFailure, Sampling
from memsearcher.engines.transformers import TransformersEngine
from memsearcher.environments.protocol import EnvironmentFailure
from memsearcher.rollout import Episode, call_seed, describe, drive, rollout
from memsearcher.trajectory import Action, Conversation, Event, Limits, Segment, Step, Task, Trajectory
from tests.scripted import ScriptedEngine, ScriptedEnvironment, answer, memory, names, passage, search
from tests.tiny import tiny_model, tiny_tokenizer


@dataclass
class Counter:
    """Asks as often as its question says, in one growing conversation, then answers."""

    name: str = "counter"
    limits: Limits = field(default_factory=Limits)
    fingerprint: dict = field(default_factory=lambda: {"agent": "counter"})

    def play(self, trajectory):
        talk = trajectory.converse(Conversation.start([], [Segment("user", "question", trajectory.task.question)]))
        for _ in range(int(trajectory.task.question)):
            trajectory.begin_turn()
            reply = yield from Generate(talk, 5)
            if reply.text == "act":
                yield from Act(Action("look", {"query": trajectory.task.question}))
            if reply.text == "break":
                raise RuntimeError("the agent broke") from ValueError("its cause")
            talk.tell([Segment("user", "instruction", "on")])
        trajectory.answer = "done"


def tasks(*calls):
    return [(Task(f"t{number}", str(count)), 0) for number, count in enumerate(calls)]


def run(engine, attempts, agent=None, environment=None, **options):
    return list(rollout(agent or Counter(), environment or ScriptedEnvironment(), engine, attempts, **options))


def test_all_pending_calls_are_one_batch_and_finished_episodes_leave():
    engine = ScriptedEngine(lambda request: "x")
    ended = run(engine, tasks(1, 3, 2), width=3)
    assert [len(batch) for batch in engine.batches] == [3, 2, 1]
    assert [each.task.id for each in ended] == ["t0", "t2", "t1"]


def test_the_batch_is_refilled():
    engine = ScriptedEngine(lambda request: "x")
    ended = run(engine, tasks(1, 3, 2, 0, 1, 1), width=2)
    assert [len(batch) for batch in engine.batches] == [2, 2, 2, 1, 1]
    assert [each.task.id for each in ended] == ["t0", "t1", "t2", "t3", "t4", "t5"]


def test_actions_are_one_batch_too():
    environment = ScriptedEnvironment()
    engine = ScriptedEngine(lambda request: "act")
    run(engine, tasks(2, 2, 1), environment=environment)
    assert [[request.episode for request in batch] for batch in environment.batches] == [
        ["t0#0", "t1#0", "t2#0"],
        ["t0#0", "t1#0"],
    ]
    assert environment.batches[0][0].task.id == "t0"


def test_attempts_are_read_as_they_are_needed():
    taken = []

    def stream():
        for task, sample in tasks(*[1] * 10):
            taken.append(task.id)
            yield task, sample

    running = rollout(Counter(), ScriptedEnvironment(), ScriptedEngine(lambda request: "x"), stream(), width=2)
    next(running)
    assert taken == ["t0", "t1"]
    running.close()


@pytest.mark.parametrize("width", [0, -1])
def test_a_width_that_holds_nobody_is_refused(width):
    with pytest.raises(ValueError, match="width is how many episodes are at work at once, at least 1"):
        run(ScriptedEngine([]), tasks(1), width=width)


def test_no_attempts():
    assert run(ScriptedEngine([]), []) == []


@pytest.mark.parametrize("what", ["agent", "engine", "environment"])
def test_one_failure_is_nobody_elses(what):
    cause = ConnectionError("gone")
    failure = EngineFailure("the server is down")
    failure.__cause__ = cause

    def script(request):
        mine = request.conversation.segments[0].text == "3"
        return {"agent": "break", "engine": failure, "environment": "act"}[what] if mine else "x"

    environment = ScriptedEnvironment({"3": EnvironmentFailure("no index")})
    ended = run(ScriptedEngine(script), tasks(2, 3, 2), environment=environment)
    errors = {each.task.question: each.error for each in ended}
    want = {
        "agent": "RuntimeError: the agent broke <- ValueError: its cause",
        "engine": "EngineFailure: the server is down <- ConnectionError: gone",
        "environment": "EnvironmentFailure: no index",
    }
    assert errors == {"2": None, "3": want[what]}
    broken = next(each for each in ended if each.error)
    assert broken.answer is None
    assert broken.seconds is not None
    assert sum(each.answer == "done" for each in ended) == 2


def test_an_action_that_failed_is_on_the_record_without_an_observation():
    agent = MemSearcher(Limits(turns=2))
    environment = ScriptedEnvironment({"a": EnvironmentFailure("no index")})
    (trajectory,) = run(ScriptedEngine([search("a")]), tasks(1), agent, environment)
    assert trajectory.turns[0].steps == [Step(Action("search", {"query": "a"}), None)]
    assert trajectory.error == "EnvironmentFailure: no index"


class Careless(Counter):
    """Breaks the protocol in one way or another, where its question says so."""

    def play(self, trajectory):
        talk = Conversation.start([], [Segment("user", "question", "q")])
        match trajectory.task.question:
            case "not on record":
                trajectory.begin_turn()
                yield from Generate(talk, 5)
            case "an equal one on record":
                trajectory.converse(Conversation.start([], [Segment("user", "question", "q")]))
                trajectory.begin_turn()
                yield from Generate(talk, 5)
            case "no turn":
                yield from Generate(trajectory.converse(talk), 5)
            case "a wish":
                yield "a wish"
            case "before it starts":
                raise KeyError("steps")
        trajectory.answer = "done"


@pytest.mark.parametrize(
    ("question", "error"),
    [
        ("not on record", "ValueError: the agent asked about a conversation that it did not put on its record"),
        (
            "an equal one on record",
            "ValueError: the agent asked about a conversation that it did not put on its record",
        ),
        ("no turn", "IndexError"),
        ("a wish", "TypeError: the agent yielded 'a wish'; it can ask for Generate and Act only"),
        ("before it starts", "KeyError: 'steps'"),
    ],
)
def test_an_agent_that_breaks_the_protocol_fails_alone(question, error):
    attempts = [(Task("bad", question), 0), (Task("good", "fine"), 0)]
    bad, good = run(ScriptedEngine(lambda request: "x"), attempts, Careless())
    if bad.task.id == "good":
        bad, good = good, bad
    assert bad.error.startswith(error)
    assert bad.answer is None
    assert (good.error, good.answer) == (None, "done")


def test_ctrl_c_keeps_what_was_yielded():
    def script(request):
        if request.conversation.segments[0].text == "3" and len(engine.batches) == 3:
            raise KeyboardInterrupt
        return "x"

    engine = ScriptedEngine(script)
    kept = []
    with pytest.raises(KeyboardInterrupt):
        for each in rollout(Counter(), ScriptedEnvironment(), engine, tasks(1, 2, 3)):
            kept.append(each)  # noqa: PERF402
    assert [each.task.id for each in kept] == ["t0", "t1"]
    assert all(each.answer == "done" for each in kept)


def test_seeds_are_stable():
    want = int.from_bytes(hashlib.sha256(b"7\0t0#0\0001").digest()[:8], "big") >> 1
    assert call_seed(7, "t0#0", 1) == want
    assert 0 <= want < 2**63
    assert call_seed(0, "\ud800", 0) == call_seed(0, "\ud800", 0)
    assert len({call_seed(s, t, c) for s in (0, 1) for t in ("a#0", "a#1") for c in (0, 1)}) == 8


def test_seeds_depend_on_task_attempt_and_call_alone():
    def seeds(attempts, **options):
        engine = ScriptedEngine(lambda request: "x")
        run(engine, attempts, seed=5, **options)
        return {(request.conversation.segments[0].text, request.seed) for request in engine.requests}

    alone = seeds(tasks(1, 2, 3)[1:2])
    assert alone == {("2", call_seed(5, "t1#0", 0)), ("2", call_seed(5, "t1#0", 1))}
    assert alone <= seeds(tasks(1, 2, 3), width=1)
    assert seeds(tasks(1, 2, 3), width=1) == seeds(tasks(1, 2, 3)[::-1], width=8)


def test_greedy_unless_told_otherwise():
    engine = ScriptedEngine(lambda request: "x")
    run(engine, tasks(1))
    run(engine, tasks(1), sampling=Sampling(0.5))
    assert engine.samplings == [Sampling(0.0), Sampling(0.5)]


def test_the_record_is_bound_to_what_made_it():
    first, second = run(ScriptedEngine(lambda request: "x"), [(Task("t", "1"), 0), (Task("t", "1"), 1)], seed=3)
    assert first.provenance == {"agent": "counter", "engine": "scripted", "environment": "scripted"}
    assert (first.agent, first.seed, first.sample, second.sample) == ("counter", 3, 0, 1)
    assert (first.id, second.id) == ("t#0", "t#1")
    first.provenance["mine"] = "x"
    assert "mine" not in second.provenance


def test_a_reply_is_recorded_as_it_came():
    reply = Reply("x", "length", [1, 2], [-0.1, -0.2], 10, 2)
    (trajectory,) = run(ScriptedEngine([reply, "y"]), tasks(2))
    segments = trajectory.conversations[0].segments
    assert segments[1] == Segment("assistant", "reply", "x", [1, 2], [-0.1, -0.2], trained=True)
    assert segments[3] == Segment("assistant", "reply", "y")
    calls = list(trajectory.calls)
    assert [(call.segment, call.finish, call.context_tokens, call.sampled_tokens) for call in calls] == [
        (1, "length", 10, 2),
        (3, "eos", None, None),
    ]


def test_cuts_are_events():
    chat = ChatFormat.from_tokenizer(tiny_tokenizer())
    limits = Limits(turns=3, question_tokens=4, passage_tokens=3, memory_tokens=2)
    books = {"a": [passage(1, "a long text about nothing"), passage(2, "and another one")]}
    engine = ScriptedEngine([search("a"), memory("a very long memory of all that was read"), answer("x")], chat)
    (trajectory,) = run(
        engine, [(Task("t", "a question of many words"), 0)], MemSearcher(limits), ScriptedEnvironment(books)
    )
    assert names(trajectory) == [
        (1, "question_cut"),
        (1, "passage_cut"),
        (1, "passage_cut"),
        (2, "question_cut"),
        (2, "memory_cut"),
    ]
    for talk in trajectory.conversations:
        for segment in talk.segments:
            if segment.part in ("question", "observation", "memory"):
                assert len(segment.token_ids) <= segment.limit
                whole, _ = chat.encoder.outside(segment.text)
                assert whole == segment.token_ids
    cut = trajectory.conversations[0].segments
    dropped = next(each.dropped for each in cut if each.part == "question")
    assert trajectory.turns[0].events[0] == Event("question_cut", f"{dropped} tokens left out")


class Growing(Counter):
    """One conversation over several turns, as ReAct's."""

    def play(self, trajectory):
        question = Segment("user", "question", trajectory.task.question, limit=2)
        talk = trajectory.converse(Conversation.start([], [question]))
        for _ in range(3):
            trajectory.begin_turn()
            yield from Generate(talk, 5)
            talk.tell([Segment("user", "observation", "a long text about nothing", limit=2)])


def test_a_cut_is_told_once_in_a_conversation_that_goes_on():
    chat = ChatFormat.from_tokenizer(tiny_tokenizer())
    (trajectory,) = run(ScriptedEngine(lambda request: "x", chat), [(Task("t", "a long question"), 0)], Growing())
    assert names(trajectory) == [(1, "question_cut"), (2, "passage_cut"), (3, "passage_cut")]


def test_an_episode_by_hand():
    episode = Episode(Counter(), Task("t", "1"), seed=2)
    assert episode.request.seed == call_seed(2, "t#0", 0)
    episode.send(Reply("x", "eos"))
    assert episode.pending is None
    assert episode.trajectory.answer == "done"
    assert episode.trajectory.seconds >= 0


def test_drive_takes_any_way_to_answer():
    def say(asking):
        for episode in asking:
            episode.send(Reply("x", "eos"))

    ended = drive((Episode(Counter(), task) for task, _ in tasks(2, 1)), say, ScriptedEnvironment(), 2)
    assert [each.task.id for each in ended] == ["t1", "t0"]


def test_errors_with_their_causes():
    error = RuntimeError("a")
    error.__cause__ = ValueError("b")
    error.__cause__.__cause__ = KeyError("c")
    assert describe(error) == "RuntimeError: a <- ValueError: b <- KeyError: 'c'"


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_width_does_not_change_what_is_played(temperature):
    """A real model of random weights: its words are nonsense, so `Babble` searches with them."""
    engine = TransformersEngine(tiny_model(), tiny_tokenizer(), batch_size=5)
    attempts = [(Task(f"t{number}", f"What is {'the capital of ' * number}Rome?"), number % 2) for number in range(6)]
    environment = ScriptedEnvironment({None: [passage(1, "the capital of Italy is Rome")]})

    def play(width, order):
        ended = rollout(Babble(), environment, engine, order, sampling=Sampling(temperature), seed=11, width=width)
        return {each.id: stripped(each) for each in ended}

    one, eight = play(1, attempts), play(8, attempts[::-1])
    assert one.keys() == eight.keys()
    for key, each in one.items():
        other = eight[key]
        assert each.error is None
        ids = [talk.token_ids for talk in each.conversations]
        assert ids == [talk.token_ids for talk in other.conversations]
        for ours, theirs in zip(logprobs(each), logprobs(other), strict=True):
            assert ours == pytest.approx(theirs, abs=1e-4)
        assert [turn.steps for turn in each.turns] == [turn.steps for turn in other.turns]
        assert Trajectory.from_json(each.to_json()) == each
    replies = {each.conversations[0].segments[-1].text for each in one.values()}
    assert len(replies) > 3


class Babble(Counter):
    """Three turns of two calls; what the model wrote is its query and then its memory."""

    def play(self, trajectory):
        remembered = "nothing"
        for _ in range(3):
            turn = trajectory.begin_turn(remembered)
            talk = trajectory.converse(
                Conversation.start(
                    [Segment("system", "system", "Search.")],
                    [Segment("user", "question", trajectory.task.question), Segment("user", "memory", remembered)],
                )
            )
            reply = yield from Generate(talk, 12)
            turn.steps.append(step := Step(Action("search", {"query": reply.text})))
            step.observation = seen = yield from Act(step.action)
            talk.tell([Segment("user", "observation", seen.passages[0].text)])
            reply = yield from Generate(talk, 9, ("</memory>",), "remember")
            remembered = turn.memory_after = reply.text


def stripped(trajectory):
    return replace(trajectory, seconds=None)


def logprobs(trajectory):
    return [each.logprobs for talk in trajectory.conversations for each in talk.segments if each.logprobs]
