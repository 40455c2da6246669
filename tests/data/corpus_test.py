"""Proves what text becomes which documents, and that bad text is named.

pytest tests/data/corpus_test.py
"""

import bz2
import gzip
import json

import pyarrow as pa
import pytest
from pyarrow import parquet

from data import corpus
from foundation import errors

TEXT = "One a.\nTwo b.\n\n\nThree c.\n   \nFour d.\nFive e."
DOCUMENTS = [["One a.", "Two b."], ["Three c."], ["Four d.", "Five e."]]


def zstd(data):
    packed = pa.BufferOutputStream()
    with pa.CompressedOutputStream(packed, "zstd") as file:
        file.write(data)
    return packed.getvalue().to_pybytes()


COMPRESSIONS = [(".gz", gzip.compress), (".bz2", bz2.compress), (".zst", zstd)]


def documents(*paths, input_format="sentences"):
    """Returns each document that is not empty, as a list of sentences."""
    found = [[]]
    for block in corpus.read_blocks([str(x) for x in paths], input_format):
        parsed = corpus.parse(block, input_format)
        begin = 0
        for start in parsed.starts:
            found[-1] += parsed.texts[begin:start]
            found.append([])
            begin = start
        found[-1] += parsed.texts[begin:]
    return [document for document in found if document]


@pytest.mark.parametrize("suffix, pack", [("", bytes), *COMPRESSIONS])
def test_blank_lines_separate_documents(tmp_path, suffix, pack):
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(pack(TEXT.encode()))
    assert documents(path) == DOCUMENTS


def test_a_new_file_does_not_start_a_new_document(tmp_path):
    (tmp_path / "a").write_text("One a.\n")
    (tmp_path / "b").write_text("Two b.\n\nThree c.\n")
    assert documents(tmp_path / "a", tmp_path / "b") == [
        ["One a.", "Two b."],
        ["Three c."],
    ]


def test_paragraphs_are_split_into_sentences(tmp_path):
    path = tmp_path / "a"
    path.write_text("Dr. No came. He sat.\nThen he left.\n\nNew one. Yes.\n")
    assert documents(path, input_format="paragraphs") == [
        ["Dr. No came.", "He sat.", "Then he left."],
        ["New one.", "Yes."],
    ]


def test_each_object_of_json_is_one_document(tmp_path):
    path = tmp_path / "a"
    rows = [
        {"text": "One. Two.\n\nThree.", "id": 5},
        {"text": None},
        {"text": "A \ud83d b \ud83d\ude00."},
    ]
    expected = [["One.", "Two.", "Three."], ["A  b \U0001f600."]]
    for text in (
        "\n".join(map(json.dumps, rows)) + "\n\n",
        json.dumps(rows, indent=1),
        json.dumps({"version": 1, "data": rows}),
    ):
        path.write_text(text)
        assert documents(path, input_format="jsonl") == expected
        (block,) = corpus.read_blocks([str(path)], "jsonl")
        counts = corpus.parse(block, "jsonl").counts
        assert counts["rows_without_text"] == 1
        assert block.file_bytes == path.stat().st_size


def test_a_few_invalid_bytes_are_ignored_and_counted(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"Caf\xe9 au lait.\nTwo.\n")
    (block,) = corpus.read_blocks([str(path)])
    parsed = corpus.parse(block, "sentences")
    assert parsed.texts == ["Caf au lait.", "Two."]
    assert parsed.counts["invalid_bytes"] == 1
    assert parsed.counts["lines"] == 2


@pytest.mark.parametrize(
    "data, match",
    [
        (("One.\n" * 9).encode("utf-16"), ":1: not UTF-8 text but UTF-16 or"),
        (("One.\n" * 9).encode("utf-16-le"), ":1: .*UTF-16 or a binary"),
        (
            "Ein.\nZw\u00f6lf \u00fcber \u00e4\u00f6\u00fc.\n".encode("latin-1")
            * 9,
            ":2: not UTF-8 text but another encoding",
        ),
        (b"fine.\n" * 50 + bytes(range(256)) * 9, ":51: .*binary"),
    ],
    ids=["utf16", "utf16le", "latin1", "binary"],
)
def test_other_encodings_are_named_by_file_and_line(tmp_path, data, match):
    path = tmp_path / "a.txt"
    path.write_bytes(data)
    with pytest.raises(errors.InputError, match=f"a.txt{match}"):
        documents(path)


def table(path, column, kind=None, **options):
    array = pa.array(column, kind)
    parquet.write_table(pa.table({"body": array}), path, **options)


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.string_view(), pa.dictionary(pa.int8(), "utf8")],
)
def test_a_row_of_parquet_is_one_document(tmp_path, kind):
    path = tmp_path / "a.PARQUET"
    rows = [
        "One a.\n\n \n\u3000\n\u00a0\nTwo b.",
        None,
        "",
        "Three \u00fc.\r\nFour.\n",
    ]
    table(path, rows, kind)
    (tmp_path / "b.txt").write_text("Five.\n")
    names = [f"{tmp_path}/b.txt", str(path), f"{tmp_path}/b.txt"]
    texts, starts, missing = [], [0], 0
    for block in corpus.read_blocks(names, text_column="body"):
        parsed = corpus.parse(block, "sentences")
        starts += [len(texts) + start for start in parsed.starts]
        texts += parsed.texts
        missing += parsed.counts["rows_without_text"]
    assert missing == 1
    assert texts == [
        "Five.",
        "One a.",
        "Two b.",
        "Three \u00fc.",
        "Four.",
        "Five.",
    ]
    assert sorted(set(starts)) == [0, 1, 3, 5]


def test_blocks_of_parquet_are_small_and_cover_the_file(tmp_path):
    path = tmp_path / "a.parquet"
    rows = [f"Row {number} is a document." for number in range(5000)]
    table(path, rows, row_group_size=5000, compression="zstd")
    blocks = list(corpus.read_blocks([str(path)], "sentences", "body", 1 << 12))
    assert max(len(block.data) for block in blocks) < 1 << 15
    assert sum(block.file_bytes for block in blocks) == path.stat().st_size
    data = b"".join(block.data for block in blocks)
    assert data.decode().split("\n\n") == ["\n" + rows[0], *rows[1:], ""]
    lines = [block.data.count(b"\n") for block in blocks]
    assert [block.first_line for block in blocks] == [
        1 + sum(lines[:number]) for number in range(len(lines))
    ]
