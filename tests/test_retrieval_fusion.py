import json
from fractions import Fraction

import pytest

from memsearcher.retrieval.corpus import Corpus
from memsearcher.retrieval.fusion import FusionRetriever
from memsearcher.retrieval.protocol import Hit


class Fixed:
    """A retriever that gives the same rows for every query."""

    def __init__(self, corpus, rows, name="fixed"):
        self.corpus = corpus
        self.fingerprint = {"kind": name, "corpus": corpus.sha256}
        self._rows = rows
        self.asked = []

    def search(self, queries, k):
        self.asked.append((list(queries), k))
        return [[Hit(row, -float(rank)) for rank, row in enumerate(self._rows[:k])] for _ in queries]


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "c.jsonl"
    path.write_text("".join(json.dumps({"id": str(n), "contents": f"passage {n}"}) + "\n" for n in range(10)))
    return Corpus(path)


def test_ranks_are_added_by_hand(corpus):
    fused = FusionRetriever([Fixed(corpus, [7, 3, 5]), Fixed(corpus, [5, 7, 1])]).search(["q"], 10)[0]
    by_hand = [
        (7, Fraction(1, 61) + Fraction(1, 62)),
        (5, Fraction(1, 63) + Fraction(1, 61)),
        (3, Fraction(1, 62)),
        (1, Fraction(1, 63)),
    ]
    assert [hit.row for hit in fused] == [row for row, _ in by_hand]
    assert [hit.score for hit in fused] == pytest.approx([float(score) for _, score in by_hand], abs=1e-15)


def test_ties_go_by_row_whatever_the_order_of_ranks(corpus):
    members = [Fixed(corpus, [4, 2, 9]), Fixed(corpus, [2, 9, 4]), Fixed(corpus, [9, 4, 2])]
    fused = FusionRetriever(members).search(["q"], 3)[0]
    assert [hit.row for hit in fused] == [2, 4, 9]
    assert len({hit.score for hit in fused}) == 1


def test_fewer_is_a_prefix_of_more_up_to_the_depth(corpus):
    fusion = FusionRetriever([Fixed(corpus, [0, 1, 2, 3, 4, 5]), Fixed(corpus, [5, 4, 3])], depth=6)
    assert fusion.search(["q"], 2)[0] == fusion.search(["q"], 6)[0][:2]


def test_members_are_asked_once_for_all_queries_to_the_depth(corpus):
    member = Fixed(corpus, [0, 1, 2])
    fusion = FusionRetriever([member], depth=2)
    assert [[hit.row for hit in hits] for hits in fusion.search(["a", "b"], 1)] == [[0], [0]]
    fusion.search(["a"], 3)
    assert member.asked == [(["a", "b"], 2), (["a"], 3)]


def test_the_first_of_one_beats_what_both_know_but_neither_likes(corpus):
    fused = FusionRetriever([Fixed(corpus, [0, 1, 2, 3, 4, 7, 8]), Fixed(corpus, [9, 5, 6, 3, 1, 8, 7])])
    assert [hit.row for hit in fused.search(["q"], 4)[0]] == [1, 3, 0, 9]


def test_no_hits_and_no_queries(corpus):
    fusion = FusionRetriever([Fixed(corpus, []), Fixed(corpus, [])])
    assert fusion.search(["a"], 3) == [[]]
    assert fusion.search([], 3) == []


def test_refusals(corpus, tmp_path):
    other = tmp_path / "other.jsonl"
    other.write_text('{"id": "x", "contents": "y"}\n')
    with pytest.raises(ValueError, match=r"over one corpus, not over different ones: .*c.jsonl, .*other.jsonl"):
        FusionRetriever([Fixed(corpus, []), Fixed(Corpus(other), [])])
    with pytest.raises(ValueError, match="at least one retriever"):
        FusionRetriever([])
    with pytest.raises(ValueError, match="at least 1, not 0 and 5"):
        FusionRetriever([Fixed(corpus, [])], rrf_k=0)
    with pytest.raises(ValueError, match="k is how many"):
        FusionRetriever([Fixed(corpus, [])]).search(["q"], 0)


def test_fingerprint_names_every_member(corpus):
    assert FusionRetriever([Fixed(corpus, [], "dense"), Fixed(corpus, [], "bm25")]).fingerprint == {
        "kind": "fusion",
        "corpus": corpus.sha256,
        "method": "reciprocal rank k=60 depth=5",
        "0.kind": "dense",
        "1.kind": "bm25",
    }
