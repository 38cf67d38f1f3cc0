"""The view model, summaries, groups, searching and data frames, from records of three agents."""

import json
import math

import pandas as pd
import pytest

from memsearcher.inspect.collection import Collection, NothingToInspect
from memsearcher.inspect.frames import passages_df, trajectories_df, turns_df
from memsearcher.inspect.summary import LONGEST_ANSWER, LONGEST_QUESTION, em, groups, hits, row, searchable
from memsearcher.inspect.tokens import contexts
from memsearcher.inspect.view import first_divergence, view
from memsearcher.objective_scoring import golds_of
from memsearcher.recipe import load_recipe
from memsearcher.runs import Run
from memsearcher.trajectory import (
    Action,
    Conversation,
    Event,
    Limits,
    Observation,
    Outcome,
    Passage,
    Segment,
    Step,
    Task,
    Trajectory,
    write_trajectory,
)
from tests.test_hostile import HOSTILE
from tests.traces import (
    ACCRA,
    CAPITAL,
    GOOD_TURNS,
    KNOWN,
    LINK,
    LOSING_TURNS,
    attempt,
    mem1,
    react,
    segment,
    stories,
    turn,
)


def words(made):
    return "".join(run if isinstance(run, str) else run[0] for run in made)


def marked(made, letter):
    return [run[0] for run in made if not isinstance(run, str) and letter in run[1]]


def event_names(turn_view):
    return [event["name"] for event in turn_view["events"]]


@pytest.fixture(scope="module")
def lost():
    return view(attempt(LOSING_TURNS, "Kumasi", sample=1, reward=0.0, advantage=-0.57))


def test_every_view_is_json_and_the_same_twice():
    for trajectory in stories():
        made = view(trajectory)
        assert json.loads(json.dumps(made, allow_nan=False)) == json.loads(json.dumps(view(trajectory)))


def test_a_turn_holds_what_happened(lost):
    first = lost["turns"][0]
    assert words(first["thought"]) == "I need the export partners of Cote d'Ivoire."
    assert first["steps"][0]["arguments"] == {"query": "export partners of Cote d'Ivoire"}
    assert first["steps"][0]["passages"] == [{"passage": 0, "rank": 1, "score": 12.2}]
    assert words(lost["passages"][0]["title"]) == "Cote d'Ivoire: Export partners"
    assert [call["purpose"] for call in first["calls"]] == ["act", "remember"]
    assert lost["conversations"][0][first["calls"][1]["segment"]]["text"] == f"<memory>{LINK}</memory>"
    assert (words(lost["answer"]), lost["em"], lost["golds"]) == ("Kumasi", 0.0, ["Accra"])


def test_a_passage_stands_once_however_often_it_came_back(lost):
    numbers = [each["passage"] for made in lost["turns"] for step in made["steps"] for each in step["passages"]]
    assert numbers == [0, 1, 2, 2]
    assert len(lost["passages"]) == 3


def test_gold_answers_are_marked_and_their_fate_told(lost):
    assert marked(lost["passages"][1]["text"], "g") == ["Accra", "ACCRA"]
    assert [event_names(made) for made in lost["turns"]] == [
        [],
        ["gold_found", "gold_entered"],
        ["gold_lost", "memory_cut"],
        [],
    ]
    assert [made["memory"]["held"] for made in lost["turns"]] == [False, True, False, False]
    kinds = {event["name"]: (event["kind"], event["derived"]) for made in lost["turns"] for event in made["events"]}
    assert kinds == {
        "gold_found": ("plain", True),
        "gold_entered": ("good", True),
        "gold_lost": ("bad", True),
        "memory_cut": ("bad", False),
    }


def test_memory_lines_have_their_sources(lost):
    lines = lost["turns"][1]["memory"]["lines"]
    assert [(line["change"], words(line["text"])) for line in lines] == [("kept", LINK), ("added", KNOWN)]
    sources = [lost["sources"][line["source"]["number"]] for line in lines]
    assert [(each["passage"], each["turn"], each["rank"]) for each in sources] == [(0, 1, 1), (1, 2, 1)]
    assert marked(sources[1]["text"], "s") == ["Capital of Ghana: Accra"]
    assert lost["turns"][2]["memory"]["lines"][0]["source"] is None


