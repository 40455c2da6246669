"""Proves that files of tagged words are read as meant, or refused.

python -m pytest tests/tasks/ner/word_files_test.py
"""

import gzip
import json

import pyarrow
import pytest
from pyarrow import parquet

from foundation import errors
from tasks.ner import word_files
from tasks.ner.word_files import Columns

NAMES = ["O", "B-PER", "I-PER", "B-LOC"]
ROWS = [
    {"tokens": ["Jim", "Henson"], "ner_tags": ["B-PER", "I-PER"]},
    {"tokens": ["in", "New York", "."], "ner_tags": ["O", "B-LOC", "O"]},
]
NUMBERED = [
    row | {"ner_tags": [NAMES.index(tag) for tag in row["ner_tags"]]}
    for row in ROWS
]


@pytest.fixture
def read(tmp_path):
    def read_text(text, *columns, name="words.txt"):
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return list(word_files.read(str(path), Columns(*columns)))

    return read_text


def words_of(sentences):
    return [list(sentence.sentences[0]) for sentence in sentences]


def tags_of(sentences):
    return [list(sentence.tags[0]) for sentence in sentences]


def test_documents_sentences_and_lines(read):
    found = read(
        "-DOCSTART- -X- O O\n\n\nEU NNP I-NP I-ORG\nsays VBZ I-VP O\n \n"
        "Yes UH O O\n-DOCSTART- O\n\nNo UH O O\n\n\t\n"
    )
    assert words_of(found) == [["EU", "says"], ["Yes"], ["No"]]
    assert tags_of(found) == [["I-ORG", "O"], ["O"], ["O"]]
    lines = [sentence.where.rpartition(":")[2] for sentence in found]
    assert lines == ["4", "7", "10"]
    assert [sentence.opens for sentence in found] == [True, False, True]


@pytest.mark.parametrize("separator", [" ", "\t"])
def test_what_is_written_is_read_again(read, separator):
    text = "-DOCSTART- O\n\na O\nb B-X\n\nc O\n\n-DOCSTART- O\n\nd O"
    found = read(text.replace(" ", separator))
    written = "".join(
        word_files.lines(
            (x.sentences[0], x.tags[0], x.tags[0]), x.separator, opens=x.opens
        )
        for x in found
    )
    assert written.replace(separator, " ").startswith(
        "-DOCSTART- O O\n\na O O\nb B-X B-X\n\nc O O\n\n-DOCSTART- O O\n\n"
    )
    assert [x[1:] for x in read(written)] == [x[1:] for x in found]


def test_windows_line_ends_marks_and_unicode_spaces(read):
    (found,) = read("\ufeffNew\u00a0York B-LOC\r\n\u2028 O\r\n\x85x O\r\n")
    assert list(found.sentences[0]) == ["New\u00a0York", "\u2028", "\x85x"]
    assert list(found.tags[0]) == ["B-LOC", "O", "O"]
    joined = "-DOCSTART- O\n\na O\n\n\ufeff-DOCSTART- O\n\nb O\n\n\ufeffc O\n"
    assert words_of(read(joined)) == [["a"], ["b"], ["c"]]


def test_tabs_comments_and_chosen_columns(read):
    """Also comments with tabs, as in GermEval 2014."""
    text = "#\tsource\n1\tNew York\tB-LOC \t-\n2\t#\t O\t-\n\n#x\n"
    (found,) = read(text, "1", "2")
    assert list(found.sentences[0]) == ["New York", "#"]
    assert list(found.tags[0]) == ["B-LOC", "O"]
    (found,) = read(text, "1", "none")
    assert found.tags is None
    (found,) = read("#a\tB-X\n#\nb\tO\n")  # A hashtag, and a comment.
    assert list(found.sentences[0]) == ["#a", "b"]


def test_documents_of_tab_files_may_be_separated_by_spaces(read):
    """As in AIDA; its first line says nothing of the columns."""
    found = read("-DOCSTART- (1 EU)\nEU\tB\n\n-DOCSTART- (2 Rare)\tO\nx\tI\n")
    assert words_of(found) == [["EU"], ["x"]]
    assert all(sentence.opens for sentence in found)
    assert words_of(read("-DOCSTART-s O\n")) == [["-DOCSTART-s"]]


def test_a_file_of_words_has_no_tags(read):
    (found,) = read("Jim\nsings\n")
    assert found.tags is None and len(found.sentences[0]) == 2


