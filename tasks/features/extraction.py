"""Extracts activations of an encoder's layers, and writes them to a file.

layers    -1 is the last of L, as released; files call it "layer_-1"
pooling   none: [S, H] per text; cls: the vector of [CLS]; mean, max: over all
          tokens, including [CLS] and [SEP]; other names: see modeling.pooling.
          The dense layers of sentence-transformers are applied to the vector

The forms of the file:

    jsonl      as released: {"linex_index": 0, "features": [{"token": "[CLS]",
               "layers": [{"index": -1, "values": [...]}]}]}
    npz        input_ids [T], row_splits [N + 1], layer_-1 [T, H] of all lines

Files of pooled texts have "layers" instead of "features", and layer_-1 [N, H].
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from data import text_files
from finetuning import given_model
from finetuning import task as tasks
from foundation import errors
from modeling.config import BertConfig
from weights import sentence_modules

FORMS = ("jsonl", "npz")
_LENGTHS, _IDS = "lengths", "input_ids"  # Parts of a block, with the layers.
_INT64 = np.dtype("<i8")
_PAIR = re.compile(r"^(.*) \|\|\| (.*)$")
_BLOCK_BYTES = 1 << 27  # Bytes of activations; three blocks are in memory.
_BLOCK_BATCHES = 200


class Line(NamedTuple):
    """A text, or a pair `a ||| b`.

    where: file and line.
    number: its number, counted from 0.
    text: the text.
    label: None.
    """

    where: str
    number: int
    text: str
    label: None = None


def read(lines: text_files.Lines) -> tasks.Examples:
    """Returns lines as examples."""

    def texts() -> Iterator[Line]:
        for number, line in enumerate(lines.read()):
            yield Line(line.where, number, line.text.strip())

    return tasks.Examples(lines.name, texts)


def check_layers(
    layers: Sequence[int], config: BertConfig, flag: str = "layers"
) -> None:
    """Raises InputError if the model lacks one of the layers."""
    count = config.num_hidden_layers
    for layer in layers:
        if not -count <= layer < count:
            raise errors.InputError(
                f"--{flag}: the model has {count} layers, {-count} to "
                f"{count - 1}, but not {layer}"
            )


class Extraction(tasks.Task):
    """The activations of lines; predicted by heads.LayersHead."""

    def __init__(
        self,
        model: given_model.GivenModel,
        layers: Sequence[int],
        modules: sentence_modules.SentenceModules,
        *,
        max_seq_length: int,
        form: str,
    ):
        """Takes what is read and written.

        Args:
          model: the model.
          layers: numbers of the layers.
          modules: how the vectors of texts are made.
          max_seq_length: in tokens; longer lines are cut.
          form: one of FORMS.
        """
        self.model, self.tokenizer = model, model.tokenizer
        self._layers, self._modules = layers, modules
        self._length, self._form = max_seq_length, form
        # Refuses modules that differ.
        hidden_size = model.config.hidden_size
        pooled = modules.is_pooled
        self._size = modules.vector_size(hidden_size) if pooled else hidden_size

    def block_size(self, batch_size: int) -> int:
        """Returns the number of lines of a block."""
        vectors = 1 if self._modules.is_pooled else self._length
        line_bytes = 4 * vectors * self._size * len(self._layers)
        batches = max(1, _BLOCK_BYTES // (line_bytes * batch_size))
        return batch_size * min(batches, _BLOCK_BATCHES)

    def encode(self, example: Line) -> Sequence[tasks.Tokens]:
        """See Task."""
        pair = _PAIR.match(example.text)
        texts = pair.groups() if pair else (example.text, "")
        a, b = (tasks.token_ids(self.tokenizer, text) for text in texts)
        return [tasks.sequence(self.tokenizer, a, b, self._length)]

    def decode(
        self, encoded: tasks.Encoded, outputs: Mapping[str, np.ndarray]
    ) -> dict[str, bytes]:
        """See Task."""
        splits = encoded.features.row_splits
        ids = encoded.features.ragged["input_ids"]
        if self._form == "jsonl":
            lines = self._lines(encoded.examples, splits, ids, outputs)
            return {"jsonl": "".join(lines).encode()}
        return {
            _LENGTHS: np.diff(splits).astype(_INT64).tobytes(),
            _IDS: ids.astype("<i4").tobytes(),
            **{
                name: values.astype("<f4").tobytes()
                for name, values in outputs.items()
            },
        }

    def _lines(
        self,
        lines: Sequence[Line],
        splits: np.ndarray,
        ids: np.ndarray,
        outputs: Mapping[str, np.ndarray],
    ) -> Iterator[str]:
        names = self.tokenizer.vocabulary.tokens
        pooled = self._modules.is_pooled
        for i, line in enumerate(lines):
            row = slice(splits[i], splits[i + 1])
            layers = {
                layer: outputs[f"layer_{layer}"][i if pooled else row]
                for layer in self._layers
            }
            tokens = [names[x] for x in ids[row].tolist()]
            yield f"{_json(line.number, None if pooled else tokens, layers)}\n"

    @property
    def layout(self) -> tasks.Layout:
        """How the file is made."""
        if self._form == "jsonl":
            return tasks.Layout("jsonl")
        return tasks.Layout(_LENGTHS, write=self._write_npz)

    def _write_npz(
        self, file: BinaryIO, parts: Callable[[str], Iterator[bytes]]
    ) -> None:
        """Writes the file that np.savez would, in the memory of one block."""
        counts = [np.frombuffer(part, _INT64) for part in parts(_LENGTHS)]
        rows, arrays = sum(map(len, counts)), dict[str, Any]()
        if not self._modules.is_pooled:
            splits = np.cumsum(np.concatenate([[0], *counts]), dtype=_INT64)
            rows = int(splits[-1])
            whole = [splits.tobytes()]
            arrays["row_splits"] = _INT64.str, splits.shape, whole
            arrays[_IDS] = "<i4", (rows,), parts(_IDS)
        for layer in self._layers:
            name = f"layer_{layer}"
            arrays[name] = "<f4", (rows, self._size), parts(name)
        tasks.write_npz(file, arrays)


def _json(
    number: int,
    tokens: Sequence[str] | None,
    layers: Mapping[int, np.ndarray],
) -> str:
    """Returns an object with values to six decimals.

    Args:
      number: that of the line.
      tokens: the tokens; None for a pooled text.
      layers: number of a layer -> [tokens, H], pooled [H].
    """
    size = next(iter(layers.values())).shape[-1]
    # One format string per row is three times as fast as json.dumps.
    template = ", ".join(["%.6f"] * size)
    values = {
        layer: x.reshape(-1, size).tolist() for layer, x in layers.items()
    }

    def row(i: int) -> str:
        parts = (
            f'{{"index": {layer}, "values": [{template % tuple(rows[i])}]}}'
            for layer, rows in values.items()
        )
        return f"[{', '.join(parts)}]"

    if tokens is None:
        return f'{{"linex_index": {number}, "layers": {row(0)}}}'
    features = ", ".join(
        f'{{"token": {json.dumps(token)}, "layers": {row(i)}}}'
        for i, token in enumerate(tokens)
    )
    return f'{{"linex_index": {number}, "features": [{features}]}}'
