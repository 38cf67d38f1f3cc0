"""A small world for the trainer's tests: a scripted agent, a scripted policy, a trainer that keeps its gradients.

What an episode does depends on its task and its number in the group alone, so that the
same questions give the same trajectories on any number of processes.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

os.environ.update(HF_HUB_OFFLINE="1", HF_HUB_DISABLE_TELEMETRY="1", TOKENIZERS_PARALLELISM="false")

import torch
from transformers import TrainerCallback

from memsearcher.agents.protocol import Act, Generate
from memsearcher.environments.protocol import EnvironmentFailure
from memsearcher.training.config import MultiContextGRPOConfig
from memsearcher.training.grpo import MultiContextGRPOTrainer
from memsearcher.trajectory import Action, Conversation, Limits, Observation, Segment, Step, Task
from tests.tiny import tiny_model, tiny_tokenizer

GROUP = 4
LIMIT = 10
WORDS = ["the", "capital", "of", "France", "is", "Paris", "Rome", "known", "memory", "search", "query", "answer"]


def words(seed, low, high):
    draw = random.Random(seed)
    return " ".join(draw.choice(WORDS) for _ in range(draw.randint(low, high)))


@dataclass
class Rewriter:
    """Plays `metadata["conversations"][sample]` contexts, every other one with an observation and a second reply."""

    name: str = "rewriter"
    limits: Limits = field(default_factory=lambda: Limits(turns=9, call_tokens=LIMIT))
    fingerprint: dict = field(default_factory=lambda: {"prompts": "none"})
    stop: tuple = ()

    def play(self, trajectory):
        task, sample = trajectory.task, trajectory.sample
        for number in range(task.metadata["conversations"][sample]):
            turn = trajectory.begin_turn()
            seed = f"{task.id} {sample} {number}"
            talk = Conversation.start(
                [Segment("system", "system", "You search.")],
                [Segment("user", "question", f"{task.question} {seed} {words(seed, 1, 25)}")],
            )
            yield from Generate(trajectory.converse(talk), LIMIT, self.stop)
            if number % 2:
                turn.steps.append(step := Step(Action("look", {"for": seed})))
                step.observation = seen = yield from Act(step.action)
                talk.tell([Segment("user", "observation", seen.text)])
                yield from Generate(talk, LIMIT, self.stop, "remember")
        trajectory.answer = "Paris"


class Looker:
    """Answers with words; fails for the samples of `metadata["fails"]`."""

    @property
    def fingerprint(self):
        return {"environment": "looker"}

    def act(self, requests):
        return [
            EnvironmentFailure("the index is gone")
            if int(request.episode.split("#")[1]) in request.task.metadata.get("fails", ())
            else Observation(words(str(request.action.arguments), 3, 30))
            for request in requests
        ]


def tasks(count=4, seed=0, **metadata):
    """Questions with unequal numbers of conversations, and the reward of each attempt."""
    made = []
    for number in range(count):
        draw = random.Random(f"{seed} {number}")
        counts = [draw.choice([1, 1, 2, 3, 5]) for _ in range(GROUP)]
        rewards = [round(draw.random(), 2) for _ in range(GROUP)]
        about = {"conversations": counts, "rewards": rewards, **metadata}
        made.append(Task(f"q{number}", f"What is number {number}?", ("Paris",), about))
    return made


def table_reward(trajectories, **_):
    return [each.task.metadata["rewards"][each.sample] for each in trajectories]


def scripted_reply(context, vocabulary, end):
    """Tokens that depend on the context alone: of any length, ended or cut."""
    draw = random.Random(sha256(repr(context).encode()).digest())
    length = draw.randint(1, LIMIT + 3)
    ids = [draw.randrange(3, vocabulary - 4) for _ in range(length)]
    return [*ids[:-1], end][:LIMIT]


class KeepGradients(TrainerCallback):
    """Gradients and weights as they are before each optimizer step."""

    def __init__(self):
        self.gradients, self.weights = [], []

    def on_pre_optimizer_step(self, args, state, control, model, **_):
        bare = getattr(model, "module", model)
        self.gradients.append({name: each.grad.clone() for name, each in bare.named_parameters() if each.requires_grad})
        self.weights.append({name: each.detach().clone() for name, each in bare.named_parameters()})


class ScriptedTrainer(MultiContextGRPOTrainer):
    """Generation by script; notes the calls."""

    def _generate_single_turn(self, prompt_ids, images, multimodal_fields, num_generations):
        assert num_generations == 1
        self.calls = [*getattr(self, "calls", []), len(prompt_ids)]
        size, end = len(self._tokenizer), self._tokenizer.eos_token_id
        return [scripted_reply(ids, size, end) for ids in prompt_ids], None


class ServedTrainer(ScriptedTrainer):
    """As if vLLM had generated: replies come with the log-probabilities that it claims to have drawn them with."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.use_vllm = True
        self.vllm_generation = SimpleNamespace(max_completion_length=0, generation_kwargs=None, temperature=1.0)

    def _generate_single_turn(self, *args, **options):
        ids, _ = super()._generate_single_turn(*args, **options)
        draw = random.Random(repr(ids))
        return ids, [[-6.0 + draw.gauss(0, 1) for _ in each] for each in ids]


def saved_model(folder: Path, kind="qwen2"):
    """A tiny model loaded from disk, so that TRL can load the same one as the reference."""
    path = Path(folder) / kind
    if not path.exists():
        tiny_model(kind).save_pretrained(path)
    return path


def make(folder, *, kind="qwen2", train=None, trainer=ScriptedTrainer, agent=None, processes=1, **changes):
    """A trainer on a whole batch of `tasks()`, and what keeps its gradients."""
    train = tasks() if train is None else train
    settings = {
        "output_dir": str(Path(folder) / "run"),
        "num_generations": GROUP,
        "per_device_train_batch_size": GROUP * len(train) // processes,
        "max_steps": 1,
        "learning_rate": 1e-3,
        "max_grad_norm": 0.0,
        "bf16": False,
        "use_cpu": True,
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
        "gradient_checkpointing": False,
        "logging_steps": 1,
        "lr_scheduler_type": "constant",
        "dataloader_pin_memory": False,
        "model_init_kwargs": {"dtype": "float32"},
    }
    if processes > 1:
        settings["ddp_backend"] = "gloo"
    known = ("model", "eval_dataset", "reward", "environment", "callbacks", "peft_config")
    options = {key: changes.pop(key) for key in known if key in changes}
    keep = KeepGradients()
    made = trainer(
        options.pop("model", str(saved_model(folder, kind))),
        agent=agent or Rewriter(),
        environment=options.pop("environment", Looker()),
        args=MultiContextGRPOConfig(**{**settings, **changes}),
        train_dataset=train,
        reward=options.pop("reward", table_reward),
        processing_class=tiny_tokenizer(),
        callbacks=[keep, *options.pop("callbacks", [])],
        **options,
    )
    return made, keep


def float64_model(folder, kind, weights=None):
    """The model in float64, with these weights."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(saved_model(folder, kind), dtype=torch.float64).eval()
    if weights:
        model.load_state_dict({name: each.double() for name, each in weights.items()}, strict=False)
    return model
