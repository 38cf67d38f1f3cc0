"""What is shipped: the last adapter of a chain, rounded, and the records of all its stages without anybody's paths."""

import hashlib
import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from memsearcher import jsonl
from memsearcher.figures.runs import read_csv
from scripts import ship

BOUND = {"agent": {"prompts": "memsearcher"}, "environment": {"limit": "3"}}


def stage(folder, value, adapter=None, start=None, before=None):
    """A run whose adapter is one number: a warm start, or with the run `before` it reinforcement."""
    recipe = {"model": {"adapter": adapter}, "warmstart": {"start": start, "steps": 3}}
    jsonl.replace(folder / "adapter" / "agent.json", json.dumps({"recipe": recipe, **BOUND, "steps": 2}).encode())
    jsonl.replace(folder / "adapter" / "adapter_config.json", b"{}")
    save_file({"lora_A": torch.tensor([value])}, folder / "adapter" / "adapter_model.safetensors")
    if before is None:
        jsonl.write_csv(folder / "adapter" / "training_log.csv", [{"step": 5, "epoch": 1, "loss": 0.5}])
    else:
        began = hashlib.sha256((before / "adapter" / "adapter_model.safetensors").read_bytes()).hexdigest()
        jsonl.replace(folder / "run.json", json.dumps({"about": {"training": {"start": began}}}).encode())
        jsonl.write_csv(folder / "log.csv", [{"loss": 0.1, "reward": 0.25, "trajectories/em": 0.25, "step": 1}])
    return folder


@pytest.fixture
def chain(tmp_path):
    first = stage(tmp_path / "warm", 1.0)
    second = stage(tmp_path / "longer", 2.0, start="/home/me/warm/adapter")
    return first, second, stage(tmp_path / "train", 1.001, adapter="/home/me/longer/adapter", before=second)


def test_the_last_adapter_is_shipped_with_the_records_of_all_stages(chain, tmp_path):
    ship.ship(chain, tmp_path / "data")
    (weight,) = load_file(tmp_path / "data" / "adapter_model.safetensors").values()
    assert weight.dtype == torch.bfloat16 and weight.item() == 1.0
    text = (tmp_path / "data" / "agent.json").read_text()
    card = json.loads(text)
    assert {name: card[name] for name in BOUND} == BOUND and "/home" not in text
    starts = [(each["recipe"]["model"]["adapter"], each["recipe"]["warmstart"]["start"]) for each in card["stages"]]
    assert starts == [(None, None), (None, "stage 1"), ("stage 2", None)]
    logged = [
        (row["stage"], row["step"], row["loss"], row["reward"]) for row in read_csv(tmp_path / "data/training_log.csv")
    ]
    assert logged == [("1", "5", "0.5", ""), ("2", "5", "0.5", ""), ("3", "1", "0.1", "0.25")]
    assert not (tmp_path / "data" / "README.md").exists()


@pytest.mark.parametrize("named", [(0, 2), (2,)])
def test_a_chain_with_a_stage_left_out_is_refused(chain, named, tmp_path):
    with pytest.raises(ValueError, match="train did not begin with the adapter of the run named before it"):
        ship.ship([chain[each] for each in named], tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_a_run_that_has_no_adapter_yet_is_one_clear_error(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["ship", str(tmp_path / "nowhere"), "--out", str(tmp_path / "data")])
    with pytest.raises(SystemExit):
        ship.main()
    assert "nowhere/adapter/agent.json" in capsys.readouterr().err
