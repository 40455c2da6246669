"""What stands behind the first product of feed-forward layers and heads."""

import math

from keras import ops


def gelu(x):
    """Computes the tanh form of GELU, the released activation.

    https://github.com/google-research/bert/blob/master/modeling.py#L264
    """
    # 0.5 (1 + tanh z) = sigmoid(2 z), and c (x + 0.044715 x^3) needs no power:
    # six passes over memory instead of nine.
    c = 2.0 * math.sqrt(2.0 / math.pi)
    return x * ops.sigmoid(x * (c + 0.044715 * c * ops.square(x)))


def gelu_erf(x):
    """Computes the error-function form of GELU, Hugging Face's "gelu"."""
    return (0.5 * x) * (1.0 + ops.erf(x * math.sqrt(0.5)))


def gelu_fused(x):
    """Computes the same as gelu, as TensorFlow fuses it with a product.

    It does so where no gradient is asked for; elsewhere it has more passes.
    """
    return ops.gelu(x, approximate=True)


BY_NAME = {
    "gelu": gelu,
    "gelu_erf": gelu_erf,
    "relu": ops.relu,
    "tanh": ops.tanh,
    "linear": lambda x: x,
}