def test_events_of_one_name_are_one_with_a_count():
    trajectory = attempt(GOOD_TURNS, "Accra")
    trajectory.turns[0].events += [Event("passage_cut", "3 tokens"), Event("passage_cut", "5 tokens")]
    (event,) = view(trajectory)["turns"][0]["events"]
    assert (event["count"], event["details"]) == (2, ["3 tokens", "5 tokens"])


def test_an_agent_without_memory_has_none():
    made = view(react(GOOD_TURNS, "Accra"))
    assert all(each["memory"] is None for each in made["turns"])
    assert event_names(made["turns"][1]) == ["gold_found"]
    assert {each["tokens"]["react"] for each in made["turns"]} == {None}
    assert len(made["conversations"]) == 1


def test_an_internal_state_is_a_memory():
    made = view(mem1(GOOD_TURNS, "Accra"))
    assert words(made["turns"][1]["memory"]["after"]) == f"{LINK} {KNOWN}"
    assert "gold_entered" in event_names(made["turns"][1])


def test_what_the_model_was_not_shown_is_marked_and_supports_nothing():
    trajectory = attempt([turn("capital of Ghana", [ACCRA], KNOWN)])
    shown = f"[1] {ACCRA.title}\nCapital of Gha"
    told = next(each for each in trajectory.conversations[0].segments if each.part == "observation")
    told.text, told.dropped = shown, 9
    made = view(trajectory)
    assert words(made["passages"][0]["text"]) == ACCRA.text
    assert "".join(marked(made["passages"][0]["text"], "u")) == ACCRA.text.removeprefix("Capital of Gha")
    assert made["turns"][0]["memory"]["lines"][0]["source"] is None
    told.text = f"[1] {ACCRA.title}\n{ACCRA.text[:60]}"
    assert "".join(marked(view(trajectory)["passages"][0]["text"], "u")) == ACCRA.text[60:]
    told.text = "cut before this passage"
    assert "".join(marked(view(trajectory)["passages"][0]["text"], "u")) == ACCRA.text


def test_a_passage_is_taken_as_shown_where_no_cut_is_on_the_record():
    trajectory = attempt([turn("capital of Ghana", [ACCRA, Passage("e", "", "", 0.0, 2)], KNOWN)])
    trajectory.conversations[0].segments = [
        each for each in trajectory.conversations[0].segments if each.part != "observation"
    ]
    trajectory.turns[0].calls.clear()
    assert not any(marked(each["text"], "u") for each in view(trajectory)["passages"])


def test_an_outcome_is_taken_apart_line_by_line():
    trajectory = attempt([turn("a", [], "")])
    parts = {"value": 0.5, "options": {"red": True, "</td>": False}, "none": {}, "limit": None, "type": {"factor": 1.0}}
    trajectory.turns[0].steps.append(Step(Action("buy", {}), Observation("", outcome=Outcome(0.5, parts))))
    assert view(trajectory)["turns"][0]["steps"][-1]["outcome"]["parts"] == {
        "value": "0.5", "options: red": "yes", "options: </td>": "no", "limit": "None", "type: factor": "1.0"
    }  # fmt: skip


def test_an_observation_may_be_a_text_or_have_failed_or_end_the_episode():
    trajectory = attempt([turn("a", [], "")])
    done = Observation("bought", (), (Event("no_op", "bad click"),), Outcome(0.5, {"price": 1}))
    trajectory.turns[0].steps += [Step(Action("click", {"what": "x"})), Step(Action("click", {}), done)]
    steps = view(trajectory)["turns"][0]["steps"]
    assert words(steps[0]["text"]) == "No passages found."
    assert [step["failed"] for step in steps] == [False, True, False]
    assert steps[2]["outcome"] == {"reward": 0.5, "parts": {"price": "1"}}
    assert row(trajectory)["outcome"] == 0.5
    assert row(trajectory)["events"] == ["no_op"]


def test_tokens_are_counted_by_kind():
    assert [each["kinds"] for each in contexts(attempt(GOOD_TURNS, "Accra"))][1] == {
        "prompt": 11,
        "question": 12,
        "memory": 9,
        "history": 0,
        "passages": 19 + 10,
        "reply": 13 + 15,
    }


def test_tokens_add_up_to_the_engines_count():
    for trajectory in stories():
        for each in contexts(trajectory):
            assert sum(each["kinds"].values()) == each["total"]


