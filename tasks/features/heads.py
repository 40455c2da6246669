"""The activations of an encoder's layers, or vectors of texts made of them."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
from keras import ops

from finetuning import head
from modeling import encoder, pooling
from modeling.config import BertConfig
from weights import sentence_modules

# Activation of a dense layer -> function.
_ACTIVATIONS = {
    "Tanh": ops.tanh,
    "Identity": lambda x: x,
    "ReLU": ops.relu,
    "GELU": lambda x: ops.gelu(x, approximate=False),
    "Sigmoid": ops.sigmoid,
    "SiLU": ops.silu,
}


def name_of(layer: int) -> str:
    """Returns the name of a layer in outputs and files: "layer_-1"."""
    return f"layer_{layer}"


class LayersHead(head.Head):
    """Selects layers, and pools them to vectors of texts."""

    def __init__(
        self, layers: Sequence[int], modules: sentence_modules.SentenceModules
    ):
        """Takes the layers.

        Args:
          layers: numbers of the layers; -1 is the last layer.
          modules: how the vectors of texts are made from a layer.
        """
        self.layers, self.modules = layers, modules
        self.per_token = not modules.is_pooled

    def build(self, config: BertConfig, **options: Any) -> keras.Model:
        """See Head."""
        used = {name: options[name] for name in ("attention", "dtype")}
        return encoder.make_encoder(config, **used)

    def predict(
        self, model: keras.Model, features: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Returns each layer by name: float32 [B, S, H], pooled [B, size]."""
        mask, modules = features["input_mask"], self.modules
        outputs = model(features["input_ids"], mask, features["segment_ids"])
        layers = {}
        for layer in self.layers:
            x = ops.cast(outputs.all_encoder_layers[layer], "float32")
            if modules.is_pooled:
                x = pooling.pool(modules.pooling, x, mask)
            for dense in modules.dense:
                x = ops.matmul(x, dense.kernel) + dense.bias
                x = _ACTIVATIONS[dense.activation](x)
            if modules.normalize:
                x = pooling.normalized(x)
            layers[name_of(layer)] = x[..., : modules.truncate_dim]
        return layers
