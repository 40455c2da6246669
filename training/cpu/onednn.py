"""Fast bfloat16 predictions on a CPU with oneDNN.

`Predictions` replaces functions of the layers by primitives of oneDNN, and lets
its matrix products reorder the weights once.

A primitive computes in float32 what it reads and writes as bfloat16, in one
pass over memory. Primitives have no usable gradients.

Where the CPU lacks bfloat16 instructions, oneDNN refuses to run a primitive;
where oneDNN is switched off, TensorFlow's code for the same operation rounds
intermediate values to bfloat16. So `choose` first compares each primitive with
its formula.
"""

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from foundation import replacement
from training import precision

Function = Callable[..., tf.Tensor]
# TensorFlow copies the constants of a graph a dozen times before its first run.
# With the 340 MB of BERT-Base it starts 14 s later and takes 3.6 GB more, and
# then predicts in three quarters of the time.
_MOST_BYTES = 128 << 20
_DTYPES = ("bfloat16",)  # float32 gains less than 10 % (docs/LOG.md).


def choose(function: Function) -> Function:
    """Returns the primitive for a function of the layers, or the function.

    See foundation.replacement.
    """
    return _primitives().get(function.__name__, function)


def layer_norm(
    x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, *, epsilon: float
) -> tf.Tensor:
    """Normalizes the last axis.

    TensorFlow's graph optimizer finds the primitive only for the form that
    LayerNormalization had in Keras 2: a batch normalization in training mode
    of which every row is a channel.

    Args:
      x: float32 or bfloat16 [..., H].
      gamma: float32 [H], the scale, which is rounded to x's dtype.
      beta: float32 [H], the shift, likewise.
      epsilon: is added to the variance.

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
    return tf.cast(beta, x.dtype) + scaled


def softmax(scores: tf.Tensor, attention_bias: tf.Tensor) -> tf.Tensor:
    """Computes softmax(scores + attention_bias) without a float32 copy.

    Args:
      scores: bfloat16 [B, N, Q, S].
      attention_bias: float32 [B, 1, 1 or Q, S], 0 or so low that the
        probability becomes 0: then the sum in bfloat16 is exact enough.

    Returns:
      Like scores.
    """
    size = tf.shape(scores)[-1]

    def narrow():
        return tf.nn.softmax(scores + tf.cast(attention_bias, scores.dtype))

    # Of the shorter rows, the primitive is faster only for multiples of 32.
    return tf.cond(
        (size > 128) | (size % 32 == 0),
        narrow,
        lambda: _softmax_formula(scores, attention_bias),
    )


@functools.cache
def _primitives() -> Mapping[str, Function]:
    """Returns those that are faster and correct on this machine, by name."""
    primitives: dict[str, Function] = {}
    if precision.cpu_multiplies_bfloat16():
        with tf.init_scope():  # The caller traces a graph.
            if layer_norm_is_correct():
                primitives["layer_norm"] = layer_norm
            if softmax_is_correct():
                primitives["softmax"] = softmax
    return primitives


def layer_norm_is_correct() -> bool:
    """Returns whether `layer_norm` in bfloat16 equals its formula."""
    x = tf.random.stateless_normal([9, 48], (1, 2), mean=3.0, stddev=2.0)
    # The first row is constant.
    x = tf.concat([tf.fill([1, 48], 5.0), x], axis=0)
    gamma, beta = tf.fill([48], 1.25), tf.fill([48], -0.5)
    arguments = tf.cast(x, tf.bfloat16), gamma, beta
    primitive = functools.partial(layer_norm, epsilon=1e-12)
    formula = functools.partial(_layer_norm_formula, epsilon=1e-12)
    return _largest_error(primitive, formula, arguments) <= 2.0**-8


def softmax_is_correct() -> bool:
    """Returns whether `softmax` equals its formula to the last bit."""
    scores = tf.random.stateless_normal([2, 3, 5, 160], (1, 2), stddev=6.0)
    hidden = tf.random.stateless_uniform([2, 1, 1, 160], (3, 4)) < 0.5
    attention_bias = tf.where(hidden, -10000.0, 0.0)
    arguments = tf.cast(scores, tf.bfloat16), attention_bias
    return _largest_error(softmax, _softmax_formula, arguments) == 0.0


def _largest_error(
    primitive: Function, formula: Function, arguments: tuple[tf.Tensor, ...]
) -> float:
    """Returns the largest |p - f| / (1 + |f|), infinity without a primitive."""

    first, *options = arguments
    # The graph optimizer does not find a layer_norm of known shape, as its
    # constants are folded, and replaces no input or output of a graph.
    signature = tf.TensorSpec([None, *first.shape[1:]], first.dtype)

    @tf.function(input_signature=[signature], autograph=False)
    def run(x):
        return primitive(x + 0, *options) + 0

    expected = tf.cast(formula(*arguments), tf.float32)
    try:
        result = tf.cast(run(first), tf.float32)
    except tf.errors.OpError:  # oneDNN "could not create a primitive".
        return math.inf
    difference = tf.abs(result - expected) / (1.0 + tf.abs(expected))
    return float(tf.reduce_max(difference))


def _layer_norm_formula(x, gamma, beta, *, epsilon):
    wide = tf.cast(x, tf.float32)
    mean, variance = tf.nn.moments(wide, -1, keepdims=True)
    normalized = (wide - mean) * tf.math.rsqrt(variance + epsilon)
    return tf.cast(gamma * normalized + beta, x.dtype)


def _softmax_formula(scores, attention_bias):
    sums = tf.cast(scores, tf.float32) + attention_bias
    return tf.cast(tf.nn.softmax(sums), scores.dtype)


class Predictions:
    """A model's predictions by oneDNN, with its kernels as constants.

    oneDNN reorders a constant kernel once into the layout of its fastest
    product, which then also adds the bias and applies GELU. The kernel of a
    variable is used in its own layout, by a slower product: a dense layer with
    GELU ([2048, 384] x [384, 1536], bfloat16, AMX) takes 22 ms instead of 6.6.
    """

    def __init__(self, model: Any, *, copies: bool = True):
        """Copies the variables that are named kernel, none of a large model.

        Does nothing for other dtypes.

        Args:
          model: the model.
          copies: whether to copy variables; without copies, the layers use
            primitives with the variables themselves.
        """
        self._is_used = model.compute_dtype in _DTYPES
        kernels = []
        if self._is_used:
            kernels = [v for v in model.variables if v.path.endswith("kernel")]
        size = sum(int(np.prod(v.shape)) * 4 for v in kernels)
        has_room = copies and size <= _MOST_BYTES
        self._variables = kernels if has_room else []
        self._values = [np.array(_view(v)) for v in self._variables]

    @property
    def has_copies(self) -> bool:
        """Whether the graph has copies of variables."""
        return bool(self._variables)

    def are_current(self) -> bool:
        """Returns whether the variables still have these values."""
        return all(
            np.array_equal(value, _view(variable))
            for variable, value in zip(
                self._variables, self._values, strict=True
            )
        )

    @contextlib.contextmanager
    def in_graph(self) -> Iterator[None]:
        """Makes layers that its body calls in a graph use primitives."""
        constants = map(tf.constant, self._values)
        pairs = list(zip(self._variables, constants, strict=True))
        with (
            keras.StatelessScope(state_mapping=pairs),
            replacement.using(choose if self._is_used else None),
        ):
            yield


def _view(variable: keras.Variable) -> np.ndarray:
    """Returns a variable's value, without a copy if it is on the CPU."""
    return np.asarray(variable.value)


replacement.register("prediction", Predictions)
