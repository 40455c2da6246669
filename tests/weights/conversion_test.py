"""Proves that new words start as the mean of their tokens, and are found.

python -m pytest tests/weights/conversion_test.py
"""

import dataclasses
import pathlib

import numpy as np
import pytest

from data.tokenization import vocabulary, wordpiece
from foundation import errors
from weights import checkpoint_sources, conversion

PRETRAINED = pathlib.Path(__file__).parent.parent / "testdata/tiny_pretrained"
WORDS = "bert/embeddings/word_embeddings"
BIAS = "cls/predictions/output_bias"
POSITIONS = "bert/embeddings/position_embeddings"


@pytest.fixture
def checkpoint():
    """The pre-trained model, with two [unusedN] in its vocabulary."""
    loaded = conversion.load(checkpoint_sources.read(str(PRETRAINED)))
    tokens = list(loaded.tokenizer.vocabulary.tokens)
    tokens[tokens.index("apple")] = "[unused3]"
    tokens[tokens.index("river")] = "[unused7]"
    words = vocabulary.Vocabulary.from_tokens(tokens)
    return dataclasses.replace(
        loaded, tokenizer=wordpiece.Tokenizer(words, do_lower_case=True)
    )


def _add(checkpoint, words, position="unused"):
    return conversion.add_words(checkpoint, words, "w.txt", position)


def test_words_take_the_unused_positions_first_then_the_end(checkpoint):
    old = checkpoint.tokenizer.vocabulary
    new = _add(checkpoint, ["sees", "wakes", "slowly"])
    tokens = new.tokenizer.vocabulary.tokens
    assert tokens[old.ids["[unused3]"]] == "sees"
    assert tokens[old.ids["[unused7]"]] == "wakes"
    assert tokens[len(old) :] == ("slowly",)
    assert new.config.vocab_size == len(tokens) == len(new.values[WORDS])
    assert new.tokenizer.tokenize(["slowly wakes"]) == [["slowly", "wakes"]]


@pytest.mark.parametrize("position", ["unused", "end"])
def test_a_word_starts_as_the_mean_of_its_tokens(position, checkpoint):
    ids = checkpoint.tokenizer.vocabulary.ids
    new = _add(checkpoint, ["slowly"], position)
    row = new.tokenizer.vocabulary.ids["slowly"]
    assert (row == len(ids)) == (position == "end")
    for path in (WORDS, BIAS):
        table = checkpoint.values[path]
        mean = (table[ids["slow"]] + table[ids["##ly"]]) / 2
        np.testing.assert_allclose(new.values[path][row], mean, rtol=1e-6)
        rest = np.delete(
            np.arange(len(ids)), row if position == "unused" else []
        )
        np.testing.assert_array_equal(new.values[path][rest], table[rest])


def test_known_words_and_empty_lines_are_left_out(checkpoint):
    same = _add(checkpoint, ["the", "", " dog "])
    assert same is checkpoint
    new = _add(checkpoint, ["the", "slowly", "slowly", ""], "end")
    assert len(new.tokenizer.vocabulary) == checkpoint.config.vocab_size + 1


def test_positions_are_stretched_between_their_ends(checkpoint):
    table = checkpoint.values[POSITIONS]
    longer = conversion.extend_positions(checkpoint, 95)
    stretched = longer.values[POSITIONS]
    assert stretched.shape == (95, 16) and stretched.dtype == np.float32
    assert longer.config.max_position_embeddings == 95
    # 2 * 48 - 1: every other row is an old one, the rest lie halfway.
    np.testing.assert_allclose(stretched[::2], table, atol=1e-6)
    np.testing.assert_allclose(
        stretched[1::2], (table[1:] + table[:-1]) / 2, atol=1e-6
    )
    with pytest.raises(errors.InputError, match="only become more"):
        conversion.extend_positions(checkpoint, 40)
