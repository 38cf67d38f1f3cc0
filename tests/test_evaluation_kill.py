"""An evaluation that is killed, over and over, ends in the bytes of one that was left alone."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from memsearcher.evaluation.judge import verdicts
from memsearcher.trajectory import read_trajectories
from tests import evaluation_driver
from tests.evaluation_driver import ARMS, TASKS

ROOT = Path(__file__).parent.parent
KILLS = int(os.environ.get("MEMSEARCHER_KILLS", "5"))
PAUSE = 0.01
TABLES = ("questions.csv", "table.csv", "pairs.csv", "table.md")


def start(folder):
    """The driver at work, past its imports."""
    command = [sys.executable, "-m", "tests.evaluation_driver", str(folder), str(PAUSE)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    return process


def test_kills_at_random_points_change_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(evaluation_driver.rollout_module, "time", time)  # given back, whatever the driver puts there
    begun = time.perf_counter()
    evaluation_driver.main(tmp_path / "whole", PAUSE)
    whole = time.perf_counter() - begun

    draw = random.Random(0)
    codes = []
    for _ in range(KILLS):
        process = start(tmp_path / "killed")
        time.sleep(draw.uniform(0, 2 * whole / KILLS))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        codes.append(process.returncode)
    assert -signal.SIGKILL in codes  # with luck it is done before the last ones
    process = start(tmp_path / "killed")
    _, errors = process.communicate()
    assert process.returncode == 0, errors.decode()

    for arm in ARMS.values():
        ours, theirs = (tmp_path / name / arm.folder for name in ("whole", "killed"))
        ids = [each.id for each in read_trajectories(theirs / "trajectories.jsonl")]
        assert sorted(ids) == sorted(f"{task.id}#0" for task in TASKS)
        assert verdicts(ours) == verdicts(theirs)
    for name in TABLES:
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
    assert "failed and not scored" in (tmp_path / "whole" / "table.md").read_text()
    assert "without a verdict" in (tmp_path / "whole" / "table.md").read_text()
