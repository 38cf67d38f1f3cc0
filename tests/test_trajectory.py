"""The record: what goes in comes out, what is wrong is named, what follows is exact."""

import copy
import dataclasses
import json
import typing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memsearcher import jsonl
from memsearcher.trajectory import (
    SCHEMA_VERSION,
    Action,
    BadMemoryPolicy,
    Call,
    Conversation,
    Event,
    Finish,
    Limits,
    Observation,
    Part,
    Passage,
    Purpose,
    RecordError,
    Role,
    Segment,
    Step,
    Task,
    Trajectory,
    Turn,
    attempt_id,
    read_trajectories,
    write_trajectory,
)

TEXT = st.text(st.characters(exclude_categories=[]), max_size=12) | st.sampled_from(
    ["", "\x00", "\ud800", "<|im_end|>"]
)
INTEGERS = st.integers(-(2**200), 2**200)
FLOATS = st.floats(allow_nan=False)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
KEYS = st.text(max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | INTEGERS | FINITE | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=4,
)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=2)


def one_of(literal):
    return st.sampled_from(typing.get_args(literal))


def few(strategy):
    return st.lists(strategy, max_size=2)


SEGMENTS = st.builds(
    Segment,
    one_of(Role),
    one_of(Part),
    TEXT,
    token_ids=st.none() | few(INTEGERS),
    logprobs=st.none() | few(FLOATS),
    trained=st.booleans(),
    limit=st.none() | INTEGERS,
    dropped=INTEGERS,
)
CONVERSATIONS = st.builds(Conversation, few(SEGMENTS))
PASSAGES = st.builds(Passage, TEXT, TEXT, TEXT, FLOATS, INTEGERS)
OBSERVATIONS = st.builds(Observation, TEXT, few(PASSAGES).map(tuple))
STEPS = st.builds(Step, st.builds(Action, TEXT, OBJECTS), st.none() | OBSERVATIONS)
COUNTS = st.none() | INTEGERS
CALLS = st.builds(Call, one_of(Purpose), INTEGERS, INTEGERS, one_of(Finish), COUNTS, COUNTS)
OPTIONAL = st.none() | TEXT
TURNS = st.builds(Turn, OPTIONAL, OPTIONAL, OPTIONAL, few(CALLS), few(STEPS), few(st.builds(Event, TEXT, TEXT)))
POSITIVE = st.integers(1, 2**70)
LIMITS = st.builds(Limits, POSITIVE, POSITIVE, POSITIVE, POSITIVE, POSITIVE, POSITIVE, one_of(BadMemoryPolicy))
TRAJECTORIES = st.builds(
    Trajectory,
    st.builds(Task, TEXT, TEXT, few(TEXT).map(tuple), OBJECTS),
    TEXT,
    LIMITS,
    sample=INTEGERS,
    seed=COUNTS,
    conversations=few(CONVERSATIONS),
    turns=few(TURNS),
    answer=OPTIONAL,
    reward=st.none() | FLOATS,
    advantage=st.none() | FLOATS,
    error=OPTIONAL,
    seconds=st.none() | FLOATS,
    provenance=st.dictionaries(KEYS, TEXT, max_size=2),
)


def segment(role, part, tokens, text="x", trained=False):
    """A segment of so many tokens, or of unknown ones."""
    return Segment(role, part, text, None if tokens is None else [7] * tokens, trained=trained)


