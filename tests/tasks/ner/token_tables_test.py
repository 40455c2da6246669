"""Proves that JSON lines and Parquet tables of tokens are read, or refused.

python -m pytest tests/tasks/ner/token_tables_test.py
"""

import bz2
import gzip
import json

import pyarrow
import pytest
from pyarrow import parquet

from foundation import errors
from tasks.ner import ner_data, token_tables

NAMES = ["O", "B-PER", "I-PER", "B-LOC"]
ROWS = [
    {"id": "7", "tokens": ["Jim", "Henson"], "ner_tags": ["B-PER", "I-PER"]},
    {
        "id": "8",
        "tokens": ["in", "New York", "."],
        "ner_tags": ["O", "B-LOC", "O"],
    },
]
NUMBERED = [
    row | {"ner_tags": [NAMES.index(tag) for tag in row["ner_tags"]]}
    for row in ROWS
]
FIELDS = token_tables.Fields(tokens="tokens", tags="ner_tags")


def zst(data):
    return pyarrow.Codec("zstd").compress(data, asbytes=True)


def write(path, rows, compress=lambda data: data):
    text = "".join(json.dumps(row) + "\n" for row in rows)
    path.write_bytes(compress(text.encode()))
    return str(path)


def write_parquet(path, rows, names=None):
    table = pyarrow.Table.from_pylist(rows)
    if names:
        kind = {"feature": {"names": names, "_type": "ClassLabel"}}
        info = {"info": {"features": {"ner_tags": kind}}}
        table = table.replace_schema_metadata({"huggingface": json.dumps(info)})
    parquet.write_table(table, path)
    return str(path)


def check(found):
    assert list(found.words) == ["Jim", "Henson", "in", "New York", "."]
    assert found.tags == ["B-PER", "I-PER", "O", "B-LOC", "O"]
    assert found.row_splits.tolist() == [0, 2, 5]
    assert found.lines.tolist() == [1, 1, 2, 2, 2]
    assert found.separator == "\t" and not found.has_documents


def read(path, **changes):
    fields = token_tables.Fields(**{**vars(FIELDS), **changes})
    (found,) = token_tables.read_blocks(path, fields)
    return found


@pytest.mark.parametrize(
    "name, compress",
    [
        ("a.jsonl", lambda data: data),
        ("a.json.gz", gzip.compress),
        ("a.jsonl.bz2", bz2.compress),
        ("A.JSONL.BZ2", bz2.compress),
        ("a.jsonl.zst", zst),
    ],
)
def test_tags_may_be_strings_or_named_integers(tmp_path, name, compress):
    path = tmp_path / name
    check(read(write(path, ROWS, compress)))
    check(read(write(path, NUMBERED, compress), tag_names=NAMES))
    digits = [
        row | {"ner_tags": list(map(str, row["ner_tags"]))} for row in NUMBERED
    ]
    check(read(write(path, digits, compress), tag_names=NAMES))
    with pytest.raises(errors.InputError, match=":1: .* has 'B-PER', no integ"):
        read(write(path, ROWS, compress), tag_names=NAMES)


def test_parquet_may_name_its_integers(tmp_path):
    path = tmp_path / "a.parquet"
    check(read(write_parquet(path, ROWS)))
    check(read(write_parquet(path, NUMBERED, NAMES)))
    check(read(write_parquet(path, NUMBERED), tag_names=NAMES))


def test_names_are_a_list_or_a_file(tmp_path):
    assert token_tables.read_names("O, B-PER") == ["O", "B-PER"]
    (tmp_path / "names.txt").write_text("O\nB-PER\n")
    names = token_tables.read_names(str(tmp_path / "names.txt"))
    assert names == ["O", "B-PER"]
    for bad in ("O,,B-PER", "O,O"):
        with pytest.raises(errors.InputError, match="empty or occurs twice"):
            token_tables.read_names(bad)


