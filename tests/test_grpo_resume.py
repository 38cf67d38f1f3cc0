"""A run that is killed with -9 in any phase goes on as if nothing had happened."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from memsearcher.training import resume
from memsearcher.trajectory import Limits, Task, Trajectory
from tests.grpo_world import GROUP, ScriptedTrainer, make, saved_model, scripted_reply, tasks

STEPS = 7
PHASES = ("generate", "update", "save", "records")


class Mortal(ScriptedTrainer):
    """Kills its process in one phase of its sixth step; its replies depend on torch's random numbers."""

    phase = ""

    def _generate_single_turn(self, prompt_ids, *rest, **options):
        self._die("generate")
        size, end = len(self._tokenizer), self._tokenizer.eos_token_id
        salts = torch.randint(1 << 30, (len(prompt_ids),)).tolist()
        return [scripted_reply([*ids, salt], size, end) for ids, salt in zip(prompt_ids, salts, strict=True)], None

    def _compute_loss(self, model, inputs):
        self._die("update")
        return super()._compute_loss(model, inputs)

    def _keep_step(self, seconds):
        super()._keep_step(seconds)
        self._die("records")

    def _save_scaler(self, output_dir):
        self._die("save", after=6)
        super()._save_scaler(output_dir)

    def _die(self, phase, after=5):
        if self.phase == phase and self.state.global_step == after:
            os.kill(os.getpid(), signal.SIGKILL)


def run(folder, resumed=False):
    """Seven steps of two questions each over five questions, a checkpoint every second one."""
    changes = {"per_device_train_batch_size": 2 * GROUP, "max_steps": STEPS, "save_strategy": "steps", "save_steps": 2}
    trainer, _ = make(folder, trainer=Mortal, train=tasks(5), save_total_limit=2, **changes)
    trainer.train(resume_from_checkpoint=resumed)
    return trainer


def played(folder):
    return [(step, each.id, [talk.token_ids for talk in each.conversations]) for step, each in steps(folder)]


def steps(folder):
    return resume.read_steps(Path(folder) / "run")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("whole")
    return run(folder), played(folder)


@pytest.mark.parametrize("phase", PHASES)
def test_killed_and_resumed(phase, whole, tmp_path):
    trainer, records = whole
    saved_model(tmp_path)
    command = [sys.executable, "-m", "tests.test_grpo_resume", str(tmp_path), phase]
    done = subprocess.run(
        command, capture_output=True, timeout=200, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr[-2000:]
    left = {step for step, _ in steps(tmp_path)}
    assert left == set(range(1, 7 if phase in ("records", "update", "save") else 6))
    assert resume.last_checkpoint(tmp_path / "run").name == "checkpoint-4"

    again = run(tmp_path, resumed=True)
    assert again.state.global_step == STEPS
    assert played(tmp_path) == records
    logs = [[row["step"] for row in each.state.log_history if "loss" in row] for each in (trainer, again)]
    assert logs[0] == logs[1] == list(range(1, STEPS + 1))
    for (name, ours), theirs in zip(again.model.named_parameters(), trainer.model.parameters(), strict=True):
        assert torch.equal(ours, theirs), name


def test_resuming_with_nothing_there_starts_anew(tmp_path):
    trainer, _ = make(tmp_path)
    trainer.train(resume_from_checkpoint=True)
    assert trainer.state.global_step == 1


def test_every_question_comes_once_an_epoch(whole):
    """Two of five questions a step: TRL leaves out the odd one of each epoch's order."""
    questions = [(step, name.split("#")[0]) for step, name, _ in whole[1]]
    for first in (1, 3, 5):
        epoch = [question for step, question in set(questions) if step in (first, first + 1)]
        assert len(epoch) == len(set(epoch)) == 4


def test_torn_checkpoints_are_passed_over(tmp_path):
    for number, state in [(2, "{}"), (10, '{"global'), (12, None)]:
        folder = tmp_path / f"checkpoint-{number}"
        folder.mkdir()
        if state is not None:
            (folder / "trainer_state.json").write_text(state)
    (tmp_path / "checkpoint-best").mkdir()
    assert resume.last_checkpoint(tmp_path).name == "checkpoint-2"
    assert resume.last_checkpoint(tmp_path / "nothing") is None


def test_records_of_a_step_are_put_there_in_one_piece(tmp_path):
    odd = Trajectory(Task("t", "\ud800 \0 <|im_end|>", ("x",)), "agent", Limits(), error="gone")
    resume.write_step(tmp_path, "train", 3, 0, [odd, odd])
    resume.write_step(tmp_path, "train", 3, 0, [odd])
    resume.write_step(tmp_path, "train", 12, 1, [odd])
    resume.write_step(tmp_path, "eval", 3, 0, [odd])
    assert [(step, each.task.question) for step, each in resume.read_steps(tmp_path)] == [
        (3, odd.task.question),
        (12, odd.task.question),
    ]
    resume.forget_after(tmp_path, 3)
    assert [step for step, _ in resume.read_steps(tmp_path)] == [3]
    assert [step for step, _ in resume.read_steps(tmp_path, "eval")] == [3]
    for path in (tmp_path / "trajectories").iterdir():
        assert all(json.loads(line) for line in path.read_text().splitlines())


if __name__ == "__main__":
    torch.set_num_threads(1)
    Mortal.phase = sys.argv[2]
    run(sys.argv[1])