def example():
    """Two turns of an agent with a memory, all counts set by hand.

    Turn 1: a prompt of 21 tokens, 7 sampled; 11 more told, 9 sampled. Turn 2: a prompt of 18, 10 sampled.
    """
    trajectory = Trajectory(Task("t", "Who?", ("A",), {"hops": 2}), "memsearcher", Limits(turns=3), sample=4, seed=11)
    first = trajectory.converse(
        Conversation.start(
            [segment("system", "template", 2), segment("system", "system", 3)],
            [
                segment("user", "instruction", 4),
                segment("user", "question", 5),
                segment("user", "memory", 6),
                segment("user", "template", 1),
            ],
        )
    )
    turn = trajectory.begin_turn("")
    first.tell([segment("assistant", "reply", 7, trained=True)])
    turn.calls.append(Call("act", 0, 6, "stop", 21, 7))
    passage = Passage("p1", "Title", "Text", 0.5, 1)
    turn.steps.append(Step(Action("search", {"query": "who", "top_n": 1}), Observation("", (passage,))))
    first.tell([segment("user", "instruction", 2), segment("user", "observation", 8), segment("user", "template", 1)])
    first.tell([segment("assistant", "reply", 9, trained=True)])
    turn.calls.append(Call("remember", 0, 10, "eos", 39, 9))
    turn.thought, turn.memory_after = "hm", "it is A"
    turn.event("duplicate_query", "who")

    second = trajectory.converse(
        Conversation.start(
            [segment("system", "system", 3)],
            [segment("user", "instruction", 4), segment("user", "question", 5), segment("user", "memory", 6)],
        )
    )
    second.tell([segment("assistant", "reply", 10, trained=True)])
    turn = trajectory.begin_turn("it is A")
    turn.calls.append(Call("act", 1, 4, "eos", 18, 10))
    turn.event("memory_unchanged")
    turn.event("no_thought")
    trajectory.answer = "A"
    return trajectory


@given(TRAJECTORIES)
def test_a_record_survives_the_way_to_json_and_back(trajectory):
    data = json.loads(json.dumps(trajectory.to_json()))
    assert data["schema"] == SCHEMA_VERSION == 1
    assert Trajectory.from_json(data) == trajectory


@given(TRAJECTORIES, TRAJECTORIES)
def test_a_file_gives_back_its_records_in_order(tmp_path_factory, one, other):
    path = tmp_path_factory.mktemp("record") / "a.jsonl"
    write_trajectory(path, one)
    write_trajectory(path, other)
    assert list(read_trajectories(path)) == [one, other]


@pytest.mark.parametrize(
    "free", [{"\ud800": 1}, {"a": {"\ud800": 1}}, {"a": float("inf")}], ids=["key", "inner-key", "infinity"]
)
def test_free_values_of_a_model_s_call_survive(free):
    """A model may write any JSON into the arguments of a call."""
    trajectory = example()
    trajectory.turns[0].steps[0] = Step(Action("search", {"query": "who", **free}))
    data = json.loads(json.dumps(trajectory.to_json()))
    assert Trajectory.from_json(data) == trajectory


def test_long_text_survives(tmp_path):
    trajectory = example()
    trajectory.turns[0].memory_after = "\u00e9\ud83c" * 50_000
    write_trajectory(tmp_path / "a.jsonl", trajectory)
    assert list(read_trajectories(tmp_path / "a.jsonl")) == [trajectory]


def test_only_facts_are_stored():
    fields = {name.name for name in dataclasses.fields(Trajectory)}
    assert set(example().to_json()) == fields | {"schema"}
    assert not {"peak_tokens", "context_tokens", "react_tokens", "id"} & fields


@pytest.mark.parametrize("data", [None, [], "x", 1, {}, {"task": {}}])
def test_what_is_no_record_is_refused(data):
    with pytest.raises(RecordError, match="an object with a field 'schema' was expected"):
        Trajectory.from_json(data)


@pytest.mark.parametrize("version", [0, 2, "1", None, [1]])
def test_another_schema_version_is_refused(version):
    data = {**example().to_json(), "schema": version}
    with pytest.raises(RecordError) as caught:
        Trajectory.from_json(data)
    assert str(caught.value) == f"schema version {version!r}; this program reads version 1"


def inside(data, path):
    for step in path:
        data = data[step]
    return data


def dotted(path):
    return ".".join(str(step) for step in path)


