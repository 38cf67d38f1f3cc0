"""Figures: exact tables from records, plots from tables alone, the same bytes from the same table."""

import csv
import json
import logging
import shutil
from itertools import pairwise

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from memsearcher import cli, jsonl
from memsearcher.figures import files, plots, style, tables
from memsearcher.figures.draw import FIGURES, IDS, choose, collect, draw
from memsearcher.figures.files import FigureError, Source, read_source, read_table, write_source, write_table
from memsearcher.figures.runs import Records, Runs, read_runs
from memsearcher.trajectory import Call, Conversation, Limits, Segment, Task, Trajectory, write_trajectory
from tests import traces

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


def recorded(folder, *trajectories):
    """A run folder that holds trajectories."""
    folder.mkdir(parents=True)
    for each in trajectories:
        write_trajectory(folder / "trajectories.jsonl", each)
    return folder


@pytest.fixture
def run(tmp_path):
    return recorded(
        tmp_path / "runs" / "four-hops",
        played("a", [3, 5]),
        played("b", [4], answer="Baht"),
        played("c", [9], hops=3),
        played("d", [9, 9, 9], error="TimeoutError: slow"),
    )


@pytest.fixture
def trained(tmp_path):
    folder = tmp_path / "runs" / "seed-0"
    folder.mkdir(parents=True)
    jsonl.write_csv(folder / "log.csv", [{"step": n, "loss": 0.1, "reward": n / 10} for n in (1, 2, 3)])
    evaluations = [{"step": 0, "eval_em": 0.25, "eval_n": 4.0}, {"step": 3, "eval_em": 0.5, "eval_n": 3.0}]
    jsonl.write_csv(folder / "validation.csv", evaluations)
    return folder


@pytest.fixture
def pair(tmp_path):
    """MemSearcher and ReAct on the same question, a run each."""
    attempts = {"memory": traces.attempt, "history": traces.react}
    return [recorded(tmp_path / "runs" / name, play(traces.GOOD_TURNS, "Accra")) for name, play in attempts.items()]


@pytest.fixture
def grouped(trained):
    """A training run with the trajectories of a step and of two evaluations."""
    (trained / "trajectories").mkdir()
    for step, answer in ((0, "Baht"), (3, "Kip")):
        write_trajectory(trained / "trajectories" / f"eval-{step:06d}-0000.jsonl", played("a", [3], answer=answer))
    for each in traces.stories()[:4]:
        write_trajectory(trained / "trajectories" / "train-000003-0000.jsonl", each)
    return trained


@pytest.fixture
def composed(tmp_path):
    return recorded(
        tmp_path / "runs" / "composed",
        several("a", 2, "Kip; Kip"),
        several("b", 2, "Kip; Baht", agent="react", turns=[30]),
        several("c", 2, "Baht; Kip; Kip"),
        several("d", 4, "Kip", error="TimeoutError: slow"),
        several("e", 4, "Kip"),
        several("f", 2, None, golds=()),
    )


def several(name, count, answer, *, golds=("Kip",), turns=(3, 5), agent="memsearcher", error=None):
    """A trajectory on a task of `count` questions."""
    each = played(name, turns, agent=agent, answer=answer, error=error)
    objectives = [{"id": f"{name}.{n}", "question": "Which?", "golds": list(golds)} for n in range(count)]
    each.task = Task(name, "Which?", golds and ("; ".join(golds * count),), {"objectives": objectives})
    return each


def rows(table, *columns):
    return [tuple(row[column] for column in columns) for row in table]


def test_context_counts_everything_and_only_trajectories_alive(run):
    (records,) = read_runs([run]).records
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
    (records,) = read_runs([run]).records
    assert rows(tables.memory([records]), "turn", "n", "tokens") == [(1, 3, 16 / 3), (2, 1, 5.0)]


def test_accuracy_by_kind_with_the_failed_counted_and_left_out(run):
    (records,) = read_runs([run]).records
    found = rows(tables.accuracy([records]), "agent", "questions", "n", "failed", "em")
    assert found == [("memsearcher", "2-hop", 2, 1, 0.5), ("memsearcher", "3-hop", 1, 0, 1.0)]


