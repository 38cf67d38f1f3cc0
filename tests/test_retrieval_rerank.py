"""Reranking with a scorer in place of a cross-encoder, and with a tiny one."""

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

from memsearcher import assemble
from memsearcher.recipe import Retrieval
from memsearcher.retrieval.rerank import CrossEncoderScorer, RerankRetriever
from tests.serving import Numbered, write_corpus
from tests.tiny import tiny_tokenizer


class Last:
    """Likes high numbers, in pairs: 6 and 7 are equal."""

    def __init__(self):
        self.fingerprint = {"weights": "w"}
        self.pairs = []

    def score(self, pairs):
        self.pairs.append(list(pairs))
        return [float(int(contents.split()[-1]) // 2) for _, contents in pairs]


@pytest.fixture
def first(tmp_path):
    return Numbered(write_corpus(tmp_path / "c.jsonl"))


def ids(found):
    return [[each.document.id for each in some] for some in found]


def test_the_scorer_orders_the_best_of_the_first(first):
    scorer = Last()
    found = RerankRetriever(first, scorer, depth=4).retrieve(["5", "nothing", "38"], 2)
    assert ids(found) == [["p8", "p6"], [], ["p38", "p39"]]
    assert [each.score for each in found[0]] == [4.0, 3.0]
    assert first.asked == [(["5", "nothing", "38"], 4)]
    assert len(scorer.pairs) == 1
    assert scorer.pairs[0][0] == ("5", '"Title 5"\ntext 5')


def test_more_passages_than_the_depth_are_all_scored(first):
    assert ids(RerankRetriever(first, Last(), depth=2).retrieve(["0"], 3)) == [["p2", "p0", "p1"]]


def test_nothing_found_costs_nothing(first):
    scorer = Last()
    assert RerankRetriever(first, scorer).retrieve(["nothing"], 3) == [[]]
    assert scorer.pairs == []


def test_numbers_out_of_range_and_fingerprint(first):
    with pytest.raises(ValueError, match="depth is how many"):
        RerankRetriever(first, Last(), depth=0)
    with pytest.raises(ValueError, match="k is how many"):
        RerankRetriever(first, Last()).retrieve(["1"], 0)
    assert RerankRetriever(first, Last()).fingerprint == {
        "kind": "rerank",
        "depth": "20",
        "scorer.weights": "w",
        "first.kind": "numbered",
        "first.corpus": first.corpus.sha256,
    }


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """The folder of a tiny cross-encoder with random weights."""
    folder = tmp_path_factory.mktemp("cross")
    tokenizer = tiny_tokenizer()
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=128,
        num_labels=1,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        BertForSequenceClassification(config).save_pretrained(folder)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer.backend_tokenizer, pad_token="<|endoftext|>", model_max_length=128
    ).save_pretrained(folder)
    return folder


def test_a_cross_encoder_scores_pairs(weights, first, monkeypatch):
    scorer = CrossEncoderScorer(weights)
    pairs = [("capital of Laos", "Vientiane"), ("capital of Laos", "kip " * 200)]
    scores = scorer.score(pairs)
    assert scores == pytest.approx([scorer.score([pair])[0] for pair in pairs], abs=1e-5)
    assert scores[0] != scores[1]
    assert len(scorer.fingerprint["weights"]) == 64
    monkeypatch.setattr(assemble, "build_retriever", lambda *parts, **options: first)
    retriever = assemble.make_retriever(Retrieval(rerank=str(weights)))
    assert len(retriever.retrieve(["5"], 3)[0]) == 3


def test_a_folder_without_weights(tmp_path):
    with pytest.raises(ValueError, match=r"holds no model\.safetensors; give the folder of a cross-encoder"):
        CrossEncoderScorer(tmp_path)
