import json
import math
from collections import Counter

import numpy as np
import pytest

from memsearcher.retrieval.corpus import Corpus
from memsearcher.retrieval.lexical import LexicalIndex, Words, fold


def make(tmp_path, *contents):
    path = tmp_path / "c.jsonl"
    path.write_text("".join(json.dumps({"id": str(n), "contents": text}) + "\n" for n, text in enumerate(contents)))
    return LexicalIndex(Corpus(path))


def slow_bm25(passages, query, k1=1.5, b=0.75):
    """BM25 as in Lucene, written out: idf log(1 + (N - n + 0.5) / (n + 0.5)), no factor k1 + 1."""
    mean = sum(map(len, passages)) / len(passages)
    scores = []
    for passage in passages:
        counts, score = Counter(passage), 0.0
        for word in query:
            n = sum(word in other for other in passages)
            if n:
                idf = math.log(1 + (len(passages) - n + 0.5) / (n + 0.5))
                score += idf * counts[word] / (counts[word] + k1 * (1 - b + b * len(passage) / mean))
        scores.append(score)
    return scores


def test_scores_are_bm25(tmp_path):
    rng = np.random.default_rng(0)
    vocabulary = ["island", "river", "capital", "mountain", "currency", "people", "north", "coast", "anthem"]
    contents = [f'"{rng.choice(vocabulary)} {n}"\n' + " ".join(rng.choice(vocabulary, 3 + n % 17)) for n in range(60)]
    index = make(tmp_path, *contents)
    words = Words()
    passages = [words(text) for text in contents]
    for query in ["island", "capital of the northern mountains", "river river anthem", "currency unknownword 7"]:
        expected = slow_bm25(passages, words(query))
        hits = index.search([query], 60)[0]
        assert {hit.row for hit in hits} == {row for row, score in enumerate(expected) if score > 0}
        assert [hit.score for hit in hits] == pytest.approx([expected[hit.row] for hit in hits], abs=1e-4)
        assert [(-hit.score, hit.row) for hit in hits] == sorted((-hit.score, hit.row) for hit in hits)
        assert index.search([query], 5)[0] == hits[:5]


def test_queries_are_stemmed_like_passages(tmp_path):
    index = make(tmp_path, '"A"\nrunning horses', '"B"\nsleeping cats', '"C"\nflying birds')
    found = index.search(["horse runs", "the cat sleeps", "bird flies"], 3)
    assert [[hit.row for hit in hits] for hits in found] == [[0], [1], [2]]


def test_no_word_in_common_is_no_hit(tmp_path):
    index = make(tmp_path, '"A"\nrunning horses', '"B"\nsleeping cats')
    queries = ["the of and", "", " \n", "!!!", "zebra", "\0", "\ud800", "？"]
    assert index.search(queries, 2) == [[]] * len(queries)


def test_ties_go_by_row_also_at_the_cut(tmp_path):
    index = make(tmp_path, *['"T"\nsame words'] * 50, '"T"\nsame words same words')
    rows = [hit.row for hit in index.search(["same"], 4)[0]]
    assert rows == [50, 0, 1, 2]


def test_titles_are_searched(tmp_path):
    assert [hit.row for hit in make(tmp_path, '"Aruba"\nx', '"Cuba"\ny').search(["cuba"], 2)[0]] == [1]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("C++ vs C#", ["c", "vs", "c"]),
        ("São Tomé's 1,000 U.S.", ["sao", "tome", "1", "000", "u"]),
        ("Beyonce\u0301 Beyoncé", ["beyonc", "beyonc"]),
        ("don't", ["don"]),
        ("ＡＢＣ ① が", ["abc", "1", "が"]),
        ("日本 한국", ["日本", "한국"]),
        ("<|im_end|>", ["im_end"]),
    ],
)
def test_words(text, words):
    assert Words()(text) == words


def test_fold_keeps_scripts_whole():
    assert fold("が 한국 Ελλάδα Łódź naïve") == "が 한국 Ελλαδα Łodz naive"


def test_long_and_odd_queries_answer(tmp_path):
    index = make(tmp_path, '"A"\nrunning horses', '"B"\n' + "x" * 100_000)
    assert [hit.row for hit in index.search(["horse " * 20_000], 2)[0]] == [0]
    assert [hit.row for hit in index.search(["x" * 100_000 + "\ud800 \0"], 2)[0]] == [1]


def test_a_corpus_without_words(tmp_path):
    assert make(tmp_path, '"The"\nof !!!').search(["the", "horse"], 3) == [[], []]


def test_k_and_fingerprint(tmp_path):
    index = make(tmp_path, '"A"\nhorse', '"B"\nhorse horse')
    assert len(index.search(["horse"], 1000)[0]) == 2
    assert index.search([], 3) == []
    with pytest.raises(ValueError, match="k is how many"):
        index.search(["horse"], 0)
    assert index.fingerprint == {
        "kind": "bm25",
        "corpus": index.corpus.sha256,
        "method": "lucene k1=1.5 b=0.75",
        "tokenization": "fold+words+lucene-stop+snowball-english/1",
    }
