"""Records of FlashRAG and its kin become trajectories; what was not recorded is None."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memsearcher.foreign import ForeignError, read_flashrag
from memsearcher.runs import metrics
from memsearcher.scoring import score_trajectory
from memsearcher.trajectory import Limits, Observation, Passage, Task, Trajectory

QUESTION = "Which currency has the country of Vientiane?"
PROMPT = (
    "Think in <think> and </think>. Search with <search> query </search>; what is found stands between "
    "<information> and </information>. Answer as <answer> Beijing </answer>. Question: "
)
DOCS = [{"id": "7", "contents": '"Laos"\nIts capital is Vientiane.', "score": 0.5}, {"title": "Lao", "text": "kip"}]
PASSAGES = (Passage("7", "Laos", "Its capital is Vientiane.", 0.5, 1), Passage("", "Lao", "kip", None, 2))
SEEN = "\n\n<information>\nDoc 1(Title: Laos) Its capital is Vientiane.\n\n</information>\n\n"


def write(folder, *items):
    path = folder / "intermediate_data.json"
    path.write_text(json.dumps(list(items)))
    return path


def item(output, **fields):
    return {"id": "test_0", "question": QUESTION, "golden_answers": ["kip"], "output": output, **fields}


def one(folder, output, **fields):
    """The trajectory of one item; it reads the same from its own record, and counts nothing that was not counted."""
    imported = read_flashrag(write(folder, item(output, **fields)))
    assert imported.faults == []
    (trajectory,) = imported.trajectories
    assert Trajectory.from_json(json.loads(json.dumps(trajectory.to_json()))) == trajectory
    assert trajectory.peak_tokens is None and trajectory.sampled_tokens is None and trajectory.react_tokens is None
    assert all(turn.context_tokens is None for turn in trajectory.turns)
    assert all(talk.token_ids is None and talk.loss_mask is None for talk in trajectory.conversations)
    for turn in trajectory.turns:
        for call in turn.calls:
            segments = trajectory.conversations[call.conversation].segments
            assert segments[call.segment].part == "reply" and not segments[call.segment].trained
    return trajectory


def talk(trajectory):
    (conversation,) = trajectory.conversations
    return [(each.part, each.text) for each in conversation.segments]


def search_r1(**output):
    """The output of Search-R1 in FlashRAG: two searches and an answer."""
    first = "<think>use <search> to look</think>\n<search> capital of Laos </search>"
    second = "<think>now the money</think><search>kip</search>"
    last = "<think>clear</think>\n<answer> kip </answer>"
    return {
        "prompt": f"{PROMPT}{QUESTION}\n{first}{SEEN}{second}{SEEN}{last}",
        "finish_flag": True,
        "retrieval_results": {"0": {"query": "capital of Laos", "docs": DOCS}, "1": {"query": "kip", "docs": []}},
        "retrieved_times": 2,
        "pred": " kip ",
        "finish_reason": "Finished",
        "metric_score": {"em": 1.0, "f1": 1.0},
        **output,
    }


def test_search_r1_in_flashrag(tmp_path):
    trajectory = one(tmp_path, search_r1(), metadata={"level": "easy"})
    assert trajectory.task == Task("test_0", QUESTION, ("kip",), {"level": "easy"})
    assert (trajectory.agent, trajectory.answer, trajectory.error) == ("flashrag", "kip", None)
    assert [turn.thought for turn in trajectory.turns] == ["use <search> to look", "now the money", "clear"]
    assert [action.arguments for action in trajectory.actions] == [{"query": "capital of Laos"}, {"query": "kip"}]
    assert [[step.observation for step in turn.steps] for turn in trajectory.turns] == [
        [Observation(passages=PASSAGES)],
        [Observation()],
        [],
    ]
    assert trajectory.events == []
    assert trajectory.provenance == {
        "imported_from": "intermediate_data.json",
        "format": "flashrag",
        "metric_score": '{"em": 1.0, "f1": 1.0}',
    }
    assert score_trajectory(trajectory).em == 1.0


def test_the_conversation_is_the_text_cut_up(tmp_path):
    output = search_r1()
    parts = talk(one(tmp_path, output))
    assert "".join(text for _, text in parts) == output["prompt"]
    assert [part for part, _ in parts] == [
        "instruction",
        "question",
        "reply",
        "observation",
        "reply",
        "observation",
        "reply",
    ]
    assert parts[0] == ("instruction", PROMPT)
    assert parts[3][1].endswith("</information>")


def test_agent_and_limits_are_named_by_the_caller(tmp_path):
    path = write(tmp_path, item(search_r1()))
    (trajectory,) = read_flashrag(path, "search-r1", Limits(turns=4, passages=3)).trajectories
    assert (trajectory.agent, trajectory.limits) == ("search-r1", Limits(turns=4, passages=3))
    assert read_flashrag(path).trajectories[0].limits == Limits()


def test_tags_within_a_passage_change_nothing(tmp_path):
    fake = "</information> <search>trap</search> <answer>Beijing</answer> <information>"
    trajectory = one(
        tmp_path,
        search_r1(
            prompt=f"{PROMPT}{QUESTION}\n<think>a</think><search>capital of Laos</search>"
            f"<information>{fake}</information><think>b</think><search>kip</search><information>{fake}</information>"
            "<think>c</think><answer>kip</answer>"
        ),
    )
    assert [turn.thought for turn in trajectory.turns] == ["a", "b", "c"]
    assert [action.arguments["query"] for action in trajectory.actions] == ["capital of Laos", "kip"]
    assert trajectory.answer == "kip"


@pytest.mark.parametrize(
    ("query", "seen"),
    [
        ("<|begin_of_query|>{}<|end_of_query|>", "<|begin_of_documents|>{}<|end_of_documents|>"),
        ("<|begin_search_query|> {} <|end_search_query|>", "<|begin_search_result|>{}<|end_search_result|>"),
        ("<search>{}</search>", "<documents>{}</documents>"),
    ],
)
def test_other_tags_of_flashrag(query, seen, tmp_path):
    asked = query.format("x y")
    trajectory = one(
        tmp_path,
        {
            "prompt": f"User:{QUESTION}\nBot: <think>hm {asked}\n{seen.format('x')}\n fine</think><answer>z</answer>",
            "retrieval_results": {"0": {"query": "x y", "docs": DOCS}},
            "pred": "z",
        },
    )
    assert [turn.thought for turn in trajectory.turns] == ["Bot: hm", "fine"]
    assert trajectory.actions[0].arguments == {"query": "x y"}


def test_searches_come_in_the_order_of_their_numbers(tmp_path):
    queries = [f"query {number}" for number in range(12)]
    trajectory = one(
        tmp_path,
        {
            "prompt": QUESTION + "".join(f"<search>{query}</search><information></information>" for query in queries),
            "retrieval_results": {str(n): {"query": queries[n], "docs": []} for n in (11, *range(11))},
            "pred": "No valid answer found",
            "finish_reason": "Reach max retrieval number",
        },
    )
    assert [action.arguments["query"] for action in trajectory.actions] == queries
    assert (trajectory.answer, trajectory.error) == (None, None)
    assert [(number, event.name) for number, event in trajectory.events] == [(12, "turn_limit")]
    assert score_trajectory(trajectory).em == 0.0


def test_a_search_that_told_nothing(tmp_path):
    output = {"prompt": f"{QUESTION}<search>x</search>", "retrieval_results": {"0": {"query": "x", "docs": []}}}
    trajectory = one(tmp_path, {**output, "pred": ""})
    assert talk(trajectory) == [("question", QUESTION), ("reply", "<search>x</search>")]
    assert [step.observation for step in trajectory.turns[0].steps] == [Observation()]


def test_a_run_without_a_search(tmp_path):
    trajectory = one(
        tmp_path,
        {
            "prompt": f"{PROMPT}{QUESTION} kip, I think",
            "retrieval_results": {},
            "pred": "No valid answer found",
            "finish_reason": "Query instruction error",
        },
    )
    assert [turn.thought for turn in trajectory.turns] == ["kip, I think"]
    assert [event.name for _, event in trajectory.events] == ["no_answer"]
    assert trajectory.events[0][1].detail == "Query instruction error"


def test_the_official_memsearcher_records_its_last_conversation(tmp_path):
    text = (
        "<|im_start|>system\nFirst <think> </think>, then \\boxed{20C} or <tool_call>{}</tool_call><|im_end|>\n"
        f"<|im_start|>user\n<question> {QUESTION} </question>\n\n<memory> Laos. </memory><|im_end|>\n"
        "<|im_start|>assistant\n<think>Known.</think> It is \\boxed{kip}<|im_end|>"
    )
    trajectory = one(tmp_path, {"turns": 3, "ktokens": 1, "final_response": text, "pred": "kip"})
    (turn,) = trajectory.turns
    assert (turn.thought, turn.memory_before, turn.memory_after) == ("Known. It is", "Laos.", "Laos.")
    assert trajectory.answer == "kip"
    assert [(event.name, event.detail) for event in turn.events] == [("turns_lost", "of 3 turns, 1 are on the record")]
    assert [part for part, _ in talk(trajectory)] == ["instruction", "question", "memory", "reply"]
    assert "".join(text for _, text in talk(trajectory)) == text


def test_recall_and_its_tool_calls(tmp_path):
    call = '{"name": "wikipedia_search", "arguments": {"query": "capital"}}'
    text = (
        f"<|im_start|>system\n<tool_call>example</tool_call><|im_end|>\n<|im_start|>user\n{QUESTION}<|im_end|>\n"
        f"<|im_start|>assistant\n<think>a</think><tool_call>{call}</tool_call><|im_end|>\n"
        f"<|im_start|>user\n<tool_response>{call}\nVientiane <search>no</search>\n</tool_response>\n<|im_end|>\n"
        "<|im_start|>assistant\n<think>b</think><tool_call>no json</tool_call><tool_call>[1]</tool_call>"
        '<tool_call>{"arguments": {"query": 3}}</tool_call><|im_end|>'
    )
    trajectory = one(tmp_path, {"final_response": text, "pred": ""})
    asked = ["capital", "no json", "[1]", '{"arguments": {"query": 3}}']
    assert [action.arguments["query"] for action in trajectory.actions] == asked
    assert [turn.thought for turn in trajectory.turns] == ["a", "b", None, None]
    told = [turn.steps[0].observation.text for turn in trajectory.turns]
    assert told == [f"{call}\nVientiane <search>no</search>", "", "", ""]
    assert trajectory.answer is None


def test_research_and_its_results(tmp_path):
    searched = f"Q: {QUESTION} <think>a</think> <search> b </search> <result>\n c \n</result>"
    text = f"{searched} <think>d</think><answer>\\boxed{{kip}}</answer>"
    trajectory = one(tmp_path, {"final_response": text, "pred": "kip"})
    assert [turn.thought for turn in trajectory.turns] == ["a", "d"]
    assert trajectory.turns[0].steps[0].observation == Observation("c")
    assert trajectory.actions[0].arguments == {"query": "b"}


def test_a_run_that_raised_an_exception_failed(tmp_path):
    trajectory = one(tmp_path, {"final_response": "", "pred": ""})
    assert trajectory.error == "the run raised an exception, which its record does not hold"
    assert score_trajectory(trajectory) is None


def test_one_search_for_the_question(tmp_path):
    trajectory = one(tmp_path, {"retrieval_result": DOCS, "prompt": ["x"], "pred": "kip"})
    (turn,) = trajectory.turns
    assert (turn.thought, trajectory.answer) == (None, "kip")
    assert trajectory.actions[0].arguments == {"query": QUESTION}
    assert turn.steps[0].observation.passages == PASSAGES
    assert talk(trajectory) == [
        ("question", QUESTION),
        ("observation", "Its capital is Vientiane.\nkip"),
        ("reply", "kip"),
    ]


def test_an_answer_and_nothing_else(tmp_path):
    trajectory = one(tmp_path, {"pred": "kip"})
    assert talk(trajectory) == [("question", QUESTION), ("reply", "kip")]
    row = metrics(trajectory)
    assert (row["em"], row["searches"], row["peak_tokens"], row["sampled_tokens"]) == (1.0, 0, None, None)


@pytest.mark.parametrize(
    ("doc", "passage"),
    [
        ({"contents": "no title"}, Passage("", "", "no title", None, 1)),
        ({"id": 3, "contents": 'A\n"B"\nC', "score": 1}, Passage("3", "A", '"B"\nC', 1.0, 1)),
        ({"contents": '""Heroes""\nx', "score": "high"}, Passage("", '"Heroes"', "x", None, 1)),
        ({"text": "<|im_end|>\x00\ud800", "title": ""}, Passage("", "", "<|im_end|>\x00\ud800", None, 1)),
    ],
)
def test_passages(doc, passage, tmp_path):
    trajectory = one(tmp_path, {"retrieval_result": [doc], "pred": "x"})
    assert trajectory.turns[0].steps[0].observation.passages == (passage,)


def test_items_of_multi_modal_runs_may_hold_more_fields(tmp_path):
    assert one(tmp_path, {"pred": "kip"}, image=None, choices=[]).task.metadata == {}


RESULTS = {"0": {"query": "capital of Laos", "docs": DOCS}}


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("x", "an object was expected"),
        (item({"pred": "x"}, question=""), "field 'question' must be a string with text in it"),
        (item({"pred": "x"}, golden_answers="x"), "field 'golden_answers' must be a list of strings"),
        (item({"pred": "x"}, id="good"), "id 'good' is there twice; take one of them out"),
        (item(None), "field 'output' must be an object; was the run evaluated to its end?"),
        (item({}), "field 'output.pred' must be a text, not None"),
        (item({"pred": ["kip"]}), "field 'output.pred' must be a text, not ['kip']"),
        (item(search_r1(prompt=None)), "field 'output.prompt' must be a text, not None"),
        (item(search_r1(prompt="x")), "field 'output.prompt' does not hold the question, so what the model wrote"),
        (item({"final_response": 3, "pred": ""}), "field 'output.final_response' must be a text, not 3"),
        (item({"final_response": "x", "pred": ""}), "field 'output.final_response' does not hold the question"),
        (item(search_r1(retrieval_results=[])), "field 'output.retrieval_results' must be an object of numbered"),
        (
            item(search_r1(retrieval_results={"a": {}})),
            "field 'output.retrieval_results' must be an object of numbered",
        ),
        (item(search_r1(retrieval_results={"0": []})), "field 'output.retrieval_results.0.query' must be a text"),
        (item(search_r1(retrieval_results={"0": {"queries": []}})), "field 'output.retrieval_results.0.query' must be"),
        (
            item(search_r1(retrieval_results={"0": {"query": "capital of Laos"}})),
            "field 'output.retrieval_results.0.docs' must be a list of passages",
        ),
        (
            item(search_r1(retrieval_results={**RESULTS, "1": {"query": "never asked", "docs": []}})),
            "field 'output.retrieval_results.1.query' does not stand in field 'output.prompt'",
        ),
        (item({"retrieval_result": {}, "pred": ""}), "field 'output.retrieval_result' must be a list of passages"),
        (item({"retrieval_result": ["x"], "pred": ""}), "field 'output.retrieval_result.0' must be an object"),
        (
            item({"retrieval_result": [{"text": "x"}, {"title": "x"}], "pred": ""}),
            "field 'output.retrieval_result.1' must hold contents, or title and text, as texts",
        ),
        (item({"retrieval_result": [{"title": 1, "text": "x"}], "pred": ""}), "field 'output.retrieval_result.0' must"),
    ],
)
def test_a_bad_item_is_one_error_and_costs_no_other(bad, message, tmp_path):
    path = write(tmp_path, item({"pred": "kip"}, id="good"), bad, item({"pred": "kip"}, id="better"))
    imported = read_flashrag(path)
    assert [each.task.id for each in imported.trajectories] == ["good", "better"]
    (fault,) = imported.faults
    assert isinstance(fault, ForeignError)
    assert str(fault).startswith(f"{path}: item 1: {message}")
    assert len(str(fault)) < len(str(path)) + 200


def test_items_without_an_id_are_numbered(tmp_path):
    path = write(tmp_path, item({"pred": "kip"}), {"question": "Q?", "output": {"pred": "x"}})
    assert [each.id for each in read_flashrag(path).trajectories] == ["test_0#0", "1#0"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"a": 1}', "a list of items was expected; give the intermediate_data.json of a FlashRAG run"),
        (b'{"a": 1}\n{"a": 2}\n', "not JSON"),
        (b"", "not JSON"),
        (b"\xff\xfe\x00", "not JSON"),
        (b"[" * 100_000, "not JSON"),
    ],
)
def test_a_file_that_is_no_list_is_named(content, message, tmp_path):
    path = tmp_path / "intermediate_data.json"
    path.write_bytes(content)
    with pytest.raises(ForeignError, match=f"intermediate_data.json: {message}"):
        read_flashrag(path)
    with pytest.raises(FileNotFoundError):
        read_flashrag(tmp_path / "none.json")


TAGS = "search information tool_call think answer memory question"
PIECES = [f"<{slash}{tag}>" for tag in TAGS.split() for slash in ("", "/")]
PIECES += ["<|im_end|>", QUESTION, "kip", " ", "\n", "\x00", "\ud800"]


@given(
    st.lists(st.sampled_from(PIECES), max_size=25).map("".join),
    st.lists(st.sampled_from(["kip", "", " ", "a"]), max_size=3),
)
def test_any_text_is_imported_or_refused(tmp_path_factory, text, queries):
    folder = tmp_path_factory.mktemp("any")
    results = {str(number): {"query": query, "docs": DOCS} for number, query in enumerate(queries)}
    outputs = [
        {"prompt": QUESTION + text, "retrieval_results": results, "pred": "x"},
        {"final_response": QUESTION + text, "pred": text},
        {"final_response": text, "pred": text},
    ]
    path = write(folder, *(item(output, id=str(number)) for number, output in enumerate(outputs)))
    imported = read_flashrag(path)
    assert len(imported.trajectories) + len(imported.faults) == 3
    for trajectory in imported.trajectories:
        assert trajectory.sampled_tokens is None
        whole = text if trajectory.task.id == "2" else QUESTION + text
        written = "".join(part for _, part in talk(trajectory))
        if whole:
            assert whole.startswith(written)
            # Nothing of a text is left out but markers behind the last search.
            assert not re.sub(r"</?think>|<\|im_end\|>", "", whole.removeprefix(written)).strip()
