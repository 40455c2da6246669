"""Proves that columns that are no words or no tags are noticed.

python -m pytest tests/tasks/ner/column_checks_test.py
"""

import re

import pytest

from foundation import errors
from tasks.ner import word_files

WORDS = "Jim Henson sang in Rome with Kermit , Gonzo and Rolf .".split()
POS = "NNP NNP VBD IN NNP IN NNP , NNP CC NNP .".split()
CHUNKS = "I-NP I-NP I-VP I-PP I-NP I-PP I-NP O I-NP I-NP I-NP O".split()
NER = "B-PER I-PER O O B-LOC O B-PER O B-PER O B-PER O".split()
SENTENCE = [WORDS, POS, CHUNKS, NER]


def lines(*columns, separator=" "):
    """Returns a sentence."""
    rows = zip(*columns, strict=True)
    return "".join(separator.join(map(str, row)) + "\n" for row in rows)


def numbers(first=1):
    return range(first, first + len(WORDS))


@pytest.fixture
def read(tmp_path, caplog):
    """Reads a text; returns the warnings."""

    def call(text, **options):
        path = tmp_path / "words.txt"
        path.write_text(text)
        with caplog.at_level("WARNING"):
            word_files.read_columns(str(path), **options)
        assert all(str(path) in message for message in caplog.messages)
        assert not any("\n" in message for message in caplog.messages)
        return caplog.messages

    return call


REFUSED = {
    "from_1": (lines(numbers(), WORDS, NER), 1, "--word_column=1"),
    "from_0": (lines(numbers(0), *SENTENCE), 1, "--word_column=1"),
    "sentences": (
        lines(numbers(), *SENTENCE) + "\n" + lines(numbers(), *SENTENCE),
        1,
        "--word_column=1.*'Jim'",
    ),
    "of_the_file": (
        lines(numbers(), POS, WORDS, NER)
        + "\n"
        + lines(numbers(13), POS, WORDS, NER),
        1,
        "--word_column=2.*'Jim'",
    ),
    "tags_first": (lines(NER, WORDS), 1, "'B-PER' is a tag.*--word_column=0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_certainly_is_no_word_is_refused(read, name):
    text, line, message = REFUSED[name]
    with pytest.raises(errors.InputError, match=f":{line}: .*{message}"):
        read(text)


WARNED = {
    "ranges": (
        lines(["1-2", *numbers()][:12], *SENTENCE),
        {},
        ":1: .*'1-2'.*--word_column=1",
    ),
    "constant": (
        lines(["news"] * 12, WORDS, NER),
        {},
        ":1: .*'news'.*--word_column=1",
    ),
    "exchanged": (
        lines(["NN", "VB"] * 12, [f"word{i}" for i in range(24)]),
        {},
        ":1: .*'word0'.*'NN'.*--tag_column=1",
    ),
    "parts_of_speech_last": (
        lines(WORDS, NER, CHUNKS, POS),
        {},
        ":1: .*'NNP'.*'B-PER'.*--tag_column=1",
    ),
    "chunks_last": (
        lines(WORDS, POS, NER, CHUNKS),
        {},
        ":1: .*'I-NP'.*'B-PER'.*--tag_column=2",
    ),
    "inner_entities_last": (
        lines(WORDS, NER, ["O"] * 8 + ["B-PER"] + ["O"] * 3),
        {},
        ":1: .*column 2 has the tag 'O', but column 1 'B-PER'.*--tag_column=1",
    ),
    "spaces": (
        lines(["a", "b"], ["O", "B- PER"], separator="\t"),
        {},
        ":2: .*'B- PER'.*--tag_column=1",
    ),
    "comment": (
        "# newdoc\n" + lines(WORDS, NER),
        {},
        ":1: a comment[?].*'# newdoc'",
    ),
    "one_word": (
        "".join(f"{x} O\n\n" for x in WORDS * 2),
        {},
        ":3: .*'Henson'",
    ),
    "other_space": ("Jim\u3000B-PER\n", {}, ":1: one column"),
    "letters_for_a_tab": ("Jim\\tB-PER\n", {}, ":1: one column"),
    "other_opening": ("<DOC-START> O\n\na O\n", {}, ":1: .*-DOCSTART-"),
}
RIGHT = {
    "conll_2003": (lines(*SENTENCE), {}),
    "parts_of_speech_are_wanted": (lines(*SENTENCE), {"tag_column": 1}),
    "chunks_are_wanted": (lines(*SENTENCE), {"tag_column": 2}),
    "numbers_beside": (lines(numbers(), *SENTENCE), {"word_column": 1}),
    "numbers_last": (lines(*SENTENCE, numbers()), {"tag_column": 3}),
    "words_alone": (lines(WORDS), {}),
    "other_annotator": (lines(WORDS, NER, NER[:-2] + ["O", "O"]), {}),
    "numbers_alone": (lines(numbers()), {}),
    "pound": ("# #\n" + lines(WORDS, POS), {}),
    "hashtag": ("#x HT\n" + lines(WORDS, POS), {}),
    "hash_of_a_name": ("# B-ORG\n" + lines(WORDS, NER), {}),
    "figures": (lines(["3", "4", "5", "7"] * 3, NER) + lines(WORDS, NER), {}),
}


@pytest.mark.parametrize("name", WARNED)
def test_what_may_be_no_word_or_no_tag_is_warned_of_once(read, name):
    text, options, message = WARNED[name]
    read(text, **options)
    (said,) = read(text, **options)
    assert re.search(message, said)


@pytest.mark.parametrize("name", RIGHT)
def test_files_that_are_right_are_read_in_silence(read, name):
    text, options = RIGHT[name]
    assert not read(text, **options)
