"""Proves that lines and tables are read completely, or refused by line.

python -m pytest tests/data/text_files_test.py
"""

import gzip
import io
import json
import os

import classifier_runs
import pyarrow as pa
import pyarrow.parquet
import pytest

from data import examples, text_files
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


@pytest.mark.parametrize(
    ("name", "text", "warned"),
    [
        ("a.txt", "a\rb\r\nc\n", "a.txt:1: a carriage return within"),
        ("a.txt", "a\r\r\n", ""),
        ("a.csv", "text\na\n", "a.csv: a table by its name, but each"),
        ("a.jsonl", "{}\n", "a.jsonl: a table by its name, but each"),
    ],
)
def test_lines_that_may_be_no_texts_are_logged(
    tmp_path, caplog, name, text, warned
):
    (tmp_path / name).write_bytes(text.encode())
    with caplog.at_level("WARNING", logger="absl"):
        text_files.open_lines(str(tmp_path / name))
    assert warned in caplog.text and bool(caplog.text) == bool(warned)


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
    with open(writer, "wb") as file:
        file.write(b"a\n")
    path = f"/dev/fd/{reader}"
    for read in (text_files.open_lines, lambda x: text_files.find_all(x, [])):
        with pytest.raises(errors.InputError, match=f"{path}: not a regular"):
            read(path)
    os.close(reader)


def test_standard_input_is_read_once(monkeypatch):
    stdin = io.TextIOWrapper(io.BytesIO(b"a\nb\n"))
    monkeypatch.setattr("sys.stdin", stdin)
    lines = text_files.open_lines("-")
    assert lines.total is None
    assert [line.text for line in lines.read()] == ["a", "b"]


def write(folder, name, text):
    path = folder / name
    path.write_bytes(text.encode())
    return str(path)


def read(path, form, **columns):
    columns = {"text_column": "text", "label_column": "label"} | columns
    paths = text_files.find_all(path, [form])
    found = examples.Examples(
        lambda: text_files.read_examples(paths, form, **columns), path
    )
    return classifier_runs.Columns(found)


def test_own_files_of_every_form_give_the_same_examples(tmp_path):
    files = {
        "csv": 'text,label\n"Hello, you",a\nBye,b\n',
        "tsv": "text\tlabel\nHello, you\ta\nBye\tb\n",
        "jsonl": '{"text": "Hello, you", "label": "a"}\n'
        '{"label": "b", "text": "Bye"}\n',
    }
    for form, text in files.items():
        found = read(write(tmp_path, f"train.{form}", text), form)
        assert found.first == ["Hello, you", "Bye"], form
        assert found.labels == ["a", "b"], form
        assert found.guids == ["0", "1"], form
        assert found.lines[-1] == (2 if form == "jsonl" else 3), form


@pytest.mark.parametrize("form", ["csv", "tsv"])
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_a_blank_line_of_a_single_column_is_an_empty_text(tmp_path, form, end):
    text = end.join(["text", "One.", "", "", "Four.", "", ""])
    path = write(tmp_path, "test", text)
    found = read(path, form, label_column=None)
    assert found.first == ["One.", "", "", "Four.", ""]
    assert found.lines == [2, 3, 4, 5, 6]


@pytest.mark.parametrize("form", ["csv", "tsv"])
def test_blank_lines_between_rows_of_several_columns_hold_nothing(
    tmp_path, form
):
    text = "\ntext,label\n\na,b\n\n\nc,d\n\n"
    if form == "tsv":
        text = text.replace(",", "\t")
    found = read(write(tmp_path, "train", text), form)
    assert (found.first, found.lines) == (["a", "c"], [4, 7])


def refusal(tmp_path, form, text):
    """The message about a training file, after its path."""
    path = write(tmp_path, "train", text)
    with pytest.raises(errors.InputError) as caught:
        read(path, form)
    assert str(caught.value).startswith(path)
    return str(caught.value).removeprefix(path)


