"""Figures of single trajectories: the parts of contexts, and a group of a training step."""

import pandas as pd
import pytest

from memsearcher import jsonl
from memsearcher.figures import anatomy, group
from memsearcher.figures.files import read_table, write_table
from memsearcher.figures.runs import Records, Runs, read_runs
from memsearcher.trajectory import Task, write_trajectory
from tests.traces import ACCRA, CAPITAL, GOOD_TURNS, LINK, NIGER, PARTNERS, attempt, react, stories

HOSTILE = 'Is <b>"x</b>"</script> \x00\ud800\u202e, or NA?'


def words(*texts):
    return sum(len(text.split()) for text in texts)


def shown(passage):
    return f"[1] {passage.title}\n{passage.text}"


def runs_of(*trajectories, question=None):
    return Runs((Records("r", "r", "", trajectories),), question=question)


def parts(rows, agent, turn):
    return [(row["part"], row["tokens"]) for row in rows if row["agent"] == agent and row["turn"] == turn]


def on(name, turns, answer="Accra", **more):
    """MemSearcher and ReAct on a question of that id."""
    task = Task(name, CAPITAL.question, CAPITAL.golds, more.pop("metadata", {}))
    made = [GOOD_TURNS[0]] * turns
    return attempt(made, answer, task, **more), react(made, answer, task, **more)


def test_parts_of_a_context_that_is_rewritten_and_of_one_that_grows():
    rows = anatomy.anatomy(runs_of(attempt(GOOD_TURNS, "Accra"), react(GOOD_TURNS, "Accra")))
    assert {(row["question"], row["em"]) for row in rows} == {(CAPITAL.question, 1.0)}
    prompt, question = words("You answer a question with a search tool and a memory."), words(CAPITAL.question)
    found = words(f"[1] {ACCRA.title}\n{ACCRA.text}", f"[2] {NIGER.title}\n{NIGER.text}")
    memory = words(f"<memory>{GOOD_TURNS[1]['memory']}</memory>")
    second = parts(rows, "memsearcher", 2)
    assert [part for part, _ in parts(rows, "memsearcher", 1)] == [
        *("prompt", "question", "response", "observation", "new memory")
    ]
    assert second[:3] == [("prompt", prompt), ("question", question), ("memory", words(LINK))]
    assert second[4:] == [("observation", found), ("new memory", memory)]
    assert [part for part, _ in parts(rows, "memsearcher", 3)] == ["prompt", "question", "memory", "response"]
    grown = parts(rows, "react", 3)
    assert [part for part, _ in grown[2:]] == ["response", "observation"] * 2 + ["response"]
    assert grown[:4] == parts(rows, "react", 2)[:4]
    assert grown[3] == ("observation", words(shown(PARTNERS)))


def test_the_tokens_of_a_turn_are_those_of_its_context():
    pair = attempt(GOOD_TURNS, "Accra"), react(GOOD_TURNS, "Accra")
    table = pd.DataFrame(anatomy.anatomy(runs_of(*pair)))
    for each in pair:
        sums = table[table["agent"] == each.agent].groupby("turn")["tokens"].sum()
        assert sums.tolist() == each.context_tokens


def test_the_question_with_most_turns_that_both_answered_right_is_taken():
    played = [*on("a", 1), *on("b", 2), *on("c", 2), *on("d", 3, "Lagos"), *on("e", 4, metadata={"objectives": []})]
    rows = anatomy.anatomy(runs_of(*played))
    assert {row["turn"] for row in rows} == {1, 2, 3}
    assert {row["em"] for row in rows} == {1.0}
    assert {row["em"] for row in anatomy.anatomy(runs_of(*played, question="d"))} == {0.0}
    assert max(row["turn"] for row in anatomy.anatomy(runs_of(*played, question="e"))) == 5
    assert anatomy.anatomy(runs_of(*played, question="f")) == []


def test_attempts_without_tokens_or_that_failed_are_no_pair():
    ours, theirs = on("a", 1)
    failed, _ = on("a", 1, error="TimeoutError: slow")
    assert anatomy.anatomy(runs_of(failed, theirs)) == []
    ours.conversations[0].segments[0].token_ids = None
    assert anatomy.anatomy(runs_of(ours, theirs)) == []
    assert anatomy.anatomy(runs_of(theirs)) == []


def plotted(rows, tmp_path, module):
    """The plot of rows that went through a table on disk."""
    write_table(pd.DataFrame(rows), tmp_path / "t.csv")
    return module.plot(read_table(tmp_path / "t.csv", ()), "demo")


def test_the_plot_has_a_block_a_part_and_numbers_where_there_is_room(tmp_path):
    drawn = plotted(anatomy.anatomy(runs_of(*on("a", 2))), tmp_path, anatomy)
    assert [trace.name for trace in drawn.data[:-1]] == list(anatomy.COLOURS)
    prompt = drawn.data[0]
    assert list(prompt.base) == [0] * 6
    assert list(prompt.y) == [1, 2, 3, 5, 6, 7]
    assert all(text in ("", str(n)) for trace in drawn.data[:-1] for text, n in zip(trace.text, trace.x, strict=True))
    titles = [note.text for note in drawn.layout.annotations][-2:]
    assert titles[0].startswith("<b>MemSearcher</b>: peak ") and titles[0].endswith("tokens, answer right")


