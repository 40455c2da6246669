"""One vector of the vectors of a text's tokens, with `keras.ops` only.

    x = pooling.pool("mean", hidden_states, input_mask)    [B, H]
    x = pooling.normalized(x)                              length 1

Names and results are those of sentence-transformers.
"""

from keras import ops

_MIN_NORM = 1e-12  # As in PyTorch's normalize.
_MIN_WEIGHT = 1e-9  # As in sentence-transformers' pooling.
_LOWEST = -1e9


def _weighted_mean(x, weights):
    """Maps float32 [B, S, H] and [B, S, 1] to the mean [B, H]."""
    return ops.sum(x * weights, axis=1) / _total(weights)


def _total(weights):
    """Returns float32 [B, 1]; rows without a real token get zeros, not NaN."""
    return ops.maximum(ops.sum(weights, axis=1), _MIN_WEIGHT)


def _positions(mask):
    """Returns float32 [S, 1]: 1, 2, ..."""
    return ops.cast(ops.arange(1, ops.shape(mask)[1] + 1), "float32")[:, None]


def _last(x, mask):
    length = ops.sum(mask, axis=1, keepdims=True)
    is_last = ops.cast(ops.equal(_positions(mask), length), "float32")
    return ops.sum(x * is_last, axis=1)


# Name -> function of float32 [B, S, H] and the mask [B, S, 1], which returns
# [B, H].
_POOLINGS = {
    "cls": lambda x, mask: x[:, 0],
    "max": lambda x, mask: ops.max(ops.where(mask > 0, x, _LOWEST), axis=1),
    "mean": _weighted_mean,
    "mean_sqrt_len_tokens": lambda x, mask: (
        ops.sum(x * mask, axis=1) / ops.sqrt(_total(mask))
    ),
    # Later tokens have larger weights.
    "weightedmean": lambda x, mask: _weighted_mean(x, mask * _positions(mask)),
    "lasttoken": _last,
}


def pool(names: str, x, mask):
    """Pools the vectors of tokens.

    Args:
        names: one of _POOLINGS, or several with commas, which are joined.
        x: float [B, S, H].
        mask: int [B, S], 0 for padding.

    Returns:
        float32 [B, H], or [B, n * H] of n names.
    """
    x, mask = ops.cast(x, "float32"), ops.cast(mask, "float32")[..., None]
    pooled = [_POOLINGS[name](x, mask) for name in names.split(",")]
    return ops.concatenate(pooled, axis=-1)


def normalized(x):
    """Scales float32 vectors [..., H] to length 1."""
    norm = ops.sqrt(ops.sum(ops.square(x), -1, keepdims=True))
    return x / ops.maximum(norm, _MIN_NORM)
