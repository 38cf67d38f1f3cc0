"""Figures: exact tables from records, plots from tables alone, the same bytes from the same table."""

import csv
import json
import logging
import shutil

import pandas as pd
import pytest
from typer.testing import CliRunner

from memsearcher import cli, jsonl
from memsearcher.figures import files, plots, style, tables
from memsearcher.figures.draw import FIGURES, IDS, choose, collect, draw
from memsearcher.figures.files import FigureError, Source, read_source, read_table, write_source, write_table
from memsearcher.trajectory import Call, Conversation, Limits, Segment, Task, Trajectory, write_trajectory

POCKET = "reproduced at pocket scale"


def talk(*parts):
    """A conversation of segments with so many tokens each."""
    return Conversation([Segment(role, part, "x", list(range(n))) for role, part, n in parts])


def played(name, turns, *, agent="memsearcher", answer="Kip", hops=2, error=None):
    """A trajectory with a context of 10 and a reply of 2 tokens a turn, and memories of the given lengths."""
    task = Task(name, "Which?", ("Kip",), {"hops": hops, "shape": "chain"})
    each = Trajectory(task, agent, Limits(), answer=answer, error=error)
    for number, memory in enumerate(turns):
        turn = each.begin_turn("")
        question, act, seen = ("user", "question", 10), ("assistant", "reply", 2), ("user", "observation", 5)
        each.converse(talk(question, act, seen, ("assistant", "reply", memory)))
        turn.calls = [Call("act", number, 1, "eos", 10, 2), Call("remember", number, 3, "eos", 17, memory)]
    return each


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "runs" / "four-hops"
    folder.mkdir(parents=True)
    for each in (
        played("a", [3, 5]),
        played("b", [4], answer="Baht"),
        played("c", [9], hops=3),
        played("d", [9, 9, 9], error="TimeoutError: slow"),
    ):
        write_trajectory(folder / "trajectories.jsonl", each)
    return folder


@pytest.fixture
def trained(tmp_path):
    folder = tmp_path / "runs" / "seed-0"
    folder.mkdir(parents=True)
    jsonl.write_csv(folder / "log.csv", [{"step": n, "loss": 0.1, "reward": n / 10} for n in (1, 2, 3)])
    jsonl.write_csv(folder / "validation.csv", [{"step": 0, "eval_em": 0.25}, {"step": 3, "eval_em": 0.5}])
    return folder


def rows(table, *columns):
    return [tuple(row[column] for column in columns) for row in table]


def test_context_counts_everything_and_only_trajectories_alive(run):
    (records,), _ = tables.read_runs([run])
    table = tables.context([records])
    # The failed one is out. Contexts are 17 tokens and the memory that was written.
    assert rows(table, "series", "measured", "turn", "n", "tokens") == [
        ("memsearcher", True, 1, 3, (20 + 21 + 26) / 3),
        ("memsearcher", True, 2, 1, 22.0),
        ("memsearcher, history kept", False, 1, 3, 17.0),
        ("memsearcher, history kept", False, 2, 1, 24.0),
    ]
    assert all(row["low"] <= row["tokens"] <= row["high"] for row in table)


def test_memory_is_what_the_model_wrote(run):
    (records,), _ = tables.read_runs([run])
    assert rows(tables.memory([records]), "turn", "n", "tokens") == [(1, 3, 16 / 3), (2, 1, 5.0)]


def test_accuracy_by_kind_with_the_failed_counted_and_left_out(run):
    (records,), _ = tables.read_runs([run])
    found = rows(tables.accuracy([records]), "agent", "questions", "n", "failed", "em")
    assert found == [("memsearcher", "2-hop", 2, 1, 0.5), ("memsearcher", "3-hop", 1, 0, 1.0)]


def test_questions_of_another_set_are_named_after_their_run(tmp_path):
    folder = tmp_path / "hotpotqa"
    folder.mkdir()
    write_trajectory(folder / "trajectories.jsonl", Trajectory(Task("q", "Which?", ("x",)), "react", Limits()))
    (records,), _ = tables.read_runs([folder])
    assert rows(tables.accuracy([records]), "agent", "questions", "em") == [("react", "hotpotqa", 0.0)]


def test_questions_that_are_no_chain_are_named_after_their_shape():
    each = played("a", [3])
    each.task.metadata["shape"] = "comparison"
    assert tables.accuracy([tables.Records("r", "", (each,))])[0]["questions"] == "comparison"


