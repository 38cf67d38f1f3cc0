"""The shipped agent through the command line: trajectories with vLLM are those with transformers.

A process of its own for each, and vLLM with its usual processes: within one process, vLLM's CPU
backend fails once numba (of bm25s) is imported, as it looks into every module's objects.
"""

from __future__ import annotations

import os
import subprocess
import sys

from memsearcher.trajectory import read_trajectories
from tests_vllm.conftest import LENGTH


def play(folder, *overrides):
    """Two questions through `memsearcher rollout`: trajectories by id."""
    command = [sys.executable, "-m", "memsearcher.cli", "rollout", "--tasks", "factbook-dev", "--hops", "2", "--n", "2"]
    for each in overrides:
        command += ["--set", each]
    environment = {**os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
    subprocess.run([*command, "--out", str(folder)], env=environment, check=True)
    return {each.id: each for each in read_trajectories(folder / "trajectories.jsonl")}


def test_the_pocket_agent_answers_as_with_transformers(tmp_path):
    settings = f"model.vllm={{enforce_eager: true, max_model_len: {LENGTH}}}"
    ours, theirs = play(tmp_path / "vllm", "model.engine=vllm", settings), play(tmp_path / "transformers")
    assert ours.keys() == theirs.keys()
    for key, one in ours.items():
        other = theirs[key]
        assert one.provenance["engine"] == "vllm"
        assert one.error is None
        assert one.answer is not None
        assert (one.answer, one.actions, one.context_tokens) == (other.answer, other.actions, other.context_tokens)
