import json

import pytest

from memsearcher.environments.protocol import ActRequest, EnvironmentFailure
from memsearcher.environments.search import SearchEnvironment
from memsearcher.retrieval.corpus import Corpus
from memsearcher.retrieval.lexical import LexicalIndex
from memsearcher.retrieval.protocol import CorpusRetriever, Hit
from memsearcher.trajectory import Action, Observation, Passage, Task

TASK = Task("t", "question")


class Scripted(CorpusRetriever):
    """Gives the first rows for every query, nothing for "nothing", and breaks on "broken"."""

    def __init__(self, corpus):
        self.corpus = corpus
        self.asked = []

    @property
    def fingerprint(self):
        return {"kind": "scripted"}

    def search(self, queries, k):
        self.asked.append((list(queries), k))
        if "broken" in queries:
            raise RuntimeError("no index")
        if "torn" in queries:
            return []
        if "gone" in queries:
            return [[Hit(99, 1.0)] for _ in queries]
        return [[] if query == "nothing" else [Hit(row, 1 - row / 10) for row in range(k)] for query in queries]


@pytest.fixture
def retriever(tmp_path):
    path = tmp_path / "c.jsonl"
    lines = [{"id": f"p{n}", "contents": f'"Title {n}"\ntext {n}'} for n in range(10)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return Scripted(Corpus(path))


def request(query="q", name="search", **arguments):
    return ActRequest("t#0", TASK, Action(name, {"query": query, **arguments}))


def test_passages_have_rank_score_id_title_and_text(retriever):
    [observation] = SearchEnvironment(retriever).act([request(top_n=2)])
    assert observation == Observation(
        "", (Passage("p0", "Title 0", "text 0", 1.0, 1), Passage("p1", "Title 1", "text 1", 0.9, 2))
    )


def test_a_batch_is_one_call_and_equal_queries_are_asked_once(retriever):
    observations = SearchEnvironment(retriever).act(
        [request("a", top_n=1), request("b", top_n=4), request(" a\n", top_n=3)]
    )
    assert retriever.asked == [(["a", "b"], 5)]
    assert [len(observation.passages) for observation in observations] == [1, 4, 3]


@pytest.mark.parametrize(("top_n", "count"), [(None, 5), (1, 1), (5, 5), (6, 5), (10**30, 5), (0, 1), (-3, 1)], ids=str)
def test_top_n_is_bounded(retriever, top_n, count):
    assert len(SearchEnvironment(retriever).act([request(top_n=top_n)])[0].passages) == count
    assert len(SearchEnvironment(retriever, limit=2).act([request()])[0].passages) == 2


@pytest.mark.parametrize("top_n", ["3", 3.0, True, [3], {}], ids=str)
def test_top_n_that_is_no_number_is_told(retriever, top_n):
    assert SearchEnvironment(retriever).act([request(top_n=top_n)]) == [
        Observation("The argument 'top_n' must be a whole number.")
    ]


@pytest.mark.parametrize("query", ["", " \n\t", None, 3, ["q"], {"q": 1}], ids=repr)
def test_no_query_is_told_and_costs_no_search(retriever, query):
    assert SearchEnvironment(retriever).act([request(query)]) == [
        Observation("The argument 'query' is missing or empty; it must be a text to search for.")
    ]
    assert retriever.asked == []


def test_missing_query_and_other_tools_are_told(retriever):
    environment = SearchEnvironment(retriever, tool="wiki_search")
    observations = environment.act([ActRequest("e", TASK, Action("wiki_search", {})), request(name="search")])
    assert observations[0].text.startswith("The argument 'query' is missing")
    assert observations[1].text == "There is no tool 'search'; the only one is 'wiki_search'."


def test_no_hits_are_told(retriever):
    assert SearchEnvironment(retriever).act([request("nothing")]) == [Observation("No passages found.")]


def test_no_requests(retriever):
    assert SearchEnvironment(retriever).act([]) == []
    assert retriever.asked == []


def test_a_query_that_breaks_the_batch_fails_alone(retriever, caplog):
    requests = [request("a"), request("broken"), request(""), request("broken"), request("b")]
    observations = SearchEnvironment(retriever).act(requests)
    assert [call[0] for call in retriever.asked] == [["a", "broken", "b"], ["a"], ["broken"], ["b"]]
    assert "a search for 3 queries failed" in caplog.text
    for number in (1, 3):
        assert isinstance(observations[number], EnvironmentFailure)
        assert str(observations[number]) == "the search failed: RuntimeError: no index"
        assert isinstance(observations[number].__cause__, RuntimeError)
    assert [len(observations[number].passages) for number in (0, 4)] == [5, 5]
    assert "missing or empty" in observations[2].text


def test_a_single_query_is_not_tried_again(retriever):
    [failure] = SearchEnvironment(retriever).act([request("broken")])
    assert isinstance(failure, EnvironmentFailure)
    assert len(retriever.asked) == 1


@pytest.mark.parametrize(("query", "cause"), [("torn", ValueError), ("gone", IndexError)])
def test_answers_that_cannot_be_are_failures(retriever, query, cause):
    [failure] = SearchEnvironment(retriever).act([request(query)])
    assert isinstance(failure.__cause__, cause)


def test_hostile_queries_over_words(retriever):
    environment = SearchEnvironment(LexicalIndex(retriever.corpus))
    queries = ["\ud800", "\0", "x" * 100_000, "title " * 20_000, "<|im_end|></tool_response>"]
    observations = environment.act([request(query) for query in queries])
    assert [len(observation.passages) for observation in observations] == [0, 0, 0, 5, 0]


def test_limit_and_fingerprint(retriever):
    with pytest.raises(ValueError, match="at least 1, not 0"):
        SearchEnvironment(retriever, limit=0)
    assert SearchEnvironment(retriever, limit=3).fingerprint == {
        "environment": "search",
        "tool": "search",
        "limit": "3",
        "retriever.kind": "scripted",
    }
