"""Multi-context GRPO: trains any agent whose trajectory is a list of conversations.

The method
    For a question, G trajectories are played. Trajectory i consists of n_i conversations
    T_ij, each with a context of its own: an agent that rewrites its context cannot be
    trained as one growing text. Only the whole trajectory has a reward R_i, and

        A_i = (R_i - mean(R)) / (std(R) + 1e-4),     A_ij = A_i

    over its group, std with n - 1 (`scale_rewards` may take the batch's, or none). Every
    conversation is an optimization target with that advantage. With the sampled tokens t of
    T_ij, ratio r = pi(t | context) / pi_old(t | context) and k = ln pi_ref - ln pi,

        L = - 1/W  sum_ij w_ij  sum_t [ min(r A_i, clip(r, 1 - e, 1 + e) A_i) - beta (exp(k) - k - 1) ]

    where W = sum_ij w_ij m_ij is taken over all m_ij sampled tokens of the batch, of all
    processes, and w_ij is 1, 1/m_ij, 1/(n_i m_ij) or 1/sum_j m_ij for a mean over tokens,
    conversations, trajectories, or trajectories and in each over tokens (`average`). Tokens of
    prompts, observations and templates are context and nothing else. L does not depend on the
    order of conversations, on the chunks they are run in, or on the process they are on.

How it sits on TRL
    TRL's `GRPOTrainer` wants one completion a prompt. But of all that it handles, only
    prompts, completions and rewards need a length of B G: every tensor of tokens may have N
    rows, one a conversation. So `_generate` plays the episodes and gives N rows,
    `_calculate_rewards` scores trajectories, `_generate_and_score_completions` stamps each
    row with its owner's advantage and puts w_ij into the loss mask, and `compute_loss` runs
    the rows in chunks, in which what conversations begin with in common is computed once
    (`training/tree.py`; rows of like length where the model cannot). Clipping, KL,
    importance correction, old and reference log-probabilities are TRL's own code.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import DistributedType, gather, gather_object, is_peft_model
from datasets import Dataset
from torch import Tensor
from trl import GRPOTrainer

from memsearcher.agents.protocol import Agent
from memsearcher.engines.chat import ChatFormat
from memsearcher.engines.encoding import without_surrogates
from memsearcher.environments.protocol import Environment
from memsearcher.rollout import Episode
from memsearcher.training import batching, resume
from memsearcher.training.attention import attend_by_paths
from memsearcher.training.config import MultiContextGRPOConfig, differences
from memsearcher.training.generation import Clock, Policy
from memsearcher.training.guard import FiniteGuard
from memsearcher.training.metrics import Alone, ChunkMetrics, measure, summarize, transcript
from memsearcher.training.packing import Packed
from memsearcher.training.rewards import Reward, as_functions, check_tasks, compare, reward_table
from memsearcher.trajectory import Task, Trajectory


class MultiContextGRPOTrainer(resume.NoStepTooMany, GRPOTrainer):
    """`trl.GRPOTrainer` for agents that rewrite their context (see the module's text).

    Args:
        model: a path, a hub id, a model, or a PeftModel whose adapter is trained further.
        agent: who is trained; any of `agents/`.
        environment: who answers its actions.
        args: the settings.
        train_dataset: the questions to train on.
        eval_dataset: questions for `evaluate`.
        reward: a name of `scoring.REWARDS`, a `Reward`, or a list of them, summed with `args.reward_weights`.
        options: further arguments of `GRPOTrainer`: `processing_class`, `peft_config`, `callbacks`, ...

    A trajectory that fails (its environment or its agent does) has no reward, takes no part
    in its group's statistics and is not trained; a group with fewer than two left is not
    trained either. Batches stay on their process; each step's trajectories are written to
    `output_dir/trajectories` (`resume.read_steps` reads them).

    Raises:
        ValueError: an unknown reward, too few questions, one that is empty or has no golds,
            a model with a load-balancing loss, limits that the model's length cannot hold,
            processes with different settings.
        ChatFormatError: a model without a chat template that can be worked with.
    """

    accelerator: Any
    control: Any

    def __init__(
        self,
        model: Any,
        *,
        agent: Agent,
        environment: Environment,
        args: MultiContextGRPOConfig,
        train_dataset: Sequence[Task],
        eval_dataset: Sequence[Task] | None = None,
        reward: str | Reward | list[str | Reward] = "format_f1",
        **options: Any,
    ) -> None:
        rewards = as_functions(reward)
        self.tasks, self.eval_tasks = list(train_dataset), list(eval_dataset or [])
        needed = (args.generation_batch_size or 0) // (args.num_generations or 1)
        if len(self.tasks) < needed:
            raise ValueError(f"a step takes {needed} questions, and train_dataset has {len(self.tasks)}")
        check_tasks([*self.tasks, *self.eval_tasks], reward)
        datasets = {"train_dataset": _dataset(self.tasks), "eval_dataset": _dataset(self.eval_tasks)}
        super().__init__(model, reward_funcs=rewards, args=args, **datasets, **options)
        if self.aux_loss_enabled:
            raise ValueError(
                "this mixture-of-experts model has a load-balancing loss, a mean over each chunk of rows: "
                "set router_aux_loss_coef to 0 in the model's config"
            )
        self.agent, self.environment = agent, environment
        self.policy = Policy(
            self, ChatFormat.from_tokenizer(self._tokenizer, **self.chat_template_kwargs), self._longest()
        )
        models = [self.accelerator.unwrap_model(each) for each in (self.model, self.ref_model) if each is not None]
        self._shares = args.share_beginnings and all(attend_by_paths(each) for each in models)
        self.guard = FiniteGuard(self.accelerator, args.max_skipped_steps)
        self.add_callback(self.guard)
        self.add_callback(resume.StartingPoint(self))
        # TRL takes a completion for cut when it does not end with an end token; ours may end with a stop string.
        self._leave_out_cut, self.mask_truncated_completions = args.mask_truncated_completions, False
        self._events, self._clock = set[str](), Clock()
        self.policy.check_start(agent, self.tasks[0])
        if odd := differences(gather_object([self._settings()])):
            raise ValueError(f"processes have different settings: {', '.join(odd)}")

    def train(self, resume_from_checkpoint: str | bool | None = None, **options: Any) -> Any:
        """Train, or with True go on from the newest whole checkpoint in `output_dir`, if there is one."""
        if resume_from_checkpoint is True:
            found = resume.last_checkpoint(Path(self.args.output_dir))
            resume_from_checkpoint = None if found is None else str(found)
        return super().train(resume_from_checkpoint=resume_from_checkpoint, **options)

    # --- a step's trajectories

    def _play(self, attempts: Sequence[tuple[Task, int]], greedy: bool = False) -> list[Trajectory]:
        """Play attempts (task, number in its group) to their end, together with the other processes."""
        bound = {**self.agent.fingerprint, **self.environment.fingerprint, "step": str(self.state.global_step)}
        episodes = [Episode(self.agent, task, sample, provenance=bound) for task, sample in attempts]
        for episode in episodes:
            episode.trajectory.seed = None  # drawn from the process's random numbers
        self._clock = self.policy.play(episodes, self.environment, greedy)
        return [episode.trajectory for episode in episodes]

    def _generate(self, prompts: list[Any]) -> tuple[Any, ...]:
        """Play the batch: N rows of tokens, and B G texts for TRL's table of completions."""
        trajectories = self._batch = self._play(self._attempts)
        options = self._leave_out_cut, self.args.train_memory
        rows = [row for owner, each in enumerate(trajectories) for row in batching.rows_of(each, owner, *options)]
        # TRL splits rows into steps_per_generation equal parts and drops what is left over.
        parts = self.args.steps_per_generation
        most = max(1, self._most(len(rows)))
        blank = batching.filler(self._tokenizer.pad_token_id, logprobs=self.use_vllm)
        rows += [blank] * (math.ceil(most / parts) * parts - len(rows))
        self._rows = rows
        self._trained = batching.padded([row.mask for row in rows], torch.bool, self.accelerator.device)
        tokens = torch.tensor(sum(len(row.prompt_ids) + row.trained for row in rows), device=self.accelerator.device)
        self.state.num_input_tokens_seen += int(self.accelerator.gather(tokens).sum())
        self._metrics["train"]["num_tokens"] = [self.state.num_input_tokens_seen]
        logprobs = [row.logprobs for row in rows]
        return (
            [row.prompt_ids for row in rows],
            [row.completion_ids for row in rows],
            [row.mask for row in rows],
            [transcript(each) for each in trajectories],
            None if None in logprobs else logprobs,
            {},
            None,
            [],
        )

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Tensor:
        """Rewards of every process's trajectories `[B G, functions]`, NaN where there is none."""
        table: Tensor = gather(self._reward(self._batch))
        self._counted, self._level = compare(
            table, self.reward_weights, self.num_generations, self._local(len(prompts))
        )
        return table

    def _reward(self, trajectories: Sequence[Trajectory]) -> Tensor:
        """Rewards `[trajectories, functions]`; their weighted sum goes on each trajectory's record."""
        context = {"trainer_state": self.state, "log_metric": self._log_metric}
        table = reward_table(self.reward_funcs, trajectories, **context)
        total = (table * self.reward_weights).nansum(1).masked_fill(table.isnan().all(1), math.nan)
        for trajectory, value in zip(trajectories, total.tolist(), strict=True):
            trajectory.reward = None if math.isnan(value) else value
        return table.float().to(self.accelerator.device)

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """A batch of TRL's with a row a conversation, each with its owner's advantage and its weight in the mask."""
        started = time.perf_counter()
        first = self.accelerator.process_index * len(inputs)
        self._attempts = [
            (self.tasks[each["task"]], place % self.num_generations) for place, each in enumerate(inputs, first)
        ]
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        advantages = output["advantages"].masked_fill(self._level, 0.0)
        owners = torch.tensor([row.owner for row in self._rows], device=advantages.device)
        weights = advantages.new_tensor(batching.row_weights(self._rows, self.args.average, self._counted.tolist()))
        # The extra advantage is the fillers': their owner is -1.
        output["advantages"] = torch.cat([advantages, advantages.new_zeros(1)])[owners]
        output["trained"] = self._trained
        output["tool_mask"] = output["tool_mask"] * weights[:, None]
        total = (output["completion_mask"] * output["tool_mask"]).sum()
        output["num_items_in_batch"] = self.accelerator.gather(total).sum()
        for trajectory, advantage in zip(self._batch, advantages.tolist(), strict=True):
            trajectory.advantage = None if trajectory.reward is None else advantage
        self._keep_step(time.perf_counter() - started)
        return output

    def _keep_step(self, seconds: float) -> None:
        """Write the step's trajectories and log what they come to."""
        if self.args.log_trajectories:
            folder, process = Path(self.args.output_dir), self.accelerator.process_index
            resume.write_step(folder, "train", self.state.global_step + 1, process, self._batch)
        measured = gather_object([measure(each) for each in self._batch])
        numbers = summarize(measured, self._events)
        sampled = sum(facts.get("sampled_tokens", 0.0) for facts in measured)
        numbers |= {
            "time/generate": self._clock.generate,
            "time/environment": self._clock.environment,
            "time/score": seconds - self._clock.generate - self._clock.environment,
            "sampled_tokens_per_second": sampled / max(self._clock.generate, 1e-9),
        }
        for name, value in numbers.items():
            self._metrics["train"][name].append(value)

    # --- the loss

    def _plan(self, ids: Tensor, mask: Tensor, idle: Tensor | None = None) -> list[list[int]]:
        """Rows in chunks; equally many on every process, since a sharded model runs them together."""
        plan = partial(batching.plan_trees if self._shares else batching.plan_chunks, tokens=self.args.tokens_per_chunk)
        resting = [False] * len(ids) if idle is None else idle.tolist()
        return batching.plan_evenly(batching.unpadded(ids, mask), resting, plan, self._most)

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: Tensor,
        attention_mask: Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        compute_entropy: bool = False,
        **unused: Any,
    ) -> tuple[Tensor, Tensor | None, None]:
        """Log-probabilities (and entropies) of the trained tokens `[rows, logits_to_keep]`, 0 elsewhere.

        TRL asks for whole batches (old and reference policy), which are run in chunks, and
        from within `compute_loss` (no `batch_size`) for one chunk.
        """
        trained, bare = self._trained, self.accelerator.unwrap_model(model)
        chunks = [list(range(len(input_ids)))] if batch_size is None else self._plan(input_ids, attention_mask)
        logprobs, entropies = [], []
        for chunk in chunks:
            pack = Packed.tree if self._shares else Packed.rows
            packed = pack(input_ids[chunk], attention_mask[chunk], trained[chunk])
            with self.accelerator.autocast(), packed.scored(bare):
                output = model(**packed.inputs, labels=packed.labels, fused_lm_head=True)
            logprobs.append(packed.unpack(output.log_probs, trained[chunk]))
            if compute_entropy:
                entropies.append(packed.unpack(output.entropy, trained[chunk]))
        back = torch.tensor([row for chunk in chunks for row in chunk], device=input_ids.device).argsort()
        return torch.cat(logprobs)[back], torch.cat(entropies)[back] if compute_entropy else None, None

    def compute_loss(
        self, model: Any, inputs: dict[str, Tensor], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Tensor:
        """The loss of all rows; all chunks but the last are backpropagated here, the last one by the caller."""
        started = time.perf_counter()
        logged, chunk_metrics = self._metrics["train"], ChunkMetrics()
        ids, mask = batching.whole_rows(inputs)
        idle = None
        if self.args.skip_without_advantage and not self.beta:
            idle = (inputs["advantages"] == 0) | (inputs["tool_mask"].sum(1) == 0)
        chunks = self._plan(ids, mask, idle)
        loss = total = torch.zeros((), device=self.accelerator.device)
        for number, chunk in enumerate(chunks, 1):
            part = batching.take(inputs, chunk)
            self._trained = part.pop("trained")
            before = {name: len(values) for name, values in logged.items()}
            if number < len(chunks):
                with self._accumulating(model):
                    loss = self._chunk_loss(model, part)
                    self.accelerator.backward(loss, **self._backward_options())
            else:
                loss = self._chunk_loss(model, part)
            weight = (part["completion_mask"] * part["tool_mask"]).sum()
            chunk_metrics.collect(logged, before, float(weight))
            total = total + loss.detach()
        self.guard.saw(total)
        for name, value in chunk_metrics.merge(self._gather_numbers).items():
            logged[name].append(value)
        logged["time/update"].append(time.perf_counter() - started)
        return loss + (total - loss).detach()

    def _chunk_loss(self, model: Any, part: dict[str, Tensor]) -> Tensor:
        """TRL's loss of a chunk, without its collective calls."""
        accelerator = self.accelerator
        self.accelerator = Alone(accelerator)
        try:
            loss: Tensor = self._compute_loss(model, part)
        finally:
            self.accelerator = accelerator
        return loss

    @contextmanager
    def _accumulating(self, model: Any) -> Iterator[None]:
        """Backward passes that only add to this process's gradients; accelerate's DeepSpeed wrapper would step."""
        state = self.accelerator.gradient_state
        before = state.sync_gradients
        state._set_sync_gradients(False)
        try:
            with self.accelerator.no_sync(model):
                yield
        finally:
            state._set_sync_gradients(before)

    def _backward_options(self) -> dict[str, Any]:
        return {"scale_wrt_gas": False} if self.accelerator.distributed_type == DistributedType.DEEPSPEED else {}

    # --- evaluation

    def evaluate(
        self, eval_dataset: Sequence[Task] | None = None, ignore_keys: Any = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Play every evaluation question once, greedily; means over the `eval_n` questions that did not fail."""
        tasks = self.eval_tasks if eval_dataset is None else list(eval_dataset)
        if not tasks:
            raise ValueError("evaluation needs an eval_dataset with at least one question")
        processes, width = self.accelerator.num_processes, self.args.per_device_eval_batch_size
        mine = tasks[self.accelerator.process_index :: processes]
        self.model.eval()
        trajectories: list[Trajectory] = []
        for start in range(0, math.ceil(len(tasks) / processes), width):
            trajectories += self._play([(task, 0) for task in mine[start : start + width]], greedy=True)
        self._reward(trajectories)
        self._pending_metrics.clear()
        if self.args.log_trajectories:
            folder, process = Path(self.args.output_dir), self.accelerator.process_index
            resume.write_step(folder, metric_key_prefix, self.state.global_step, process, trajectories)
        facts = [{**measure(each), "reward": each.reward} for each in trajectories]
        facts = gather_object(facts)
        numbers = {"n": float(sum(not each["failed"] for each in facts)), **summarize(facts, self._events)}
        metrics = {
            f"{metric_key_prefix}_{name.removeprefix('trajectories/')}": value for name, value in numbers.items()
        }
        self.log(dict(metrics))
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    # --- checks and small things

    def _longest(self) -> int:
        """Tokens that a context and its reply may take together."""
        positions = int(self.model.config.get_text_config().max_position_embeddings)
        served = self.args.vllm_max_model_length if self.use_vllm else None
        return min(positions, served or positions)

    def _settings(self) -> dict[str, str]:
        """What must be the same on every process."""
        tasks = json.dumps([[each.id, each.question] for each in self.tasks])
        about = {"agent": self.agent.name, "limits": str(asdict(self.agent.limits)), **self.agent.fingerprint}
        return {**self.args.shared(), **about, "train_dataset": sha256(tasks.encode()).hexdigest()}

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        # Beside another adapter, as TRL's reference is one, the Trainer forgets the one that is trained.
        if is_peft_model(self.model) and not (self.is_deepspeed_enabled or self.is_fsdp_enabled):
            self.model.load_adapter(resume_from_checkpoint, "default", is_trainable=True)

    def _get_train_sampler(self, dataset: Any = None) -> Any:
        self.sampler = super()._get_train_sampler(dataset)
        return self.sampler

    def _local(self, count: int) -> slice:
        """This process's part of what was gathered, `count` from each."""
        return slice(self.accelerator.process_index * count, (self.accelerator.process_index + 1) * count)

    def _gather_numbers(self, numbers: Tensor) -> Tensor:
        gathered: Tensor = self.accelerator.gather(numbers.to(self.accelerator.device))
        return gathered.cpu()

    def _most(self, number: int) -> int:
        """The largest of a number over all processes."""
        return int(self.accelerator.gather(torch.tensor([number], device=self.accelerator.device)).max())


def _dataset(tasks: Sequence[Task]) -> Any:
    """What TRL's sampler draws from: questions for its tables, and the places of the tasks."""
    rows = [{"prompt": without_surrogates(task.question), "task": place} for place, task in enumerate(tasks)]
    return Dataset.from_list(rows) if rows else None
