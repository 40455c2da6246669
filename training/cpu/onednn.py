"""Kernels of oneDNN that TensorFlow runs only for a graph of a certain form."""

import os
from collections.abc import Callable, Mapping

import tensorflow as tf

from training import precision


def layer_norm(
    x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, *, epsilon: float, dtype
) -> tf.Tensor:
    """Normalizes the last axis, in one pass instead of eight.

    TensorFlow's graph optimizer recognizes the form that LayerNormalization
    had in Keras 2: every row is a channel of a batch normalization in training
    mode. Without oneDNN the result is the same, but that is slow. There is no
    gradient that would be worth having.

    Args:
      x: float32 or bfloat16 [T, H] or [B, S, H].
      gamma: float32 [H], the scale; of bfloat16 it is rounded to it.
      beta: float32 [H], the shift; likewise.
      epsilon: is added to the variance, which is computed in float32.
      dtype: of the result.

    Returns:
      Like x.
    """
    shape = tf.shape(x)
    rows = tf.reduce_prod(shape[:-1])
    none = tf.constant([], tf.float32)
    normalized = tf.raw_ops.FusedBatchNormV3(
        x=tf.reshape(x, tf.stack([1, rows, shape[-1], 1])),
        scale=tf.fill([rows], 1.0),
        offset=tf.fill([rows], 0.0),
        mean=none,
        variance=none,
        epsilon=epsilon,
        is_training=True,
        data_format="NCHW",
    )
    scaled = tf.reshape(normalized.y, shape) * tf.cast(gamma, x.dtype)
    return tf.cast(tf.cast(beta, x.dtype) + scaled, dtype)


def softmax(scores: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """Returns the softmax of scores + bias without widening them first.

    oneDNN computes in float32 what it reads and writes as bfloat16, and a bias
    of 0 changes nothing: the probabilities are the same to the last bit, and
    four passes over float32 of their size less are made. Of short rows only
    those of 32, 64, ... are faster so; others are widened.

    Args:
      scores: bfloat16 [B, N, R, S].
      bias: float32 [B, 1, 1 or R, S]; what is not 0 is so low that its place
        gets nothing.
    """
    size = tf.shape(scores)[-1]

    def narrow():
        return tf.nn.softmax(scores + tf.cast(bias, scores.dtype))

    def wide():
        sums = tf.cast(scores, tf.float32) + bias
        return tf.cast(tf.nn.softmax(sums), scores.dtype)

    return tf.cond((size > 128) | (size % 32 == 0), narrow, wide)


def kernels() -> Mapping[str, Callable[..., tf.Tensor]]:
    """Returns those that this machine has, by the names of the functions."""
    found: dict[str, Callable[..., tf.Tensor]] = {"layer_norm": layer_norm}
    # Where oneDNN does not, TensorFlow sums rows in bfloat16.
    is_on = os.environ.get("TF_ENABLE_ONEDNN_OPTS") == "1"
    if is_on and precision.choose("auto") == "bfloat16":
        found["softmax"] = softmax
    return found
