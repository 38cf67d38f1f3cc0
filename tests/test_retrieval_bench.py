"""Retrieval on real questions; skipped where the slices of the benchmarks are not there."""

import json
from pathlib import Path

import pytest
import torch

from memsearcher.retrieval.corpus import Corpus
from memsearcher.retrieval.encoder import load_encoder
from memsearcher.retrieval.fusion import FusionRetriever
from memsearcher.retrieval.index import DenseIndex
from memsearcher.retrieval.lexical import LexicalIndex

BENCH = Path(__file__).parents[2] / "shared" / "bench"
QUESTIONS = 50


@pytest.mark.skipif(not BENCH.is_dir(), reason=f"no slices of the benchmarks at {BENCH}")
def test_supporting_passages_of_hotpotqa_are_found(tmp_path):
    """The gold passages of 50 questions and every twentieth of the 994, searched with the question itself."""
    torch.set_num_threads(1)
    with (BENCH / "hotpotqa_100.questions.jsonl").open() as lines:
        questions = [json.loads(line) for line in lines][:QUESTIONS]
    gold_titles = {title for question in questions for title in question["metadata"]["supporting_titles"]}
    whole = Corpus(BENCH / "hotpotqa_100.corpus.jsonl")
    assert len(whole) == 994
    kept = [row for row in range(len(whole)) if row % 20 == 0 or whole.passage(row).title in gold_titles]
    path = tmp_path / "kept.jsonl"
    path.write_text("".join(json.dumps(whole.passage(row).to_record()) + "\n" for row in kept))
    corpus = Corpus(path)
    dense = DenseIndex.build(corpus, load_encoder(), tmp_path / "index", progress=False)
    lexical = LexicalIndex(corpus)
    recall = {
        name: _recall(retriever, corpus, questions)
        for name, retriever in (("dense", dense), ("bm25", lexical), ("hybrid", FusionRetriever([dense, lexical])))
    }
    assert recall["bm25"] == 0.96
    # Vectors differ in their last bits from machine to machine, so one passage in a hundred may swap.
    assert recall["dense"] == pytest.approx(0.93, abs=0.015)
    assert recall["hybrid"] == pytest.approx(0.97, abs=0.015)


def _recall(retriever, corpus, questions):
    """The share of gold titles among the titles of the five best hits."""
    found = wanted = 0
    rankings = retriever.search([question["question"] for question in questions], 5)
    for question, hits in zip(questions, rankings, strict=True):
        titles = {corpus.passage(hit.row).title for hit in hits}
        gold = set(question["metadata"]["supporting_titles"])
        found += len(gold & titles)
        wanted += len(gold)
    return round(found / wanted, 2)