# Where each kind of object of the record lies in the example, with a field of its that must be there.
PLACES = [
    ((), "agent"),
    (("task",), "question"),
    (("conversations", 1, "segments", 2), "text"),
    (("turns", 0, "calls", 1), "purpose"),
    (("turns", 0, "calls", 0), "sampled_tokens"),
    (("turns", 0, "steps", 0), "action"),
    (("turns", 0, "steps", 0, "action"), "arguments"),
    (("turns", 0, "steps", 0, "observation", "passages", 0), "score"),
    (("turns", 1, "events", 1), "name"),
]


@pytest.mark.parametrize("place", [*[path for path, _ in PLACES], ("limits",), ("turns", 1), ("conversations", 0)])
def test_an_unknown_field_is_named(place):
    data = example().to_json()
    inside(data, place)["surplus"] = 1
    with pytest.raises(RecordError) as caught:
        Trajectory.from_json(data)
    assert str(caught.value).startswith(f"field {dotted((*place, 'surplus'))}: ")


@pytest.mark.parametrize(("place", "name"), PLACES)
def test_a_missing_field_is_named(place, name):
    data = example().to_json()
    del inside(data, place)[name]
    with pytest.raises(RecordError) as caught:
        Trajectory.from_json(data)
    assert str(caught.value) == f"field {dotted((*place, name))}: Field required"


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("agent",), 3),
        (("sample",), "first"),
        (("reward",), "high"),
        (("answer",), ["A"]),
        (("provenance", "model"), 1),
        (("task", "golds"), "A"),
        (("task", "golds", 0), None),
        (("task", "metadata"), []),
        (("limits", "turns"), 1.5),
        (("limits", "on_bad_memory"), "forget"),
        (("turns",), {}),
        (("turns", 0, "memory_after"), 0),
        (("turns", 0, "calls", 1, "purpose"), "rest"),
        (("turns", 0, "calls", 1, "finish"), None),
        (("turns", 0, "steps", 0, "observation", "passages", 0, "score"), "good"),
        (("conversations", 0, "segments", 6, "token_ids", 3), 0.5),
        (("conversations", 1, "segments", 0, "role"), "tool"),
        (("conversations", 1, "segments", 0, "part"), "example"),
        (("conversations", 1, "segments", 0, "trained"), "perhaps"),
    ],
)
def test_an_ill_typed_field_is_named(place, value):
    data = example().to_json()
    data["task"]["golds"] = list(data["task"]["golds"])
    inside(data, place[:-1])[place[-1]] = value
    with pytest.raises(RecordError) as caught:
        Trajectory.from_json(data)
    assert str(caught.value).startswith(f"field {dotted(place)}: ")


def test_limits_on_record_are_held_to_the_same_rules():
    data = example().to_json()
    data["limits"]["turns"] = 0
    with pytest.raises(RecordError, match=r"field limits: .*Limits\.turns must be at least 1, not 0"):
        Trajectory.from_json(data)


def test_a_bad_record_is_named_by_file_and_line(tmp_path):
    path = tmp_path / "a.jsonl"
    write_trajectory(path, example())
    bad = example().to_json()
    bad["turns"][1]["events"][0]["name"] = 5
    jsonl.append(path, bad)
    write_trajectory(path, example())
    records = read_trajectories(path)
    assert next(records) == example()
    with pytest.raises(RecordError) as caught:
        next(records)
    assert str(caught.value) == f"{path}:2: field turns.1.events.0.name: Input should be a valid string"


def test_a_line_that_is_not_json_is_named_by_file_and_line(tmp_path):
    path = tmp_path / "a.jsonl"
    write_trajectory(path, example())
    path.write_bytes(b"{oops\n" + path.read_bytes())
    with pytest.raises(ValueError) as caught:
        list(read_trajectories(path))
    assert str(caught.value).startswith(f"{path}:1: not a line of JSON")


