"""Lines on disk: whole or not at all, whatever happens while they are written."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memsearcher import jsonl

TEXT = st.text(st.characters(exclude_categories=[]))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


def full_disk(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def values(path):
    return [value for _, value in jsonl.read(path)]


@given(st.lists(JSON, max_size=5))
def test_what_is_appended_is_read_back(tmp_path_factory, written):
    path = tmp_path_factory.mktemp("lines") / "a.jsonl"
    path.touch()
    for value in written:
        jsonl.append(path, value)
    assert list(jsonl.read(path)) == list(enumerate(written, 1))
    assert path.read_bytes().isascii()
    assert path.read_bytes().count(b"\n") == len(written)


@pytest.mark.parametrize("text", ["", "\x00", "\ud800", "\udfff\ud800", "\n\r\u2028\x85", "x" * 200_000, "𝄞"])
def test_hostile_text_stays_on_its_line(tmp_path, text):
    path = tmp_path / "a.jsonl"
    jsonl.append(path, {text: text})
    jsonl.append(path, 2)
    assert values(path) == [{text: text}, 2]


@pytest.mark.parametrize("torn", [b"{", b'{"a": 1}', b"\xff\xfe", b'"' + b"x" * 200_000])
def test_a_torn_last_line_is_left_out_and_cut_off_by_the_next_append(tmp_path, torn):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"1\n2\n" + torn)
    assert values(path) == [1, 2]
    jsonl.append(path, 3)
    assert path.read_bytes() == b"1\n2\n3\n"


def test_a_file_that_is_one_torn_line_is_emptied_first(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"torn" * 50_000)
    assert values(path) == []
    jsonl.append(path, 1)
    assert path.read_bytes() == b"1\n"


@pytest.mark.parametrize("bad", [b"not JSON", b"", b"{'a': 1}", b"\xff", b'{"a": 1} {"a": 2}', b"[1,"])
def test_another_line_that_is_not_json_is_an_error_with_its_place(tmp_path, bad):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"1\n" + bad + b"\n3\n")
    lines = jsonl.read(path)
    assert next(lines) == (1, 1)
    with pytest.raises(jsonl.JsonlError) as caught:
        next(lines)
    assert str(caught.value).startswith(f"{path}:2: not a line of JSON")


@pytest.mark.parametrize("last", [b"2", b"2\n", b"2\r\n"])
def test_the_last_line_of_a_foreign_file_counts_without_its_newline(tmp_path, last):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"1\n" + last)
    assert list(jsonl.read(path, foreign=True)) == [(1, 1), (2, 2)]
    path.write_bytes(b"1\n{")
    with pytest.raises(jsonl.JsonlError, match=r"a\.jsonl:2: not a line of JSON"):
        list(jsonl.read(path, foreign=True))


@pytest.mark.parametrize("bad", [b"[" * 100_000, b"9" * 5_000])
def test_json_that_python_cannot_hold_is_an_error_with_its_place(tmp_path, bad):
    path = tmp_path / "a.jsonl"
    path.write_bytes(bad + b"\n")
    with pytest.raises(jsonl.JsonlError, match=r"a\.jsonl:1: not a line of JSON"):
        values(path)


def test_a_missing_file_cannot_be_read(tmp_path):
    with pytest.raises(FileNotFoundError):
        values(tmp_path / "none.jsonl")


def test_a_value_that_is_not_json_leaves_the_file_alone(tmp_path):
    path = tmp_path / "a.jsonl"
    jsonl.append(path, 1)
    with pytest.raises(TypeError):
        jsonl.append(path, {"a": object()})
    assert path.read_bytes() == b"1\n"


@pytest.mark.parametrize("before", [b"", b"1\n", b"1\n2\n"])
def test_a_full_disk_leaves_the_file_as_it_was(tmp_path, monkeypatch, before):
    path = tmp_path / "a.jsonl"
    path.write_bytes(before)
    with monkeypatch.context() as patch, pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        patch.setattr(os, "fsync", full_disk)
        jsonl.append(path, "x" * 10_000)
    assert path.read_bytes() == before
    jsonl.append(path, 3)
    assert path.read_bytes() == before + b"3\n"


# What fits is written, and then the system refuses the rest: as on a disk that fills up.
ALMOST_FULL = """
import resource, sys
from pathlib import Path
from memsearcher import jsonl
resource.setrlimit(resource.RLIMIT_FSIZE, (20, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
try:
    jsonl.append(Path(sys.argv[1]), "x" * int(sys.argv[2]))
except OSError:
    sys.exit(7)
"""


@pytest.mark.parametrize("length", [50, 20_000])
def test_a_disk_that_fills_in_the_middle_of_a_line_leaves_the_file_as_it_was(tmp_path, length):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"[1,2,3]\n")
    done = subprocess.run([sys.executable, "-c", ALMOST_FULL, str(path), str(length)], check=False)
    assert done.returncode == 7
    assert path.read_bytes() == b"[1,2,3]\n"


def test_a_file_that_may_not_be_opened_is_left_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"1\n2")

    def read_only(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    for write in (jsonl.append, lambda path, value: jsonl.write(path, [value])):
        with monkeypatch.context() as patch, pytest.raises(OSError, match=os.strerror(errno.EROFS)):
            patch.setattr(Path, "open", read_only)
            write(path, 3)
    assert path.read_bytes() == b"1\n2"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write to a read-only folder")
def test_a_read_only_folder_is_an_error(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b"1\n")
    (tmp_path / "a.jsonl").chmod(0o400)
    tmp_path.chmod(0o500)
    try:
        for write in (jsonl.append, lambda path, value: jsonl.write(path, [value])):
            for name in ("a.jsonl", "new.jsonl"):
                with pytest.raises(PermissionError):
                    write(tmp_path / name, 2)
    finally:
        tmp_path.chmod(0o700)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl"]
    assert (tmp_path / "a.jsonl").read_bytes() == b"1\n"


@pytest.mark.parametrize("write", [jsonl.append, lambda path, value: jsonl.write(path, [value])])
def test_a_folder_that_is_a_file_is_an_error(tmp_path, write):
    (tmp_path / "file").write_text("x")
    with pytest.raises(OSError, match="file"):
        write(tmp_path / "file" / "a.jsonl", 1)
    assert (tmp_path / "file").read_text() == "x"


def test_write_replaces_the_whole_file(tmp_path):
    path = tmp_path / "deep" / "er" / "a.jsonl"
    jsonl.write(path, [1, "é"])
    assert path.read_bytes() == b'1\n"\\u00e9"\n'
    jsonl.write(path, [{"a": [2]}])
    assert values(path) == [{"a": [2]}]
    jsonl.write(path, [])
    assert path.read_bytes() == b""
    assert list(path.parent.iterdir()) == [path]


@given(st.lists(JSON, max_size=5))
def test_what_is_written_is_read_back(tmp_path_factory, written):
    path = tmp_path_factory.mktemp("lines") / "a.jsonl"
    jsonl.write(path, written)
    assert values(path) == written


@pytest.mark.parametrize("where", [(os, "fsync"), (Path, "replace")], ids=["fsync", "rename"])
def test_replace_on_a_full_disk_leaves_the_old_file_and_nothing_beside_it(tmp_path, monkeypatch, where):
    path = tmp_path / "a.jsonl"
    jsonl.replace(path, b"old")
    with monkeypatch.context() as patch, pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        patch.setattr(*where, full_disk)
        jsonl.replace(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
    jsonl.replace(path, b"new")
    assert path.read_bytes() == b"new"
