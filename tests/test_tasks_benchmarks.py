"""The seven benchmarks: from FlashRAG's files, Search-R1's parquet and the hub, and as a command names them."""

import json
import logging
import os
import random
from collections import Counter
from pathlib import Path

import httpx
import huggingface_hub
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memsearcher.agents.memsearcher import MemSearcher
from memsearcher.jsonl import JsonlError
from memsearcher.rollout import rollout
from memsearcher.scoring import score_trajectory
from memsearcher.tasks import benchmarks, factbook
from memsearcher.tasks.benchmarks import BENCHMARKS, load, load_training, notices
from memsearcher.tasks.choose import choose_tasks
from memsearcher.tasks.files import TaskError
from memsearcher.tasks.objectives import compose, compose_dependent
from memsearcher.trajectory import Task
from tests.scripted import ScriptedEngine, ScriptedEnvironment, answer

BENCH = Path(os.environ.get("MEMSEARCHER_BENCH") or Path(__file__).parents[2] / "shared" / "bench")
SLICES = {
    "nq.test.1000.jsonl": ("nq", 1000),
    "triviaqa.test.1000.jsonl": ("triviaqa", 1000),
    "popqa.test.1000.jsonl": ("popqa", 1000),
    "hotpotqa.dev.1000.jsonl": ("hotpotqa", 1000),
    "hotpotqa_100.questions.jsonl": ("hotpotqa", 100),
    "2wikimultihopqa.dev.1000.jsonl": ("2wikimultihopqa", 1000),
    "musique.dev.1000.jsonl": ("musique", 1000),
    "bamboogle.test.125.jsonl": ("bamboogle", 125),
}


def flashrag(folder, *rows, name="file.jsonl"):
    """A JSONL file; rows without their own have an id, a question and a gold."""
    path = folder / name
    whole = ({"id": f"dev_{i}", "question": f"Q{i}?", "golden_answers": [f"G{i}"], **row} for i, row in enumerate(rows))
    path.write_text("".join(json.dumps(row) + "\n" for row in whole), encoding="utf-8")
    return path


def row(source, index, split="train", target=("gold",), **columns):
    """A row of Search-R1's parquet, with the documented columns only."""
    return {
        "data_source": source,
        "prompt": [{"role": "user", "content": f"Think, then answer. Question: {source} {index}?\n"}],
        "ability": "fact-reasoning",
        "reward_model": {"style": "rule", "ground_truth": {"target": list(target)}},
        "extra_info": {"split": split, "index": index},
        **columns,
    }


def parquet(folder, *rows):
    path = folder / "file.parquet"
    pq.write_table(pa.Table.from_pylist(list(rows)), path)
    return path


def messages(caplog):
    return [each.getMessage() for each in caplog.records]


@pytest.mark.skipif(not BENCH.is_dir(), reason=f"no slices of the benchmarks at {BENCH}; set MEMSEARCHER_BENCH")
@pytest.mark.parametrize("file", SLICES)
def test_a_slice_of_the_real_questions_scores_1_with_golds_and_0_without(file, caplog):
    name, count = SLICES[file]
    tasks = load(name, BENCH / file)
    assert len(tasks) == count
    assert len(caplog.records) == (count != BENCHMARKS[name].counts[BENCHMARKS[name].split])

    def play(answers):
        # A right answer takes one call, so calls come in the order of the tasks. PopQA has questions of one
        # wording and different golds.
        engine = ScriptedEngine(map(answer, answers))
        played = rollout(MemSearcher(), ScriptedEnvironment(), engine, ((task, 0) for task in tasks), width=256)
        return Counter((scores.em, scores.f1) for scores in map(score_trajectory, played))

    assert play([task.golds[0] for task in tasks]) == {(1.0, 1.0): count}
    assert play([""] * 5 * count) == {(0.0, 0.0): count}


@pytest.mark.skipif(not BENCH.is_dir(), reason=f"no slices of the benchmarks at {BENCH}; set MEMSEARCHER_BENCH")
def test_supporting_titles_of_the_real_questions_are_kept():
    tasks = load("hotpotqa", BENCH / "hotpotqa_100.questions.jsonl")
    assert tasks[0].id == "hotpotqa-5a77ec115542992a6e59dff7"
    assert all(len(task.metadata["supporting_titles"]) == 2 for task in tasks)