def test_an_evaluation_is_the_runs_inside_it(tmp_path, run):
    home = tmp_path / "evaluation" / "memsearcher" / "factbook-test"
    home.parent.mkdir(parents=True)
    shutil.copytree(run, home)
    found, logs = tables.read_runs([tmp_path / "evaluation"])
    assert [each.name for each in found] == ["factbook-test"]
    assert logs == []


def test_training_has_a_row_a_step_and_a_row_an_evaluation(trained):
    _, logs = tables.read_runs([trained])
    assert rows(tables.training(logs), "run", "series", "step", "value") == [
        ("seed-0", "reward", 1, 0.1),
        ("seed-0", "reward", 2, 0.2),
        ("seed-0", "reward", 3, 0.3),
        ("seed-0", "validation EM", 0, 0.25),
        ("seed-0", "validation EM", 3, 0.5),
    ]


def test_training_without_evaluation(trained):
    (trained / "validation.csv").unlink()
    _, logs = tables.read_runs([trained])
    assert len(tables.training(logs)) == 3


@pytest.mark.parametrize(
    ("name", "expected"),
    [("SmolLM2-135M", 23_040), ("Qwen2.5-3B", 36_864), ("Qwen2.5-7B", 57_344), ("Qwen2.5-14B", 196_608)],
)
def test_bytes_of_a_token_in_the_cache(name, expected):
    assert {each.name: each.bytes_per_token for each in tables.ARCHITECTURES}[name] == expected


def test_cache_is_the_context_times_bytes_a_token(run):
    (records,), _ = tables.read_runs([run])
    first = tables.cache([records])[0]
    assert (first["model"], first["turn"], first["n"]) == ("SmolLM2-135M", 1, 3)
    assert first["mb"] == pytest.approx(67 / 3 * 23_040 / 1e6)


def test_reported_numbers_keep_their_source():
    table = tables.reported()
    ours = {row["dataset"]: row["em"] for row in table if row["method"] == "MemSearcher"}
    assert ours["nq"] == 0.527
    assert set(ours) == set(tables.BENCHMARKS)
    assert all("arXiv" in row["source"] and "7B" in row["model"] for row in table)


def test_a_folder_without_records_is_refused(tmp_path):
    with pytest.raises(FigureError, match="neither"):
        tables.read_runs([tmp_path])


def test_moving_average_is_debiased():
    assert plots._smooth([0.5, 0.5, 0.5]) == pytest.approx([0.5] * 3)
    decay = 9 / 11
    assert plots._smooth([1.0, 0.0])[1] == pytest.approx(decay / (1 + decay))


def test_every_plot_says_what_its_numbers_are(run, trained, tmp_path):
    for each in collect(FIGURES, [run, trained], "demo", tmp_path):
        table = read_table(tmp_path / f"{each.id}.csv", each.columns)
        drawn = each.plot(table, read_source(tmp_path / f"{each.id}.source.json", tmp_path / f"{each.id}.csv").kind)
        texts = [note.text for note in drawn.layout.annotations]
        assert f"<b>{each.kind or 'demo'}</b>" in texts, each.id
        assert drawn.data


def test_all_figures_have_numbers_from_a_run_and_a_training_run(run, trained, tmp_path):
    assert [each.id for each in collect(FIGURES, [run, trained], "demo", tmp_path)] == list(IDS)
    assert [each.id for each in collect(FIGURES, [trained], "demo", tmp_path)] == ["training", "reported"]


def test_the_warning_colour_is_for_what_was_not_reproduced():
    colours = {kind: style.figure(kind, "", x="", y="").layout.annotations[0].font.color for kind in ("demo", POCKET)}
    assert colours == {"demo": style.WARNING, POCKET: style.GREY}


def test_an_agent_looks_the_same_in_every_figure():
    assert style.look_of("react", 0) == style.look_of("react", 4) == style.LOOKS[1]
    assert style.look_of("another", 9) == style.LOOKS[2]
    assert style.LOOKS[0].faint(0.5) == "rgba(0,114,178,0.5)"


