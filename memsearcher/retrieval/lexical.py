"""Search by words: BM25 over title and text, with one tokenization for passages and queries.

The index is built in memory whenever it is opened, from nothing but the corpus: that takes
0.4 s for the 4,027 passages of the built-in corpus and 0.9 s for 6,119 of Wikipedia, which
is less than the trouble of a second file that can disagree with the first.

bm25s is imported where it is needed: it brings numba along, which takes a second, and in whose
presence the workers of vLLM's CPU backend (they import what the main program imports) do not start.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import Stemmer

from memsearcher.retrieval.corpus import Corpus
from memsearcher.retrieval.protocol import CorpusRetriever, Hit, check_k

K1, B = 1.5, 0.75
QUERY_WORDS = 512
"""Words of a query that count, from its start: a query of 100,000 would hold everyone up."""

APOSTROPHE = frozenset({"s", "t"})
"""What an apostrophe leaves of "country's" and "don't"."""

TOKENIZATION = "fold+words+lucene-stop+snowball-english/1"
"""Names `Words` in fingerprints; change it with the rules."""

ACCENTS = re.compile("[\u0300-\u036f]")


class Words:
    """Splits a text into stems: accents folded, lower case, runs of letters and digits, no stop words.

    "C++ vs C#" gives c, vs, c and "São Tomé's" gives sao, tome. Single characters are kept, since
    "C" and "1" tell passages apart. Stop words are Lucene's for English, and `APOSTROPHE`; stemming is
    Snowball's for English, once a word.
    """

    def __init__(self) -> None:
        from bm25s.stopwords import STOPWORDS_EN

        self._stop = APOSTROPHE.union(STOPWORDS_EN)
        self._stem = Stemmer.Stemmer("english").stemWord
        self._find = re.compile(r"\w+").findall

    def __call__(self, text: str) -> list[str]:
        return [self._stem(word) for word in self._find(fold(text).lower()) if word not in self._stop]


class Bm25:
    """BM25 over texts in memory, in Lucene's form (k1 1.5, b 0.75), computed by bm25s in float32.

    A text that shares no word with the query is not a hit, however small `k` finds the rest.

    Source: Kamphuis et al. 2020, "Which BM25 do you mean?"; bm25s' default method.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        import bm25s

        self._words = Words()
        vocabulary: dict[str, int] = {}
        rows = [[vocabulary.setdefault(word, len(vocabulary)) for word in self._words(text)] for text in texts]
        self._bm25: Any = None
        if vocabulary:  # Texts of stop words and signs only leave nothing to index.
            self._bm25 = bm25s.BM25(k1=K1, b=B, method="lucene")
            self._bm25.index((rows, vocabulary), show_progress=False)

    def search(self, query: str, k: int) -> list[Hit]:
        """At most `k` texts by their place, best first; none for a query without a word of theirs."""
        words = self._words(query)[:QUERY_WORDS]
        if not words or self._bm25 is None:
            return []
        scores = self._bm25.get_scores(words)
        rows = np.flatnonzero(scores > 0)
        if len(rows) > k:
            # Everything that ties with the k-th stays in, so that rows decide and not the partition.
            cut = np.partition(scores[rows], -k)[-k]
            rows = rows[scores[rows] >= cut]
        order = np.lexsort((rows, -scores[rows]))[:k]
        return [Hit(int(row), float(scores[row])) for row in rows[order]]


class LexicalIndex(CorpusRetriever):
    """BM25 over title and text of a corpus' passages."""

    def __init__(self, corpus: Corpus) -> None:
        self.corpus = corpus
        self._bm25 = Bm25(f"{document.title}\n{document.text}" for document in corpus)

    @property
    def fingerprint(self) -> dict[str, str]:
        return {
            "kind": "bm25",
            "corpus": self.corpus.sha256,
            "method": f"lucene k1={K1} b={B}",
            "tokenization": TOKENIZATION,
        }

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """See `CorpusRetriever.search`. No hits for a query without a word of the corpus.

        Raises:
            ValueError: `k` below 1.
        """
        check_k(k)
        return [self._bm25.search(query, k) for query in queries]


def fold(text: str) -> str:
    """Text in compatible composed form (NFKC) without Latin, Greek and Cyrillic accents."""
    if text.isascii():
        return text
    return unicodedata.normalize("NFKC", ACCENTS.sub("", unicodedata.normalize("NFKD", text)))
