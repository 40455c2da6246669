"""A run of 200 steps that any framework can repeat: weights, batches, rates.

tests/testdata/make_golden_losses.py repeats it with transformers. Everything
is drawn from RandomState, whose numbers NumPy never changes.
"""

import zlib

import numpy as np

CONFIG = {
    "vocab_size": 25,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "max_position_embeddings": 16,
    "type_vocab_size": 2,
    "initializer_range": 0.02,
}
STEPS, WARMUP, PEAK = 200, 20, 1e-3
BATCH, LENGTH, PREDICTIONS = 16, 16, 4
_CLS, _SEP, _MASK, _FIRST = 1, 2, 3, 5


def weight(path: str, shape: tuple) -> np.ndarray:
    """Draws a variable; its released name is the seed.

    Three times BERT's deviation, so that the gradients are clipped at first.
    """
    draw = np.random.RandomState(zlib.crc32(path.encode()))
    values = 0.06 * draw.standard_normal(shape)
    if path.endswith("/gamma"):
        values = values + 1.0
    return values.astype(np.float32)


def batch(step: int) -> dict[str, np.ndarray]:
    """Makes pairs of counting sentences, "B continues A" or not.

    [CLS] 7 8 [MASK] 10 11 [SEP] 12 13 14 [SEP] [PAD] ...
    """
    draw = np.random.RandomState(step)
    rows = [_pair(draw) for _ in range(BATCH)]
    return {
        name: np.stack([row[name] for row in rows]).astype(
            np.float32 if name == "masked_lm_weights" else np.int32
        )
        for name in rows[0]
    }


def _pair(draw: np.random.RandomState) -> dict[str, np.ndarray]:
    size = CONFIG["vocab_size"] - _FIRST
    first, second = draw.randint(3, 7), draw.randint(3, 7)
    is_random = draw.randint(2)
    # Three beginnings only: so much can be learned in 200 steps.
    start = 7 * draw.randint(3)
    other = start + first + is_random * draw.randint(3, 17)
    a = _FIRST + (start + np.arange(first)) % size
    b = _FIRST + (other + np.arange(second)) % size
    ids = np.concatenate([[_CLS], a, [_SEP], b, [_SEP]])
    number = draw.randint(1, PREDICTIONS + 1)
    candidates = np.flatnonzero(ids >= _FIRST)
    positions = np.sort(draw.permutation(candidates)[:number])
    masked = ids.copy()
    masked[positions] = _MASK
    return {
        "input_ids": _pad(masked, LENGTH),
        "input_mask": _pad(np.ones_like(ids), LENGTH),
        "segment_ids": _pad(np.arange(len(ids)) > first + 1, LENGTH),
        "masked_lm_positions": _pad(positions, PREDICTIONS),
        "masked_lm_ids": _pad(ids[positions], PREDICTIONS),
        "masked_lm_weights": _pad(np.ones(number), PREDICTIONS),
        "next_sentence_labels": np.array([is_random]),
    }


def _pad(values: np.ndarray, length: int) -> np.ndarray:
    return np.pad(values, (0, length - len(values)))
