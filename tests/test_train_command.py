"""`memsearcher train`: what a run leaves, how it goes on, what it refuses. The model is tiny, its replies a script."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM
from typer.testing import CliRunner

from memsearcher import cli
from memsearcher.commands import common
from memsearcher.engines.models import load_model
from memsearcher.recipe import Recipe, RecipeError, Training, load_recipe
from memsearcher.training import resume
from memsearcher.training import run as training_run
from memsearcher.training.adapter import adapted, save_adapter
from memsearcher.training.config import MultiContextGRPOConfig
from memsearcher.training.grpo import MultiContextGRPOTrainer
from memsearcher.training.run import make_config, questions_of
from tests.test_grpo_ranks import launch
from tests.tiny import tiny_model, tiny_tokenizer

STEPS = 4
CORPUS = ["Laos\nThe capital of Laos is Vientiane.", "Kip\nThe currency of Laos.", "Paris\nThe capital of France."]


class Writes(MultiContextGRPOTrainer):
    """Answers at random in the agent's format; dies where `dies_at` says, in the middle of an update."""

    dies_at = None

    def _generate_single_turn(self, prompt_ids, *rest, **options):
        end, encoder = [self._tokenizer.eos_token_id], self.policy.chat.encoder
        draws = torch.rand(len(prompt_ids)).tolist()
        return [
            [*encoder.own(self._write(encoder.decode(ids), draw))[0], *end]
            for ids, draw in zip(prompt_ids, draws, strict=True)
        ], None

    def _write(self, text, draw):
        if "<tool_response>" in text:
            return "<memory>it is known</memory>"
        if draw < 0.4:
            return '<think>a</think><tool_call>{"name": "search", "arguments": {"query": "Laos"}}</tool_call>'
        return f"<think>so</think>\\boxed{{{'kip' if draw < 0.7 else 'dong'}}}"

    def _compute_loss(self, model, inputs):
        if self.state.global_step == self.dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return super()._compute_loss(model, inputs)