BAD = {
    "columns": (("a X O\nb O\n",), ":2: 2 column.*raw text .*--text_file"),
    "comments": (("#a\n#b\n",), "words.txt: has no words"),
    "encoding": (("a O\n\xe9 O\n".encode("latin-1"),), ":2: not UTF-8 text"),
    "no_column": (("\na O\n", None, "2"), "--tag_column=2: .* 2 column"),
    "no_number": (("a O\n", "word"), "--word_column=word: "),
    "tab_at_the_end": (("a\tB-X\nb\t\n",), ":2: a tag is empty"),
    "blank_word": (("a\tO\n \tO\n",), ":2: a word is empty"),
    "no_integer": (
        ("a O\n", None, None, ["O", "X"]),
        "a tag is 'O', but --tag",
    ),
    "no_name": (("a 2\n", None, None, ["O", "X"]), "a tag is '2', .* 0 to 1"),
}


@pytest.mark.parametrize("arguments, message", BAD.values(), ids=BAD)
def test_bad_files_get_one_line(read, arguments, message):
    with pytest.raises(errors.InputError, match=message) as caught:
        read(*arguments)
    assert "\n" not in str(caught.value)


def test_tags_in_digits_may_have_names(read):
    text = "-DOCSTART- 0\n\njim 1\nli 2\n\nx 0\n"
    named = read(text, None, None, NAMES)
    assert tags_of(named) == [["B-PER", "I-PER"], ["O"]]
    assert tags_of(read(text)) == [["1", "2"], ["0"]]


def write_parquet(path, rows, *, is_older=False):
    """As Hugging Face's datasets write it, with the names of integers."""
    items = {"names": NAMES, "_type": "ClassLabel"}
    kind = [items] if is_older else {"feature": items}
    info = {"info": {"features": {"ner_tags": kind}}}
    table = pyarrow.Table.from_pylist(rows).replace_schema_metadata(
        {"huggingface": json.dumps(info)}
    )
    parquet.write_table(table, path)


def check_rows(found):
    assert words_of(found) == [row["tokens"] for row in ROWS]
    assert tags_of(found) == [row["ner_tags"] for row in ROWS]
    assert {sentence.separator for sentence in found} == {"\t"}


@pytest.mark.parametrize("is_older", [False, True])
def test_rows_of_tables_are_sentences(read, tmp_path, is_older):
    text = "".join(f"{json.dumps(row)}\n" for row in ROWS)
    check_rows(read(text, name="rows.jsonl"))
    check_rows(read(json.dumps(ROWS), name="rows.json"))
    check_rows(read(gzip.compress(text.encode()), name="rows.jsonl.gz"))
    text = "".join(f"{json.dumps(row)}\n" for row in NUMBERED)
    check_rows(read(text, None, None, NAMES, name="rows.jsonl"))
    path = tmp_path / "rows.parquet"
    write_parquet(path, NUMBERED, is_older=is_older)
    check_rows(list(word_files.read(str(path))))


def test_columns_of_tables_have_other_names_or_none(read):
    rows = [
        {"words": ["-DOCSTART-"], "ner": ["O"]},
        {"words": ["a", "b"], "ner": ["O", "X"]},
        {"words": [], "ner": []},
    ]
    text = json.dumps(rows)
    (found,) = read(text, "words", "ner", name="rows.json")
    assert (found.sentences[0], found.tags[0], found.opens) == (
        ("a", "b"),
        ("O", "X"),
        True,
    )
    assert read(text, "words", name="rows.json")[0].tags is None
    assert read(text, "words", "none", name="rows.json")[0].tags is None
    with pytest.raises(errors.InputError, match=":1.*--word_column"):
        read(text, name="rows.json")
    with pytest.raises(errors.InputError, match=":1.*--tag_column"):
        read(text, "words", "tags", name="rows.json")


@pytest.mark.parametrize(
    "row, message",
    [
        ({"tokens": ["a", "b"], "ner_tags": ["O"]}, "2 words, but 1 tags"),
        ({"tokens": ["a", " "], "ner_tags": ["O", "O"]}, "'tokens' is empty"),
        ({"tokens": ["a\tb"], "ner_tags": ["O"]}, "'tokens' .* has a tab"),
        ({"tokens": ["a"], "ner_tags": [{}]}, "'ner_tags'"),
    ],
)
def test_bad_rows_are_named(read, row, message):
    with pytest.raises(errors.InputError, match=f"rows.jsonl:1: .*{message}"):
        read(json.dumps(row) + "\n", name="rows.jsonl")


@pytest.mark.parametrize("flag", ["O,,X", "O,X,O"])
def test_names_of_tags_are_complete_and_different(flag, tmp_path):
    assert word_files.read_tag_names("O, X") == ["O", "X"]
    (tmp_path / "names").write_text("O\nX\n")
    assert word_files.read_tag_names(str(tmp_path / "names")) == ["O", "X"]
    with pytest.raises(errors.InputError, match="--tag_names"):
        word_files.read_tag_names(flag)
