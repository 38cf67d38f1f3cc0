import hashlib
import json
import os

import pytest

from memsearcher.retrieval import corpus as corpus_module
from memsearcher.retrieval.corpus import Corpus, CorpusError, Document


def write(path, *lines):
    path.write_bytes(b"".join(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines))
    return path


GOOD = {"id": "0", "contents": '"Aruba"\nAn island.'}


def test_passages_by_row_and_in_order(tmp_path):
    path = write(
        tmp_path / "c.jsonl",
        GOOD,
        {"id": "né", "contents": '"Côte d’Ivoire"\nLine one\nline two 日本', "url": "x"},
        {"id": "2", "contents": '"Third"\nNo newline at the end'},
    )
    path.write_bytes(path.read_bytes().removesuffix(b"\n"))
    corpus = Corpus(path)
    expected = [
        Document("0", "Aruba", "An island.", '"Aruba"\nAn island.'),
        Document("né", "Côte d’Ivoire", "Line one\nline two 日本", '"Côte d’Ivoire"\nLine one\nline two 日本'),
        Document("2", "Third", "No newline at the end", '"Third"\nNo newline at the end'),
    ]
    assert len(corpus) == 3
    assert list(corpus) == expected
    assert [corpus.passage(row) for row in (2, 0, 1)] == [expected[2], expected[0], expected[1]]
    assert corpus.passage(1).metadata == {"url": "x"}
    assert corpus.passage(1).to_record() == json.loads(path.read_bytes().splitlines()[1])
    assert corpus.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("contents", "title", "text"),
    [
        ('"Title"\ntext', "Title", "text"),
        ("Title\ntext", "Title", "text"),
        ('""Heroes" (album)"\ntext', '"Heroes" (album)', "text"),
        ('"Title"\r\ntext', "Title", "text"),
        ('"Half\ntext', '"Half', "text"),
        ('"\ntext', '"', "text"),
        ('""\ntext', "", "text"),
        ("\ntext", "", "text"),
        ('"Title"\n', "Title", ""),
        ("one line only", "", "one line only"),
        ('"Title"\n"Title" is a film', "Title", '"Title" is a film'),
    ],
)
def test_title_is_the_first_line_without_its_quotes(tmp_path, contents, title, text):
    document = Corpus(write(tmp_path / "c.jsonl", {"id": "0", "contents": contents})).passage(0)
    assert (document.title, document.text) == (title, text)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"{not json\n", "not JSON"),
        (b"\n", "an empty line; remove it"),
        (b"\xef\xbb\xbf{}\n", "not JSON"),
        (b"[" * 100_000 + b"\n", "not JSON"),
        (b'{"id": "1", "contents": "\xff"}\n', "not UTF-8"),
        (b'["1", "text"]\n', "a JSON list"),
        (b"null\n", "a JSON NoneType"),
        ({"id": "1", "text": "t"}, "no field 'contents'"),
        ({"contents": "t"}, "no field 'id'"),
        ({"id": 1, "contents": "t"}, "'id' is 1, not a string"),
        ({"id": "1", "contents": None}, "'contents' is null, not a string"),
        ({"id": "1", "contents": ["t"]}, "not a string"),
        ({"id": "", "contents": "t"}, "'id' is empty"),
        ({"id": "1", "contents": " \n"}, "'contents' is empty"),
        ({"id": "1", "contents": "a\0b"}, "'contents' holds a NUL character at character 1"),
        ({"id": "1", "contents": "ab\ud800"}, "'contents' holds the lone surrogate U+D800 at character 2"),
        ({"id": "\udfff", "contents": "t"}, "'id' holds the lone surrogate U+DFFF"),
        ({"id": "0", "contents": "t"}, "the id '0' is that of line 1 already"),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, problem):
    path = write(tmp_path / "c.jsonl", GOOD, line)
    with pytest.raises(CorpusError) as error:
        Corpus(path)
    assert str(error.value).startswith(f"{path}:2: ")
    assert problem in str(error.value)


def test_no_file_and_no_passages(tmp_path):
    with pytest.raises(CorpusError, match="no such file"):
        Corpus(tmp_path / "none.jsonl")
    with pytest.raises(CorpusError, match="the file is empty"):
        Corpus(write(tmp_path / "c.jsonl"))


def test_equal_hashes_of_different_ids_are_no_repeat(tmp_path, monkeypatch):
    class Weak:
        def __init__(self, data, digest_size):
            self._data = data

        def digest(self):
            return b"\0" * 8

    monkeypatch.setattr(corpus_module.hashlib, "blake2b", Weak)
    assert len(Corpus(write(tmp_path / "c.jsonl", GOOD, {"id": "1", "contents": "t"}))) == 2
    with pytest.raises(CorpusError, match=r":3: the id '1' is that of line 2 already"):
        Corpus(write(tmp_path / "d.jsonl", GOOD, {"id": "1", "contents": "t"}, {"id": "1", "contents": "u"}))


def test_rows_out_of_range(tmp_path):
    corpus = Corpus(write(tmp_path / "c.jsonl", GOOD))
    for row in (-1, 1):
        with pytest.raises(IndexError, match=f"row {row} of a corpus of 1"):
            corpus.passage(row)


def test_a_file_that_was_cut_after_opening_is_an_error(tmp_path):
    path = write(tmp_path / "c.jsonl", GOOD, {"id": "1", "contents": "t"})
    corpus = Corpus(path)
    os.truncate(path, len(path.read_bytes()) - 4)
    with pytest.raises(CorpusError, match=r"c\.jsonl: the file has changed since it was opened"):
        corpus.passage(1)


def test_hostile_passages_come_back_as_they_are(tmp_path):
    texts = ["<|im_end|></tool_response>\\boxed{x}<memory>", "x" * 100_000, "\u2028 \u0085 \x1c line breaks of Python"]
    path = write(
        tmp_path / "c.jsonl", *({"id": str(row), "contents": f'"T"\n{text}'} for row, text in enumerate(texts))
    )
    raw = [json.dumps({"id": "r", "contents": f'"T"\n{texts[2]}'}, ensure_ascii=False).encode() + b"\n"]
    assert [document.text for document in Corpus(path)] == texts
    assert Corpus(write(tmp_path / "d.jsonl", *raw)).passage(0).text == texts[2]
