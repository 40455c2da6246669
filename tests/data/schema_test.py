"""Proves that the record schemas are google-research/bert's.

pytest tests/data/schema_test.py
"""

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
