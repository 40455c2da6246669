"""Proves that files of tagged words are read as meant, or refused.

python -m pytest tests/tasks/ner/word_files_test.py
"""

import bz2
import gzip
import json
import os
import re

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from foundation import errors
from tasks.ner import ner_data, settings, tag_spans, word_files

IOB1 = "I-PER I-PER O I-LOC B-LOC O I-ORG".split()
IOBES = "B-PER E-PER O S-LOC S-LOC O S-ORG".split()
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
FIELDS = word_files.Fields(tokens="tokens", tags="ner_tags")


@pytest.fixture
def read(tmp_path):
    def read_text(text, **options):
        path = tmp_path / "words.txt"
        if isinstance(text, str):
            text = text.encode()
        path.write_bytes(text)
        return word_files.read_columns(str(path), **options)

    return read_text


def test_documents_sentences_and_lines(read):
    text = (
        "-DOCSTART- -X- O O\n\n\nEU NNP I-NP I-ORG\nsays VBZ I-VP O\n \n"
        "Yes UH O O\n-DOCSTART- O\n\nNo UH O O\n\n\t\n"
    )
    found = read(text)
    assert list(found.words) == ["EU", "says", "Yes", "No"]
    assert found.tags == ["I-ORG", "O", "O", "O"]
    assert found.lines.tolist() == [4, 5, 7, 10]
    assert found.row_splits.tolist() == [0, 2, 3, 4]
    assert found.documents.tolist() == [0, 2, 3]
    assert found.has_documents
    assert found.num_boundaries == 2


def test_what_is_written_is_read_again(read):
    found = read("-DOCSTART- O\n\na O\nb B-X\n\nc O\n\n-DOCSTART- O\n\nd O")
    text = "".join(word_files.write(found, [found.tags, found.tags]))
    assert text.startswith("-DOCSTART- O O\n\na O O\nb B-X B-X\n\nc O O\n\n")
    again = read(text)
    for name in ("words", "tags"):
        assert list(getattr(again, name)) == list(getattr(found, name))
    for name in ("row_splits", "documents"):
        expected = getattr(found, name)
        np.testing.assert_array_equal(getattr(again, name), expected)


