"""Activations of a frozen encoder for the words of a set, computed once.

    output_dir/activations/train.float16        [W, J, H]: words, layers, hidden
                                                units
    output_dir/activations/train.float16.json   the receipt: what they are made
                                                from, and of how many windows

A word has the activations of its first token. They are computed in blocks of
windows, and the receipt is written after each block. So memory does not grow
with the set, and a command that was killed continues with the next block.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from absl import logging

from data.features import Features
from foundation import atomic, errors, file_system, metadata
from tasks.ner import windowing

NAME = "activations"
BLOCK = 4096  # Windows.
_DTYPE = np.dtype(np.float16)
Shape = tuple[int, int]  # J, H
# Maps windows to batches of activations [B, S, J, H] and example_index [B].
Predict = Callable[[Features], Iterable[Mapping[str, np.ndarray]]]


def sentences(features: Features, values: np.ndarray) -> Features:
    """Returns sentences of words, from windows of tokens.

    Args:
      features: the windows, with `words` of windowing.Window.
      values: [W, J, H], the activations of the words.
    """
    words = features.ragged["words"]
    marks = words[words > 0]
    ends = np.flatnonzero(marks & windowing.ENDS) + 1
    labels = {
        name: of_tokens[words > 0]
        for name, of_tokens in features.ragged.items()
        if name == "label_ids"
    }
    return Features(
        row_splits=np.concatenate([[0], ends]), ragged={**labels, NAME: values}
    )


def in_memory(features: Features, shape: Shape, predict: Predict) -> np.ndarray:
    """Computes the activations [W, J, H] of windows."""
    values = np.zeros((_count(features), *shape), _DTYPE)
    set_words(values, features, predict(features))
    return values


def set_words(
    values: np.ndarray,
    features: Features,
    batches: Iterable[Mapping[str, np.ndarray]],
) -> None:
    """Sets values [W, ...] of words to those of their first tokens.

    Args:
      values: to be set.
      features: the windows, with `words` of windowing.Window.
      batches: NAME [B, S, ...], and example_index [B], the windows.
    """
    is_first, splits = features.ragged["words"] > 0, features.row_splits
    numbers = np.cumsum(is_first) - 1
    for batch in batches:
        rows, found = batch["example_index"], batch[NAME]
        positions = splits[rows][:, None] + np.arange(found.shape[1])
        is_word = positions < splits[rows + 1][:, None]
        positions[~is_word] = 0
        is_word &= is_first[positions]
        values[numbers[positions[is_word]]] = found[is_word]


def on_disk(
    path: str,
    features: Features,
    shape: Shape,
    predict: Predict,
    facts: Mapping[str, Any],
) -> np.ndarray:
    """Opens the activations of windows; computes those that are missing.

    Args:
      path: the file.
      features: the windows.
      shape: J and H.
      predict: computes activations.
      facts: JSON values that they depend on, besides the windows.
    """
    starts = np.concatenate([[0], np.cumsum(features.ragged["words"] > 0)])
    starts = starts[features.row_splits]  # The first word of each window.
    complete = (int(starts[-1]), *shape)
    made_from = _digest(features, facts)
    receipt_path = f"{path}.json"
    receipt: metadata.Object = {}
    with contextlib.suppress(
        errors.InputError
    ):  # If damaged, it is made again.
        receipt = metadata.read_if_present(receipt_path, metadata.Object) or {}
    size = _DTYPE.itemsize * int(np.prod(complete))
    done = 0
    if receipt.get("made_from") == made_from and (
        file_system.exists(path) and file_system.size(path) == size
    ):
        done = receipt["windows"]
        logging.info("%s: those of %d windows are used", path, done)
    else:
        file_system.make_folder(os.path.dirname(path))
        file_system.discard(receipt_path)
        _allocate(path, size)
    values = np.memmap(path, _DTYPE, "r+", shape=complete)
    for begin in range(done, len(features), BLOCK):
        end = min(begin + BLOCK, len(features))
        part = _rows(features, begin, end)
        set_words(values[starts[begin] : starts[end]], part, predict(part))
        values.flush()
        atomic.write_json(
            receipt_path, {"made_from": made_from, "windows": end}
        )
        logging.info(
            "%s: the activations of %d of %d windows", path, end, len(features)
        )
    return np.memmap(path, _DTYPE, "r", shape=complete)


def _count(features: Features) -> int:
    return int(np.count_nonzero(features.ragged["words"]))


def _digest(features: Features, facts: Mapping[str, Any]) -> str:
    sha = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    names = ("input_ids", "segment_ids", "words")
    for values in (features.row_splits, *(features.ragged[x] for x in names)):
        sha.update(values.astype(np.int64).tobytes())
    return sha.hexdigest()


def _allocate(path: str, size: int) -> None:
    """Makes a file. On a full disk, writing to a memory map would crash."""
    with file_system.naming(path), open(path, "wb") as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
        else:
            file.truncate(size)


def _rows(features: Features, begin: int, end: int) -> Features:
    splits = features.row_splits[begin : end + 1]
    tokens = slice(splits[0], splits[-1])
    return Features(
        row_splits=splits - splits[0],
        ragged={name: x[tokens] for name, x in features.ragged.items()},
    )