def test_a_table_reads_back_the_same(tmp_path):
    table = pd.DataFrame([{"a": 0.1234567, "b": 'x,"y"\n', "c": 3}])
    write_table(table, tmp_path / "t.csv")
    first = (tmp_path / "t.csv").read_bytes()
    write_table(read_table(tmp_path / "t.csv", ("a", "b", "c")), tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_bytes() == first


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such table"),
        (b"", "not CSV"),
        (b"a,b\n", "no rows"),
        (b"b\n1\n", "'a' is missing"),
        (b"\xff\xfe\n", "not CSV"),
    ],
)
def test_bad_tables_are_refused(tmp_path, content, message):
    path = tmp_path / "t.csv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(FigureError, match=message):
        read_table(path, ("a",))


def test_a_table_that_was_changed_by_hand_is_refused(tmp_path):
    table, sidecar = tmp_path / "t.csv", tmp_path / "t.source.json"
    table.write_text("a\n1\n")
    source = Source("demo", {"run": "0" * 64}, note="n")
    write_source(source, table, sidecar)
    assert read_source(sidecar, table) == source
    table.write_text("a\n2\n")
    with pytest.raises(FigureError, match="changed since"):
        read_source(sidecar, table)


@pytest.mark.parametrize("content", [None, b"{", b"[]", b"{}", b'{"table_sha256": "", "memsearcher": "", "kinds": 1}'])
def test_a_broken_sidecar_is_refused(tmp_path, content):
    (tmp_path / "t.csv").write_text("a\n1\n")
    if content is not None:
        (tmp_path / "t.source.json").write_bytes(content)
    with pytest.raises(FigureError, match=r"t\.source\.json"):
        read_source(tmp_path / "t.source.json", tmp_path / "t.csv")


def test_the_same_table_gives_the_same_bytes(run, tmp_path):
    """With a browser SVG and PDF too."""
    (figure,) = choose(["context"])
    written = []
    for name in ("one", "two"):
        collect([figure], [run], POCKET, tmp_path / name)
        ((_, paths),) = list(draw([figure], tmp_path / name))
        written.append({path.name: path.read_bytes() for path in paths})
    assert set(written[0]) == {f"context.{end}" for end in ("json", "html", "svg", "pdf")}
    assert written[0] == written[1]
    assert b"https://" not in written[0]["context.html"].replace(b"https://plotly.com", b"")


def test_without_a_browser_there_is_one_warning_and_the_rest(run, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(files.shutil, "which", lambda name: None)
    made = collect(choose(["context", "memory"]), [run], POCKET, tmp_path)
    with caplog.at_level(logging.WARNING):
        written = [path.name for _, paths in draw(made, tmp_path) for path in paths]
    assert written == ["context.json", "context.html", "memory.json", "memory.html"]
    assert len(caplog.records) == 1
    assert (tmp_path / files.PLOTLY_JS).stat().st_size > 1_000_000


def test_pdf_dates_are_settled_and_offsets_kept():
    data = b"(D:20261129203011+00'00')/CreationDate (D:20261129203011)"
    assert files._settle_pdf(data) == b"(D:20261129203011+00'00')/CreationDate (D:20000000000000)"
    assert len(files._settle_pdf(data)) == len(data)
    assert files._settle_svg(b"<svg/>") == b"<svg/>"


@pytest.fixture
def shell(monkeypatch):
    monkeypatch.setattr(files.shutil, "which", lambda name: None)
    runner = CliRunner()
    return lambda *arguments: runner.invoke(cli.app, ["figures", *map(str, arguments)])


def test_command_draws_from_runs_and_again_from_tables(shell, run, tmp_path):
    out = tmp_path / "figures"
    first = shell("--runs", run, "--out", out)
    assert first.exit_code == 0, first.output
    assert json.loads((out / "context.source.json").read_text())["kind"] == POCKET
    with (out / "accuracy.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 2
    before = (out / "context.json").read_bytes()
    (out / "context.json").unlink()
    again = shell("--out", out)
    assert again.exit_code == 0, again.output
    assert (out / "context.json").read_bytes() == before
    assert "training" not in again.output


def test_command_marks_a_demo(shell, run, tmp_path):
    assert shell("context", "--runs", run, "--out", tmp_path, "--demo").exit_code == 0
    assert json.loads((tmp_path / "context.source.json").read_text())["kind"] == "demo"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["nonsense"], "no figure 'nonsense'"), ([], "no tables"), (["context"], "no such table")],
)
def test_command_says_what_is_wrong(shell, tmp_path, arguments, message):
    done = shell(*arguments, "--out", tmp_path / "none")
    assert done.exit_code == 1
    assert message in done.output
