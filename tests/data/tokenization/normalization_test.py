"""Proves that words are google-research/bert's, on every code point.

python -m pytest tests/data/tokenization/normalization_test.py
"""

import hashlib
import importlib.util
import unicodedata

import pytest

from data.tokenization import normalization

# Of google-research/bert's BasicTokenizer under Python 3.11: the words of
# "ab" + c + "cd" for every code point c, joined by spaces, a line each.
RELEASED_WORDS = {
    True: "fc88c5c8ca6f68496c04b399083fbd23b57bb60a1dc5fa5c12fb18f4f4483118",
    False: "8b9bed68c6b37dbfb249d7db7780550da41a639f51bbac673df64ea8e1904bab",
}


@pytest.mark.parametrize(
    "do_lower_case", [True, pytest.param(False, marks=pytest.mark.all)]
)
def test_words_are_the_released_ones_on_every_code_point(do_lower_case):
    words = normalization.Normalization(do_lower_case=do_lower_case).words
    digest = hashlib.sha256()
    for code_point in range(normalization.CODE_POINTS):
        if not 0xD800 <= code_point <= 0xDFFF:
            line = " ".join(words("ab" + chr(code_point) + "cd"))
            digest.update(line.encode() + b"\n")
    assert digest.hexdigest() == RELEASED_WORDS[do_lower_case]


@pytest.mark.all
def test_the_committed_table_is_what_its_script_writes(repository, tmp_path):
    if unicodedata.unidata_version != "14.0.0":
        pytest.skip("only a Python with Unicode 14.0 can make the table")
    spec = importlib.util.spec_from_file_location(
        "make_unicode_table",
        repository / "tests/testdata/make_unicode_table.py",
    )
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    script.main(str(tmp_path / "table.json"))
    made = (tmp_path / "table.json").read_bytes()
    committed = repository / "data/tokenization/unicode_14_0.json"
    assert made == committed.read_bytes()


def test_characters_newer_than_unicode_14_are_letters_on_every_python():
    # U+1B4E became punctuation in 16.0, U+11F43 in 15.0.
    words = normalization.Normalization().words("a\u1b4eb c\U00011f43d")
    assert words == ["a\u1b4eb", "c\U00011f43d"]


def test_the_last_sigma_of_a_word_is_final():
    words = normalization.Normalization().words
    assert words("\u039f\u0394\u039f\u03a3") == ["\u03bf\u03b4\u03bf\u03c2"]
    assert words("\u03a3") == ["\u03c3"]
    assert words("A\u03a3.A") == ["a\u03c3", ".", "a"]
    assert words("A\u03a3. A") == ["a\u03c2", ".", "a"]
    assert words("A\u03a3\u200b") == ["a\u03c2"]
    assert words("A\u03a3\u4e2dA") == ["a\u03c2", "\u4e2d", "a"]


def test_surviving_marks_are_put_in_canonical_order():
    words = normalization.Normalization().words
    # U+16FF0 is of class 6, U+302E of class 224, and neither is an accent.
    assert words("a\u302e\U00016ff0") == ["a\U00016ff0\u302e"]
    # U+0E31 is an accent of class 0: it is stripped, but keeps them apart.
    assert words("a\u302e\u0e31\U00016ff0") == ["a\u302e\U00016ff0"]


def test_the_switches_are_independent():
    def words(text, **switches):
        return normalization.Normalization(**switches).words(text)

    assert words("\u00c9A") == ["ea"]
    assert words("\u00c9A", strip_accents=False) == ["\u00e9a"]
    assert words("\u00c9A", do_lower_case=False) == ["\u00c9A"]
    assert words("\u00c9A", do_lower_case=False, strip_accents=True) == ["EA"]
    assert words("a\u4e2db") == ["a", "\u4e2d", "b"]
    assert words("a\u4e2db", tokenize_chinese_chars=False) == ["a\u4e2db"]