def test_the_seven_have_their_published_numbers():
    published = {
        "nq": ("test", 3610),
        "triviaqa": ("test", 11_313),
        "popqa": ("test", 14_267),
        "hotpotqa": ("dev", 7405),
        "2wikimultihopqa": ("dev", 12_576),
        "musique": ("dev", 2417),
        "bamboogle": ("test", 125),
    }
    assert {name: (each.split, each.counts[each.split]) for name, each in BENCHMARKS.items()} == published
    assert all(name == each.name and each.note.endswith(".") for name, each in BENCHMARKS.items())
    assert sum(BENCHMARKS[name].counts["train"] for name in benchmarks.TRAINING) == 169_615


def test_rows_become_tasks_with_names_of_their_own(tmp_path):
    path = flashrag(tmp_path, {"golden_answers": ["A", "B"], "metadata": {"level": "hard"}}, {"id": "5a77"}, {"id": 7})
    assert load("hotpotqa", path) == [
        Task("hotpotqa-dev-0", "Q0?", ("A", "B"), {"benchmark": "hotpotqa", "level": "hard"}),
        Task("hotpotqa-5a77", "Q1?", ("G1",), {"benchmark": "hotpotqa"}),
        Task("hotpotqa-7", "Q2?", ("G2",), {"benchmark": "hotpotqa"}),
    ]
    assert load("musique", path)[0].id == "musique-dev-0"


@pytest.mark.parametrize(
    ("metadata", "titles"),
    [
        ({"supporting_titles": ["A", "B"]}, ["A", "B"]),
        ({"supporting_facts": {"title": ["A", "B", "A"], "sent_id": [0, 1, 2]}}, ["A", "B"]),
        (
            {
                "question_decomposition": [
                    {"support_paragraph": {"title": title, "paragraph_text": "x"}} for title in "AB"
                ]
            },
            ["A", "B"],
        ),
        ({"question_decomposition": [{"support_paragraph": None}, "x", {"support_paragraph": {"title": "B"}}]}, ["B"]),
        ({"supporting_facts": None}, None),
        ({"supporting_facts": {"title": "A"}}, None),
        ({"supporting_facts": {}}, None),
        ({"question_decomposition": []}, None),
        ({"type": "bridge"}, None),
    ],
)
def test_supporting_titles_are_read_where_a_data_set_has_them(metadata, titles, tmp_path):
    (task,) = load("hotpotqa", flashrag(tmp_path, {"metadata": metadata}))
    assert task.metadata.get("supporting_titles") == titles


def test_the_passages_that_come_with_a_question_are_left_out(tmp_path):
    context = {"title": ["T"], "sentences": [["S"]]}
    metadata = {"context": context, "level": "easy", "benchmark": "other"}
    (task,) = load("hotpotqa", flashrag(tmp_path, {"metadata": metadata}))
    assert task.metadata == {"benchmark": "hotpotqa", "level": "easy"}


def test_another_number_or_split_is_said_and_no_fault(tmp_path, caplog):
    tasks = load("hotpotqa", flashrag(tmp_path, {}, {"id": "train_3"}, {"id": "test_3"}))
    assert len(tasks) == 3
    assert messages(caplog) == [
        "hotpotqa: 3 questions; its dev set has 7,405",
        "hotpotqa: ids of test and train are there; dev was asked for",
    ]
    assert caplog.records[0].levelno == logging.WARNING
    caplog.clear()
    load("hotpotqa", flashrag(tmp_path, {"id": "train_3"}), split="train")
    assert messages(caplog) == ["hotpotqa: 1 questions; its train set has 90,447"]
    assert notices(BENCHMARKS["bamboogle"], "test", [Task(f"bamboogle-test-{i}", "Q?") for i in range(125)]) == []


def test_the_seed_draws(tmp_path):
    path = flashrag(tmp_path, *[{}] * 50)
    whole = load("nq", path)
    drawn = load("nq", path, n=20, seed=3)
    assert drawn == random.Random(3).sample(whole, 20) == load("nq", path, n=20, seed=3)
    assert drawn != load("nq", path, n=20, seed=4)
    assert len({task.id for task in drawn}) == 20
    assert load("nq", path, n=0) == []
    with pytest.raises(ValueError, match="51 questions of nq were asked for; there are 50"):
        load("nq", path, n=51)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"question": " "}, "field 'question' must be a string with text in it, not ' '"),
        ({"golden_answers": "x"}, "field 'golden_answers' must be a list of strings"),
        ({"golden_answers": []}, "field 'golden_answers': there are no golds, so no answer can be scored"),
        ({"golden_answers": ["a", " "]}, "field 'golden_answers': golds[1] is blank"),
        ({"id": "dev_0"}, "id 'dev_0' is there twice"),
    ],
)
def test_a_bad_line_is_named_by_file_line_and_field(bad, message, tmp_path):
    path = flashrag(tmp_path, {}, bad)
    with pytest.raises(TaskError) as caught:
        load("nq", path)
    assert str(caught.value).startswith(f"{path}:2: {message}")


