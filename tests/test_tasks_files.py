"""Tasks from files and from the built-in world."""

import json
import random

import pytest

from memsearcher import jsonl
from memsearcher.data import data_folder
from memsearcher.tasks import factbook
from memsearcher.tasks.files import TaskError, make_task, read_tasks
from memsearcher.trajectory import Task


def file(folder, *rows):
    path = folder / "tasks.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_rows_become_tasks(tmp_path):
    path = file(
        tmp_path,
        {"id": "a", "question": "Who?", "golden_answers": ["X", "Y"], "metadata": {"hops": 2}},
        {"question": "What?", "surplus": 1},
        {"id": 7, "question": " Where? ", "golden_answers": [], "metadata": None},
        {"id": "h", "question": "<|im_end|>\x00\ud800", "golden_answers": ["\ud800"]},
    )
    assert list(read_tasks(path)) == [
        Task("a", "Who?", ("X", "Y"), {"hops": 2}),
        Task("2", "What?"),
        Task("7", " Where? "),
        Task("h", "<|im_end|>\x00\ud800", ("\ud800",)),
    ]


def test_the_last_question_counts_without_its_newline(tmp_path):
    """Files that people write by hand end so, and no question may be lost without a word."""
    path = file(tmp_path, {"question": "Who?"}, {"question": "What?"})
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    assert [task.question for task in read_tasks(path)] == ["Who?", "What?"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([], "an object was expected"),
        ("Who?", "an object was expected"),
        (None, "an object was expected"),
        ({}, "field 'question' must be a string with text in it, not None"),
        ({"question": ""}, "field 'question' must be a string with text in it, not ''"),
        ({"question": " \n"}, "field 'question' must be a string with text in it, not ' \\n'"),
        ({"question": ["Who?"]}, "field 'question' must be a string with text in it, not ['Who?']"),
        ({"question": "Who?", "golden_answers": "X"}, "field 'golden_answers' must be a list of strings"),
        ({"question": "Who?", "golden_answers": None}, "field 'golden_answers' must be a list of strings"),
        ({"question": "Who?", "golden_answers": ["X", 3]}, "field 'golden_answers' must be a list of strings"),
        ({"question": "Who?", "metadata": "x"}, "field 'metadata' must be an object"),
        ({"question": "Who?", "metadata": []}, "field 'metadata' must be an object"),
        ({"question": "Who?", "id": None}, "field 'id' must be a string or a whole number, not None"),
        ({"question": "Who?", "id": [1]}, "field 'id' must be a string or a whole number, not [1]"),
        ({"question": "Who?", "id": 0.5}, "field 'id' must be a string or a whole number, not 0.5"),
        ({"question": "What?", "id": "a"}, "id 'a' is there twice"),
    ],
)
def test_a_bad_row_is_named_by_file_line_and_field(tmp_path, row, message):
    path = file(tmp_path, {"id": "a", "question": "Who?"}, row)
    tasks = read_tasks(path)
    assert next(tasks).id == "a"
    with pytest.raises(TaskError) as caught:
        next(tasks)
    assert str(caught.value) == f"{path}:2: {message}"


def test_a_default_id_that_is_taken_is_an_error(tmp_path):
    path = file(tmp_path, {"id": "2", "question": "Who?"}, {"question": "What?"})
    with pytest.raises(TaskError, match=r"tasks\.jsonl:2: id '2' is there twice"):
        list(read_tasks(path))


def test_a_long_value_is_cut_in_the_message():
    with pytest.raises(TaskError) as caught:
        make_task({"question": ["x" * 100_000]}, "1")
    assert len(str(caught.value)) < 150


def test_a_line_that_is_not_json_is_named(tmp_path):
    path = file(tmp_path, {"question": "Who?"})
    path.write_bytes(path.read_bytes() + b"{oops\n")
    with pytest.raises(jsonl.JsonlError, match=r"tasks\.jsonl:2: not a line of JSON"):
        list(read_tasks(path))


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        list(read_tasks(tmp_path / "none.jsonl"))


@pytest.fixture(scope="module")
def dev():
    return factbook.load("dev")


def rows(name):
    lines = (data_folder() / "factbook" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_a_split_is_whole_and_in_order(dev):
    assert [(task.id, task.question, list(task.golds)) for task in dev] == [
        (row["id"], row["question"], row["golden_answers"]) for row in rows("dev")
    ]


def test_the_corpus_holds_every_supporting_passage(dev):
    passages = {row["id"] for _, row in jsonl.read(factbook.corpus_path())}
    assert {each for task in dev for each in task.metadata["supporting_ids"]} <= passages


def test_steps_are_joined_from_the_facts(dev):
    facts = {row["id"]: row for row in rows("facts")}
    for task, row in zip(dev, rows("dev"), strict=True):
        steps = [facts[each] for each in row["metadata"]["steps"]]
        assert task.metadata == {**row["metadata"], "steps": steps}
        assert all(step["passage_id"] in task.metadata["supporting_ids"] for step in steps)


@pytest.mark.parametrize(("shape", "hops"), [("chain", None), ("chain", 3), (None, 2), ("comparison", None)])
def test_shape_and_hops_choose(dev, shape, hops):
    wanted = [task for task in dev if shape in (None, task.metadata["shape"]) and hops in (None, task.metadata["hops"])]
    assert wanted
    assert factbook.load("dev", shape=shape, hops=hops) == wanted


def test_the_seed_draws(dev):
    drawn = factbook.load("dev", n=5, seed=3)
    assert drawn == random.Random(3).sample(dev, 5)
    assert drawn == factbook.load("dev", n=5, seed=3)
    assert drawn != factbook.load("dev", n=5, seed=4)
    assert factbook.load("dev", n=0) == []
    whole = factbook.load("dev", n=len(dev), seed=1)
    assert sorted(task.id for task in whole) == sorted(task.id for task in dev)


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({}, "dev questions"),
        ({"hops": 3}, "dev questions of 3 hops"),
        ({"shape": "comparison"}, "dev questions of shape comparison"),
        ({"hops": 2, "shape": "chain"}, "dev questions of 2 hops of shape chain"),
    ],
)
def test_more_than_there_are_is_refused(options, kind):
    count = len(factbook.load("dev", **options))
    with pytest.raises(ValueError) as caught:
        factbook.load("dev", n=count + 1, **options)
    assert str(caught.value) == f"{count + 1} {kind} were asked for; there are {count}"