def test_a_question_without_golds_has_no_verdict_and_a_wrong_answer_one(tmp_path):
    task = Task("a", HOSTILE)
    rows = anatomy.anatomy(runs_of(attempt([], "x", task), react([], "x", task)))
    drawn = plotted(rows, tmp_path, anatomy)
    assert drawn.layout.annotations[-1].text.endswith("tokens")
    assert 'Question: Is &lt;b&gt;"x&lt;/b&gt;"&lt;/script&gt; , or NA?<br>' in drawn.layout.annotations[1].text
    wrong = plotted(anatomy.anatomy(runs_of(*on("a", 1, "Lagos"))), tmp_path, anatomy)
    assert wrong.layout.annotations[-1].text.endswith("answer wrong")


def stretches(rows, trajectory):
    return [(row["conversation"], row["trained"], row["tokens"]) for row in rows if row["trajectory"] == trajectory]


def test_a_group_is_stretches_of_tokens_with_one_advantage_a_trajectory():
    played = tuple(stories()[:4])
    rows = group.group([Records("seed-0, step 3", "", "", played)])
    assert {row["run"] for row in rows} == {"seed-0, step 3"}
    first = [(each, trained, n) for each, trained, n in stretches(rows, 1) if each == 1]
    assert [trained for _, trained, _ in first] == [False, True, False, True]
    for number, each in enumerate(played, 1):
        masks = [mask for conversation in each.conversations for mask in conversation.loss_mask]
        assert sum(n for _, trained, n in stretches(rows, number) if trained) == sum(masks)
        assert sum(n for _, _, n in stretches(rows, number)) == len(masks)
        assert {(row["reward"], row["advantage"]) for row in rows if row["trajectory"] == number} == {
            (each.reward, each.advantage)
        }
    assert group.group([]) == []


def test_a_trajectory_that_failed_at_once_keeps_its_row():
    rows = group.group([Records("r", "", "", (attempt([], error="TimeoutError: slow"),))])
    assert stretches(rows, 1) == [(1, False, 0)]
    assert (rows[0]["reward"], rows[0]["advantage"]) == (None, None)


def test_the_plot_of_a_group_shows_reward_and_advantage(tmp_path):
    rows = group.group([Records("seed-0, step 3", "", "", tuple(stories()[:4]))])
    drawn = plotted(rows, tmp_path, group)
    texts = [note.text for note in drawn.layout.annotations]
    assert texts[2:7] == ["reward", "1", "0", "0.1", "failed"]
    assert texts[7:] == ["advantage", "+1.21", "−0.57", "−0.44", "–"]
    assert "Rewards: mean 0.367, standard deviation 0.551 (n − 1)." in texts[1]
    names = [trace.name for trace in drawn.data]
    assert names[:4] == ["context", *(f"trained, {name}" for name in group.SHADES)]
    frames = drawn.data[-1]
    assert list(frames.base)[:2] == [0, frames.x[0]]
    equal = plotted(group.group([Records("r", "", "", tuple(stories()[4:7]))]), tmp_path, group)
    assert "do not differ: no gradient" in equal.layout.annotations[1].text


@pytest.fixture
def trained(tmp_path):
    """Step 1: two groups; step 2, of two processes: a group without a difference, and one that is torn apart."""
    folder = tmp_path / "seed-0"
    (folder / "trajectories").mkdir(parents=True)
    jsonl.write_csv(folder / "log.csv", [{"step": 1, "loss": 0.1, "reward": 0.5}])

    def put(step, process, name, *rewards):
        for sample, reward in enumerate(rewards):
            each = attempt([], "x", Task(name, name, ("x",)), 2 * process + sample, reward)
            write_trajectory(folder / "trajectories" / f"train-{step:06d}-{process:04d}.jsonl", each)

    put(1, 0, "little", 0.5, 0.4)
    put(1, 0, "much", 1.0, 0.0)
    put(2, 0, "same", 1.0, 1.0)
    put(2, 1, "same", 1.0, None)
    return folder


def drawn_from(folder, question=None):
    groups = read_runs([folder], question).groups
    return [(each.name, each.trajectories[0].task.id, [one.reward for one in each.trajectories]) for each in groups]


def test_the_last_group_with_the_greatest_difference_is_taken(trained):
    assert drawn_from(trained) == [("seed-0, step 1", "much", [1.0, 0.0])]
    assert drawn_from(trained, "little") == [("seed-0, step 1", "little", [0.5, 0.4])]
    assert drawn_from(trained, "same") == [("seed-0, step 2", "same", [1.0, 1.0, 1.0, None])]
    assert drawn_from(trained, "none") == []


def test_a_run_without_a_difference_shows_its_last_step(trained):
    (trained / "trajectories" / "train-000001-0000.jsonl").unlink()
    assert drawn_from(trained) == [("seed-0, step 2", "same", [1.0, 1.0, 1.0, None])]
    assert list(read_runs([trained]).digests) == ["seed-0, step 2", "seed-0"]
