"""Activations of words on disk.

    <name>.float16       [J, W, H]: layers, words, hidden units
    <name>.float16.json  what they were computed from

A word has the activations of its first token. The second file is written last.
Nothing is computed if it is current and contains all layers that are needed.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from absl import logging
from keras import ops

from data import features as features_lib
from data.features import Features
from foundation import file_system
from tasks.ner import tagging, windowing

FORMAT_VERSION = 1
DTYPE = np.float16
_STACK = "activations"


class StackTask:
    """Predicts the activations of layers: 0 is the embeddings, L the last."""

    def __init__(self, layers: Sequence[int]):
        """Takes J layers."""
        self.layers = list(layers)

    def predict(self, model: Any, features: dict) -> dict[str, Any]:
        """Returns float16 [B, S, J, H]."""
        outputs = model(
            features["input_ids"],
            features["input_mask"],
            features["segment_ids"],
        )
        states = [outputs.embedding_output, *outputs.all_encoder_layers]
        chosen = [ops.cast(states[i], "float16") for i in self.layers]
        return {_STACK: ops.stack(chosen, axis=2)}


class Store:
    """The activations of a set, mapped into memory from a file."""

    def __init__(self, values: np.ndarray, layers: Sequence[int]):
        """Takes the values [J, W, H] and the J layers."""
        self._values = values
        self._rows = {layer: i for i, layer in enumerate(layers)}

    @property
    def hidden_size(self) -> int:
        """H."""
        return self._values.shape[2]

    def gather(self, words: np.ndarray, layers: Sequence[int]) -> np.ndarray:
        """Returns float16 [..., J, H] of words, int [...]."""
        found = [self._values[self._rows[layer]][words] for layer in layers]
        return np.stack(found, axis=-2)


def prepare(
    path: str,
    layers: Sequence[int],
    job: Mapping[str, Any],
    *,
    features: Features,
    hidden_size: int,
    compute: Callable[[Sequence[int]], Iterable[Mapping[str, np.ndarray]]],
) -> Store:
    """Opens the activations of a set; computes them if they are not current.

    Args:
      path: the path without its ending.
      layers: the layers that are needed.
      job: JSON values that the activations depend on.
      features: of windowing.encode.
      hidden_size: H.
      compute: returns batches of StackTask's predictions for layers.
    """
    path = f"{path}.{np.dtype(DTYPE).name}"
    note = features_lib.read_sidecar(path)
    words = len(windowing.word_positions(features))
    job = json.loads(json.dumps(dict(job)))
    is_current = (
        note.get("format_version") == FORMAT_VERSION
        and note.get("job") == job
        and set(layers) <= set(note.get("layers", ()))
        and os.path.exists(path)
        and os.path.getsize(path) == _size(note["layers"], words, hidden_size)
    )
    if is_current:
        layers = note["layers"]
        logging.info("%s: %d words, reused", path, words)
    else:
        _write(
            path, features, (len(layers), words, hidden_size), layers, compute
        )
        note = {
            "format_version": FORMAT_VERSION,
            "layers": list(layers),
            "words": words,
            "hidden_size": hidden_size,
            "job": job,
        }
        features_lib.write_sidecar(path, note)
        logging.info("%s: %d words, %d layers", path, words, len(layers))
    shape = (len(layers), words, hidden_size)
    return Store(np.memmap(path, DTYPE, "r", shape=shape), layers)


def digest(model: Any) -> str:
    """Returns the SHA-256 of a model's weights."""
    sha = hashlib.sha256()
    for variable in sorted(model.weights, key=lambda v: v.path):
        sha.update(variable.path.encode())
        values = keras.ops.convert_to_numpy(variable)
        sha.update(np.ascontiguousarray(values).data)
    return sha.hexdigest()


def _write(path, features, shape, layers, compute) -> None:
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    features_lib.remove_sidecar(path)
    with file_system.replacing(path) as hidden:
        _reserve(hidden, _size(layers, shape[1], shape[2]))
        values = np.memmap(hidden, DTYPE, "r+", shape=shape)
        batches = compute(layers)
        for words, stack in tagging.of_words(features, _STACK, batches):
            values[:, words] = stack.transpose(1, 0, 2)
        values.flush()


def _reserve(path: str, size: int) -> None:
    """Allocates a file: with a full disk, writing to a map would crash."""
    with open(path, "wb") as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
        else:
            file.truncate(size)


def _size(layers: Sequence[int], words: int, hidden_size: int) -> int:
    return len(layers) * words * hidden_size * np.dtype(DTYPE).itemsize
