"""Prompt files: slots filled, text from outside marked, what is wrong with a file named."""

import hashlib

import pytest

from memsearcher.agents.memsearcher import MemSearcher
from memsearcher.prompts import FOLDER, Filling, Prompt, PromptError, load_prompts
from memsearcher.trajectory import Segment


def test_slots_are_filled_and_marked():
    prompt = Prompt("p", "Q: {question} in \\boxed{}, {other} {memory}{memory}")
    segments = prompt.fill(
        "user", "instruction", {"question": [Filling("question", "{memory}?", 7)], "memory": [Filling("memory", "m")]}
    )
    assert segments == [
        Segment("user", "instruction", "Q: "),
        Segment("user", "question", "{memory}?", limit=7),
        Segment("user", "instruction", " in \\boxed{}, {other} "),
        Segment("user", "memory", "m"),
        Segment("user", "memory", "m"),
    ]


def test_a_slot_takes_several_pieces_or_none():
    prompt = Prompt("p", "a{x}b")
    pieces = [Filling("observation", "1"), Filling("instruction", "\n"), Filling("observation", "")]
    assert [each.text for each in prompt.fill("user", "instruction", {"x": pieces})] == ["a", "1", "\n", "", "b"]
    assert [each.text for each in prompt.fill("user", "instruction", {"x": []})] == ["a", "b"]


def test_without_slots_the_text_is_one_segment():
    assert Prompt("p", "a {b} {").fill("system", "system") == [Segment("system", "system", "a {b} {")]


def test_text_that_only_looks_like_a_slot_is_text():
    slots = {"a": [Filling("question", "x")], "b.c": [Filling("question", "y")]}
    segments = Prompt("p", "{b_c}{a}{aX").fill("user", "instruction", slots)
    assert [(each.part, each.text) for each in segments] == [
        ("instruction", "{b_c}"),
        ("question", "x"),
        ("instruction", "{aX"),
    ]
    assert Prompt("p", "{aX").fill("user", "instruction", slots) == [Segment("user", "instruction", "{aX")]
    assert Prompt("p", "{a]").fill("user", "instruction", slots) == [Segment("user", "instruction", "{a]")]


def test_built_in_prompts_have_their_slots_and_a_hash():
    prompts = load_prompts("memsearcher", MemSearcher.slots)
    assert set(prompts.texts) == set(MemSearcher.slots)
    assert not any(prompt.text.endswith("\n") for prompt in prompts.texts.values())
    names = sorted(MemSearcher.slots)
    text = "".join(
        f"{name}\0{(FOLDER / 'memsearcher' / name).with_suffix('.txt').read_text()[:-1]}\0" for name in names
    )
    assert prompts.sha256 == hashlib.sha256(text.encode()).hexdigest()


def test_prompts_of_a_folder(tmp_path):
    (tmp_path / "one.txt").write_text("é {x}\n\n", encoding="utf-8")
    prompts = load_prompts(tmp_path, {"one": ("x",)})
    assert prompts["one"].text == "é {x}\n"
    assert prompts.folder == str(tmp_path)
    assert load_prompts(str(tmp_path), {"one": ("x",)}) == prompts
    (tmp_path / "one.txt").write_text("e {x}")
    assert load_prompts(tmp_path, {"one": ("x",)}).sha256 != prompts.sha256


def test_what_is_wrong_with_a_file_is_named(tmp_path):
    with pytest.raises(PromptError, match=r"nowhere.one\.txt: no such prompt; built-in sets are: .*memsearcher"):
        load_prompts("nowhere", {"one": ()})
    path = tmp_path / "one.txt"
    path.write_text("nothing")
    with pytest.raises(PromptError, match=r"one\.txt: the slot {x} is missing"):
        load_prompts(tmp_path, {"one": ("x",)})
    with pytest.raises(PromptError, match=r"two\.txt: no such prompt"):
        load_prompts(tmp_path, {"one": (), "two": ()})
    with pytest.raises(PromptError, match=r"one\.txt.one\.txt: no such prompt"):
        load_prompts(path, {"one": ()})
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(PromptError, match=r"one\.txt: not UTF-8"):
        load_prompts(tmp_path, {"one": ()})
