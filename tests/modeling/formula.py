"""A tiny model and batch that any framework can rebuild without a seed.

Every weight is a sine of its index, offset by a checksum of its released name;
tests/testdata/make_golden_outputs.py runs the same model in transformers.
"""

import zlib

import numpy as np

CONFIG = {
    "vocab_size": 30,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 16,
    "type_vocab_size": 2,
    "initializer_range": 0.02,
}
BATCH, LENGTH, PREDICTIONS = 4, 12, 3
NEXT_SENTENCE_LABELS = np.array([[0], [1], [1], [0]], np.int32)


def weight(path: str, shape: tuple) -> np.ndarray:
    """Computes the value of a variable from its released name."""
    start = zlib.crc32(path.encode()) % 1000
    values = 0.4 * np.sin(start + 0.37 * np.arange(np.prod(shape)))
    if path.endswith("/gamma"):
        values = values + 1.0
    return values.reshape(shape).astype(np.float32)


def features() -> dict[str, np.ndarray]:
    """Returns a batch of pairs; the second and third rows are padded."""
    indices = np.arange(BATCH * LENGTH).reshape(BATCH, LENGTH)
    input_mask = np.ones((BATCH, LENGTH), np.int32)
    input_mask[1, 8:] = 0
    input_mask[2, 3:] = 0
    return {
        "input_ids": ((indices * 7 + 3) % 30 * input_mask).astype(np.int32),
        "input_mask": input_mask,
        "segment_ids": np.tile(np.arange(LENGTH) > 5, (BATCH, 1)).astype(
            np.int32
        )
        * input_mask,
        "masked_lm_positions": np.array(
            [[1, 4, 9], [2, 3, 0], [1, 0, 0], [5, 6, 11]], np.int32
        ),
        "masked_lm_ids": np.array(
            [[7, 2, 29], [4, 4, 0], [11, 0, 0], [1, 2, 3]], np.int32
        ),
        "masked_lm_weights": np.array(
            [[1, 1, 1], [1, 1, 0], [1, 0, 0], [1, 1, 1]], np.float32
        ),
        "next_sentence_labels": NEXT_SENTENCE_LABELS,
    }