@pytest.mark.parametrize(
    ("form", "text", "message"),
    [
        ("csv", "text,label\na\n", ":2: 1 columns, but the header has 2"),
        ("csv", "text,label\na,b,c\n", ":2: 3 columns, but the header has 2"),
        ("tsv", "text\tlabel\na\n", ":2: 1 columns, but the header has 2"),
        ("tsv", "text\tlabel\na\tb\t\n", ":2: 3 columns, but the header ha"),
        ("tsv", "text\na\tb\n", ":2: 2 columns, but the header has 1"),
        ("csv", 'text,label\n"a,b\n', ":2: the cell that a quota"),
        # The row begins at line 2, and its open quotation at line 4.
        ("csv", 'text,label\n"a ""b""\n""\n","c\nd,e\n', ":4: the cell that"),
        (
            "csv",
            'text,label\nf,g\n"a,b\n"c, d",e\n',
            ":3: the cell that a quot",
        ),
        ("csv", "text,label,text\na,b,c\n", ": the header names the column 't"),
        ("tsv", "a\tlabel\tlabel\na\tb\tc\n", ": the header names the column"),
        ("tsv", "words\tlabel\na\tb\n", ":1: no column 'text'"),
        # A table without a header.
        ("csv", "a,b\nc,d\n", ":1: no column 'text' (--text_column chooses"),
        ("jsonl", '{"text": "a", "label": 1}\n{"te', ":2: not JSON"),
        ("jsonl", "[1]\n", ":1: not a JSON object"),
        ("jsonl", '{"text": [], "label": 1}\n', ":1: 'text' is no text"),
        ("jsonl", '{"text": "a", "label": [null]}\n', ":1: 'label' is no text"),
        ("jsonl", "[" * 200_000, ":1: not JSON"),
        ("jsonl", '{"text": "a", "text": "b"}\n', ":1: the key 'text' occurs "),
        ("csv", "text,label\n", ": has no examples"),
        ("csv", "text,label\na,b\ntext,label\n", ":3: the header again"),
        ("csv", "text,label\na,b\n\ufefftext,label\n", ":3: the header ag"),
        ("tsv", 'text\tlabel\na\tb\n"text"\tlabel\n', ":3: the header again"),
        ("csv", "text,label\na,b\nc\0,d\n", ":3: a zero byte: UTF-16 or"),
        ("tsv", "t\0e\0x\0t\0\n\0", ":1: a zero byte"),
        ("parquet", "PAR1, not really", ": not Parquet, or damaged: "),
        ("csv", "", ": is empty"),
        ("tsv", "\n\n", ": is empty"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path, form, text, message):
    assert refusal(tmp_path, form, text).startswith(message)


@pytest.mark.parametrize(
    ("form", "text", "message"),
    [
        ("csv", "text;label\na;b\n", ":1: no column 'text'"),
        ("csv", "text|label\na|b\n", ":1: no column 'text'"),
        ("csv", "text\tlabel\na\tb\n", ":1: no column 'text'"),
        ("csv", "text;label\na, b, c;d\n", ":2: 3 columns, but the header"),
        ("csv", 'text;label\n"a;b";c\n', ":2: the cell that a quotation"),
        ("csv", '"text";"label"\n"a";"b"\n', ":1: the cell that a quotation"),
        ("tsv", "text;label\na;b\n", ":1: no column 'text'"),
        ("tsv", "text,label\na,b\n", ":1: no column 'text'"),
        ("tsv", "text,label\na\tb,c\n", ":2: 2 columns, but the header has 1"),
    ],
)
def test_another_separator_is_recognized(tmp_path, form, text, message):
    error = refusal(tmp_path, form, text)
    separator = text.replace('"', "")[len("text")]
    assert error.startswith(message)
    assert error.endswith(
        f"; the header seems to be separated by {separator!r}, but csv wants "
        "commas and tsv tabs (--task_name=csv|tsv)"
    )


@pytest.mark.parametrize("form", ["csv", "tsv"])
@pytest.mark.parametrize(
    "text", ['{"a": "b", "c": 1}\n{"a": "d", "c": 2}\n', '[\n{"a": 1}]\n']
)
def test_json_is_recognized(tmp_path, form, text):
    hint = f"; the file seems to be JSON, but is read as {form}"
    assert refusal(tmp_path, form, text).endswith(hint)


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("csv", "words;,label\na,b\n"),
        ("csv", '"a, b"\na\n'),
        ("tsv", "words|\tlabel\na\tb\n"),
        ("jsonl", '{"text;label": "a;b"}\n'),
        ("jsonl", "{}\n"),
    ],
)
def test_no_other_separator_is_seen_where_none_is(tmp_path, form, text):
    path = write(tmp_path, "train", text)
    with pytest.raises(errors.InputError, match="no column 'text'") as caught:
        read(path, form)
    assert "separated" not in str(caught.value)


