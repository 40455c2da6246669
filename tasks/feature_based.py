"""The paper's feature-based approach (its Table 7): which layers, what batches.

embeddings, second_to_last, last   one layer
concat_last_four                   four, side by side
weighted_sum_last_four, _all       their learned mean
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

import errors
from data import conll
from data.features import Features
from tasks import feature_store

CHOICES = (
    "embeddings",
    "second_to_last",
    "last",
    "weighted_sum_last_four",
    "concat_last_four",
    "weighted_sum_all",
)
ALL = "all"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choice:
    """What the tagger reads of the encoder.

    Attributes:
      name: of CHOICES.
      layers: 0 is the embeddings, L the last.
      is_mixed: whether they become one by a learned mean.
    """

    name: str
    layers: tuple[int, ...]
    is_mixed: bool


def choices(name: str, num_layers: int) -> list[Choice]:
    """Returns what --features means for an encoder of L layers."""
    if name == ALL:
        return [choice for n in CHOICES for choice in choices(n, num_layers)]
    last = num_layers
    layers = {
        "embeddings": (0,),
        "second_to_last": (last - 1,),
        "last": (last,),
        "weighted_sum_last_four": tuple(range(last - 3, last + 1)),
        "concat_last_four": tuple(range(last - 3, last + 1)),
        "weighted_sum_all": tuple(range(1, last + 1)),
    }[name]
    if layers[0] < 0 or (len(layers) == 4 and layers[0] < 1):
        raise errors.InputError(
            f"--features={name}: the model has only {num_layers} layer(s)"
        )
    is_mixed = name.startswith("weighted_sum")
    return [Choice(name=name, layers=layers, is_mixed=is_mixed)]


def layers_of(chosen: Sequence[Choice]) -> list[int]:
    """Returns the layers that any of them reads, sorted."""
    return sorted({layer for choice in chosen for layer in choice.layers})


def sentence_features(
    sentences: conll.Sentences, label_ids: np.ndarray | None
) -> Features:
    """Returns sentences as rows of words' numbers, called input_ids.

    Args:
      sentences: the words.
      label_ids: int [W], or None for zeros.
    """
    numbers = np.arange(len(sentences.words))
    if label_ids is None:
        label_ids = np.zeros_like(numbers)
    return Features(
        row_splits=sentences.row_splits,
        ragged={"input_ids": numbers, "label_ids": label_ids},
    )


def with_activations(
    make_batches: Callable[..., tf.data.Dataset],
    store: feature_store.Store,
    layers: Sequence[int],
) -> Callable[..., tf.data.Dataset]:
    """Puts activations [B, S, J, H] in the place of the words' numbers."""
    shape = (len(layers), store.hidden_size)

    def look_up(words):
        return store.gather(words, layers)

    def replace(batch):
        batch = dict(batch)
        words = batch.pop("input_ids")
        values = tf.numpy_function(look_up, [words], tf.float16, stateful=False)
        batch["activations"] = tf.ensure_shape(values, (*words.shape, *shape))
        return batch

    def make(**options) -> tf.data.Dataset:
        return make_batches(**options).map(replace).prefetch(2)

    return make
