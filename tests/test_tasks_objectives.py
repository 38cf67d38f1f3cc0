"""Tasks of several questions: no question is lost, and each keeps its golds."""

import json
import logging
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memsearcher.agents.memsearcher import MemSearcher
from memsearcher.objective_scoring import objectives_of, read_answers, score_objectives
from memsearcher.rollout import rollout
from memsearcher.tasks import factbook, objectives
from memsearcher.tasks.objectives import compose, compose_dependent
from memsearcher.trajectory import Task, Trajectory
from tests.scripted import ScriptedEngine, ScriptedEnvironment, answer

HOSTILE = st.text(st.sampled_from(list(';" \n.1?{}\x00\ud800é')), min_size=1, max_size=9).filter(str.strip)


def questions(count, benchmark=None, **metadata):
    about = {**({"benchmark": benchmark} if benchmark else {}), **metadata}
    name = benchmark or "q"
    return [Task(f"{name}-{i}", f"Question {i} of {name}?", (f"gold {i}", f"alias {i}"), about) for i in range(count)]


def parts(tasks):
    """The ids of the questions of each task."""
    return [[each.id for each in objectives_of(task)] for task in tasks]


def flat(lists):
    return [each for one in lists for each in one]


@given(
    st.integers(0, 40),
    st.lists(st.integers(1, 16), min_size=1, max_size=4),
    st.none() | st.integers(0, 3),
    st.booleans(),
    st.integers(1, 3),
)
def test_no_question_is_lost_or_doubled(count, sizes, seed, within, sets):
    tasks = flat(questions(count, name) for name in ("a", "b", "c")[:sets])
    composed = compose(tasks, sizes, seed=seed, within=within)
    assert sorted(flat(parts(composed))) == sorted(task.id for task in tasks)
    assert all(1 <= len(each) <= max(sizes) for each in parts(composed))
    assert len({task.id for task in composed}) == len(composed)
    golds = {task.id: task.golds for task in tasks}
    assert all(each.golds == golds[each.id] for task in composed for each in objectives_of(task))
    if seed is None:
        assert flat(parts(composed)) == [task.id for task in tasks]
    if within:
        assert all(len({name[0] for name in names}) == 1 for names in parts(composed))


def test_neighbors_go_together_and_a_remainder_makes_a_smaller_task(caplog):
    composed = compose(questions(7), [3])
    assert parts(composed) == [["q-0", "q-1", "q-2"], ["q-3", "q-4", "q-5"], ["q-6"]]
    assert [each.message for each in caplog.records] == ["a task has 1 of 3 questions: no more were left"]
    caplog.clear()
    assert len(compose(questions(6), [3])) == 2
    assert not caplog.records


def test_sizes_take_turns():
    assert [len(each) for each in parts(compose(questions(12), [1, 2, 4]))] == [1, 2, 4, 1, 2, 2]


def test_a_seed_shuffles():
    tasks = questions(20)
    one, again, other = (compose(tasks, [4], seed=seed) for seed in (1, 1, 2))
    assert one == again
    assert parts(one) != parts(other)
    assert flat(parts(one)) != [task.id for task in tasks]
    assert tasks == questions(20)


def test_within_and_across_data_sets():
    tasks = flat(zip(questions(3, "a"), questions(3, "b"), strict=True))
    assert parts(compose(tasks, [2])) == [["a-0", "b-0"], ["a-1", "b-1"], ["a-2", "b-2"]]
    within = compose(tasks, [2], within=True)
    assert parts(within) == [["a-0", "a-1"], ["a-2"], ["b-0", "b-1"], ["b-2"]]
    assert [task.metadata.get("benchmark") for task in within] == ["a", "a", "b", "b"]
    assert "benchmark" not in compose(tasks, [2])[0].metadata


def test_a_task_of_one_question_is_that_question():
    (task,) = compose([Task("x", "Who; what?", ("a; b",), {"level": "easy"})], [1])
    assert (task.id, task.question, task.golds) == ("x", "Who; what?", ("a; b",))
    assert task.metadata == {"level": "easy", "objectives": [{"id": "x", "question": "Who; what?", "golds": ["a; b"]}]}


def test_the_text_numbers_the_questions_and_says_how_to_answer():
    (task,) = compose([Task("a", " Who\n2. is it? "), Task("b", "<|im_end|>{count}?")], [2])
    assert task.question == (
        "Answer all 2 questions below. Give the 2 answers together, in the order of the questions, with a semicolon "
        "between one and the next. Put an answer that holds a semicolon in double quotes. Where you do not find an "
        "answer, write unknown in its place.\n1. Who 2. is it?\n2. <|im_end|>{count}?"
    )


def test_golds_are_what_an_expert_would_write():
    (task,) = compose([Task("a", "A?", ("x; y", "z")), Task("b", "B?", ("w",))], [2])
    assert task.golds == ('"x; y"; w',)
    (open_one,) = compose([Task("a", "A?", ("x",)), Task("b", "B?")], [2])
    assert open_one.golds == ()


@given(st.lists(st.lists(HOSTILE, min_size=1, max_size=2), min_size=1, max_size=16))
def test_the_golds_of_a_task_score_full_marks(golds):
    tasks = [Task(str(number), "Q?", tuple(each)) for number, each in enumerate(golds)]
    (task,) = compose(tasks, [16]) if len(tasks) == 16 else compose(tasks, [len(tasks)])
    trajectory = Trajectory(task, "agent", MemSearcher().limits)
    trajectory.answer = task.golds[0]
    scores = score_objectives(trajectory)
    assert scores.total("em", strict=True) == scores.total("f1") == len(golds)