def test_questions_of_another_set_are_named_after_their_run(tmp_path):
    folder = tmp_path / "hotpotqa"
    folder.mkdir()
    write_trajectory(folder / "trajectories.jsonl", Trajectory(Task("q", "Which?", ("x",)), "react", Limits()))
    (records,) = read_runs([folder]).records
    assert rows(tables.accuracy([records]), "agent", "questions", "em") == [("react", "hotpotqa", 0.0)]


def test_questions_that_are_no_chain_are_named_after_their_shape():
    each = played("a", [3])
    each.task.metadata["shape"] = "comparison"
    assert tables.accuracy([Records("r", "r", "", (each,))])[0]["questions"] == "comparison"


def test_an_evaluation_is_the_runs_inside_it(tmp_path, run):
    home = tmp_path / "evaluation" / "memsearcher" / "factbook-test"
    home.parent.mkdir(parents=True)
    shutil.copytree(run, home)
    found = read_runs([tmp_path / "evaluation"])
    assert [each.name for each in found.records] == ["factbook-test"]
    assert list(found.digests) == ["evaluation/memsearcher/factbook-test"]
    assert found.logs == found.groups == ()


def test_runs_of_one_name_are_told_apart():
    records = tuple(Records("run", "run", digest, ()) for digest in "abc")
    assert Runs(records).digests == {"run": "a", "run (2)": "b", "run (3)": "c"}


def test_training_has_a_row_a_step_and_a_row_an_evaluation(trained):
    logs = read_runs([trained]).logs
    assert rows(tables.training(logs), "run", "seed", "series", "step", "value", "n") == [
        ("seed-0", None, "reward", 1, 0.1, None),
        ("seed-0", None, "reward", 2, 0.2, None),
        ("seed-0", None, "reward", 3, 0.3, None),
        ("seed-0", None, "validation EM", 0, 0.25, 4),
        ("seed-0", None, "validation EM", 3, 0.5, 3),
    ]
    (trained / "run.json").write_text('{"recipe": {"seed": 7}}')
    assert {row["seed"] for row in tables.training(read_runs([trained]).logs)} == {7}
    (trained / "run.json").write_text('{"recipe": {}}')
    with pytest.raises(FigureError, match=r"run\.json: it does not say the recipe's seed"):
        read_runs([trained])


def test_seeds_of_a_run_are_drawn_as_their_mean_as_far_as_all_came():
    def run(name, seed, rewards, ems):
        points = [("reward", step, value, None) for step, value in enumerate(rewards, 1)]
        points += [("validation EM", step, value, 100) for step, value in ems.items()]
        return [dict(zip(("series", "step", "value", "n"), each, strict=True), run=name, seed=seed) for each in points]

    both = run("train-0", 0, [0.2, 0.2, 0.2], {0: 0.4, 2: 0.6}) + run("train-1", 1, [0.4, 0.4], {0: 0.2, 2: 0.8})
    drawn = plots.training(pd.DataFrame([*both, *run("reward-em", 0, [0.1, 0.1], {})]), "demo")
    lines = [(each.name, list(each.x), pytest.approx(list(each.y))) for each in drawn.data]
    assert lines == [
        (None, [1, 2, 3], [0.2, 0.2, 0.2]),
        (None, [1, 2], [0.4, 0.4]),
        ("train", [1, 2], [0.3, 0.3]),
        (None, [0, 2], [0.4, 0.6]),
        (None, [0, 2], [0.2, 0.8]),
        (None, [0, 2], [0.3, 0.7]),
        (None, [1, 2], [0.1, 0.1]),
        ("reward-em", [1, 2], [0.1, 0.1]),
    ]
    assert "train: seeds 0, 1" in drawn.layout.annotations[1].text


def test_seeds_that_share_no_step_show_the_longest():
    table = [
        {"run": f"r-{seed}", "seed": seed, "series": "reward", "step": step, "value": 0.5}
        for seed, steps in ((0, (1,)), (1, (2, 3)))
        for step in steps
    ]
    assert list(plots.training(pd.DataFrame(table), "demo").data[2].x) == [2, 3]


