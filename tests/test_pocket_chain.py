"""The chain of pocket runs: its commands are commands, and a small one runs from nothing to its tables."""

from __future__ import annotations

import csv
import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from memsearcher.recipe import load_recipe
from memsearcher.training.run import make_config
from scripts.pocket import SMOKE, Job, Size, jobs, left, main, run


def options(job):
    """The recipe and overrides of a job, as the command reads them."""
    pairs = list(zip(job.command, job.command[1:], strict=False))
    recipe = next(value for name, value in pairs if name == "--recipe")
    return recipe, [value for name, value in pairs if name == "--set"]


def test_every_job_has_a_name_of_its_own_and_settings_that_can_be_trained_with(tmp_path):
    chain = list(jobs(tmp_path, Size()))
    assert len({job.name for job in chain}) == len(chain) == 3 + 3 * 3 + 8 + 2 * 2 + 3 * 3
    for job in chain:
        recipe = load_recipe(*options(job))
        if job.command[0] == "train":
            make_config(recipe, tmp_path / "out")


def test_an_ablation_departs_in_one_setting(tmp_path):
    chain = {job.name: load_recipe(*options(job)).to_json() for job in jobs(tmp_path, Size())}
    for name, recipe in chain.items():
        if name.startswith("ablation-"):
            assert sum(recipe[key] != value for key, value in chain["train-memsearcher-0"].items()) == 1, name


def test_a_setting_reaches_every_command(tmp_path, monkeypatch, capsys):
    for more in ([], ["--warmstarts"]):
        arguments = ["pocket", "--out", str(tmp_path), "--list", "--set", "model.dtype=bfloat16", *more]
        monkeypatch.setattr("sys.argv", arguments)
        main()
        listed = capsys.readouterr().out.splitlines()
        assert listed and all("--set model.dtype=bfloat16" in line for line in listed)


def test_a_job_that_failed_ends_the_chain_and_is_named(tmp_path, capfd):
    chain = [Job("never", ["train", "--recipe", "nowhere", "--out", str(tmp_path / "x")], tmp_path / "x")]
    with pytest.raises(SystemExit, match="never ended with an error; the same call goes on from there"):
        run(chain, tmp_path / "jobs.jsonl")
    assert "no such recipe" in capfd.readouterr().err
    assert not (tmp_path / "jobs.jsonl").exists()


@pytest.fixture
def played(monkeypatch):
    """The commands that a chain gave, in order; each leaves the file it names, or fails where it names none."""
    given = []

    def play(command, *, stdout=None, env=None, **options):
        name, *leaves = command[3:]
        given.append((name, env and env["OMP_NUM_THREADS"]))
        for each in leaves:
            Path(each).touch()
        if stdout:
            stdout.write(f"{name} was here".encode())
        return subprocess.CompletedProcess(command, not leaves)

    monkeypatch.setattr("scripts.pocket.subprocess.run", play)
    monkeypatch.setattr("scripts.pocket.os.cpu_count", lambda: 6)
    return given


def test_workers_start_what_is_ready_and_share_the_cores(tmp_path, played, capfd):
    one, two, three, four = (tmp_path / name for name in ("1", "2", "3", "4"))
    chain = [
        Job("test-a", ["test-a", str(four)], four, [one, three]),
        Job("warm-a", ["warm-a", str(one)], one),
        Job("ablation-b", ["ablation-b"], two, [one]),
        Job("test-b", ["test-b", str(two)], tmp_path / "never", [two]),
        Job("train-a", ["train-a", str(three)], three, [one]),
    ]
    with pytest.raises(SystemExit, match=r"^ablation-b ended with an error"):
        run(chain, tmp_path / "jobs.jsonl", workers=2)
    assert [name for name, _ in played] == ["warm-a", "ablation-b", "train-a", "test-a"]
    assert {threads for _, threads in played} == {"3"}
    assert (tmp_path / "train-a.log").read_text() == "train-a was here"
    done = [json.loads(line)["job"] for line in (tmp_path / "jobs.jsonl").read_text().splitlines()]
    assert done == ["warm-a", "train-a", "test-a"]
    assert "warm-a: 0.0 minutes; 4 left, 0 of them about 0.0 hours" in " ".join(capfd.readouterr().err.split())


def test_what_needs_a_job_of_another_chain_says_so_itself(tmp_path, played):
    with pytest.raises(SystemExit, match=r"^test-a ended"):
        run([Job("test-a", ["test-a"], tmp_path / "1", [tmp_path / "not there"])], tmp_path / "jobs.jsonl")
    assert played == [("test-a", None)]


def test_what_is_left_is_counted_by_stage(tmp_path):
    log = tmp_path / "jobs.jsonl"
    lines = [("warm-a", 10), ("train-b", 20), ("ablation-c", 40)]
    log.write_text("".join(json.dumps({"job": job, "minutes": minutes}) + "\n" for job, minutes in lines))
    chain = [Job(name, [], tmp_path) for name in ("train-a", "ablation-b", "test-a")]
    assert left(chain, log, workers=2) == "; 3 left, 2 of them about 0.5 hours"
    assert left([], log, workers=2) == ""


def test_the_smoke_chain_runs_to_its_tables_and_is_then_done(tmp_path):
    chain = list(jobs(tmp_path / "pocket", replace(SMOKE, agents=["memsearcher"], ablations=[])))
    log = tmp_path / "pocket" / "jobs.jsonl"
    run(chain, log)
    done = [json.loads(line)["job"] for line in log.read_text().splitlines()]
    assert done == [job.name for job in chain]
    with Path(chain[-1].leaves).open(newline="") as file:
        assert {row["agent"] for row in csv.DictReader(file)} == {"memsearcher"}
    before = log.read_bytes()
    run(chain, log)
    assert log.read_bytes() == before
