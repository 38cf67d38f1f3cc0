"""The warm start: the right tokens are learned, exactly, and a run that was stopped goes on."""

import csv
import json
import random
from dataclasses import replace

import peft
import pytest
import torch
from safetensors import safe_open
from torch.nn.functional import log_softmax
from transformers import TrainerCallback, TrainingArguments

from memsearcher.engines.chat import ChatFormat
from memsearcher.engines.models import ModelError, load_model
from memsearcher.environments.protocol import EnvironmentFailure
from memsearcher.recipe import Model, Recipe, WarmStart
from memsearcher.tasks import factbook
from memsearcher.training import warmstart
from memsearcher.training.expert import Expert
from memsearcher.training.warmstart import (
    SparseLossTrainer,
    make_expert,
    pad,
    record_demonstrations,
    train,
    warm_start,
)
from memsearcher.trajectory import Limits, read_trajectories
from tests.scripted import ScriptedEnvironment
from tests.test_expert import BOOKS, task
from tests.tiny import tiny_model, tiny_tokenizer

KINDS = ["qwen2", "llama"]


def rows(count=12, seed=0):
    """Rows of different lengths with one or two trained spans; the first token is never one."""
    draw = random.Random(seed)
    made = []
    for _ in range(count):
        ids = [draw.randrange(5, 300) for _ in range(draw.randint(6, 30))]
        labels = [-100] * len(ids)
        for _ in range(draw.randint(1, 2)):
            start = draw.randint(1, len(ids) - 1)
            labels[start : start + draw.randint(1, 6)] = ids[start : start + draw.randint(1, 6)]
        labels = [token if label != -100 else -100 for token, label in zip(ids, labels, strict=False)]
        made.append({"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels})
    return made


def recipe(**changes):
    settings = {"steps": 4, "batch": 2, "learning_rate": 0.01, "warmup": 1, "rank": 4, "alpha": 8, "save_every": 2}
    return Recipe(warmstart=WarmStart(**{**settings, **changes}), seed=3)


def slow_loss(model, batch):
    """The sum over trained tokens of -log p, a row at a time and without padding, and how many there are."""
    total, count = 0.0, 0
    for row in batch:
        logits = model(torch.tensor([row["input_ids"]])).logits[0]
        for place, label in enumerate(row["labels"]):
            if label != -100:
                total = total - log_softmax(logits[place - 1], -1)[label]
                count += 1
    return total, count


class Watch(TrainerCallback):
    """Keeps the gradients of the first step."""

    gradients = None

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        if self.gradients is None:
            self.gradients = {
                name: each.grad.clone() for name, each in model.named_parameters() if each.grad is not None
            }


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("batch", "accumulated"), [(1, 4), (3, 2), (6, 1)])
def test_loss_and_gradient_equal_a_slow_reference(kind, batch, accumulated, tmp_path):
    data = rows(batch * accumulated)
    watch = Watch()
    model = tiny_model(kind).double()
    trainer = SparseLossTrainer(
        model=model,
        args=TrainingArguments(
            output_dir=str(tmp_path),
            per_device_train_batch_size=batch,
            gradient_accumulation_steps=accumulated,
            max_steps=1,
            logging_steps=1,
            max_grad_norm=0.0,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            remove_unused_columns=False,
            dataloader_pin_memory=False,
        ),
        train_dataset=data,
        data_collator=pad,
        callbacks=[watch],
    )
    trainer.train()

    reference = tiny_model(kind).double()
    total, count = slow_loss(reference, data)
    loss = total / count
    loss.backward()
    assert trainer.state.log_history[0]["loss"] == pytest.approx(loss.item(), abs=1e-6)
    wanted = {name: each.grad for name, each in reference.named_parameters() if each.grad is not None}
    assert watch.gradients.keys() == wanted.keys()
    for name, gradient in watch.gradients.items():
        assert torch.allclose(gradient, wanted[name], rtol=1e-6, atol=1e-6), name


def test_the_recipe_says_how_the_expert_plays():
    asked = recipe(careless=0.3, wordy=0.5, frugal=True)
    assert make_expert(asked, ScriptedEnvironment(BOOKS)) == Expert(0.3, asked.tool, frugal=True, wordy=0.5)


def test_loss_without_a_count_is_the_mean_of_the_batch(tmp_path):
    trainer = SparseLossTrainer(
        model=tiny_model(),
        args=TrainingArguments(output_dir=str(tmp_path), report_to="none", use_cpu=True, dataloader_pin_memory=False),
    )
    data = rows(3)
    total, count = slow_loss(trainer.model, data)
    loss, outputs = trainer.compute_loss(trainer.model, pad(data), return_outputs=True)
    assert loss.item() == pytest.approx((total / count).item(), abs=1e-5)
    # Logits are there for what is trained, once for what rows share, and for one place that counts for nothing.
    trained = {
        tuple(row["input_ids"][: place + 1])
        for row in data
        for place, label in enumerate(row["labels"])
        if label != -100
    }
    assert outputs.logits.shape[:2] == (1, len(trained) + 1)


def test_a_model_that_cannot_take_trees_is_trained_on_rows(tmp_path):
    arguments = TrainingArguments(output_dir=str(tmp_path), report_to="none", use_cpu=True, dataloader_pin_memory=False)
    data = rows(3)
    model = tiny_model(attn_implementation="eager")
    loss, outputs = SparseLossTrainer(model=model, args=arguments).compute_loss(model, pad(data), return_outputs=True)
    total, count = slow_loss(tiny_model(), data)
    assert loss.item() == pytest.approx((total / count).item(), abs=1e-5)
    assert len(outputs.logits) == 3


def test_padding():
    padded = pad(
        [
            {"input_ids": [7], "attention_mask": [1], "labels": [-100]},
            {"input_ids": [5, 6], "attention_mask": [1, 1], "labels": [-100, 6]},
        ]
    )
    assert padded["input_ids"].tolist() == [[7, 0], [5, 6]]
    assert padded["attention_mask"].tolist() == [[1, 0], [1, 1]]
    assert padded["labels"].tolist() == [[-100, -100], [-100, 6]]


@pytest.mark.parametrize("kind", KINDS)
def test_training_learns_and_the_adapter_loads_again(kind, tmp_path):
    data = rows(4)
    log = train(tiny_model(kind), data, recipe(steps=10, batch=4, learning_rate=0.02), tmp_path)
    assert [row["step"] for row in log] == [5, 10]
    assert log[1]["loss"] < log[0]["loss"]

    model = peft.PeftModel.from_pretrained(tiny_model(kind), tmp_path / "adapter")
    before, count = slow_loss(tiny_model(kind), data)
    after, _ = slow_loss(model, data)
    assert after / count < before / count - 0.1
    with safe_open(tmp_path / "adapter" / "adapter_model.safetensors", "pt") as file:
        kept = {name: file.get_tensor(name) for name in file.offset_keys()}
    assert {each.dtype for each in kept.values()} == {torch.bfloat16}
    # Two matrices of rank 4 for each of the seven linear layers of the two blocks, and nothing else.
    assert len(kept) == 2 * 7 * 2
    assert all("lora_" in name and 4 in each.shape for name, each in kept.items())
    assert not list((tmp_path / "adapter").glob("*.bin"))


def test_two_steps_reduce_the_loss(tmp_path):
    data = rows(4)
    train(tiny_model(), data, recipe(steps=2, batch=4, warmup=0, learning_rate=0.02), tmp_path)
    before, count = slow_loss(tiny_model(), data)
    after, _ = slow_loss(peft.PeftModel.from_pretrained(tiny_model(), tmp_path / "adapter"), data)
    assert after / count < before / count - 0.01


def test_in_bfloat16_adapters_are_still_trained_in_float32(tmp_path):
    data, products = rows(4), set()
    model, half = tiny_model().to(torch.bfloat16), Model(dtype="bfloat16")
    for each in model.model.layers:
        each.mlp.register_forward_hook(lambda layer, given, out: products.add(out.dtype))
    log = train(model, data, replace(recipe(steps=10, batch=4, learning_rate=0.02), model=half), tmp_path)
    assert products == {torch.bfloat16}
    assert {each.dtype for name, each in model.named_parameters() if each.requires_grad} == {torch.float32}
    assert log[1]["loss"] < log[0]["loss"]


def test_the_adapter_is_bound_to_its_base(tmp_path):
    train(tiny_model(), rows(4), recipe(steps=1), tmp_path / "a")
    config = json.loads((tmp_path / "a" / "adapter" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "HuggingFaceTB/SmolLM2-135M-Instruct"
    other = replace(recipe(steps=1), model=Model(name="Qwen/Qwen2.5-0.5B-Instruct"))
    train(tiny_model(), rows(4), other, tmp_path / "b")
    config = json.loads((tmp_path / "b" / "adapter" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "Qwen/Qwen2.5-0.5B-Instruct"


def test_the_adapter_loads_through_the_engines_loader(tmp_path):
    train(tiny_model(), rows(4), recipe(), tmp_path)
    tiny_model().save_pretrained(tmp_path / "base")
    tiny_tokenizer().save_pretrained(tmp_path / "base")
    model, _ = load_model(tmp_path / "base", tmp_path / "adapter")
    want = peft.PeftModel.from_pretrained(tiny_model(), tmp_path / "adapter")
    ids = torch.tensor([[5, 6, 7]])
    assert torch.allclose(model(ids).logits, want(ids).logits, atol=1e-5)


def weights(folder):
    with safe_open(folder / "adapter" / "adapter_model.safetensors", "pt") as file:
        return {name: file.get_tensor(name) for name in file.offset_keys()}


def test_long_conversations_go_through_one_by_one_to_the_same_log(tmp_path, monkeypatch):
    sizes = []

    def counted(batch):
        sizes.append(len(batch))
        return pad(batch)

    monkeypatch.setattr(warmstart, "pad", counted)
    together = train(tiny_model(), rows(), recipe(batch=4, steps=5), tmp_path / "together")
    assert set(sizes) == {4}
    sizes.clear()
    monkeypatch.setattr(warmstart, "MOST_TOKENS", 20)  # the longest row has 28 tokens
    apart = train(tiny_model(), rows(), recipe(batch=4, steps=5), tmp_path / "apart")
    assert set(sizes) == {1}
    assert [row["loss"] for row in apart] == pytest.approx([row["loss"] for row in together], rel=1e-5)


def test_a_run_is_the_same_every_time_and_other_seeds_are_not(tmp_path):
    train(tiny_model(), rows(), recipe(), tmp_path / "a")
    torch.rand(7)  # what was drawn before does not matter
    train(tiny_model(), rows(), recipe(), tmp_path / "b")
    train(tiny_model(), rows(), replace(recipe(), seed=4), tmp_path / "c")
    first, second, other = (weights(tmp_path / name) for name in "abc")
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


@pytest.mark.parametrize("stop", [1, 2, 3])
def test_a_run_that_was_stopped_goes_on_to_the_same_weights(stop, tmp_path, monkeypatch):
    train(tiny_model(), rows(), recipe(), tmp_path / "whole")

    step = SparseLossTrainer.training_step

    def interrupted(self, *arguments, **options):
        if self.state.global_step == stop:
            raise KeyboardInterrupt
        return step(self, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(SparseLossTrainer, "training_step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(tiny_model(), rows(), recipe(), tmp_path / "stopped")
    assert not (tmp_path / "stopped" / "adapter").exists()
    log = train(tiny_model(), rows(), recipe(), tmp_path / "stopped")
    assert log == []  # a row for five steps
    whole, stopped = weights(tmp_path / "whole"), weights(tmp_path / "stopped")
    assert whole.keys() == stopped.keys()
    assert all(torch.equal(whole[name], stopped[name]) for name in whole)


def test_a_run_that_has_ended_only_saves_again(tmp_path):
    train(tiny_model(), rows(), recipe(), tmp_path)
    first = weights(tmp_path)
    train(tiny_model(), rows(), recipe(), tmp_path)
    assert all(torch.equal(first[name], each) for name, each in weights(tmp_path).items())


def test_a_run_that_starts_from_an_adapter_trains_it_further(tmp_path):
    data = rows(4)
    train(tiny_model(), data, recipe(steps=5, batch=4, learning_rate=0.02), tmp_path / "first")
    start = str(tmp_path / "first" / "adapter")
    train(tiny_model(), data, recipe(steps=1, batch=4, learning_rate=0.0, start=start), tmp_path / "still")
    first, still = weights(tmp_path / "first"), weights(tmp_path / "still")
    assert all(torch.equal(first[name], still[name]) for name in first)
    train(tiny_model(), data, recipe(steps=5, batch=4, learning_rate=0.02, start=start), tmp_path / "second")
    losses = [
        slow_loss(peft.PeftModel.from_pretrained(tiny_model(), tmp_path / name / "adapter"), data)[0].item()
        for name in ("first", "second")
    ]
    assert losses[1] < losses[0] - 0.1
    # Its rank is the first adapter's.
    train(tiny_model(), data, recipe(steps=1, batch=4, rank=8, start=start), tmp_path / "third")
    assert all(4 in each.shape for each in weights(tmp_path / "third").values())
    with pytest.raises(ModelError, match=r"adapter_config\.json"):
        train(tiny_model(), data, recipe(start=str(tmp_path / "nothing")), tmp_path / "fourth")


@pytest.mark.parametrize("left", ["nothing", "half a state"])
def test_a_checkpoint_torn_by_a_kill_is_passed_over(left, tmp_path):
    train(tiny_model(), rows(), recipe(), tmp_path)
    first = weights(tmp_path)
    state = tmp_path / "checkpoints" / "checkpoint-4" / "trainer_state.json"
    state.unlink() if left == "nothing" else state.write_text(state.read_text()[:40])
    train(tiny_model(), rows(), recipe(), tmp_path)
    assert all(torch.equal(first[name], each) for name, each in weights(tmp_path).items())


def test_nothing_to_train_on_is_one_clear_error(tmp_path):
    with pytest.raises(ValueError, match="no demonstration ended with the right answer"):
        train(tiny_model(), [], recipe(), tmp_path)


@pytest.fixture
def questions(monkeypatch):
    """Six training questions in the place of the built-in ones; what was asked of the loader."""
    asked = []

    def load(split, **options):
        asked.append((split, options))
        return [task(number) for number in range(options["n"])]

    monkeypatch.setattr(factbook, "load", load)
    return asked


def small(**changes):
    settings = {"steps": 5, "batch": 2, "learning_rate": 0.01, "rank": 2, "alpha": 4, "questions": {"2-hop": 6}}
    return Recipe(
        limits=Limits(turns=6, context_tokens=100_000), warmstart=WarmStart(**{**settings, **changes}), seed=1
    )


def test_questions_by_kind(questions):
    kinds = {"2-hop": 1, "3-hop": 2, "4-hop": 3, "comparison": 4, "intersection": 5}
    assert len(warmstart.training_questions(small(questions=kinds))) == 15
    assert questions == [
        ("train", {"shape": "chain", "hops": 2, "n": 1, "seed": 1}),
        ("train", {"shape": "chain", "hops": 3, "n": 2, "seed": 1}),
        ("train", {"shape": "chain", "hops": 4, "n": 3, "seed": 1}),
        ("train", {"shape": "comparison", "n": 4, "seed": 1}),
        ("train", {"shape": "intersection", "n": 5, "seed": 1}),
    ]
    with pytest.raises(ValueError, match=r"warmstart\.questions: '5-hop' is not one of 2-hop, 3-hop, 4-hop"):
        warmstart.training_questions(small(questions={"5-hop": 1}))


def test_built_in_questions_have_the_steps_that_the_expert_needs():
    asked = warmstart.training_questions(small(questions={"2-hop": 3, "3-hop": 3, "comparison": 3, "intersection": 3}))
    assert len({each.id for each in asked}) == 12
    for each in asked:
        for step in each.metadata["steps"]:
            assert step["fact"] and step["answers"] and step["passage_id"] and step["ask"] and step["subject"]


@pytest.mark.parametrize(("share", "turns"), [(0.0, {6}), (1.0, {3})])
def test_a_share_is_played_with_just_the_turns_it_needs(share, turns, questions, tmp_path):
    chat = ChatFormat.from_tokenizer(tiny_tokenizer())
    played = record_demonstrations(
        small(exact_turns=share, careless=0.0), ScriptedEnvironment(BOOKS), chat, tmp_path / "d.jsonl"
    )
    assert {each.limits.turns for each in played} == turns
    assert all(each.answer == "kip" for each in played)
    announced = "This is the last turn" in played[0].conversations[-1].messages()[1]["content"]
    assert announced == (share == 1.0)


def test_demonstrations_that_are_there_are_kept(questions, tmp_path):
    chat, path = ChatFormat.from_tokenizer(tiny_tokenizer()), tmp_path / "run" / "d.jsonl"
    whole = record_demonstrations(small(), ScriptedEnvironment(BOOKS), chat, path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2]) + lines[2][:50])  # killed while it wrote the third
    environment = ScriptedEnvironment(BOOKS)
    again = record_demonstrations(small(), environment, chat, path)
    assert {each.id for each in again} == {each.id for each in whole}
    assert again[:2] == whole[:2]
    assert list(read_trajectories(path)) == again
    played = {request.task.id for batch in environment.batches for request in batch}
    assert played == {each.task.id for each in whole[2:]}


def test_the_whole_warm_start(questions, tmp_path):
    folder = warm_start(small(), ScriptedEnvironment(BOOKS), tiny_model(), tiny_tokenizer(), tmp_path / "run")
    assert folder == tmp_path / "run" / "adapter"
    bound = json.loads((folder / "agent.json").read_text())
    assert bound["recipe"] == small().to_json()
    assert bound["environment"] == {"environment": "scripted"}
    assert len(bound["agent"]["prompts_sha256"]) == 64
    assert (bound["counts"]["trajectories"], bound["counts"]["right"]) == (6, 6)
    with (folder / "training_log.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [row["step"] for row in table] == ["5"]
    assert set(table[0]) == {"step", "epoch", "loss", "learning_rate", "grad_norm"}
    assert float(table[0]["loss"]) > 0
    assert len(list(read_trajectories(tmp_path / "run" / "demonstrations.jsonl"))) == 6
    with pytest.raises(ValueError, match="holds a warm start of another recipe; name another --out"):
        warm_start(small(steps=6), ScriptedEnvironment(BOOKS), tiny_model(), tiny_tokenizer(), tmp_path / "run")
    assert (tmp_path / "run" / "recipe.yaml").read_text() == small().to_yaml()
    warm_start(small(), ScriptedEnvironment(BOOKS), tiny_model(), tiny_tokenizer(), tmp_path / "run")


@pytest.mark.parametrize("agent", ["react", "mem1"])
def test_the_warm_start_of_another_agent(agent, questions, tmp_path):
    mine = replace(small(careless=0.0), agent=agent)
    folder = warm_start(mine, ScriptedEnvironment(BOOKS), tiny_model(), tiny_tokenizer(), tmp_path)
    bound = json.loads((folder / "agent.json").read_text())
    assert (bound["recipe"]["agent"], bound["agent"]["prompts"]) == (agent, agent)
    played = list(read_trajectories(tmp_path / "demonstrations.jsonl"))
    assert {(each.agent, each.answer) for each in played} == {(agent, "kip")}
    # The questions, and the turns that each may take, are those of every other agent.
    chat = ChatFormat.from_tokenizer(tiny_tokenizer())
    other = record_demonstrations(small(careless=0.0), ScriptedEnvironment(BOOKS), chat, tmp_path / "other.jsonl")
    assert {each.id: each.limits for each in played} == {each.id: each.limits for each in other}


def test_a_warm_start_whose_searches_all_fail_says_so(questions, tmp_path):
    environment = ScriptedEnvironment({None: EnvironmentFailure("no index")})
    with pytest.raises(ValueError, match="no demonstration ended with the right answer"):
        warm_start(small(), environment, tiny_model(), tiny_tokenizer(), tmp_path)
    assert all(each.error for each in read_trajectories(tmp_path / "demonstrations.jsonl"))


def test_another_tool(questions, tmp_path):
    chat = ChatFormat.from_tokenizer(tiny_tokenizer())
    mine = replace(small(), tool="look_up")
    played = record_demonstrations(mine, ScriptedEnvironment(BOOKS), chat, tmp_path / "d.jsonl")
    assert all(each.answer == "kip" for each in played)