def test_tokens_that_were_not_counted_are_unknown():
    trajectory = attempt(GOOD_TURNS, "Accra")
    for talk in trajectory.conversations:
        for each in talk.segments:
            each.token_ids = None
    assert contexts(trajectory)[0] == {"total": 69, "kinds": None, "react": None}
    trajectory.turns[0].calls.clear()
    assert contexts(trajectory)[0] == {"total": None, "kinds": None, "react": None}


def test_the_counterfactual_is_that_of_the_record():
    trajectory = attempt(GOOD_TURNS, "Accra")
    assert [each["react"] for each in contexts(trajectory)] == trajectory.react_tokens
    single = react([], "Accra")
    assert [each["react"] for each in contexts(single)] == single.react_tokens


def test_the_first_turn_that_asks_differently():
    first, second = view(attempt(GOOD_TURNS, "Accra")), view(attempt(LOSING_TURNS, "Kumasi"))
    assert first_divergence(first, second) == first_divergence(second, first) == 3
    assert first_divergence(first, first) is None
    other = view(react([GOOD_TURNS[0], turn("capital of Ghana city", [], None)], "Accra"))
    assert first_divergence(first, other) == 2
    louder = view(attempt([turn("EXPORT partners, of Cote d'Ivoire!", [], "")]))
    assert first_divergence(louder, view(attempt(GOOD_TURNS[:1]))) is None


def test_a_summary_is_short_and_missing_is_none():
    task = Task("q", "w" * 1000, ("g" * 1000,))
    long = row(attempt([], "a" * 1000, task=task, reward=math.nan))
    assert (len(long["question"]), len(long["answer"]), long["reward"]) == (LONGEST_QUESTION, LONGEST_ANSWER, None)
    failed = row(attempt([], None, error="gone", reward=None))
    assert (failed["failed"], failed["em"], failed["reward"], failed["advantage"], failed["answer"]) == (
        True,
        None,
        None,
        None,
        None,
    )
    assert row(attempt(LOSING_TURNS, "Kumasi"))["events"] == ["gold_entered", "gold_found", "gold_lost", "memory_cut"]


def test_exact_match_where_it_can_be_had():
    assert em(attempt([], "Accra")) == 1.0
    assert em(attempt([], None)) == 0.0
    assert em(attempt([], "Accra", task=Task("q", "?"))) is None
    assert em(attempt([], "Accra", task=Task("q", "?", (" ",)))) is None
    objectives = [{"id": str(n), "question": "?", "golds": [gold]} for n, gold in enumerate(("Accra", "Rome"))]
    several = Task("q", "? ?", ("Accra; Rome",), {"objectives": objectives})
    assert golds_of(several) == ("Accra", "Rome")
    assert em(attempt([], "Accra; Paris", task=several)) == 0.5
    assert em(attempt([], None, task=several, error="gone")) is None


def test_groups_know_whether_there_is_a_gradient():
    rows = [row(each) for each in stories()]
    first, second = groups(rows)
    assert first == {"members": [0, 1, 2, 3], "mean": pytest.approx(1.1 / 3), "gradient": True}
    assert second == {"members": [4, 5, 6], "mean": 0.0, "gradient": False}
    for each in rows:
        each["reward"] = None
    assert [(each["mean"], each["gradient"]) for each in groups(rows)] == [(None, None), (None, None)]


def test_a_search_looks_through_all_text_turn_by_turn():
    texts = searchable(attempt(LOSING_TURNS, "Kumasi"))
    assert hits(texts, "ACCRA") == [1, 0, 3, 0, 0]
    assert hits(texts, "memory_cut a detail") == [0, 0, 0, 1, 0]
    assert hits(texts, "largest city of ghana") == [0, 0, 0, 2, 1]
    assert hits(searchable(attempt([], None, error="it broke")), "broke") == [1]


def test_a_collection_reads_runs_files_and_trajectories(tmp_path):
    run = Run.open(tmp_path / "one", load_recipe("pocket"), {})
    write_trajectory(run.path, attempt(GOOD_TURNS, "Accra"))
    write_trajectory(tmp_path / "two.jsonl", react(GOOD_TURNS, "Accra"))
    collection = Collection(run, str(run.folder), tmp_path / "two.jsonl", attempt([], "x"), iter(stories()[:2]))
    assert collection.runs == ["one", "one (2)", "two", "run 4", "run 5"]
    assert [each["run"] for each in collection.index["rows"]] == [0, 1, 2, 3, 4, 4]
    assert len(collection) == 6
    assert collection.view(2)["agent"] == "react"
    assert collection.view(2) is collection.view(2)
    counts = [hits(searchable(each), "niamey") for each in collection.trajectories]
    assert collection.search("Niamey") == [(place, each) for place, each in enumerate(counts) if any(each)]
    assert collection.search("no such word") == []


