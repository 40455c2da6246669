"""What a layer does around a product with a matrix, as pure functions.

Each is a whole that fusion.part may have compiled: many cheap operations on
one tensor, which cost passes over memory rather than arithmetic.
"""

from keras import ops

import fusion
from modeling import dropout
from modeling.config import LAYER_NORM_EPSILON


def add_bias(x, bias):
    """Adds float32 [N] to float [..., N] in the latter's dtype."""
    # Not +: on TensorFlow, only ops.add makes of it the addition of a bias
    # that is fused with the product and GELU.
    return ops.add(x, ops.cast(bias, x.dtype))


def add_bias_and_scale(x, bias, *, scale):
    """Returns (x + bias) * scale; see add_bias."""
    return add_bias(x, bias) * scale


def normalize(x, gamma, beta, *, dtype):
    """Normalizes the last axis in float32: fusion's kernel "layer_norm".

    Args:
        x: float [..., H].
        gamma: float32 [H], the scale.
        beta: float32 [H], the shift.
        dtype: of the result.

    Returns:
        [..., H].
    """
    options = {"epsilon": LAYER_NORM_EPSILON, "dtype": dtype}
    return fusion.kernel("layer_norm", _normalize, x, gamma, beta, **options)


def _normalize(x, gamma, beta, *, epsilon, dtype):
    x = ops.cast(x, "float32")
    centered = x - ops.mean(x, axis=-1, keepdims=True)
    variance = ops.mean(ops.square(centered), axis=-1, keepdims=True)
    scale = ops.rsqrt(variance + epsilon) * gamma
    return ops.cast(beta + centered * scale, dtype)


def activate(product, bias, *, activation):
    """Returns activation(product + bias): [T, I], float32 [I] -> [T, I]."""
    return activation(add_bias(product, bias))


def end_half_block(product, bias, residual, gamma, beta, kept, *, rate):
    """Adds the bias, drops out, adds the residual and normalizes.

    Args:
        product: float [T, H].
        bias: float32 [H].
        residual: like product.
        gamma: float32 [H].
        beta: float32 [H].
        kept: bool [T, H] of dropout.keep, or None.
        rate: of dropout.

    Returns:
        Like product.
    """
    x = dropout.apply(add_bias(product, bias), kept, rate)
    return normalize(x + residual, gamma, beta, dtype=product.dtype)


def gradient_of_scores(gradient, probs, kept, *, rate):
    """Derives softmax and dropout after it by the scores; see attention.

    Args:
        gradient: float [B, N, R, S], of what dropout left.
        probs: like it, the result of softmax.
        kept: bool [B, N, R, S] of dropout.keep, or None.
        rate: of dropout.

    Returns:
        Like gradient.
    """
    by_probs = ops.cast(dropout.apply(gradient, kept, rate), "float32")
    probs = ops.cast(probs, "float32")
    weighted = probs * by_probs
    total = ops.sum(weighted, axis=-1, keepdims=True)
    return ops.cast(weighted - probs * total, gradient.dtype)
