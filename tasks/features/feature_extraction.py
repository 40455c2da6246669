"""Activations of an encoder's layers: every piece's, or one vector a text.

layers    -1 is the last of L, as released; names in files are "layer_-1"
pooling   none: [S, H] each; cls: the first place; mean, max: over all
          pieces, [CLS] and [SEP] among them
"""

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from keras import ops

from data import features as features_lib
from data import text_tables
from data.features import Features
from data.tokenization import wordpiece
from foundation import errors, file_system
from modeling.config import BertConfig
from tasks.features import feature_files

POOLINGS = ("none", "cls", "mean", "max")
_PAIR = re.compile(r"^(.*) \|\|\| (.*)$")
_BLOCK_BYTES = 1 << 28  # Of activations in memory.
_BLOCK_BATCHES = 200
_SMALL = 1e-12  # As torch's normalize has it.
_LOWEST = -1e9


class Block(NamedTuple):
    """Some lines in a row.

    first: the number of the first, counted from 0.
    features: input_ids and segment_ids of each.
    """

    first: int
    features: Features


class ExtractionTask:
    """Picks layers, and pools and normalizes them if asked to."""

    def __init__(
        self,
        layers: Sequence[int],
        *,
        pooling: str = "none",
        normalize: bool = False,
    ):
        """Takes the flags' values; see check_layers."""
        self.layers = list(layers)
        self.pooling = pooling
        self._normalize = normalize

    def predict(self, model: Any, features: dict) -> dict[str, Any]:
        """Returns each layer by name: float32 [B, S, H], pooled [B, H]."""
        mask = features["input_mask"]
        outputs = model(features["input_ids"], mask, features["segment_ids"])
        found = {}
        for layer in self.layers:
            x = ops.cast(outputs.all_encoder_layers[layer], "float32")
            x = self._pool(x, ops.cast(mask, "float32")[..., None])
            if self._normalize:
                norm = ops.sqrt(ops.sum(ops.square(x), -1, keepdims=True))
                x = x / ops.maximum(norm, _SMALL)
            found[name(layer)] = x
        return found

    def _pool(self, x, mask):
        """Maps float32 [B, S, H] and [B, S, 1] to [B, H] or itself."""
        if self.pooling == "cls":
            return x[:, 0]
        if self.pooling == "mean":
            return ops.sum(x * mask, axis=1) / ops.sum(mask, axis=1)
        if self.pooling == "max":
            return ops.max(ops.where(mask > 0, x, _LOWEST), axis=1)
        return x


def name(layer: int) -> str:
    """Returns what a layer is called in files."""
    return f"layer_{layer}"


def parse_layers(text: str, config: BertConfig) -> list[int]:
    """Reads --layers."""
    count = config.num_hidden_layers
    found = []
    for part in text.split(","):
        try:
            layer = int(part)
        except ValueError:
            raise errors.InputError(
                f"--layers={text}: {part!r} is no whole number"
            ) from None
        if not -count <= layer < count:
            raise errors.InputError(
                f"--layers={text}: the model has {count} layers, "
                f"{-count} to {count - 1}, but not {layer}"
            )
        found.append(layer)
    if len(set(found)) < len(found):
        raise errors.InputError(f"--layers={text}: one occurs twice")
    return found


def block_size(
    task: ExtractionTask,
    *,
    batch_size: int,
    max_seq_length: int,
    hidden_size: int,
) -> int:
    """Returns how many lines' activations may be in memory."""
    places = max_seq_length if task.pooling == "none" else 1
    line = 4 * places * hidden_size * len(task.layers)
    batches = max(1, _BLOCK_BYTES // (line * batch_size))
    return batch_size * min(batches, _BLOCK_BATCHES)


def read_blocks(
    path: str,
    tokenizer: wordpiece.Tokenizer,
    *,
    max_seq_length: int,
    block_size: int,
) -> Iterator[Block]:
    """Returns the lines of a file, as `a ||| b` if they are pairs.

    Args:
      path: the file, plain, .gz or .bz2; it is found now and read as the blocks
        are taken, never as a whole.
      tokenizer: cuts the lines.
      max_seq_length: in pieces.
      block_size: in lines.

    Raises:
      InputError: there is no such file, or, as it is read, a line is not UTF-8.
    """
    lines = text_tables.lines(file_system.find(path))
    texts = (line.strip() for _, line in lines)
    parts = iter(lambda: list(itertools.islice(texts, block_size)), [])
    return (
        Block(i * block_size, _encode(path, part, tokenizer, max_seq_length))
        for i, part in enumerate(parts)
    )


def _encode(path, lines, tokenizer, max_seq_length) -> Features:
    matches = [_PAIR.match(line) for line in lines]
    return features_lib.encode(
        tokenizer,
        [m[1] if m else line for m, line in zip(matches, lines, strict=True)],
        [m[2] if m else "" for m in matches],
        max_seq_length=max_seq_length,
        name=path,
    )


def in_order(
    task: ExtractionTask,
    features: Features,
    batches: Iterable[dict[str, np.ndarray]],
) -> list[dict[str, np.ndarray]]:
    """Returns each line's layers, [pieces, H] or [H], in the lines' order."""
    lengths = features.lengths
    found: list[dict[str, np.ndarray]] = [{} for _ in lengths]
    for batch in batches:
        for place, row in enumerate(batch["example_index"].tolist()):
            for layer in map(name, task.layers):
                values = batch[layer][place]
                if task.pooling == "none":
                    values = values[: lengths[row]].copy()
                found[row][layer] = values
    return found


def write(
    blocks: Iterable[Block],
    writer: feature_files.Writer,
    *,
    task: ExtractionTask,
    tokens: Sequence[str],
    predict: Callable[[Features], Iterable[dict[str, np.ndarray]]],
) -> int:
    """Writes block after block, as they are computed; returns the lines.

    Args:
      blocks: of read_blocks.
      writer: of feature_files.open_writer.
      task: chooses the layers.
      tokens: the vocabulary.
      predict: returns batches of the task's for some features.
    """
    count = 0
    for first, features in blocks:
        found = in_order(task, features, predict(features))
        ids = np.split(features.ragged["input_ids"], features.row_splits[1:-1])
        writer.write(
            [
                feature_files.Line(
                    first + row,
                    ids[row],
                    [tokens[i] for i in ids[row].tolist()],
                    layers,
                )
                for row, layers in enumerate(found)
            ]
        )
        count += len(found)
    return count
