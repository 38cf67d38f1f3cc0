"""The trainer's rewards by name: what each asks of a task, and what it gives."""

import pytest

from memsearcher import scoring
from memsearcher.tasks.objectives import compose
from memsearcher.training.rewards import REWARDS, as_functions, check_tasks, reward_objectives, reward_table
from memsearcher.trajectory import Action, Limits, Observation, Outcome, Step, Task, Trajectory

QUESTIONS = [Task("q1", "Which city?", ("Paris",)), Task("q2", "Which coin?", ("kip", "Lao kip"))]
(BOTH,) = compose(QUESTIONS, [2])
GOAL = Task("g1", "Buy a lamp.", metadata={"goal": {"asin": "LAMP"}})


def attempt(task, answer=None, outcome=None, error=None):
    made = Trajectory(task, "memsearcher", Limits(), answer=answer, error=error)
    seen = Observation("", outcome=None if outcome is None else Outcome(outcome))
    made.begin_turn("").steps.append(Step(Action("shop", {}), seen))
    return made


def test_the_names_are_those_of_scoring_and_objectives():
    assert (*scoring.REWARDS, "objectives") == REWARDS
    for name in REWARDS:
        (function,) = as_functions(name)
        assert function.__name__ == name
    with pytest.raises(ValueError, match="there are: em, f1, format_f1, outcome, objectives"):
        as_functions("bleu")


@pytest.mark.parametrize(
    ("answer", "reward"),
    [
        ("Paris; Lao kip", 2.0),
        ("Paris; dong", 1.0),
        ("kip; Paris", 0.0),  # by position
        ("Paris", 0.0),  # MEM1's rule: a wrong number of answers earns nothing
        ("Paris; kip; dong", 0.0),
        ("", 0.0),
        (None, 0.0),
    ],
)
def test_objectives_are_summed_by_position(answer, reward):
    assert reward_objectives(attempt(BOTH, answer)) == reward


def test_a_task_of_one_question_is_one_objective():
    (one,) = compose(QUESTIONS[1:], [1])
    assert [reward_objectives(attempt(one, answer)) for answer in ("kip", "a; b")] == [1.0, 0.0]


def test_a_failed_trajectory_has_no_reward():
    assert reward_objectives(attempt(BOTH, "Paris; kip", error="E: gone")) is None
    played = [attempt(GOAL, outcome=0.75), attempt(GOAL), attempt(GOAL, outcome=1.0, error="E: gone")]
    table = reward_table(as_functions("outcome"), played)
    assert table[:2, 0].tolist() == [0.75, 0.0] and table[2, 0].isnan()


@pytest.mark.parametrize(
    ("task", "reward"),
    [
        (QUESTIONS[0], "em"),
        (BOTH, "f1"),
        (BOTH, "objectives"),
        (BOTH, ["objectives", "em"]),
        (GOAL, "outcome"),
        (GOAL, max),
    ],
)
def test_tasks_that_can_be_judged(task, reward):
    check_tasks([task], reward)


@pytest.mark.parametrize(
    ("task", "reward", "message"),
    [
        (GOAL, "em", "task 'g1': there are no golds"),
        (GOAL, ["outcome", "f1"], "task 'g1': there are no golds"),
        (GOAL, "objectives", r"task g1: metadata\.objectives must be a list of questions; make them with `compose`"),
        (QUESTIONS[0], "outcome", "task 'q1': the reward outcome is for goals of an environment with an end"),
        (QUESTIONS[0], ["em", "outcome"], "task 'q1': the reward outcome is for goals"),
        (
            Task("b", "?", ("x",), {"objectives": [{"id": "1", "question": "?", "golds": []}]}),
            "objectives",
            "task 'b': ",
        ),
        (Task("e", " ", metadata=GOAL.metadata), "outcome", "task 'e': the question is empty"),
    ],
)
def test_tasks_that_cannot_be_judged_are_named(task, reward, message):
    with pytest.raises(ValueError, match=message):
        check_tasks([task], reward)
