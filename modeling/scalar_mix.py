"""A learned mean of layers."""

import keras
from keras import ops

from modeling import variables


class ScalarMix(keras.layers.Layer):
    """Weighs J layers, as ELMo does (Peters et al., 2018, equation 1).

    1. s = softmax of J learned scalars, all equal at first
    2. gamma * sum of s_j * layer_j, gamma being learned, 1 at first

    Checkpoint: {path}/scalars [J], {path}/gamma []
    """

    def __init__(self, path: str, layers: int, *, make: variables.Maker):
        """Makes the scalars of so many layers."""
        super().__init__(name=path.rpartition("/")[2], autocast=False)
        self.scalars = make.zeros(f"{path}/scalars", (layers,))
        self.gamma = make.ones(f"{path}/gamma", ())
        self.built = True

    def call(self, x):
        """Maps float [..., J, H] to float [..., H]."""
        shares = ops.softmax(self.scalars)[:, None]
        return self.gamma * ops.sum(x * shares, axis=-2)
