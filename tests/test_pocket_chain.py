"""The chain of pocket runs: its commands are commands, and a small one runs from nothing to its tables."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

from memsearcher.recipe import load_recipe
from memsearcher.training.run import make_config
from scripts.pocket import SMOKE, Job, Size, jobs, main, run


def options(job):
    """The recipe and overrides of a job, as the command reads them."""
    pairs = list(zip(job.command, job.command[1:], strict=False))
    recipe = next(value for name, value in pairs if name == "--recipe")
    return recipe, [value for name, value in pairs if name == "--set"]


def test_every_job_has_a_name_of_its_own_and_settings_that_can_be_trained_with(tmp_path):
    chain = list(jobs(tmp_path, Size()))
    assert len({job.name for job in chain}) == len(chain) == 3 + 3 * 3 + 8 + 3 * 3
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
    with pytest.raises(SystemExit, match="never ended with 1; the same call goes on from there"):
        run(chain, tmp_path / "jobs.jsonl")
    assert "no such recipe" in capfd.readouterr().err
    assert not (tmp_path / "jobs.jsonl").exists()


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