def test_training_without_evaluation(trained):
    (trained / "validation.csv").unlink()
    logs = read_runs([trained]).logs
    assert len(tables.training(logs)) == 3


@pytest.mark.parametrize(
    ("name", "expected"),
    [("SmolLM2-135M", 23_040), ("Qwen2.5-3B", 36_864), ("Qwen2.5-7B", 57_344), ("Qwen2.5-14B", 196_608)],
)
def test_bytes_of_a_token_in_the_cache(name, expected):
    assert {each.name: each.bytes_per_token for each in tables.ARCHITECTURES}[name] == expected


def test_cache_is_the_context_times_bytes_a_token(run):
    (records,) = read_runs([run]).records
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
        read_runs([tmp_path])


def test_moving_average_is_debiased():
    assert plots._smooth([0.5, 0.5, 0.5]) == pytest.approx([0.5] * 3)
    decay = 9 / 11
    assert plots._smooth([1.0, 0.0])[1] == pytest.approx(decay / (1 + decay))


def test_several_questions_are_scored_by_position_and_failed_tasks_counted(composed):
    table = tables.objectives(read_runs([composed]).records)
    assert rows(table, "agent", "measure", "objectives", "n", "failed", "value") == [
        ("memsearcher", "em", 2, 2, 0, (1 + 0.5) / 2),
        ("memsearcher", "peak tokens", 2, 2, 0, 22.0),
        ("memsearcher", "em", 4, 1, 1, 0.25),
        ("memsearcher", "peak tokens", 4, 1, 1, 22.0),
        ("react", "em", 2, 1, 0, 0.5),
        ("react", "peak tokens", 2, 1, 0, 47.0),
    ]
    assert tables.accuracy(read_runs([composed]).records) == []


def test_peaks_that_were_not_counted_are_no_points(composed):
    (records,) = read_runs([composed]).records
    for each in records.trajectories:
        each.turns[0].calls = [Call("act", 0, 1, "eos", None, None)]
    table = pd.DataFrame(tables.objectives([records]))
    assert set(table["measure"]) == {"em"}
    assert len(plots.objectives(table, "demo").data) == 2


def test_the_cache_is_drawn_for_the_papers_two_agents_where_they_are(run, composed):
    mem1 = Records("other", "other", "", (played("m", [3], agent="mem1"),))
    records = read_runs([run, composed]).records
    series = {row["series"] for row in tables.cache([*records, mem1])}
    assert series == {"memsearcher", "memsearcher, history kept", "react", "react, history kept"}
    assert {row["series"] for row in tables.cache([mem1])} == {"mem1", "mem1, history kept"}


def test_every_plot_says_what_its_numbers_are(run, grouped, pair, composed, tmp_path):
    for each in collect(FIGURES, [run, grouped, *pair, composed], "demo", tmp_path):
        table = read_table(tmp_path / f"{each.id}.csv", each.columns)
        drawn = each.plot(table, read_source(tmp_path / f"{each.id}.source.json", tmp_path / f"{each.id}.csv").kind)
        texts = [note.text for note in drawn.layout.annotations]
        assert f"<b>{each.kind or 'demo'}</b>" in texts, each.id
        assert drawn.data


def test_each_figure_is_made_where_there_are_runs_for_it(run, grouped, pair, composed, tmp_path):
    assert [each.id for each in collect(FIGURES, [run, grouped, *pair, composed], "demo", tmp_path)] == list(IDS)
    assert [each.id for each in collect(FIGURES, [grouped], "demo", tmp_path)] == [
        "group", "training", "rise", "reported"
    ]  # fmt: skip


NAMES = ("memsearcher", "react", "mem1", "truncate", "summarize")


