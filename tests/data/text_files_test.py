"""Proves that lines and tables are read completely, or refused by line.

python -m pytest tests/data/text_files_test.py
"""

import functools
import gzip
import io
import json
import os

import pyarrow as pa
import pyarrow.parquet
import pytest

from data import text_files
from foundation import errors


def lines_of(name):
    return [line.text for line in text_files.open_lines(str(name)).read()]


def test_lines_are_read_as_they_are(tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes("\ufeffa\r\n\nb\u2028c".encode())
    assert lines_of(path) == ["a", "", "b\u2028c"]
    zipped = tmp_path / "text.txt.gz"
    zipped.write_bytes(gzip.compress(path.read_bytes()))
    assert lines_of(zipped) == ["a", "", "b\u2028c"]
    path.write_bytes(b"a\n\xff\n")
    with pytest.raises(errors.InputError, match="text.txt:2: not UTF-8 text"):
        text_files.open_lines(str(path))
    path.write_bytes(b"")
    with pytest.raises(errors.InputError, match="has no lines"):
        text_files.open_lines(str(path))


def test_a_name_may_be_of_several_files(tmp_path):
    for name in ("b.txt", "a.txt", "c.md"):
        (tmp_path / name).write_text(f"{name}\n\n")
    for name in (tmp_path, tmp_path / "*.txt"):
        lines = text_files.open_lines(str(name))
        found = list(lines.read())
        assert [line.text for line in found] == ["a.txt", "", "b.txt", ""]
        assert found[2].where == f"{tmp_path}/b.txt:1"
        assert lines.total == 4
    one = tmp_path / "one.txt"
    one.write_text("a.txt\n\nb.txt\n\n")
    assert text_files.open_lines(str(one)).digest == lines.digest


def test_a_pipe_is_refused():
    """As in --test_file=<(zcat new.csv.gz): nothing is left after a check."""
    reader, writer = os.pipe()
    os.close(writer)
    path = f"/dev/fd/{reader}"
    for read in (text_files.open_lines, lambda x: text_files.find_all(x, [])):
        with pytest.raises(errors.InputError, match=f"{path}: not a regular"):
            read(path)
    os.close(reader)


def test_standard_input_is_read_once(monkeypatch):
    stdin = io.TextIOWrapper(io.BytesIO(b"\xef\xbb\xbfa\nb\n"))
    monkeypatch.setattr("sys.stdin", stdin)
    lines = text_files.open_lines("-")
    assert lines.total is None
    assert [line.text for line in lines.read()] == ["a", "b"]


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_blocks_hold_the_same_lines_whatever_their_size(tmp_path, size):
    data = b"\xef\xbb\xbf" + b"One.\n\nTwo " * 20 + b"\n" + b"last"
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(data))
    blocks = list(text_files.read_blocks(str(path), size))
    assert b"".join(block.data for block in blocks) == data[3:]
    assert sum(block.file_bytes for block in blocks) == path.stat().st_size
    line = 1
    for block in blocks:
        assert block.first_line == line
        line += block.data.count(b"\n")
        assert block.data.endswith(b"\n") or block is blocks[-1]


def write(folder, name, text):
    path = folder / name
    data = text.encode()
    is_zipped = name.lower().endswith(".gz")
    path.write_bytes(gzip.compress(data) if is_zipped else data)
    return str(path)


def rows_of(*paths):
    """Returns (line, cells) of all rows."""
    return [(x.line, x.cells) for x in text_files.read_named(paths)]


ROWS = [{"text": "Hello, you", "label": "a"}, {"text": "", "label": "b"}]


@pytest.mark.parametrize(
    ("name", "text", "lines"),
    [
        ("t.csv", '\ufefftext,label\n"Hello, you",a\n,b\n', [2, 3]),
        ("T.CSV.GZ", 'text,label\r\n"Hello, you",a\r\n,b', [2, 3]),
        ("t.csv", '\ntext,label\n\n"Hello, you",a\n  \n\n,b\n\n', [4, 7]),
        ("t.tsv", 'text\t"label"\n"Hello, you"\ta\n\t"b"\n', [2, 3]),
        ("t.txt", "\ntext\tlabel\n\nHello, you\ta\n  \n\tb\n", [4, 6]),
    ],
)
def test_every_form_gives_the_same_rows(tmp_path, name, text, lines):
    path, expected = write(tmp_path, name, text), zip(lines, ROWS, strict=True)
    more = write(tmp_path, "more.jsonl", '{"label": "c"}')
    assert rows_of(path, more) == [*expected, (1, {"label": "c"})]


