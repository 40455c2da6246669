"""Proves that the record schemas are google-research/bert's.

pytest tests/data/schema_test.py
"""

import pytest

from data import schema


def test_pretraining_records_have_the_released_names_types_and_lengths():
    features = {
        feature.name: (feature.dtype, feature.shape)
        for feature in schema.pretraining(128, 20).features
    }
    assert features == {
        "input_ids": ("int64", (128,)),
        "input_mask": ("int64", (128,)),
        "segment_ids": ("int64", (128,)),
        "masked_lm_positions": ("int64", (20,)),
        "masked_lm_ids": ("int64", (20,)),
        "masked_lm_weights": ("float32", (20,)),
        "next_sentence_labels": ("int64", (1,)),
    }


def test_a_feature_is_found_by_its_name():
    assert schema.pretraining(64, 9)["masked_lm_ids"].size == 9
    with pytest.raises(KeyError):
        schema.pretraining(64, 9)["input_word_ids"]


def test_a_name_cannot_occur_twice():
    feature = schema.Feature("a", (1,))
    with pytest.raises(ValueError, match="twice"):
        schema.Schema("kind", (feature, feature))