@pytest.mark.parametrize("what", ["text", "text_pair", "label", "id"])
def test_a_missing_column_is_named_with_its_flag(tmp_path, what):
    path = write(tmp_path, "train", "text,label\na,b\n")
    with pytest.raises(errors.InputError) as caught:
        read(path, "csv", **{f"{what}_column": "stars"})
    assert str(caught.value) == (
        f"{path}:1: no column 'stars' (--{what}_column chooses it) in the "
        "first line, which must be the header; read as the header: 'text', "
        "'label'"
    )


@pytest.mark.parametrize("column", ["text", "pair", "label", "labels", "id"])
def test_half_a_character_is_refused_before_it_can_stop_the_writing(
    tmp_path, column
):
    whole = {"text": "\U0001f600", "pair": "b", "label": "c", "id": "d"}
    whole["labels"] = ["e", "f"]
    bad = ["e", "x\udc00"] if column == "labels" else "x\udc00 y"
    rows = [whole, whole | {column: bad}]
    lines = [json.dumps(row) + "\n" for row in rows]
    columns = {"text_pair_column": "pair", "id_column": "id"}
    if column == "labels":
        columns["label_column"] = column
    path = write(tmp_path, "whole.jsonl", lines[0])
    assert read(path, "jsonl", **columns).first == ["\U0001f600"]
    path = write(tmp_path, "half.jsonl", "".join(lines))
    with pytest.raises(errors.InputError) as caught:
        read(path, "jsonl", **columns)
    assert str(caught.value) == (
        f"{path}:2: {column!r} holds '\\udc00', which is no character"
    )


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl"])
def test_spaces_around_a_label_make_no_other_class(tmp_path, form):
    texts = ["yes", "no", "yes ", " no", "\u00a0yes"]
    if form == "jsonl":
        rows = [json.dumps({"text": "a", "label": label}) for label in texts]
    else:
        separator = "," if form == "csv" else "\t"
        rows = [f"a{separator}{label}" for label in texts]
        rows.insert(0, f"text{separator}label")
    found = read(write(tmp_path, "train", "\n".join(rows)), form)
    kind = examples.CLASSIFICATION
    assert examples.find_labels(found, kind) == ["no", "yes"]
    for labels in (["no", "yes"], [" no", "yes "]):
        ids = examples.encode_labels(found, kind, labels)
        assert ids[:, 0].tolist() == [1, 0, 1, 0, 1]


def test_a_list_of_labels_is_written_as_single_labels_are(tmp_path):
    rows = '{"text": "a", "label": [true, 1, "b"]}\n'
    rows += '{"text": "a", "label": true}\n'
    found = read(write(tmp_path, "t.jsonl", rows), "jsonl")
    assert found.labels == [["true", "1", "b"], "true"]


def test_quoted_cells_of_a_tsv_are_read_as_those_of_a_csv(tmp_path):
    cells = ['"say ""x"", ok"', '"Yes" and "no"', '"', '""', 'a"b', '"x']
    text = "text\tlabel\n" + "".join(f"{cell}\t1\n" for cell in cells)
    found = read(write(tmp_path, "train.tsv", text), "tsv")
    assert found.first == ['say "x", ok', *cells[1:3], "", *cells[4:]]
    text = text.replace("text\tlabel", '"text"\t"label"', 1)
    assert read(write(tmp_path, "train.tsv", text), "tsv").first == found.first