def test_two_ids_that_become_one_are_refused(tmp_path):
    with pytest.raises(TaskError, match=r"file\.jsonl: id 'nq-dev-0' is there twice; take one of them out"):
        load("nq", flashrag(tmp_path, {}, {"id": "dev-0"}))


def test_what_is_not_there_is_named(tmp_path):
    with pytest.raises(TaskError, match="unknown benchmark 'squad'; there are: nq, triviaqa, popqa, hotpotqa, 2wiki"):
        load("squad")
    with pytest.raises(TaskError, match="bamboogle has no split train; there are: test"):
        load("bamboogle", split="train")
    with pytest.raises(TaskError, match=r"none\.jsonl: no such file; give a JSONL file in FlashRAG's schema or"):
        load("nq", tmp_path / "none.jsonl")
    (tmp_path / "bad.jsonl").write_text("{\n")
    with pytest.raises(JsonlError, match=r"bad\.jsonl:1: not a line of JSON"):
        load("nq", tmp_path / "bad.jsonl")


def test_parquet_rows_of_one_data_set_are_taken(tmp_path):
    path = parquet(
        tmp_path,
        row("nq", 0, target=["a", "b"]),
        row("hotpotqa", 0),
        row("hotpotqa", 1, split="test"),
        row("nq", 1, split="test"),
    )
    assert load("nq", path) == [
        Task("nq-train-0", "nq 0?", ("a", "b"), {"benchmark": "nq"}),
        Task("nq-test-1", "nq 1?", ("gold",), {"benchmark": "nq"}),
    ]
    # Search-R1 names its evaluation split test; of HotpotQA that is the dev set.
    assert [task.id for task in load("hotpotqa", path)] == ["hotpotqa-train-0", "hotpotqa-dev-1"]


def test_columns_of_flashrag_go_before_what_was_made_of_them(tmp_path):
    facts = {"supporting_facts": {"title": ["T"], "sent_id": [0]}, "context": {"title": ["T"]}}
    path = parquet(
        tmp_path,
        row("hotpotqa", 9, split="test", id="dev_4", question="Whole: who?", metadata=facts, golden_answers=["x"]),
        row("hotpotqa", 3, split="test", id=None, question=None, metadata=None, golden_answers=None),
    )
    one, other = load("hotpotqa", path)
    assert one == Task(
        "hotpotqa-dev-4",
        "Whole: who?",
        ("gold",),
        {"benchmark": "hotpotqa", "supporting_facts": facts["supporting_facts"], "supporting_titles": ["T"]},
    )
    assert other == Task("hotpotqa-dev-3", "hotpotqa 3?", ("gold",), {"benchmark": "hotpotqa"})


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"reward_model": None}, "field 'reward_model.ground_truth.target' must be a list of strings"),
        (
            {"reward_model": {"ground_truth": {"target": "x"}}},
            "field 'reward_model.ground_truth.target' must be a list",
        ),
        ({"reward_model": {"ground_truth": "x"}}, "field 'reward_model.ground_truth.target' must be a list of strings"),
        ({"reward_model": {"ground_truth": {"target": []}}}, "field 'golden_answers': there are no golds"),
        ({"reward_model": {"ground_truth": {"target": [1]}}}, "field 'golden_answers' must be a list of strings"),
        ({"extra_info": None}, "field 'extra_info' must hold a split, train, dev or test, and an index"),
        ({"extra_info": {"split": "val", "index": 1}}, "field 'extra_info' must hold a split"),
        ({"extra_info": {"split": "train", "index": "1"}}, "field 'extra_info' must hold a split"),
        ({"prompt": [{"content": "Who?"}]}, "there is no field 'question', and no 'Question: ' in the first message"),
        ({"prompt": []}, "there is no field 'question'"),
        ({"prompt": "Question: x"}, "there is no field 'question'"),
        ({"prompt": [{"content": "Question: \n"}]}, "field 'question' must be a string with text in it"),
    ],
)
def test_a_bad_row_is_named_by_file_row_and_field(columns, message, tmp_path):
    path = parquet(tmp_path, row("nq", 0, **columns))
    with pytest.raises(TaskError) as caught:
        load("nq", path)
    assert str(caught.value).startswith(f"{path}: row 0: {message}")