def test_a_row_of_docstart_begins_a_document(tmp_path):
    opening = {"tokens": ["-DOCSTART-"], "ner_tags": ["O"]}
    rows = [opening, *ROWS, opening, ROWS[0]]
    path = write(tmp_path / "a.jsonl", rows)
    found = read(path)
    assert found.documents.tolist() == [0, 2, 3]
    assert found.lines.tolist() == [2, 2, 3, 3, 3, 5, 5]
    blocks = list(token_tables.read_blocks(path, FIELDS, block_sentences=1))
    assert [len(block) for block in blocks] == [2, 1]
    with pytest.raises(errors.InputError, match=":3: begins a document, but"):
        read(write(tmp_path / "a.jsonl", [*ROWS, opening]))


def test_rows_without_tokens_are_left_out_with_a_warning(tmp_path, caplog):
    empty = {"tokens": [], "ner_tags": []}
    found = read(write(tmp_path / "a.jsonl", [ROWS[0], empty, ROWS[1]]))
    assert found.row_splits.tolist() == [0, 2, 5]
    assert "1 row(s) without tokens are left out" in caplog.text


def test_a_test_set_may_lack_tags(tmp_path, caplog):
    rows = [{"tokens": row["tokens"]} for row in ROWS]
    path = write(tmp_path / "a.jsonl", rows)
    assert read(path, is_optional=True).tags is None
    assert "no field 'ner_tags', so no tags, only 'tokens'" in caplog.text
    assert read(path, tags=None).tags is None
    with pytest.raises(errors.InputError, match="no column 'ner_tags', only"):
        read(path)


BAD = {
    "lengths": ({"ner_tags": ["O"]}, "2 tokens, but 1 tags"),
    "integer": ({"ner_tags": [0, 1]}, "--tag_names=NAME,NAME,... or a file"),
    "null": ({"ner_tags": ["O", None]}, "'ner_tags' has None"),
    "flag": ({"ner_tags": ["O", True]}, "'ner_tags' has True"),
    "empty": ({"tokens": ["a", ""]}, "'tokens' has ''"),
    "blank": ({"tokens": ["a", " "]}, "'tokens' has ' '"),
    "tab": ({"tokens": ["a", "b\tc"]}, "'tokens' has 'b"),
    "text": ({"tokens": "a b"}, "'tokens' is no list but 'a b'"),
    "number": ({"tokens": ["a", 1]}, "'tokens' has 1"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_tokens_and_tags_is_refused(tmp_path, name):
    change, message = BAD[name]
    path = write(tmp_path / "a.jsonl", [ROWS[0], ROWS[0] | change])
    with pytest.raises(errors.InputError, match=message) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}:2: ")


def test_an_integer_without_a_name_is_refused(tmp_path):
    path = write(tmp_path / "a.jsonl", NUMBERED)
    with pytest.raises(errors.InputError, match=":2: .* integer 3, but there"):
        read(path, tag_names=NAMES[:3])


def test_sets_are_found_and_are_those_of_columns(tmp_path):
    """One folder has all formats; the test set is two files."""
    write(tmp_path / "train.jsonl", ROWS)
    write_parquet(tmp_path / "validation.parquet", NUMBERED, NAMES)
    write(tmp_path / "test0.jsonl.gz", ROWS, gzip.compress)
    write(tmp_path / "test1.jsonl", ROWS)
    data = ner_data.open_data(
        ner_data.Files(
            data_dir=str(tmp_path),
            paths={"test": str(tmp_path / "test?.jsonl*")},
        ),
        tag_scheme="auto",
        model_scheme="bio2",
        known_labels=None,
        trains=True,
    )
    assert data.labels == ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]
    for name in ("train", "dev"):
        check(data.split(name).sentences)
    assert (data.test.num_sentences, data.test.num_words) == (4, 10)
    assert data.test.has_tags and data.test.scheme == "bio2"
    assert [len(block.sentences) for block in data.blocks(1)] == [1] * 4
    write(tmp_path / "test1.jsonl", [{"tokens": ["a"]}])
    with pytest.raises(errors.InputError, match="unlike the file before"):
        _ = ner_data.NerData(
            **{
                name: getattr(data, name)
                for name in ("files", "read", "labels", "scheme")
            }
        ).test