def test_a_tsv_with_quoted_newlines_and_tabs_is_read_as_pandas_wrote_it(
    tmp_path,
):
    text = 'text\tlabel\nA ""b"" c\t1\n"two\nlines"\t1\n\n"a\ttab"\t2\nz\t3\n'
    found = read(write(tmp_path, "train.tsv", text), "tsv")
    assert found.first == ['A ""b"" c', "two\nlines", "a\ttab", "z"]
    assert found.lines == [2, 3, 6, 7] and found.labels == ["1", "1", "2", "3"]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ('1\t"a\nb"\n0\tc\n1\t"d\ne"\n', {2: "a\nb", 4: "c", 5: "d\ne"}),
        ('0\tc\n1\t"say ""a\nb"" ok"\n', {2: "c", 3: 'say "a\nb" ok'}),
        ('0\t"c"\n1\t"a\n\nb"\n', {2: "c", 3: "a\n\nb"}),
        # Each of the first two lines could be a row.
        ('1\t"a\nb\tc"\n0\t"d\ne"\n', {2: "a\nb\tc", 4: "d\ne"}),
        ('1\t"a\n0\tb"\n', {2: '"a', 3: 'b"'}),  # Rows without quotes.
        ('1\t"a\n0\t"b" c\n', {2: '"a', 3: '"b" c'}),
    ],
)
def test_the_last_cell_of_a_tsv_may_have_quoted_newlines(
    tmp_path, rows, expected
):
    path = write(tmp_path, "train.tsv", f"label\ttext\n{rows}")
    found = read(path, "tsv")
    assert dict(zip(found.lines, found.first, strict=True)) == expected


def test_a_tsv_of_one_column_has_no_text_that_could_be_several(tmp_path):
    path = write(tmp_path, "t.tsv", 'text\nfox\n"cat dog\nhouse good"\n')
    with pytest.raises(errors.InputError, match=f"{path}:3: is it a text of s"):
        read(path, "tsv", label_column=None)
    texts = ['"a"', '"cat', '"dog" fox"', 'good "']
    path = write(tmp_path, "u.tsv", "\n".join(["text", *texts]))
    found = read(path, "tsv", label_column=None)
    assert found.first == ["a", *texts[1:]]
    path = write(tmp_path, "v.tsv", 'text\n"a\n\tb"\nc\n')
    assert read(path, "tsv", label_column=None).first == ["a\n\tb", "c"]


def test_a_csv_of_one_column_has_no_line_end_within_a_text(tmp_path):
    path = write(tmp_path, "t.csv", "text\nplain\nfirst\rsecond\n")
    message = rf"{path}:3: some lines end in \\r, others in \\n"
    with pytest.raises(errors.InputError, match=message):
        read(path, "csv", label_column=None)
    for text in ("text\ra\rb", 'text\n"a"\nb', "text\r\na\r\nb\r\n"):
        path = write(tmp_path, "t.csv", text)
        assert read(path, "csv", label_column=None).first == ["a", "b"]
    path = write(tmp_path, "t.csv", 'text\n"first\rsecond"\n')
    assert read(path, "csv", label_column=None).first == ["first\rsecond"]


@pytest.mark.parametrize(
    "text",
    [
        'text\tlabel\n"two\nlines"\t1\n"x" y\t2\n',
        'text\tlabel\n"two\nlines"\t1\na\tb\tc\n',
        'text\tlabel\n"two\nlines\t1\n',
    ],
)
def test_quotes_that_do_not_follow_the_rules_of_csv_are_refused(tmp_path, text):
    with pytest.raises(errors.InputError, match=r":2: 1 columns.* \(--task_na"):
        read(write(tmp_path, "train.tsv", text), "tsv")


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl"])
def test_a_missing_text_is_empty_and_logged(tmp_path, caplog, form):
    text = {
        "csv": "text,label\n,a\nB,b\n",
        "tsv": "text\tlabel\n\ta\nB\tb\n",
        "jsonl": '{"text": null, "label": "a"}\n{"text": "B", "label": "b"}',
    }[form]
    path = write(tmp_path, "train", text)
    with caplog.at_level("WARNING", logger="absl"):
        assert read(path, form).first == ["", "B"]
    line = 1 if form == "jsonl" else 2
    assert f"{path}:{line}: no text, one of 1 such row(s)" in caplog.text