def world(folder, **training):
    """A recipe with all that it names on disk: a model, a corpus, questions; its path."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "model").exists():
        tiny_model(max_position_embeddings=2048).save_pretrained(folder / "model")
        tiny_tokenizer().save_pretrained(folder / "model")
    lines = [json.dumps({"id": str(number), "contents": text}) for number, text in enumerate(CORPUS)]
    (folder / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    questions(folder / "train.jsonl", 5)
    questions(folder / "dev.jsonl", 2)
    settings = {"questions": str(folder / "train.jsonl"), "dev": str(folder / "dev.jsonl"), "steps": STEPS, "batch": 2}
    settings |= {"num_generations": 4, "learning_rate": 0.01, "rank": 2, "alpha": 4, "save_every": 2}
    settings |= {"evaluate_every": 2, "gradient_checkpointing": False}
    recipe = {
        "model": {"name": str(folder / "model"), "adapter": None},
        "limits": {"turns": 2, "call_tokens": 90, "memory_tokens": 30, "passages": 1, "passage_tokens": 20},
        "retrieval": {"corpus": str(folder / "corpus.jsonl"), "kind": "bm25"},
        "training": settings | training,
    }
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    return folder / "recipe.yaml"


def questions(path, count):
    rows = [{"id": f"q{n}", "question": f"What is paid in {n}?", "golden_answers": ["kip"]} for n in range(count)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def command(recipe, out, *more):
    return ["train", "--recipe", str(recipe), "--out", str(out), *map(str, more)]


def run(recipe, out, *more):
    return CliRunner().invoke(cli.app, command(recipe, out, *more))


def succeeded(result):
    assert result.exit_code == 0, result.stderr


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def weights(out):
    return load_file(out / "adapter" / "adapter_model.safetensors")


def played(out, kind="train"):
    """Every trajectory with its step: what was sampled, and what it was worth."""
    return [
        (step, each.id, each.reward, each.advantage, [talk.token_ids for talk in each.conversations])
        for step, each in resume.read_steps(out, kind)
    ]


def same(ours, theirs):
    assert played(ours) == played(theirs) and played(ours, "eval") == played(theirs, "eval")
    for name in ("log.csv", "validation.csv"):
        first, second = (
            [
                {
                    k: v
                    for k, v in row.items()
                    if not k.startswith(("time", "sampled_tokens_per", "step_time", "eval_r_"))
                }
                for row in rows(out / name)
            ]
            for out in (ours, theirs)
        )
        assert first == second
    kept, wanted = weights(ours), weights(theirs)
    assert kept.keys() == wanted.keys() and all(torch.equal(each, wanted[name]) for name, each in kept.items())


@pytest.fixture(autouse=True)
def scripted(monkeypatch):
    monkeypatch.setattr(common.out, "width", 400)
    monkeypatch.setattr(common.err, "width", 400)
    monkeypatch.setattr(training_run, "MultiContextGRPOTrainer", Writes)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run from its start to its end: the recipe, the folder, what was said."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("whole")
    recipe = world(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_run, "MultiContextGRPOTrainer", Writes)
        result = run(recipe, folder / "run")
    assert result.exit_code == 0, result.output
    return recipe, folder / "run", result


def test_a_run_leaves_everything_it_depends_on_and_everything_that_came_out(whole):
    recipe, out, result = whole
    assert load_recipe(str(out / "recipe.yaml")) == load_recipe(str(recipe))
    assert {"torch", "trl", "transformers"} <= json.loads((out / "run.json").read_text())["versions"].keys()
    log, dev = rows(out / "log.csv"), rows(out / "validation.csv")
    assert [row["step"] for row in log] == ["1", "2", "3", "4"] and [row["step"] for row in dev] == ["0", "2", "4"]
    for number, row in enumerate(log, 1):
        group = [each for step, *each in played(out) if step == number]
        assert len(group) == 8
        assert float(row["reward"]) == pytest.approx(sum(each[1] for each in group) / 8)
    assert {"loss", "trajectories/em", "events/no_action", "time/generate", "time/update", "entropy"} <= log[0].keys()
    assert {"eval_reward", "eval_em", "eval_failed"} <= dev[0].keys()
    assert [step for step, *_ in played(out, "eval")] == [0, 0, 2, 2, 4, 4]
    card = json.loads((out / "adapter" / "agent.json").read_text())
    assert (card["steps"], card["processes"]) == (STEPS, 1)
    assert card["recipe"] == load_recipe(str(recipe)).to_json() and len(card["agent"]["prompts_sha256"]) == 64
    assert "step 4/4" in result.stderr and f"weights: {out / 'adapter'}" in result.stdout
    assert result.stderr.count("step ") == 7


def test_the_adapter_has_learned_and_loads(whole):
    recipe, out, _ = whole
    changed, _ = load_model(load_recipe(str(recipe)).model.name, out / "adapter")
    base = tiny_model(max_position_embeddings=2048)
    moved = [
        name
        for (name, a), b in zip(changed.named_parameters(), base.parameters(), strict=True)
        if not torch.equal(a, b)
    ]
    assert len(moved) == 2 * 7
    assert {each.dtype for each in weights(out).values()} == {torch.float32}


def test_a_finished_run_is_left_alone(whole, monkeypatch):
    recipe, out, _ = whole
    monkeypatch.setattr(training_run, "load_model", None)
    succeeded(run(recipe, out, "--resume"))
    succeeded(run(recipe, out, "--max-steps", 2))


def test_a_run_killed_in_an_update_goes_on_as_if_nothing_had_been(whole, tmp_path):
    recipe, wanted, _ = whole
    done = subprocess.run(
        [sys.executable, "-m", "tests.test_train_command", "3", *command(recipe, tmp_path / "run")],
        capture_output=True,
        timeout=200,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr[-2000:]
    assert {step for step, *_ in played(tmp_path / "run")} == {1, 2, 3, 4} and not (
        tmp_path / "run" / "adapter"
    ).exists()
    succeeded(run(recipe, tmp_path / "run", "--resume"))
    same(tmp_path / "run", wanted)


def test_a_run_stopped_early_goes_on_later(whole, tmp_path):
    recipe, wanted, _ = whole
    succeeded(run(recipe, tmp_path / "run", "--max-steps", 3))
    assert json.loads((tmp_path / "run" / "adapter" / "agent.json").read_text())["steps"] == 3
    assert [row["step"] for row in rows(tmp_path / "run" / "log.csv")] == ["1", "2", "3"]
    before = weights(tmp_path / "run")
    for goal in (3, 2):  # stopped between the last step and the weights
        shutil.rmtree(tmp_path / "run" / "adapter")
        succeeded(run(recipe, tmp_path / "run", "--max-steps", goal))
        assert json.loads((tmp_path / "run" / "adapter" / "agent.json").read_text())["steps"] == 3
        assert all(torch.equal(each, before[name]) for name, each in weights(tmp_path / "run").items())
    for _ in range(2):
        succeeded(run(recipe, tmp_path / "run"))
        same(tmp_path / "run", wanted)
        shutil.rmtree(tmp_path / "run" / "adapter")


def test_two_processes_of_a_launcher_share_one_run(tmp_path):
    recipe = world(tmp_path, steps=2)
    done = launch("-1", "tests.test_train_command", *command(recipe, tmp_path / "run"))
    assert done.returncode == 0, done.stderr[-3000:]
    steps = [(step, name) for step, name, *_ in played(tmp_path / "run")]
    assert len(steps) == len(set(steps)) == 2 * 8
    assert [row["step"] for row in rows(tmp_path / "run" / "log.csv")] == ["1", "2"]
    assert [row["step"] for row in rows(tmp_path / "run" / "validation.csv")] == ["0", "2"]
    assert done.stderr.count("step 2/2") == 2
    assert json.loads((tmp_path / "run" / "adapter" / "agent.json").read_text())["processes"] == 2
    assert weights(tmp_path / "run")
    assert done.stdout.count("weights: ") == 1


def test_processes_that_cannot_share_a_step_evenly_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(RecipeError, match="the 8 trajectories of a step must divide evenly among 3 processes"):
        make_config(load_recipe(str(world(tmp_path))), tmp_path)


def test_seeds_train_on_questions_of_their_own_and_are_evaluated_on_the_same():
    (tasks, dev), (others, same) = (questions_of(load_recipe("pocket-grpo", [f"seed={seed}"])) for seed in (0, 3))
    assert dev == same and len(dev) == 100
    assert {each.id for each in tasks} != {each.id for each in others} and len(tasks) == len(others)


def test_products_are_taken_in_bfloat16_where_the_recipe_says_so(tmp_path):
    recipe = world(tmp_path, evaluate_every=0)
    assert not make_config(load_recipe(str(recipe)), tmp_path).bf16
    succeeded(run(recipe, tmp_path / "half", "-s", "model.dtype=bfloat16", "--max-steps", 1))
    kept = torch.load(tmp_path / "half" / "checkpoint-1" / "optimizer.pt", weights_only=True)
    moments = [each["exp_avg"] for each in kept["state"].values()]
    assert {each.dtype for each in moments} == {torch.float32}
    assert any(each.abs().max() > 0 for each in moments)
    assert load_recipe(str(tmp_path / "half" / "recipe.yaml")).model.dtype == "bfloat16"


def test_an_adapter_is_trained_further_and_survives_a_stop_beside_its_reference(tmp_path):
    """With KL, TRL keeps a second adapter; the Trainer, left to itself, loads only that one from a checkpoint."""
    recipe = world(tmp_path, beta=0.1, evaluate_every=0)
    torch.manual_seed(1)
    start = adapted(tiny_model(max_position_embeddings=2048), None, rank=4, alpha=8)
    for name, each in start.named_parameters():
        if "lora_B" in name:
            each.data.normal_(std=0.05)
    save_adapter(start, tmp_path / "start", "tiny")
    with_start = ("-s", f"model.adapter={tmp_path / 'start'}")
    succeeded(run(recipe, tmp_path / "whole", *with_start))
    succeeded(run(recipe, tmp_path / "parts", *with_start, "--max-steps", 2))
    succeeded(run(recipe, tmp_path / "parts", *with_start))
    before, parts, wanted = (
        load_file(tmp_path / "start" / "adapter_model.safetensors"),
        weights(tmp_path / "parts"),
        weights(tmp_path / "whole"),
    )
    assert before.keys() == wanted.keys() == parts.keys()
    assert not any(torch.equal(before[name], each) for name, each in wanted.items())
    assert all(torch.equal(parts[name], each) for name, each in wanted.items())
    first = rows(tmp_path / "whole" / "log.csv")[0]
    assert float(first["kl"]) == pytest.approx(0, abs=1e-6)
    assert not (tmp_path / "whole" / "validation.csv").exists()
    assert json.loads((tmp_path / "whole" / "adapter" / "adapter_config.json").read_text())["r"] == 4

    torch.save({}, tmp_path / "start" / "adapter_model.bin")
    start.base_model.model.lm_head.weight.data += 1
    save_adapter(adapted(tiny_model(max_position_embeddings=2048), None, rank=4, alpha=8), tmp_path / "start", "tiny")
    refused(run(recipe, tmp_path / "parts", *with_start), "holds a run of other settings")


def test_all_weights_are_trained_where_no_rank_is_given(tmp_path):
    recipe = world(tmp_path, rank=0, steps=1, evaluate_every=0, beta=0.05)
    succeeded(run(recipe, tmp_path / "run"))
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "run" / "model", dtype=torch.float32)
    base = tiny_model(max_position_embeddings=2048)
    assert all(not torch.equal(a, b) for a, b in zip(model.parameters(), base.parameters(), strict=True) if b.ndim > 1)
    assert json.loads((tmp_path / "run" / "model" / "agent.json").read_text())["steps"] == 1
    assert not (tmp_path / "run" / "adapter").exists()
    load_model(tmp_path / "run" / "model")


def refused(result, message):
    """One line on standard error, exit code 1, and no traceback."""
    assert result.exit_code == 1, result.output
    assert [line for line in result.stderr.splitlines() if line.startswith("error: ")] == result.stderr.splitlines()
    assert message in result.stderr
    assert isinstance(result.exception, SystemExit)


def test_a_folder_of_another_run_is_refused(whole, tmp_path):
    recipe, out, _ = whole
    refused(run(recipe, out, "-s", "training.learning_rate=0.1"), "holds a run of other settings; name another --out")
    refused(run(recipe, tmp_path / "new", "--resume"), "holds no run to go on with; leave out --resume")
    refused(run(recipe, recipe.parent), "is not empty and holds no run")
    world(tmp_path)
    settings = load_recipe(str(recipe))
    other = {
        **settings.to_json(),
        "training": {**settings.to_json()["training"], "questions": str(tmp_path / "train.jsonl")},
    }
    (tmp_path / "same.yaml").write_text(yaml.safe_dump(other))
    assert (
        run(tmp_path / "same.yaml", tmp_path / "run", "--max-steps", 2, "-s", "training.evaluate_every=0").exit_code
        == 0
    )
    questions(tmp_path / "train.jsonl", 6)
    again = run(tmp_path / "same.yaml", tmp_path / "run", "-s", "training.evaluate_every=0")
    refused(again, "holds a run of other settings")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.average=official", "average must be one of token, conversation, trajectory, trajectory_token"),
        ("training.reward=bleu", "unknown reward 'bleu'; there are: em, f1, format_f1"),
        ("training.num_generations=1", "num_generations must be at least 2, not 1"),
        ("training.batch=0", "batch (0) must be at least 1"),
        ("training.steps=0", "steps (0) and batch (2) must be at least 1"),
        ("training.batch=6", "a step takes 6 questions, and train_dataset has 5"),
        ("training.questions=nothing.jsonl", "nothing.jsonl"),
        ("training.questions={5-hop: 1}", "training.questions: '5-hop' is not one of 2-hop, 3-hop, 4-hop"),
        ("training.questions={2-hop: 100000}", "100000 train questions of 2 hops"),
        ("training.questions=BLANK", "training.questions: "),
        ("training.questions=EMPTY", "field 'question' must be a string with text in it"),
        ("training.dev={}", "training.dev names no questions"),
        ("training.options={loss_type: grpo}", "loss_type must be 'dapo'"),
        ("training.options={lr: 1}", "training.options.lr: MultiContextGRPOConfig has no such field"),
        ("training.options={max_steps: 3}", "training.options.max_steps: it follows from other fields of the recipe"),
        ("training.options={num_iterations: 3}", "save_steps (2) must be a multiple of num_iterations (3)"),
        ("training.scale_rewards=std", "scale_rewards must be group, batch or none"),
        ("model.name=no/where", "cannot load the model 'no/where'"),
        ("model.adapter=no/where", "no/where holds no adapter_config.json"),
        ("model.engine=openai", "model.engine must be transformers to train, not openai"),
        ("limits.call_tokens=2000", "do not fit the model's 2048"),
        ("training.learning_rates=1", "field training.learning_rates: "),
    ],
)
def test_what_cannot_be_trained_with_is_one_clear_error_before_the_first_step(override, message, tmp_path):
    recipe = world(tmp_path)
    (tmp_path / "blank.jsonl").write_text('{"id": "b", "question": "What?", "golden_answers": []}\n' * 1)
    (tmp_path / "empty.jsonl").write_text('{"id": "b", "question": " ", "golden_answers": ["x"]}\n')
    for name in ("blank", "empty"):
        override = override.replace(name.upper(), str(tmp_path / f"{name}.jsonl"))
    refused(run(recipe, tmp_path / "run", "-s", override), message)
    assert not (tmp_path / "run" / "trajectories").exists()


def test_steps_that_end_between_two_updates_are_refused(tmp_path):
    recipe = world(tmp_path, options={"num_iterations": 2})
    refused(run(recipe, tmp_path / "run", "--max-steps", 3), "3 steps end between two updates")


def test_a_dry_run_says_what_a_run_would_take_and_writes_nothing(tmp_path, monkeypatch):
    recipe = world(tmp_path)
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", None)
    result = run(recipe, tmp_path / "run", "--dry-run", "--max-steps", 3)
    assert result.exit_code == 0, result.output
    said = {line[:24].strip(): line[24:].strip() for line in result.stdout.splitlines()}
    assert said["questions"] == "5 to train on, 2 to evaluate on"
    assert (said["steps"], said["evaluations"]) == ("3", "2, greedy")
    assert said["trajectories a step"] == "8 (2 questions, 4 attempts)"
    assert said["conversations a step"] == "at most 16"
    assert said["sampled tokens a step"] == f"at most {8 * 2 * (90 + 30):,}"
    model = tiny_model()
    linear = [each for each in model.modules() if isinstance(each, torch.nn.Linear) and each is not model.lm_head]
    trained = sum(2 * (each.in_features + each.out_features) for each in linear)
    total = sum(each.numel() for each in model.parameters())
    assert said["parameters"] == f"{total / 1e6:,.1f} million, of which {trained / 1e6:,.1f} million are trained"
    assert "GiB a process, undivided (an estimate)" in said["memory"]
    assert (said["run folder"], said["weights"]) == (str(tmp_path / "run"), str(tmp_path / "run" / "adapter"))
    assert not (tmp_path / "run").exists()


def test_a_dry_run_of_what_cannot_be_read_says_so(whole, tmp_path):
    recipe, out, _ = whole
    said = run(recipe, out, "--dry-run").stdout
    assert "4, on from checkpoint-4" in said
    said = run(recipe, tmp_path / "run", "--dry-run", "-s", "model.name=no/where").stdout
    assert "not known: cannot load the tokenizer 'no/where'" in said
    refused(run(recipe, tmp_path / "run", "--dry-run", "-s", "training.batch=0"), "batch (0)")


@pytest.mark.parametrize("size", ["3b", "7b"])
def test_the_recipes_of_the_paper_have_its_settings(size, tmp_path, monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    recipe = load_recipe(f"qwen2.5-{size}")
    ours, published = (
        make_config(recipe, tmp_path),
        MultiContextGRPOConfig.memsearcher(str(tmp_path), use_cpu=True, bf16=False),
    )
    same = "num_generations per_device_train_batch_size learning_rate lr_scheduler_type max_grad_norm temperature top_p"
    same += " epsilon delta beta use_bias_correction_kl scale_rewards average num_iterations loss_type"
    for name in same.split():
        assert getattr(ours, name) == getattr(published, name), name
    assert (recipe.limits.turns, recipe.limits.call_tokens, recipe.limits.memory_tokens) == (5, 512, 512)
    assert recipe.model.adapter is None and recipe.training.rank == 0 and recipe.training.reward == "format_f1"


@pytest.mark.parametrize(
    "path",
    sorted((Path(training_run.__file__).parents[1] / "recipes" / "accelerate").glob("*.yaml")),
    ids=lambda path: path.stem,
)
def test_accelerate_reads_its_files(path):
    from accelerate.commands.config.config_args import load_config_from_file

    settings = load_config_from_file(str(path))
    assert settings.num_processes == 8 and settings.mixed_precision == "bf16"


def test_the_memory_estimate_counts_what_is_trained(tmp_path):
    from memsearcher.training.plan import GIB, TRAINED_BYTES, _memory

    recipe = load_recipe(str(world(tmp_path, rank=0, beta=0.1)))
    total = sum(each.numel() for each in tiny_model(max_position_embeddings=2048).parameters())
    lines = dict(_memory(recipe, make_config(recipe, tmp_path), 100))
    assert lines["weights"] == lines["reference weights"] == f"{4 * total / GIB:.2f} GiB"
    assert lines["gradients and moments"] == f"{TRAINED_BYTES * total / GIB:.2f} GiB"
    assert Recipe(training=Training(rank=0)).training.rank == 0


if __name__ == "__main__":
    torch.set_num_threads(1)
    Writes.dies_at = int(sys.argv[1])
    training_run.MultiContextGRPOTrainer = Writes
    code = cli.app(sys.argv[2:], standalone_mode=False)
    assert not torch.distributed.is_initialized()
    sys.exit(code)