@pytest.mark.parametrize("values", [[100, 101, 102, 103, 104], [0, 0, 0, 0, 0], [50, 400, 401, 402, 399]])
def test_names_of_five_agents_that_end_together_do_not_overlap(values):
    table = pd.DataFrame(
        {"series": name, "measured": measured, "turn": 1, "n": 1, "tokens": value, "low": value, "high": value}
        for name, value in zip(NAMES, values, strict=True)
        for measured in (True, False)
    )
    table.loc[~table["measured"], "series"] += ", history kept"
    drawn = plots.context(table, "demo")
    height = drawn.layout.height - drawn.layout.margin.t - drawn.layout.margin.b
    top = drawn.layout.yaxis.range[1]
    shown = [note for note in drawn.layout.annotations if note.showarrow]
    heights = sorted(note.y / top * height - note.ay for note in shown)
    assert len(heights) == 10
    assert all(above - below >= style.LINE - 1e-6 for below, above in pairwise(heights))
    assert heights[0] > 0 and heights[-1] < height


@given(st.lists(st.integers(0, 200), max_size=12))
def test_places_are_moved_apart_and_no_more_than_that(places):
    moved = style.spread(places, 10, 200)
    order = sorted(range(len(places)), key=lambda each: places[each])
    inorder = [moved[each] for each in order]
    assert all(after - before >= 10 - 1e-6 for before, after in pairwise(inorder))
    assert all(5 - 1e-6 <= each <= 195 + 1e-6 for each in moved)
    free = [each for each in places if 5 <= each <= 195 and sum(abs(each - other) < 130 for other in places) == 1]
    assert all(each in moved for each in free)


def test_two_names_at_one_place_part_evenly():
    assert style.spread([100, 100], 12, 200) == [94, 106]
    assert style.spread([100, 50], 12, 200) == [100, 50]
    assert style.spread([0, 0], 12, 200) == [6, 18]
    assert style.spread([], 12, 200) == []


def test_text_from_outside_is_one_printable_line():
    assert style.printable(" a\n\x00b\ud800\u202ec  ") == "a b c"
    assert style.printable("x" * 300) == "x" * 199 + "…"
    assert style.wrapped("<b>two words", 6) == "&lt;b&gt;two<br>words"


def test_series_of_the_same_counts_share_a_line():
    assert plots._counts({"a": [3, 1], "b": [3], "c": [3, 1]}) == "n, a, c: 3, 1<br>n, b: 3"


def test_counts_follow_the_axis_and_are_0_where_there_is_no_point(composed):
    drawn = plots.objectives(pd.DataFrame(tables.objectives(read_runs([composed]).records)), "demo")
    assert drawn.layout.annotations[1].text.endswith("left out: 1.<br>n, memsearcher: 2, 1<br>n, react: 1, 0")


def test_a_training_run_of_one_step_shows_its_point(trained):
    table = pd.DataFrame(tables.training(read_runs([trained]).logs))
    drawn = plots.training(table[table["step"] == 1], "demo")
    assert drawn.data[1].mode == "markers"


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


def test_the_same_table_gives_the_same_bytes(run, grouped, pair, composed, tmp_path):
    """With a browser SVG and PDF too."""
    names = ("anatomy", "group", "context", "objectives")
    figures = choose(names)
    collect(figures, [run, grouped, *pair, composed], POCKET, tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    written = [
        {path.name: path.read_bytes() for _, paths in draw(figures, tmp_path / name) for path in paths}
        for name in ("one", "two")
    ]
    assert set(written[0]) == {f"{name}.{end}" for name in names for end in ("json", "html", "svg", "pdf")}
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


def test_command_says_what_was_not_drawn_and_what_it_needs(shell, run, pair, tmp_path):
    done = shell("--runs", run, "--out", tmp_path / "figures")
    assert done.exit_code == 0, done.output
    lines = [line for line in done.output.splitlines() if "not drawn" in line]
    assert [line.partition(":")[0] for line in lines] == ["anatomy", "group", "objectives", "training", "rise"]
    assert lines[0].endswith("on one question (that of --question, if given)")
    runs = ("--runs", pair[0], "--runs", pair[1], "--out", tmp_path / "pair")
    assert "not drawn" not in shell("anatomy", *runs, "--question", "capital").output
    other = shell("anatomy", *runs, "--question", "wife")
    assert other.exit_code == 1
    assert "anatomy: not drawn" in other.output


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