A, B = (
    {"text": f"{x} [], {{}} \u00fc", "n": [{"m": i}]}
    for i, x in enumerate("ab")
)
JSON_A, JSON_B = json.dumps(A), json.dumps(B, ensure_ascii=False)
INDENTED = json.dumps(A, indent=2)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (f"{JSON_A}\n{JSON_B}\n", (1, 2)),
        (f"\ufeff{JSON_A},\n\n{JSON_B},\n", (1, 3)),
        (f"[{JSON_A}, {JSON_B}]", (1, 1)),
        (f"[\n{INDENTED},\n{JSON_B}\n]\n", (2, 10)),
        (f"{INDENTED}\n{JSON_B}", (1, 9)),
        (f"[{JSON_A}]\n[{JSON_B}]", (1, 2)),
        (f'{{"data": [{JSON_A},\n{JSON_B}]}}', (1, 2)),
        (
            f'{{\n"version": "v2",\n"data":\n[{JSON_A}, {JSON_B}], "x": 1}}',
            (4, 4),
        ),
    ],
)
@pytest.mark.parametrize("size", [1, 20, 1 << 20])
def test_objects_are_rows_in_any_form_of_json(
    tmp_path, monkeypatch, text, lines, size
):
    read_blocks = functools.partial(text_files.read_blocks, block_bytes=size)
    if "version" not in text:  # Which is found in the first block.
        monkeypatch.setattr(text_files, "read_blocks", read_blocks)
    path = write(tmp_path, "t.json", text)
    assert rows_of(path) == list(zip(lines, (A, B), strict=True))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("t.csv", "text,label\na\n", ":2: 1 columns, but the header has 2"),
        ("t.csv", "text,label\na,b,c\n", ":2: 3 columns, but the header has 2"),
        ("t.csv", 'a,b\nc,d\n"two\nlines",d\n"a,b\n', ":5: the row that begi"),
        ("t.csv", 'a,b\n"x" y,d\n', ":2: the row that begins here is no CSV"),
        ("t.csv", "text\nplain\nfirst\rsecond\n", ":3: the row that begins he"),
        ("t.csv", "text,label,text\na,b,c\n", ": two columns named 'text'"),
        ("t.tsv", "text\tlabel\na\tb\t\n", ":2: 3 columns, but the header ha"),
        ("t.tsv", "text\na\tb\n", ":2: 2 columns, but the header has 1"),
        ("t.tsv", 'text\tlabel\n"two\nlines"\t1\n', ":2: 1 columns, but the"),
        ("t.jsonl", f'{JSON_A}\n{{"te', ":2: not JSON"),
        ("t.jsonl", f'{JSON_A}\n{{"te\n{JSON_B}\n', ":2: not JSON"),
        ("t.jsonl", f"{JSON_A}\nhello\n{JSON_B}\n", ":2: not JSON"),
        ("t.jsonl", "[1]\n", ":1: not a JSON object"),
        ("t.jsonl", '{"a":' * 200_000, ":1: not JSON"),
        ("t.parquet", "PAR1, not really", ": not Parquet, or damaged: "),
        ("t.xlsx", "", ": a table is named *.csv, *.tsv,"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path, name, text, message):
    path = write(tmp_path, name, text)
    with pytest.raises(errors.InputError) as caught:
        rows_of(path)
    assert str(caught.value).startswith(path + message)


def test_quoted_cells_of_a_tsv_are_read_as_pandas_wrote_them(tmp_path):
    cells = ['"say ""x"", ok"', '"Yes" and "no"', '"', '""', 'a"b', '"x']
    path = write(tmp_path, "t.tsv", "text\n" + "\n".join(cells))
    expected = ['say "x", ok', *cells[1:3], "", *cells[4:]]
    assert [cells["text"] for _, cells in rows_of(path)] == expected
    raw = [row.cells for row in text_files.read_tsv(path)]
    assert raw == [["text"], *([cell] for cell in cells)]


def test_a_row_gives_texts_of_what_json_and_parquet_hold():
    cells = {"a": None, "b": 1, "c": [True, 2, "x"], "d": [], "e": False}
    row = text_files.Row("t.jsonl", 7, cells)
    assert (row.text("a"), row.text("b")) == ("", "1")
    assert row.texts("c") == ["true", "2", "x"]
    assert (row.texts("a"), row.texts("d")) == ([], [])
    assert (row.texts("b"), row.texts("e")) == (["1"], ["false"])
    with pytest.raises(errors.InputError) as caught:
        row.text("f", "--text_column")
    assert str(caught.value) == (
        "t.jsonl:7: no column 'f', only: 'a', 'b', 'c', 'd', 'e' "
        "(--text_column chooses it)"
    )


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "is no text but []"),
        ({"b": 1}, "is no text but {'b': 1}"),
        (True, "is no text but True"),
        (float("nan"), "is no text but nan"),
        ("x\udc00 y", r"holds '\udc00', which is no character"),
        ([None], "is no text but None"),
        (["x", "x\udc00"], r"holds '\udc00', which is no character"),
    ],
)
def test_what_is_no_text_is_named_by_line_and_column(value, message):
    row = text_files.Row("t.jsonl", 7, {"a": value})
    is_list = isinstance(value, list) and value
    with pytest.raises(errors.InputError) as caught:
        (row.texts if is_list else row.text)("a")
    assert str(caught.value) == f"t.jsonl:7: 'a' {message}"


def test_a_parquet_table_is_read_as_json_lines_are(tmp_path):
    rows = [{"text": "A", "label": [1, 2]}, {"text": None, "label": None}]
    path = str(tmp_path / "t.parquet")
    pa.parquet.write_table(pa.Table.from_pylist(rows), path)
    assert rows_of(path) == [(1, rows[0]), (2, rows[1])]
    views = pa.table({"text": pa.array(["A", None], pa.string_view())})
    pa.parquet.write_table(views, path)
    assert [cells for _, cells in rows_of(path)] == [
        {"text": "A"},
        {"text": None},
    ]
    twice = pa.Table.from_arrays([pa.array(["a"])] * 2, ["text", "text"])
    pa.parquet.write_table(twice, path)
    with pytest.raises(errors.InputError, match="two columns named 'text'"):
        rows_of(path)