@pytest.mark.parametrize(
    ("sources", "message"),
    [((), "name a run folder"), (([],), "run 1: there are no trajectories"), (("nowhere",), "nowhere: no run folder")],
)
def test_nothing_to_inspect_is_an_error(sources, message):
    with pytest.raises(NothingToInspect, match=message):
        Collection(*sources)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_text_can_be_shown_and_searched(text):
    task = Task(text, text, (text,))
    passages = [Passage(text, text, text, math.inf, 1)]
    trajectory = attempt([turn(text, passages, text, thought=text, events=[text])], text, task=task, agent=text)
    trajectory.error, trajectory.provenance = text, {text: text}
    written = json.dumps(
        [row(trajectory), view(trajectory), searchable(trajectory)], allow_nan=False, ensure_ascii=False
    )
    written.encode()
    assert not any(ord(character) < 32 and character != "\n" for character in written)
    for frame in (trajectories_df([trajectory]), turns_df([trajectory]), passages_df([trajectory])):
        assert len(frame)


def test_trajectories_as_a_frame():
    frame = trajectories_df(stories())
    assert frame["agent"].tolist() == ["memsearcher"] * 7 + ["react", "mem1"]
    assert frame["reward"].tolist()[:3] == [1.0, 0.0, 0.1]
    assert frame[["reward", "advantage", "em"]].isna().iloc[3].all()
    assert frame["error"].count() == 1
    assert (frame["gold_entered"].iloc[1], frame["gold_lost"].iloc[1]) == (2, 3)
    assert frame["gold_lost"].isna().iloc[0]
    assert frame["turns"].dtype == pd.Int64Dtype()


def test_turns_as_a_frame():
    frame = turns_df([attempt(LOSING_TURNS, "Kumasi"), react(GOOD_TURNS, "Accra")])
    assert frame["turn"].tolist() == [1, 2, 3, 4, 1, 2, 3]
    assert frame[["kept", "moved", "edited", "added", "dropped"]].iloc[:3].values.tolist() == [
        [0, 0, 0, 1, 0],
        [1, 0, 0, 1, 0],
        [0, 0, 2, 0, 0],
    ]
    assert frame["events"].tolist()[2] == ("gold_lost", "memory_cut")
    assert frame["query"].tolist()[:3] == [
        "export partners of Cote d'Ivoire",
        "capital of Ghana",
        "largest city of Ghana",
    ]
    assert frame["memory"].isna().tolist() == [False] * 4 + [True] * 3
    kinds = [f"{kind}_tokens" for kind in ("prompt", "question", "memory", "history", "passages", "reply")]
    assert frame[kinds].sum(axis=1).tolist() == frame["context_tokens"].tolist()


def test_passages_as_a_frame():
    frame = passages_df([attempt(GOOD_TURNS, "Accra")])
    assert frame["passage"].tolist() == ["p1", "p2", "p3"]
    assert frame["gold"].tolist() == [False, True, False]
    assert frame["turn"].tolist() == [1, 2, 2]


def test_a_query_that_is_no_text_is_missing():
    trajectory = attempt(GOOD_TURNS[:1])
    trajectory.turns[0].steps[0] = Step(Action("search", {"query": 5}), Observation("x"))
    assert turns_df([trajectory])["query"].isna().all()


def test_frames_of_nothing_have_their_columns():
    assert [frame([]).shape[0] for frame in (trajectories_df, turns_df, passages_df)] == [0, 0, 0]
    assert list(passages_df([]).columns) == list(passages_df([attempt(GOOD_TURNS)]).columns)


def test_a_record_without_conversations_can_be_shown():
    bare = Trajectory(CAPITAL, "any", Limits(), conversations=[Conversation([Segment("user", "question", "x")])])
    bare.begin_turn()
    assert view(bare)["turns"][0]["memory"] is None
    assert segment("user", "question", "a b").token_ids == [0, 1]
