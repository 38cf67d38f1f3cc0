"""The inspector as a widget, without a browser: traits, messages, fallbacks, size; and the command for the page."""

import json

import pytest
import traitlets
from typer.testing import CliRunner

from memsearcher import cli
from memsearcher.commands import common
from memsearcher.inspect import inspect, passages_df, trajectories_df, turns_df, write_page
from memsearcher.trajectory import Task, write_trajectory
from tests.traces import GOOD_TURNS, attempt, stories

LIMIT = 1_000_000


@pytest.fixture
def inspector():
    return inspect(stories(), trajectory=1, turn=3)


def asked(inspector, monkeypatch, **message):
    sent = []
    monkeypatch.setattr(inspector, "send", sent.append)
    inspector._handle_custom_msg({"id": "7", **message}, [])
    (answer,) = sent
    json.dumps(answer, allow_nan=False)
    assert answer["id"] == "7"
    return answer["content"]


def test_it_begins_where_it_is_told(inspector):
    assert (inspector.trajectory, inspector.turn) == (1, 3)
    assert inspector.selected is inspector.collection.trajectories[1]
    assert len(inspector.index["rows"]) == 9


def test_another_trajectory_has_no_turn_beyond_its_last(inspector):
    inspector.trajectory = 3
    assert inspector.turn == 1


@pytest.mark.parametrize(("name", "value"), [("trajectory", 9), ("trajectory", -1), ("turn", 0)])
def test_there_is_no_such_place(inspector, name, value):
    with pytest.raises(traitlets.TraitError, match=str(value)):
        setattr(inspector, name, value)


def test_views_and_hits_are_sent_when_asked_for(inspector, monkeypatch):
    assert asked(inspector, monkeypatch, kind="view", trajectory=7) == inspector.collection.view(7)
    assert asked(inspector, monkeypatch, kind="search", query="Niamey") == inspector.collection.search("Niamey")


def test_where_there_is_no_widget_the_trajectory_is_text(inspector):
    bundle, _ = inspector._repr_mimebundle_()
    assert bundle["text/plain"] == inspector.selected.card().text()
    assert "application/vnd.jupyter.widget-view+json" in bundle


def test_a_thousand_trajectories_are_less_than_a_megabyte():
    task = Task("q" * 24, "Which of the two " * 12, ("an answer of some words",))
    one = attempt(GOOD_TURNS, "an answer of some words", task=task, reward=0.123456789, advantage=-0.123456789)
    for turn in one.turns:
        for name in ("passage_cut", "memory_cut", "duplicate_query", "several_calls"):
            turn.event(name)
    state = inspect([one] * 1000).get_state()
    assert len(json.dumps(state).encode()) < LIMIT


def test_the_package_offers_the_page_and_the_frames(tmp_path, inspector):
    write_page(tmp_path / "traces.html", inspector.collection)
    assert (tmp_path / "traces.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert all(len(frame(stories())) for frame in (trajectories_df, turns_df, passages_df))


def test_the_command_writes_a_page(tmp_path):
    runs = tmp_path / "runs.jsonl"
    for each in stories():
        write_trajectory(runs, each)
    result = CliRunner().invoke(cli.app, ["inspect", str(runs), str(runs), "--out", str(tmp_path / "a.html")])
    assert result.exit_code == 0, result.output
    assert "trajectories 18" in result.stdout
    assert (tmp_path / "a.html").read_text(encoding="utf-8").count("application/x-trajectory") == 18


def test_the_command_says_what_is_not_there(tmp_path, monkeypatch):
    monkeypatch.setattr(common.err, "width", 400)
    result = CliRunner().invoke(cli.app, ["inspect", str(tmp_path / "none")])
    assert result.exit_code == 1
    assert "no run folder and no file of trajectories" in result.stderr
