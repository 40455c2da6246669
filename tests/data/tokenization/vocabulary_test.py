"""Proves that a vocab.txt is read line for line as google-research/bert does.

python -m pytest tests/data/tokenization/vocabulary_test.py
"""

import hashlib
import random

import pytest

from data.tokenization import vocabulary, wordpiece_learner
from foundation import errors

SPECIAL = list(vocabulary.SPECIAL_TOKENS)


def write(path, lines):
    path.write_bytes("\n".join(lines).encode())
    return str(path)


def test_ids_are_line_numbers_and_a_later_duplicate_wins(tmp_path):
    lines = [*SPECIAL, "a ", "", "b", "a", "\u2028", "c\r", "\ufeffd"]
    path = write(tmp_path / "vocab.txt", lines)
    found = vocabulary.Vocabulary.from_file(path)
    assert len(found) == 12
    assert found.tokens[5:] == ("a", "", "b", "a", "", "c", "\ufeffd")
    assert [found.ids[t] for t in ("a", "", "b", "c")] == [8, 9, 7, 10]
    # A masked token is replaced by one of the different tokens, in the order
    # in which they first appear.
    assert found.replacement_ids.tolist() == [0, 1, 2, 3, 4, 8, 9, 7, 10, 11]
    assert found.replacement_ids.dtype == "int32"


def test_special_ids_and_continuations():
    found = vocabulary.Vocabulary.from_tokens([*SPECIAL, "##a", "a#"])
    special = (
        found.pad_id, found.unk_id, found.cls_id, found.sep_id, found.mask_id
    )  # fmt: skip
    assert special == (0, 1, 2, 3, 4)
    assert found.is_continuation.tolist() == [False] * 5 + [True, False]


@pytest.mark.parametrize("missing", SPECIAL)
def test_a_missing_special_token_is_named_with_its_file(tmp_path, missing):
    lines = [token for token in SPECIAL if token != missing]
    path = write(tmp_path / "vocab.txt", lines)
    with pytest.raises(errors.InputError) as error:
        vocabulary.Vocabulary.from_file(path)
    assert path in str(error.value) and missing in str(error.value)


def test_unreadable_files_are_named(tmp_path):
    for content, word in [
        (b"", "empty"),
        (b"a\n\xff\xfeb\n", ":2: not UTF-8 text"),
    ]:
        (tmp_path / "vocab.txt").write_bytes(content)
        with pytest.raises(errors.InputError, match=word):
            vocabulary.Vocabulary.from_file(str(tmp_path / "vocab.txt"))
    with pytest.raises(errors.InputError, match="no such file"):
        vocabulary.Vocabulary.from_file(str(tmp_path))


def test_the_hash_is_of_the_canonical_lines(tmp_path):
    path = write(tmp_path / "vocab.txt", [*SPECIAL, "a\r"])
    expected = hashlib.sha256("\n".join([*SPECIAL, "a", ""]).encode())
    found = vocabulary.Vocabulary.from_file(path)
    assert found.sha256 == expected.hexdigest()
    found.to_file(str(tmp_path / "new" / "vocab.txt"))
    copy = vocabulary.Vocabulary.from_file(str(tmp_path / "new" / "vocab.txt"))
    assert copy.sha256 == found.sha256
    assert len(list((tmp_path / "new").iterdir())) == 1


def test_reserved_tokens_stand_where_the_released_ones_do():
    tokens = vocabulary.reserved_tokens(30522)
    assert len(tokens) == 999
    assert tokens[0] == "[PAD]" and tokens[1] == "[unused0]"
    assert tokens[99:105] == [
        "[unused98]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused99]"
    ]  # fmt: skip
    assert tokens[998] == "[unused993]"
    assert vocabulary.reserved_tokens(2000) == tokens[:104]
    assert len(vocabulary.reserved_tokens(2000, num_unused=150)) == 155
    with pytest.raises(errors.InputError, match="--num_unused=98"):
        vocabulary.reserved_tokens(2000, num_unused=98)


LATIN = "aeioubcdfgklmnprstvw"
NAMES = ["Anfield", "Kop", "Mersey", "LFC", "Salah", "##Goal"]


def learn(size, *, is_cased, letters=LATIN, common=()):
    """Learns a vocabulary of made-up words; the rarer, the longer.

    A quarter of the words of cased text begin with a capital.
    """
    rng = random.Random(size)
    counts = {char: 50 for char in common}
    for rank in range(1, size + size // 2):
        word = "".join(rng.choices(letters, k=rng.randint(2, 4 + rank // 2000)))
        if is_cased and rng.random() < 0.25:
            word = word.capitalize()
        counts[word] = counts.get(word, 0) + 4 * size // rank + 2
    chars = wordpiece_learner.alphabet(counts, 0.99995)
    reserved = vocabulary.reserved_tokens(size)
    tokens = wordpiece_learner.learn(
        counts, size, chars, num_reserved=len(reserved)
    )
    return vocabulary.Vocabulary.from_tokens(reserved + tokens)


def with_words(words, added):
    """Puts words in the places of [unused1], [unused2], ..."""
    tokens = list(words.tokens)
    for i, word in enumerate(added, start=1):
        assert tokens[1 + i] == f"[unused{i}]"
        tokens[1 + i] = word
    return vocabulary.Vocabulary.from_tokens(tokens)


@pytest.mark.parametrize("size", [1000])
@pytest.mark.parametrize("is_cased", [True, False])
def test_learned_vocabularies_show_their_case(size, is_cased):
    words = learn(size, is_cased=is_cased)
    assert words.is_cased == is_cased
    many = [f"{name}{i}" for i in range(16) for name in NAMES]
    for added in (NAMES[:1], NAMES, many):
        assert with_words(words, added).is_cased == is_cased