def test_a_parquet_file_without_the_data_set_or_that_is_none(tmp_path):
    with pytest.raises(TaskError, match=r"no rows of musique; field 'data_source' holds hotpotqa, nq"):
        load("musique", parquet(tmp_path, row("nq", 0), row("hotpotqa", 0)))
    with pytest.raises(TaskError, match=r"no rows of nq; field 'data_source' holds None"):
        load("nq", parquet(tmp_path, {"question": "Q?"}))
    path = tmp_path / "file.parquet"
    path.write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(TaskError, match=r"file\.parquet: not a parquet file that can be read \(.*; download it again"):
        load("nq", path)
    pq.write_table(pa.table({"data_source": pa.array([], pa.string())}), path)
    with pytest.raises(TaskError, match="no rows of nq; field 'data_source' holds nothing"):
        load("nq", path)


def test_rows_of_one_index_in_two_data_sets_are_two_tasks(tmp_path):
    path = parquet(tmp_path, *(row(name, index) for name in ("nq", "hotpotqa") for index in range(20)))
    train, dev = load_training(path, dev=10, seed=1)
    assert (len(train), len(dev)) == (30, 10)
    assert len({task.id for task in train + dev}) == 40
    assert {task.id for task in train + dev} == {f"{name}-train-{i}" for name in ("nq", "hotpotqa") for i in range(20)}


def test_the_dev_cut_is_seeded_and_shares_no_question_with_train(tmp_path, caplog):
    asked = ["Who?", "who", "What?", "Where? ", "When?", "Why?"]
    rows = [row("nq", i, question=question, id=f"train_{i}") for i, question in enumerate(asked)]
    rows.append(row("hotpotqa", 0, question="WHO?", id="train_0"))
    train, dev = load_training(parquet(tmp_path, *rows), dev=2, seed=0)
    assert messages(caplog) == [
        "nq: 6 questions; its train set has 79,168",
        "hotpotqa: 1 questions; its train set has 90,447",
    ]
    for seed in range(8):
        train, dev = load_training(parquet(tmp_path, *rows), dev=2, seed=seed)
        sides = [{task.question.strip().strip("?").lower() for task in side} for side in (train, dev)]
        assert (len(sides[1]), sides[0] & sides[1], len(train) + len(dev)) == (2, set(), 7)
        turned = load_training(parquet(tmp_path, *reversed(rows)), dev=2, seed=seed)
        assert {task.id for task in turned[1]} == {task.id for task in dev}
    assert load_training(parquet(tmp_path, *rows), dev=0)[1] == []
    with pytest.raises(ValueError, match="a dev set of 5 questions cannot be cut from 5"):
        load_training(parquet(tmp_path, *rows), dev=5)


def test_training_needs_both_data_sets_and_their_parquet(tmp_path):
    with pytest.raises(TaskError, match=r"no rows of hotpotqa; field 'data_source' holds nq"):
        load_training(parquet(tmp_path, row("nq", 0)))
    for path in (flashrag(tmp_path, {}), tmp_path / "none.parquet"):
        with pytest.raises(
            TaskError, match=r"no such parquet file; give Search-R1's train\.parquet of nq_hotpotqa_train"
        ):
            load_training(path)


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """The hub's repository as a folder."""
    asked = []

    def download(repo, file, repo_type):
        asked.append((repo, file, repo_type))
        return str(tmp_path / file)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    for name, split in (("nq", "train"), ("nq", "test"), ("hotpotqa", "train"), ("hotpotqa", "dev")):
        (tmp_path / name).mkdir(exist_ok=True)
        rows = [{"id": f"{split}_{i}", "question": f"{name} {i}", "golden_answers": ["gold"]} for i in range(3)]
        flashrag(tmp_path / name, *rows, name=f"{split}.jsonl")
    return asked


def test_the_hub_gives_the_split_that_is_published(hub):
    assert [task.id for task in load("nq")] == ["nq-test-0", "nq-test-1", "nq-test-2"]
    assert load("hotpotqa")[0].id == "hotpotqa-dev-0"
    assert load("hotpotqa", split="train")[0].id == "hotpotqa-train-0"
    assert hub == [
        ("RUC-NLPIR/FlashRAG_datasets", file, "dataset")
        for file in ("nq/test.jsonl", "hotpotqa/dev.jsonl", "hotpotqa/train.jsonl")
    ]