def test_a_torn_last_record_is_left_out_and_mended(tmp_path):
    path = tmp_path / "a.jsonl"
    write_trajectory(path, example())
    whole = path.read_bytes()
    path.write_bytes(whole + whole[: len(whole) // 2])
    assert list(read_trajectories(path)) == [example()]
    write_trajectory(path, example())
    assert path.read_bytes() == whole + whole


def test_context_and_sampled_tokens():
    trajectory = example()
    assert trajectory.context_tokens == [39 + 9, 18 + 10]
    assert trajectory.peak_tokens == 48
    assert trajectory.sampled_tokens == 7 + 9 + 10
    assert [call.purpose for call in trajectory.calls] == ["act", "remember", "act"]


def test_the_hand_counts_are_those_of_the_segments():
    trajectory = example()
    for call in trajectory.calls:
        segments = trajectory.conversations[call.conversation].segments
        assert sum(len(each.token_ids) for each in segments[: call.segment]) == call.context_tokens
        assert len(segments[call.segment].token_ids) == call.sampled_tokens


def test_react_tokens():
    # Turn 1: template, system, instruction and question of the prompt (2+3+4+5+1), the act reply (7), the
    # observation (8). Turn 2 adds its act reply (10) and nothing else: that prompt would not be repeated.
    assert example().react_tokens == [15 + 7 + 8, 15 + 7 + 8 + 10]


def test_what_serves_the_memory_only_does_not_count_for_react():
    trajectory = example()
    expected = trajectory.react_tokens
    for conversation in trajectory.conversations:
        for each in conversation.segments:
            if each.part == "memory":
                each.token_ids = None
    first = trajectory.conversations[0].segments
    first[7].token_ids = [1] * 500  # the request for the memory
    first[10].token_ids = [1] * 500  # the memory that was written
    assert trajectory.react_tokens == expected


@pytest.mark.parametrize(("conversation", "place"), [(0, 0), (0, 3), (0, 6), (0, 8), (0, 10), (1, 4)])
def test_react_tokens_are_unknown_where_a_needed_segment_has_no_ids(conversation, place):
    trajectory = example()
    trajectory.conversations[conversation].segments[place].token_ids = None
    assert trajectory.react_tokens is None


@pytest.mark.parametrize("missing", ["context_tokens", "sampled_tokens"])
def test_a_turn_with_an_uncounted_call_has_no_count(missing):
    trajectory = example()
    calls = trajectory.turns[0].calls
    calls[0] = dataclasses.replace(calls[0], **{missing: None})
    assert trajectory.context_tokens == [None, 28]
    assert trajectory.peak_tokens is None
    assert trajectory.sampled_tokens == (None if missing == "sampled_tokens" else 26)


def test_a_turn_without_calls_has_no_count():
    trajectory = example()
    trajectory.begin_turn("it is A")
    assert trajectory.context_tokens == [48, 28, None]
    assert trajectory.peak_tokens is None
    assert trajectory.sampled_tokens == 26
    assert trajectory.react_tokens == [30, 40, 40]


def test_a_trajectory_without_turns():
    empty = Trajectory(Task("t", "Who?"), "memsearcher", Limits())
    assert (empty.context_tokens, empty.peak_tokens, empty.sampled_tokens, empty.react_tokens) == ([], None, 0, [])
    assert (empty.events, empty.actions, list(empty.calls)) == ([], [], [])
    assert (empty.answer, empty.reward, empty.advantage, empty.error) == (None, None, None, None)


def test_events_carry_the_number_of_their_turn():
    assert example().events == [
        (1, Event("duplicate_query", "who")),
        (2, Event("memory_unchanged")),
        (2, Event("no_thought")),
    ]


def test_actions_and_ids():
    trajectory = example()
    assert trajectory.actions == [Action("search", {"query": "who", "top_n": 1})]
    assert trajectory.id == attempt_id(trajectory.task, 4) == "t#4"


def test_a_turn_keeps_its_memory_until_it_says_otherwise():
    trajectory = Trajectory(Task("t", "Who?"), "memsearcher", Limits())
    turn = trajectory.begin_turn("so far")
    assert (turn.memory_before, turn.memory_after) == ("so far", "so far")
    assert trajectory.begin_turn().memory_before is None


@pytest.mark.parametrize(
    "name", ["turns", "call_tokens", "memory_tokens", "question_tokens", "passages", "passage_tokens"]
)
@pytest.mark.parametrize("value", [0, -3])
def test_limits_are_at_least_one(name, value):
    with pytest.raises(ValueError, match=f"^Limits.{name} must be at least 1, not {value}$"):
        Limits(**{name: value})
    assert getattr(Limits(**{name: 1}), name) == 1


def test_the_policy_for_a_bad_memory_has_three_names():
    assert [Limits(on_bad_memory=name).on_bad_memory for name in ("keep", "wipe", "end")] == ["keep", "wipe", "end"]
    with pytest.raises(ValueError, match=r"^Limits.on_bad_memory must be keep, wipe or end, not 'drop'$"):
        Limits(on_bad_memory="drop")


def test_messages_merge_neighbours_and_leave_the_template_out():
    conversation = Conversation.start(
        [segment("system", "template", 1, "<s>"), segment("system", "system", 1, "Be brief.")],
        [
            segment("user", "instruction", 1, "Q: "),
            segment("user", "question", 1, "who?"),
            segment("user", "memory", 0, ""),
        ],
    )
    conversation.tell([segment("user", "template", 1, "</s>")])
    conversation.tell([segment("assistant", "reply", 2, "A")]).tell([segment("user", "observation", 2, "B")])
    assert conversation.messages() == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Q: who?"},
        {"role": "assistant", "content": "A"},
        {"role": "user", "content": "B"},
    ]


@given(few(SEGMENTS) | st.lists(SEGMENTS, max_size=8))
def test_messages_against_a_slow_reference(segments):
    shown = [each for each in segments if each.part != "template"]
    starts = [place for place, each in enumerate(shown) if place == 0 or shown[place - 1].role != each.role]
    expected = [
        {"role": shown[start].role, "content": "".join(each.text for each in shown[start:end])}
        for start, end in zip(starts, [*starts[1:], len(shown)], strict=False)
    ]
    assert Conversation(segments).messages() == expected


def test_token_ids_and_loss_mask():
    conversation = Conversation(
        [
            Segment("user", "instruction", "a", [1, 2]),
            Segment("assistant", "reply", "b", [3, 4, 5], trained=True),
            Segment("user", "observation", "", []),
            Segment("user", "observation", "c", [6]),
        ]
    )
    assert conversation.token_ids == [1, 2, 3, 4, 5, 6]
    assert conversation.loss_mask == [0, 0, 1, 1, 1, 0]
    conversation.tell([Segment("user", "question", "d")])
    assert conversation.token_ids is None
    assert conversation.loss_mask is None
    assert (Conversation().token_ids, Conversation().loss_mask, Conversation().messages()) == ([], [], [])


@given(few(SEGMENTS), few(SEGMENTS), st.lists(few(SEGMENTS), max_size=3))
def test_telling_changes_nothing_that_was_there(system, user, told):
    conversation = Conversation.start(system, user)
    assert conversation.segments == system + user
    for segments in told:
        before, ids = list(conversation.segments), conversation.token_ids
        copies = copy.deepcopy(before)
        assert conversation.tell(segments) is conversation
        kept = conversation.segments[: len(before)]
        assert all(now is then for now, then in zip(kept, before, strict=True))
        assert kept == copies
        assert conversation.segments[len(before) :] == segments
        if conversation.token_ids is not None:
            assert conversation.token_ids[: len(ids)] == ids
