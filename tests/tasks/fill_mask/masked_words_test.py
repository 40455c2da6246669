"""Proves that masks in raw text stay masks and are ranked one by one.

python -m pytest tests/tasks/fill_mask/masked_words_test.py
"""

import types

import numpy as np
import pytest

from data.tokenization import vocabulary, wordpiece
from foundation import errors
from tasks.fill_mask import masked_words

TOKENS = "[PAD] [UNK] [CLS] [SEP] [MASK] the cat sat ##s on mat .".split()


@pytest.fixture(scope="module")
def tokenizer():
    return wordpiece.Tokenizer(vocabulary.Vocabulary.from_tokens(TOKENS))


def _tokens(tokenizer, text, max_length=32):
    filler = masked_words.MaskFiller(None, tokenizer, max_length=max_length)
    ids, positions = filler.encode(text)
    return [TOKENS[i] for i in ids], positions


def test_the_parts_between_masks_are_tokenized(tokenizer):
    tokens, positions = _tokens(tokenizer, "The [MASK] sat on[MASK].")
    assert tokens == "[CLS] the [MASK] sat on [MASK] . [SEP]".split()
    assert positions == [2, 5]


def test_a_mask_may_be_first_or_last(tokenizer):
    tokens, positions = _tokens(tokenizer, "[MASK] cats [MASK]")
    assert tokens == "[CLS] [MASK] cat ##s [MASK] [SEP]".split()
    assert positions == [1, 4]


def test_a_text_that_is_too_long_is_refused(tokenizer):
    with pytest.raises(errors.InputError, match="7 tokens are more than"):
        _tokens(tokenizer, "[MASK] the cat sat .", max_length=6)


class _CopyingModel:
    """Scores, at each mask, the token that is left of it highest."""

    config = types.SimpleNamespace(max_position_embeddings=16)

    def __call__(self, features):
        rows = np.arange(len(features["input_ids"]))[:, None]
        left = features["input_ids"][rows, features["masked_lm_positions"] - 1]
        logits = np.eye(len(TOKENS), dtype=np.float32)[left]
        return types.SimpleNamespace(masked_lm_logits=10 * logits)


def test_each_mask_of_each_text_gets_its_own_ranking(tokenizer):
    filler = masked_words.MaskFiller(_CopyingModel(), tokenizer)
    texts = ["the [MASK] cat [MASK]", "on [MASK]", "mat . [MASK]"]
    filled = filler.fill(texts, top_k=3)
    best = [[mask[0][0] for mask in text] for text in filled]
    assert best == [["the", "cat"], ["on"], ["."]]
    assert all(len(mask) == 3 for text in filled for mask in text)
    expected = np.exp(10) / (np.exp(10) + len(TOKENS) - 1)
    assert filled[0][0][0][1] == pytest.approx(expected)


def test_rows_beyond_the_vocabulary_are_no_tokens(tokenizer):
    class Padded(_CopyingModel):
        def __call__(self, features):
            logits = super().__call__(features).masked_lm_logits
            rest = np.full((*logits.shape[:-1], 4), 20.0, np.float32)
            logits = np.concatenate([logits, rest], axis=-1)
            return types.SimpleNamespace(masked_lm_logits=logits)

    plain = masked_words.MaskFiller(_CopyingModel(), tokenizer)
    padded = masked_words.MaskFiller(Padded(), tokenizer)
    options = {"top_k": len(TOKENS)}
    texts = ["the [MASK] cat"]
    assert padded.fill(texts, **options) == plain.fill(texts, **options)
