"""JSON Lines in and out: what is read, what is refused, and by which line."""

import gzip
import json

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from microcoder_core.errors import InputError
from microcoder_core.storage.rows import count_rows, dump_row, read_rows, write_rows

ROWS = [{"a": 1}, {"b": "gr\u00fcn \u2028 x"}, {"c": [None, True, 1.5, {"$tuple": []}]}]
SUFFIXES = [".jsonl", ".jsonl.gz", ".jsonl.zst"]


def compress(suffix, text):
    if suffix.endswith(".gz"):
        return gzip.compress(text)
    return zstandard.compress(text) if suffix.endswith(".zst") else text


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_rows_come_back(tmp_path, suffix):
    file = tmp_path / f"rows{suffix}"
    assert write_rows(file, ROWS) == 3
    assert list(read_rows(file)) == list(enumerate(ROWS, start=1))
    assert count_rows(file) == 3


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_equal_rows_give_equal_bytes(tmp_path, suffix):
    write_rows(tmp_path / f"a{suffix}", ROWS)
    write_rows(tmp_path / f"b{suffix}", ROWS)
    assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_large_file_is_read_whole(tmp_path, suffix):
    rows = [{"number": number, "text": str(number) * 50} for number in range(20_000)]
    write_rows(tmp_path / f"rows{suffix}", rows)
    assert [row for _, row in read_rows(tmp_path / f"rows{suffix}")] == rows


@pytest.mark.parametrize("suffix", [".jsonl.gz", ".jsonl.zst"])
def test_files_joined_end_to_end_are_read_whole(tmp_path, suffix):
    file = tmp_path / f"rows{suffix}"
    file.write_bytes(compress(suffix, b'{"a": 1}\n') + compress(suffix, b'{"a": 2}\n'))
    assert [row for _, row in read_rows(file)] == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize("suffix", [".jsonl.gz", ".jsonl.zst"])
@pytest.mark.parametrize("damage", ["cut", "scrambled", "plain"])
def test_damaged_file_is_an_input_error(tmp_path, suffix, damage):
    text = "".join(dump_row({"n": number, "t": str(hash(str(number)))}) for number in range(5000)).encode()
    data = compress(suffix, text)
    middle = len(data) // 2
    damaged = {"cut": data[:middle], "scrambled": data[:middle] + bytes(200) + data[middle + 200 :], "plain": text}
    file = tmp_path / f"rows{suffix}"
    file.write_bytes(damaged[damage])
    with pytest.raises(InputError):
        list(read_rows(file))


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('{"a": 1', "not JSON"),
        ("[1]", "must be a JSON object, got list"),
        ("null", "must be a JSON object, got NoneType"),
        ('{"a": NaN}', "NaN is not JSON"),
        ('{"a": -Infinity}', "-Infinity is not JSON"),
        ("[" * 100_000, "not JSON"),
    ],
)
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_broken_line_is_named(tmp_path, suffix, line, complaint):
    file = tmp_path / f"rows{suffix}"
    file.write_bytes(compress(suffix, f'{{"a": 1}}\n\n{line}\n'.encode()))
    with pytest.raises(InputError, match=complaint) as caught:
        list(read_rows(file))
    assert f"{file}:3: " in str(caught.value)
    assert "\n" not in str(caught.value)


def test_file_of_windows_is_read(tmp_path):
    (tmp_path / "rows.jsonl").write_bytes(b'\xef\xbb\xbf{"a": 1}\r\n\r\n{"a": 2}')
    assert list(read_rows(tmp_path / "rows.jsonl")) == [(1, {"a": 1}), (3, {"a": 2})]


def test_bytes_that_are_no_text_are_refused(tmp_path):
    (tmp_path / "rows.jsonl").write_bytes(b'{"a": "\xff"}\n')
    with pytest.raises(InputError, match="cannot be read"):
        list(read_rows(tmp_path / "rows.jsonl"))


def test_missing_file_and_folder_are_refused(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        list(read_rows(tmp_path / "rows.jsonl"))
    (tmp_path / "folder.jsonl").mkdir()
    with pytest.raises(InputError, match="cannot be read"):
        list(read_rows(tmp_path / "folder.jsonl"))


def test_failing_rows_leave_the_earlier_file(tmp_path):
    file = tmp_path / "rows.jsonl.gz"
    write_rows(file, ROWS)

    def failing():
        yield {"a": 1}
        raise InputError("no")

    with pytest.raises(InputError):
        write_rows(file, failing())
    assert [row for _, row in read_rows(file)] == ROWS
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl.gz"]


@given(st.dictionaries(st.text(), st.one_of(st.none(), st.booleans(), st.integers(), st.text(st.characters(exclude_categories=())))))
def test_any_row_is_one_line_of_utf8(row):
    line = dump_row(row)
    assert line.count("\n") == 1
    assert json.loads(line.encode().decode()) == row