BLOCKS = {
    "sentences": ("a O\n\nb O\nc O\n\nd O\n\n\ne O\n", 2, [3, 2]),
    "documents": (
        "-DOCSTART- O\n\na O\n\nb O\nc O\n\n-DOCSTART- O\n\n"
        "-DOCSTART- O\n\nd O\n\n-DOCSTART- O\n\ne O\n\nf O\n\ng O\n",
        1,
        [3, 1, 3],
    ),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_end_with_documents_and_are_the_file(tmp_path, name):
    text, most, sizes = BLOCKS[name]
    path = tmp_path / "words.txt"
    path.write_text(text)
    blocks = list(
        word_files.read_column_blocks(str(path), block_sentences=most)
    )
    assert [len(block.words) for block in blocks] == sizes
    parts = [word_files.write(block, [block.tags]) for block in blocks]
    found = word_files.read_columns(str(path))
    expected = "".join(word_files.write(found, [found.tags]))
    assert "".join(map("".join, parts)) == expected
    lines = [line for block in blocks for line in block.lines]
    assert lines == found.lines.tolist()


def test_windows_line_ends_marks_and_unicode_spaces(read):
    found = read("\ufeffNew\u00a0York B-LOC\r\n\u2028 O\r\n\x85x O\r\n")
    assert list(found.words) == ["New\u00a0York", "\u2028", "\x85x"]
    assert found.tags == ["B-LOC", "O", "O"]


def test_tabs_comments_and_chosen_columns(read):
    text = "# source: web\n1\tNew York\tB-LOC\t-\n2\t#\tO\t-\n"
    found = read(text, word_column=1, tag_column=2)
    assert list(found.words) == ["New York", "#"]
    assert found.tags == ["B-LOC", "O"]
    assert not found.has_documents
    assert "".join(word_files.write(found, [found.tags])) == (
        "New York\tB-LOC\n#\tO\n\n"
    )


def test_documents_of_tab_files_may_be_separated_by_spaces(read):
    """As in AIDA; its first line says nothing of the columns."""
    found = read("-DOCSTART- (1 EU)\nEU\tB\n\n-DOCSTART- (2 Rare)\tO\nx\tI\n")
    assert list(found.words) == ["EU", "x"]
    assert found.documents.tolist() == [0, 1, 2]
    assert "".join(word_files.write(found, [found.tags])).startswith(
        "-DOCSTART-\tO\n\nEU\tB\n\n-DOCSTART-\tO\n"
    )
    assert list(read("-DOCSTART-s O\n").words) == ["-DOCSTART-s"]
    assert list(read("\u2028\n").words) == ["\u2028"]


@pytest.mark.parametrize("kind", [gzip, bz2], ids=["gz", "bz2"])
def test_compressed_files_are_read(tmp_path, kind):
    path = tmp_path / ("words.gz" if kind is gzip else "words.bz2")
    path.write_bytes(kind.compress(b"a O\nb I-X\n"))
    assert list(word_files.read_columns(str(path)).words) == ["a", "b"]
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(errors.InputError, match="cut off or damaged"):
        word_files.read_columns(str(path))


def test_files_are_found_as_elsewhere(tmp_path):
    (tmp_path / "train.txt.gz").write_bytes(gzip.compress(b"a O\n"))
    found = word_files.read_columns(str(tmp_path / "train.txt"))
    assert found.path == str(tmp_path / "train.txt.gz")
    with pytest.raises(errors.InputError, match="is a directory, not a file"):
        word_files.read_columns(str(tmp_path))
    with pytest.raises(errors.InputError, match="dev.txt: no such file"):
        word_files.read_columns(str(tmp_path / "dev.txt"))


def test_a_file_of_words_has_no_tags(read):
    found = read("Jim\nsings\n")
    assert found.tags is None
    with pytest.raises(errors.InputError, match="no column of tags"):
        word_files.scheme(found)


def test_columns_that_are_no_tags_can_be_left_out(read):
    found = read("Jim NNP I-NP\nsings VBZ I-VP\n", tag_column=None)
    assert found.tags is None
    assert list(found.words) == ["Jim", "sings"]


@pytest.mark.parametrize(
    "text, options, message",
    [
        pytest.param(
            "a X O\nb O\n",
            {},
            r":2: 2 column\(s\), but line 1 has 3; .*raw text .*--text_file",
        ),
        pytest.param("\n\n-DOCSTART- O\n\n", {}, "holds no words"),
        pytest.param("", {}, "holds no words"),
        pytest.param(
            "a O\n\xe9 O\n".encode("latin-1"), {}, ":2: not UTF-8 text"
        ),
        pytest.param("\na O\n", {"tag_column": 2}, ":2: .*--tag_column=2"),
        pytest.param("a O\n", {"word_column": -1}, ":1: .*are the same"),
        pytest.param(
            "a\tB-X\nb\t\n", {}, ":2: column --tag_column=-1 is empty"
        ),
        pytest.param(
            "a\tO\t \n", {"tag_column": 2}, ":1: .*--tag_column=2 is empty"
        ),
        pytest.param("a\tO\n \tO\n", {}, ":2: column --word_column=0 is empty"),
        pytest.param("a O\rb O\r", {}, ":1: a carriage return within the line"),
        pytest.param("a\n\nb\tO\n", {}, ":3: a tab within the line"),
        pytest.param(
            "a 1\nb O\n",
            {"tag_names": ["O", "B-X"]},
            ":2: the column has 'O', no integer, so --tag_names has no effect",
        ),
        pytest.param(
            "a 2\n",
            {"tag_names": ["O", "B-X"]},
            ":1: the column has the integer 2, but there are 2 names",
        ),
    ],
    ids=[
        "columns",
        "no_words",
        "empty",
        "encoding",
        "no_column",
        "same",
        "tab_at_the_end",
        "blank_tag",
        "blank_word",
        "carriage_returns",
        "tabs",
        "no_integer",
        "no_name",
    ],
)
def test_bad_files_get_one_line(read, text, options, message):
    with pytest.raises(errors.InputError, match=message) as caught:
        read(text, **options)
    assert "\n" not in str(caught.value)


def test_tags_in_digits_may_have_names(read):
    names = ["O", "B-PER", "I-PER"]
    text = "-DOCSTART- 0\n\njim 1\nli 2\n\nx 0\n"
    assert read(text, tag_names=names).tags == ["B-PER", "I-PER", "O"]
    assert read(text).tags == ["1", "2", "0"]
    assert read(text, tag_names=names, tag_column=None).tags is None


def test_tags_that_are_none_are_named_with_their_line(read):
    found = read("a I-X\n\nb X-Y\n")
    with pytest.raises(errors.InputError, match=":3: tag 'X-Y' is neither"):
        word_files.types(found, "bio2")
    with pytest.raises(errors.InputError, match=":2: tag '0' .*letter O"):
        word_files.types(read("a I-X\nb 0\n"), "bio2")
    with pytest.raises(errors.InputError, match=":2: tag 'B' has no type"):
        word_files.types(read("a I-X\nb B\n"), "bio2")
    labels = ["O", "B-LOC", "I-LOC"]
    with pytest.raises(errors.InputError, match=":3: tag 'X-Y'"):
        word_files.encode_tags(found, "bio2", labels)
    found = read("a O\nb I-X\n")
    with pytest.raises(errors.InputError, match=r":2: tag 'I-X' .*: LOC$"):
        word_files.encode_tags(found, "iob1", labels)


def test_tags_are_encoded_in_the_models_scheme(read):
    found = read("".join(f"w {tag}\n" for tag in IOB1))
    labels = tag_spans.labels(word_files.types(found, "iob1"), "iobes")
    ids = word_files.encode_tags(found, "iob1", labels)
    assert [labels[i] for i in ids] == IOBES


def test_plain_tags_may_look_like_others(read):
    found = read("a B-X\nb O\nc I-X\n")
    labels = tag_spans.labels(word_files.types(found, "plain"), "plain")
    assert labels == ["B-X", "I-X", "O"]
    assert word_files.encode_tags(found, "plain", labels).tolist() == [0, 2, 1]


def test_lines_may_end_in_a_tab_where_the_tag_is_elsewhere(read):
    text = "-DOCSTART-\n\na\tx\tB-X\t\nb\tx\tO\t\n"
    assert read(text, tag_column=2).tags == ["B-X", "O"]
    assert read(text, tag_column=None).tags is None


def test_the_real_files_have_their_known_sizes(shared_data):
    for name, sizes in {
        "train": (203_621, 14_041, 946),
        "testa": (51_362, 3_250, 216),
        "testb": (46_435, 3_453, 231),
    }.items():
        found = word_files.read_columns(
            str(shared_data / f"conll2003/eng.{name}")
        )
        documents = len(found.documents) - 1
        assert (len(found.words), len(found), documents) == sizes
        assert word_files.scheme(found) == "iob1"


def test_comments_with_tabs_are_no_words(read):
    """As in GermEval 2014 and in MultiCoNER."""
    found = read(
        "#\thttp://de.wikipedia.org [2009]\n1\tAachen\tB\tO\n2\t#\tO\tO\n\n"
        "#\thttp://x\n#\tx\tI\tO\n",
        word_column=1,
        tag_column=2,
    )
    assert list(found.words) == ["Aachen", "#", "x"]
    assert found.row_splits.tolist() == [0, 2, 3]
    found = read("# id 7\tdomain=en\nin _ _ O\n# _ _ O\n\n# id 8\tx\na _ _ O\n")
    assert list(found.words) == ["in", "#", "a"]
    assert found.separator == " "


@pytest.mark.parametrize("separator", [" ", "\t"])
def test_comments_need_no_space_and_hashtags_are_words(read, separator):
    """As in CoNLL-2012 and in Universal Dependencies."""
    rows = ["#x _ O", "#begin document (a/b); part 000", "#text = a b"]
    rows += ["a _ B-X", "#text = c # d", "# _ O", "#", "#end document"]
    text = "\n".join(
        row.replace(" ", separator) if row.count(" ") == 2 else row
        for row in rows
    )
    found = read(text)
    assert list(found.words) == ["#x", "a", "#"]
    assert found.tags == ["O", "B-X", "O"]


@pytest.mark.parametrize("separator", ["\t", " "])
def test_ranges_and_empty_nodes_of_conll_u_are_no_words(
    read, separator, caplog
):
    def line(place, word, tag):
        middle = ["x"] * 7
        return separator.join([place, word, *middle, tag]) + "\n"

    text = "# text = Vamos al mar\n" + line("1", "Vamos", "O")
    text += line("2-3", "al", "_") + line("2", "a", "O") + line("3", "el", "O")
    text += line("3.1", "e", "_") + line("4", "mar", "B-LOC")
    for column in (1, -9):
        found = read(text, word_column=column)
        assert found.words == ["Vamos", "a", "el", "mar"]
        assert found.tags == ["O", "O", "O", "B-LOC"]
        assert found.lines.tolist() == [2, 4, 5, 7]
    (said,) = caplog.messages
    assert ":3: 2 line" in said
    numbers = line("3-4", "Vamos", "O") + line("a", "b", "O")
    assert read(numbers).words == ["3-4", "a"]


def test_a_pipe_is_refused():
    """The first reading would find the columns, the second no words."""
    reader, writer = os.pipe()
    with open(writer, "wb") as file:
        file.write(b"a O\n")
    with pytest.raises(errors.InputError, match="not a regular file"):
        word_files.read_column_blocks(f"/dev/fd/{reader}")
    os.close(reader)


def test_spaces_around_tags_of_tab_files_are_no_part_of_them(read):
    found = read("a\tB-X \nb\t O\n")
    assert found.tags == ["B-X", "O"]
    assert word_files.scheme(found) == "bio2"


def test_marks_of_joined_files_are_no_part_of_words(read):
    found = read(
        "-DOCSTART- O\n\na O\n\n\ufeff-DOCSTART- O\n\nb O\n\n\ufeffc O\n"
    )
    assert list(found.words) == ["a", "b", "c"]
    assert found.documents.tolist() == [0, 1, 3]


WARNED = {
    "other_opening": ("-docstart- O\n\na O\n", ":1: '-docstart-' is read as"),
    "language": ("-DOCSTART-EN O\n\na O\n", ":1: '-DOCSTART-EN' is read as"),
    "header": ("Token\tNER\na\tO\n", ":1: a header[?]"),
    "commas": ("Jim,B-PER\nsings,O\n", ":1: one column, 'Jim,B-PER'"),
    "nbsp": ("Jim\u00a0B-PER\nsings\u00a0O\n", ":1: one column, 'Jim"),
    "long": ("a O\n" * 1001, ": a sentence has 1001 words: are the empty"),
    "number": ("1,000\n", None),
    "sentence": ("The tag\nis O\n", None),
}


@pytest.mark.parametrize("name", WARNED)
def test_what_almost_certainly_is_a_mistake_is_warned_about(read, caplog, name):
    text, message = WARNED[name]
    read(text)
    if message is None:
        assert not caplog.messages
    else:
        assert len(caplog.messages) == 1
        assert re.search(message, caplog.messages[0])


def test_a_file_may_have_no_other_words_than_hashes(read):
    found = read("#\tO\n#a\tB-X\n")
    assert list(found.words) == ["#", "#a"]
    assert found.tags == ["O", "B-X"]


def zst(data):
    return pyarrow.Codec("zstd").compress(data, asbytes=True)


def write_rows(path, rows, compress=lambda data: data):
    text = "".join(json.dumps(row) + "\n" for row in rows)
    path.write_bytes(compress(text.encode()))
    return str(path)


def write_parquet(path, rows, names=None, *, is_older=False):
    table = pyarrow.Table.from_pylist(rows)
    if names:
        items = {"names": names, "_type": "ClassLabel"}
        kind = [items] if is_older else {"feature": items}
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


def read_table(path, **changes):
    fields = word_files.Fields(**{**vars(FIELDS), **changes})
    (found,) = word_files.read_table_blocks(path, fields)
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
    check(read_table(write_rows(path, ROWS, compress)))
    check(read_table(write_rows(path, NUMBERED, compress), tag_names=NAMES))
    digits = [
        row | {"ner_tags": list(map(str, row["ner_tags"]))} for row in NUMBERED
    ]
    check(read_table(write_rows(path, digits, compress), tag_names=NAMES))
    with pytest.raises(errors.InputError, match=":1: .* has 'B-PER', no integ"):
        read_table(write_rows(path, ROWS, compress), tag_names=NAMES)


def test_parquet_may_name_its_integers(tmp_path, caplog):
    path = tmp_path / "a.parquet"
    check(read_table(write_parquet(path, ROWS)))
    check(read_table(write_parquet(path, NUMBERED, NAMES)))
    check(read_table(write_parquet(path, NUMBERED, NAMES, is_older=True)))
    check(read_table(write_parquet(path, NUMBERED), tag_names=NAMES))
    write_parquet(path, NUMBERED, NAMES[::-1])
    assert not caplog.text
    with caplog.at_level("WARNING", logger="absl"):
        check(read_table(str(path), tag_names=NAMES))
    names = ", ".join(NAMES[::-1])
    assert f"a.parquet: its metadata names the tags {names}, b" in caplog.text


def test_names_are_a_list_or_a_file(tmp_path):
    assert word_files.read_tag_names("O, B-PER") == ["O", "B-PER"]
    (tmp_path / "names.txt").write_text("O\nB-PER\n")
    names = word_files.read_tag_names(str(tmp_path / "names.txt"))
    assert names == ["O", "B-PER"]
    for bad in ("O,,B-PER", "O,O"):
        with pytest.raises(errors.InputError, match="empty or occurs twice"):
            word_files.read_tag_names(bad)


def test_a_row_of_docstart_begins_a_document(tmp_path):
    opening = {"tokens": ["-DOCSTART-"], "ner_tags": ["O"]}
    rows = [opening, *ROWS, opening, ROWS[0]]
    path = write_rows(tmp_path / "a.jsonl", rows)
    found = read_table(path)
    assert found.documents.tolist() == [0, 2, 3]
    assert found.lines.tolist() == [2, 2, 3, 3, 3, 5, 5]
    blocks = list(word_files.read_table_blocks(path, FIELDS, block_sentences=1))
    assert [len(block) for block in blocks] == [2, 1]
    with pytest.raises(errors.InputError, match=":3: begins a document, but"):
        read_table(write_rows(tmp_path / "a.jsonl", [*ROWS, opening]))


def test_rows_without_tokens_are_left_out_with_a_warning(tmp_path, caplog):
    empty = {"tokens": [], "ner_tags": []}
    found = read_table(
        write_rows(tmp_path / "a.jsonl", [ROWS[0], empty, ROWS[1]])
    )
    assert found.row_splits.tolist() == [0, 2, 5]
    assert "1 row(s) without tokens are left out" in caplog.text


def test_a_test_set_may_lack_tags(tmp_path, caplog):
    rows = [{"tokens": row["tokens"]} for row in ROWS]
    path = write_rows(tmp_path / "a.jsonl", rows)
    assert read_table(path, is_optional=True).tags is None
    assert "no field 'ner_tags', so no tags, only 'tokens'" in caplog.text
    caplog.clear()
    assert read_table(path, tags=None, is_optional=True).tags is None
    assert not caplog.text  # No tags are read, so none are missed.
    with pytest.raises(errors.InputError, match="no column 'ner_tags', only"):
        read_table(path)


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
    path = write_rows(tmp_path / "a.jsonl", [ROWS[0], ROWS[0] | change])
    with pytest.raises(errors.InputError, match=message) as caught:
        read_table(path)
    assert str(caught.value).startswith(f"{path}:2: ")


def test_an_integer_without_a_name_is_refused(tmp_path):
    path = write_rows(tmp_path / "a.jsonl", NUMBERED)
    with pytest.raises(errors.InputError, match=":2: .* integer 3, but there"):
        read_table(path, tag_names=NAMES[:3])


def test_sets_are_found_and_are_those_of_columns(tmp_path):
    """One folder has all formats; the test set is two files."""
    write_rows(tmp_path / "train.jsonl", ROWS)
    write_parquet(tmp_path / "validation.parquet", NUMBERED, NAMES)
    write_rows(tmp_path / "test0.jsonl.gz", ROWS, gzip.compress)
    write_rows(tmp_path / "test1.jsonl", ROWS)
    data = ner_data.open_data(
        settings.Files(
            data_dir=str(tmp_path), test_file=str(tmp_path / "test?.jsonl*")
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
    write_rows(tmp_path / "test1.jsonl", [{"tokens": ["a"]}])
    with pytest.raises(errors.InputError, match="unlike the file before"):
        _ = ner_data.NerData(
            files=data.files, labels=data.labels, scheme=data.scheme
        ).test


@pytest.mark.parametrize(
    ("words", "is_warned"),
    [
        ("[CLS] wash ##ing ##ton is big [SEP]", True),
        ("we like ## and # and #win", False),
        ("one ##ing only", False),
    ],
)
def test_tokens_of_another_tokenizer_are_warned_of(
    read, caplog, words, is_warned
):
    read("".join(f"{word} O\n" for word in words.split()))
    assert (":3: '##ing' is read as a word" in caplog.text) == is_warned