def test_quotes_after_a_space_are_logged(tmp_path, caplog):
    text = 'text,label\n "So" he said,a\nA, "b"\nB, "b"\n'
    with caplog.at_level("WARNING", logger="absl"):
        read(write(tmp_path, "t.csv", text), "csv")
    (line,) = caplog.messages
    assert line.startswith(f"{tmp_path}/t.csv:3: the quotation marks of ' \"b")


@pytest.mark.parametrize("value", ["NaN", "Infinity", "{}", "[null]"])
def test_what_json_holds_that_is_no_label_is_refused(tmp_path, value):
    path = write(tmp_path, "train", f'{{"text": "A", "label": {value}}}\n')
    with pytest.raises(errors.InputError, match=f"{path}:1: "):
        found = read(path, "jsonl")
        examples.find_labels(found, examples.CLASSIFICATION)


def test_columns_without_a_name_and_lines_of_spaces_do_no_harm(tmp_path):
    text = "text,label,,\nA,a,,\n   \nB,b,x,y\n"
    assert read(write(tmp_path, "t.csv", text), "csv").first == ["A", "B"]
    text = '{"text": "A", "label": "a"}\n  \n'
    assert read(write(tmp_path, "t.jsonl", text), "jsonl").first == ["A"]


def test_a_text_may_be_that_of_the_header_of_one_column(tmp_path):
    path = write(tmp_path, "t.csv", "text\ntext\n")
    assert read(path, "csv", label_column=None).first == ["text"]


def test_a_parquet_table_is_read_as_json_lines_are(tmp_path):
    rows = [
        {"text": "A", "label": 1, "id": 7, "score": 0.5},
        {"text": None, "label": 0, "id": 8, "score": float("nan")},
    ]
    path = str(tmp_path / "t.parquet")
    pa.parquet.write_table(pa.Table.from_pylist(rows), path)
    found = read(path, "parquet", id_column="id")
    assert (found.first, found.labels) == (["A", ""], ["1", "0"])
    assert (found.guids, found.lines) == (["7", "8"], [1, 2])
    with pytest.raises(errors.InputError, match=f"{path}:2: 'score' is no te"):
        read(path, "parquet", label_column="score")
    with pytest.raises(errors.InputError, match=f"{path}:1: no column 'stars'"):
        read(path, "parquet", label_column="stars")


def test_files_of_a_table_are_numbered_and_named(tmp_path):
    write(tmp_path, "b.csv", "label,text\n2,B\n")
    write(tmp_path, "a.csv", "text,label\nA,1\n")
    write(tmp_path, "other.tsv", "x")
    found = read(str(tmp_path), "csv")
    assert (found.first, found.labels) == (["A", "B"], ["1", "2"])
    assert found.guids == ["0", "1"]
    assert [row.where for row in found] == [
        f"{tmp_path}/a.csv:2",
        f"{tmp_path}/b.csv:2",
    ]
    assert read(f"{tmp_path}/?.csv", "csv").digest == found.digest
    assert read(f"{tmp_path}//?.csv", "csv").digest == found.digest
    with pytest.raises(errors.InputError, match="no .jsonl file there"):
        read(str(tmp_path), "jsonl")
    with pytest.raises(errors.InputError, match=r"x\*: no file there"):
        read(f"{tmp_path}/x*", "csv")


def test_a_folder_is_read_completely_and_no_file_of_it_twice(tmp_path):
    write(tmp_path, "a.csv", "text,label\nA,1\n")
    write(tmp_path, "B.CSV", "text,label\nB,2\n")
    data = gzip.compress(b"text,label\nC,3\n")
    (tmp_path / "C.Csv.GZ").write_bytes(data)
    assert read(str(tmp_path), "csv").first == ["B", "C", "A"]
    (tmp_path / "a.csv.gz").write_bytes(data)
    message = "a.csv: the same as .*/a.csv.gz, compressed"
    for name in (tmp_path, f"{tmp_path}/a*"):
        with pytest.raises(errors.InputError, match=message):
            read(str(name), "csv")


def test_brackets_of_a_folder_are_no_pattern(tmp_path):
    (tmp_path / "a[1]").mkdir()
    write(tmp_path, "a[1]/b.csv", "text,label\nA,1\n")
    assert read(f"{tmp_path}/a[1]", "csv").first == ["A"]