def test_what_every_question_has_is_joined():
    steps = [{"fact": "f"}]
    tasks = questions(2, supporting_titles=["T", "U"], steps=steps)
    (both,) = compose(tasks, [2])
    assert both.metadata["supporting_titles"] == ["T", "U", "T", "U"]
    assert both.metadata["steps"] == steps * 2
    odd = Task("z", "Z?", ("z",), {"supporting_titles": 3, "steps": None, "benchmark": ["no", "name"]})
    for other in (odd, Task("z", "Z?", ("z",))):
        assert set(compose([tasks[0], other], [2])[0].metadata) == {"objectives"}
    assert len(compose([tasks[0], odd], [2], within=True)) == 2


def test_a_task_survives_json():
    (task,) = compose(questions(3, "a", supporting_ids=["p"]), [3])
    assert json.loads(json.dumps(task.metadata)) == task.metadata


def test_ids_tell_which_questions_in_which_order():
    tasks = questions(4)
    first, second = compose(tasks, [2])
    assert re.fullmatch(r"2-in-1-[0-9a-f]{16}", first.id)
    assert first.id == compose(tasks[:2], [2])[0].id
    assert len({first.id, second.id, compose(tasks[1::-1], [2])[0].id}) == 3


@pytest.mark.parametrize("sizes", [[], [0], [17], [2, -1]])
def test_sizes_out_of_range_are_refused(sizes):
    with pytest.raises(ValueError, match=re.escape(f"a task holds from 1 to 16 questions, not {sizes}")):
        compose(questions(2), sizes)


def test_two_questions_of_one_id_are_refused():
    with pytest.raises(ValueError, match="two questions have the id 'q-0'"):
        compose(questions(2) + questions(1), [2])


def play(task, said):
    """The task played by an agent whose model writes `said` in its box."""
    (trajectory,) = rollout(MemSearcher(), ScriptedEnvironment(), ScriptedEngine([answer(said)]), [(task, 0)])
    return trajectory


def test_an_agent_answers_all_at_once():
    (task,) = compose([Task("a", "A?", ("x; y",)), Task("b", "B?", ('5" disk',)), Task("c", "C?", ("z",))], [3])
    assert score_objectives(play(task, task.golds[0])).total("em", strict=True) == 3
    assert score_objectives(play(task, "nothing")).total("f1") == 0


@pytest.fixture(scope="module")
def chains():
    return factbook.load("test", shape="chain", n=40, seed=1)


def test_a_chain_becomes_questions_that_need_each_other(chains):
    task = next(each for each in factbook.load("test", hops=2) if "Vientiane" in each.question)
    (composed,) = compose_dependent([task], 2)
    assert composed.metadata["objectives"] == [
        {
            "id": f"{task.id}.1",
            "question": "Which is the country whose capital is Vientiane?",
            "golds": ["Laos", "Lao People's Democratic Republic"],
        },
        {
            "id": f"{task.id}.2",
            "question": "What is the currency of the answer to question 1?",
            "golds": list(task.golds),
            "needs": 1,
        },
    ]
    assert composed.golds == ("Laos; kip",)
    assert composed.metadata["steps"] == task.metadata["steps"]
    assert composed.metadata["supporting_ids"] == task.metadata["supporting_ids"]


def test_chains_share_a_task_and_are_never_broken(chains, caplog):
    composed = compose_dependent(chains, 8)
    wanted = [f"{task.id}.{number + 1}" for task in chains for number in range(task.metadata["hops"])]
    assert flat(parts(composed)) == wanted
    for task in composed:
        listed = task.metadata["objectives"]
        assert len(listed) <= 8
        for number, each in enumerate(listed, 1):
            chain, _, step = each["id"].rpartition(".")
            if step == "1":
                assert "needs" not in each
            else:
                assert each["needs"] == number - 1
                assert listed[number - 2]["id"].startswith(f"{chain}.")
                assert f"the answer to question {number - 1}" in each["question"]
        assert len(read_answers(task.golds[0])) == len(listed)
    small = sum(len(task.metadata["objectives"]) < 8 for task in composed)
    assert small == len(caplog.records) > 0


def test_chains_of_one_length_fill_their_tasks(caplog):
    chains = factbook.load("test", shape="chain", hops=4, n=8)
    assert [len(each) for each in parts(compose_dependent(chains, 16))] == [16, 16]
    assert not caplog.records
    assert compose_dependent([], 16) == []


def test_every_chain_of_the_world_can_be_asked():
    for split in ("train", "dev", "test"):
        composed = compose_dependent(factbook.load(split, shape="chain"), 4)
        asked = flat(objectives_of(task) for task in composed)
        # No answer stands in its own question, and no name of the way in a later one.
        assert all(each.golds[0] not in each.question for each in asked if len(each.golds[0]) > 3)
        assert all(each.question.endswith("?") and "{" not in each.question for each in asked)


def test_what_cannot_be_dependent_is_refused(chains):
    comparison = factbook.load("dev", shape="comparison", n=1)
    with pytest.raises(ValueError, match=rf"task {comparison[0].id} is no chain"):
        compose_dependent(comparison, 4)
    with pytest.raises(ValueError, match="is no chain; dependent questions are made of the built-in chain questions"):
        compose_dependent([Task("x", "Q?")], 4)
    four = factbook.load("dev", shape="chain", hops=4, n=1)
    with pytest.raises(ValueError, match=rf"task {four[0].id} is a chain of 4 questions; at most 3 go into a task"):
        compose_dependent(four, 3)
    with pytest.raises(ValueError, match="from 1 to 16"):
        compose_dependent(chains, 17)
    with pytest.raises(ValueError, match="two questions have the id"):
        compose_dependent(four * 2, 4)


def test_warnings_go_to_the_log(caplog):
    with caplog.at_level(logging.WARNING):
        compose(questions(3), [2])
    assert caplog.records[0].name == objectives.__name__