def test_hub_and_parquet_are_cut_alike(hub, tmp_path):
    path = parquet(tmp_path, *(row(name, index) for name in ("nq", "hotpotqa") for index in range(3)))
    for seed in range(5):
        from_hub, from_file = load_training(dev=2, seed=seed), load_training(path, dev=2, seed=seed)
        assert [[task.id for task in side] for side in from_hub] == [[task.id for task in side] for side in from_file]


def test_a_hub_out_of_reach_is_one_clear_sentence():
    with pytest.raises(TaskError) as caught:  # tests run with HF_HUB_OFFLINE
        load("nq")
    assert str(caught.value) == (
        "nq/test.jsonl of RUC-NLPIR/FlashRAG_datasets could not be fetched from the hub (LocalEntryNotFoundError); "
        "download it on another machine and give its path"
    )


def test_a_download_that_breaks_off_is_the_same_sentence(monkeypatch):
    def download(*_, **__):
        raise httpx.ReadError("broken")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    with pytest.raises(TaskError, match=r"could not be fetched from the hub \(ReadError\)"):
        load_training()


def test_a_command_names_a_benchmark_with_a_file(tmp_path):
    path = flashrag(tmp_path, *[{}] * 9)
    assert choose_tasks(f"hotpotqa={path}", None, None, 0) == load("hotpotqa", path)
    assert choose_tasks(f"hotpotqa={path}", 4, None, 7) == load("hotpotqa", path, n=4, seed=7)
    assert [task.id for task in choose_tasks(str(path), 2, None, 0)] == ["dev_0", "dev_1"]


def test_a_command_names_a_benchmark_of_the_hub(hub):
    assert choose_tasks("hotpotqa", 2, None, 1) == load("hotpotqa", n=2, seed=1)


def test_a_command_names_the_training_set_and_its_dev_cut(monkeypatch, tmp_path):
    path = parquet(tmp_path, *(row(name, index) for name in ("nq", "hotpotqa") for index in range(9)))
    whole = load_training(path, dev=4, seed=2)
    monkeypatch.setattr(benchmarks, "load_training", lambda path, seed: load_training(path, dev=4, seed=seed))
    assert choose_tasks(f"nq_hotpotqa-train={path}", None, None, 2) == whole[0]
    assert choose_tasks(f"nq_hotpotqa-dev={path}", None, None, 2) == whole[1]
    assert choose_tasks(f"nq_hotpotqa-dev={path}", 3, None, 2) == random.Random(2).sample(whole[1], 3)


def test_a_command_joins_questions(tmp_path):
    path = flashrag(tmp_path, *[{}] * 6)
    tasks = load("nq", path)
    assert choose_tasks(f"nq={path}", None, None, 3, objectives="2") == compose(tasks, [2])
    assert choose_tasks(f"nq={path}", None, None, 3, objectives="1,2", shuffle=True) == compose(tasks, [1, 2], seed=3)
    chains = factbook.load("dev", shape="chain", n=6, seed=3)
    assert choose_tasks("factbook-dev", 6, None, 3, objectives="4", dependent=True) == compose_dependent(chains, 4)
    pairs = factbook.load("dev", shape="chain", hops=2, n=4, seed=3)
    assert choose_tasks("factbook-dev", 4, 2, 3, objectives="4", dependent=True) == compose_dependent(pairs, 4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"objectives": "two"}, "--objectives two: a whole number was expected, or some, as 1,2,4"),
        ({"objectives": ""}, "--objectives : a whole number was expected"),
        ({"objectives": "17"}, r"a task holds from 1 to 16 questions, not \[17\]"),
        ({"shuffle": True}, "--shuffle goes with --objectives, and not with --dependent"),
        ({"shuffle": True, "dependent": True, "objectives": "4"}, "--shuffle goes with --objectives, and not with"),
        ({"dependent": True}, "--dependent goes with one number of --objectives and with the built-in questions only"),
        ({"dependent": True, "objectives": "2,4"}, "--dependent goes with one number of --objectives"),
        ({"tasks": "nq", "dependent": True, "objectives": "2"}, "--dependent goes with one number of --objectives"),
        ({"tasks": "nq", "hops": 2}, "--hops goes with the built-in questions only"),
        ({"tasks": "nq="}, "no such file"),
        (
            {"tasks": "squad=x.jsonl"},
            "squad=x.jsonl: no such file; built-in are factbook-train, .* benchmarks are nq, ",
        ),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    arguments = {"tasks": "factbook-dev", "n": 4, "hops": None, "seed": 0, **options}
    with pytest.raises(ValueError, match=message):
        choose_tasks(**arguments)