def test_repeated_ids_and_blank_texts_are_logged(tmp_path, caplog):
    text = "text,label,id\nA,a,1\n ,b,2\nC,b,1\nD,a,1\n"
    path = write(tmp_path, "t.csv", text)
    with caplog.at_level("WARNING", logger="absl"):
        read(path, "csv", id_column="id")
    assert f"{path}:3: no text, one of 1 such row(s)" in caplog.text
    expected = f"{path}:4: the same id as an earlier row, one of 2 such row(s)"
    assert expected in caplog.text


@pytest.mark.parametrize(
    ("names", "warned"),
    [
        (("premise", "hypothesis"), True),
        (("question1", "question2"), True),
        (("sentence_a", "sentence_b"), True),
        (("text", "text_pair"), True),
        (("text2", "text1"), False),
        (("data", "datb2"), False),
    ],
)
def test_the_second_text_of_a_pair_that_is_not_read_is_logged(
    tmp_path, caplog, names, warned
):
    path = write(tmp_path, "t.csv", f"{','.join(names)},label\nA,B,a\n")
    columns = {"text_column": names[0], "label_column": "label"}
    with caplog.at_level("WARNING", logger="absl"):
        list(text_files.read_examples([path], "csv", **columns))
        logged = f"--text_pair_column={names[1]} makes" in caplog.text
        assert logged == bool(caplog.text) == warned
        caplog.clear()
        columns["text_pair_column"] = names[1]
        list(text_files.read_examples([path], "csv", **columns))
    assert not caplog.text


def test_a_text_that_marks_a_missing_one_is_logged(tmp_path, caplog):
    path = write(tmp_path, "t.csv", "text,label\nA,a\nnan,b\nNaN,b\n")
    with caplog.at_level("WARNING", logger="absl"):
        read(path, "csv")
    expected = f"{path}:3: a text that marks a missing one"
    assert expected in caplog.text
    assert "one of 2 such row(s)" in caplog.text


@pytest.mark.parametrize("in_name", [True, False])
def test_a_parquet_table_that_is_not_utf_8_is_refused(tmp_path, in_name):
    path = tmp_path / "t.parquet"
    table = pa.table({"text": ["good", "QQbad"], "QQname": [1, 2]})
    pa.parquet.write_table(
        table, path, store_schema=False, use_dictionary=False
    )
    old, new = (b"QQname", b"\xffQname") if in_name else (b"QQbad", b"\xffQbad")
    path.write_bytes(path.read_bytes().replace(old, new))
    with pytest.raises(errors.InputError) as raised:
        list(text_files.read_named([str(path)], "parquet"))
    line = r": a column's name is not UTF-8: \xffQname"
    line = line if in_name else r":2: not UTF-8: \xffQbad"
    assert str(raised.value) == f"{path}{line}"


def test_a_message_names_twenty_columns_and_counts_the_others():
    row = text_files.Row("t.csv", 2, {f"c{i}": "" for i in range(25)})
    with pytest.raises(errors.InputError, match="'c19' and 5 more$"):
        text_files.require(row, "text")


def test_a_label_may_have_a_column(tmp_path):
    """Cells other than 0 and 1 are named by line and column."""
    path = tmp_path / "t.csv"
    columns = {"text_column": "text", "label_columns": ["rude", "threat"]}
    path.write_text("text,rude,threat\na,1,0\nb,0,0\nc,1.0,True\n")
    found = text_files.read_examples([str(path)], "csv", **columns)
    assert [x.label for x in found] == [["rude"], [], ["rude", "threat"]]
    for cell, message in (("", "is ''"), ("-1", "is '-1'"), ("2", "is '2'")):
        path.write_text(f"text,rude,threat\na,1,{cell}\n")
        with pytest.raises(errors.InputError, match=f":2: 'threat' {message}"):
            list(text_files.read_examples([str(path)], "csv", **columns))
    path.write_text("text,rude\na,1\n")
    with pytest.raises(errors.InputError, match="'threat'.*--label_columns"):
        list(text_files.read_examples([str(path)], "csv", **columns))
