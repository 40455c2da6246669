"""Extracts activations of an encoder's layers, and writes them to a file.

layers    -1 is the last of L, as released; files call it "layer_-1"
pooling   none: [S, H] per text; cls: the vector of [CLS]; mean, max: over all
          tokens, including [CLS] and [SEP]; other names: see modeling.pooling.
          The dense layers of sentence-transformers are applied to the vector

The formats of the file:

    jsonl      as released: {"linex_index": 0, "features": [{"token": "[CLS]",
               "layers": [{"index": -1, "values": [...]}]}]}
    npz        input_ids [T], row_splits [N + 1], layer_-1 [T, H] of all lines
    tfrecord   one tf.train.Example per line with the same names
    parquet    one row per line with the same names; a row group per block

Files of pooled texts have "layers" instead of "features", and layer_-1 [N, H].
"""

import contextlib
import dataclasses
import itertools
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging
from keras import ops

from data import features as features_lib
from data import length_groups, text_files
from data.features import Features
from foundation import atomic, errors, file_system
from jobs import run_directory, streaming
from modeling import encoder, pooling
from modeling.config import BertConfig
from training import inference
from weights import pretrained, sentence_modules

FORMATS = ("jsonl", "npz", "tfrecord", "parquet")
_STANDARD_OUTPUT = "-"
# Part of a block: number of tokens per line, or of bytes per record; int64.
_LENGTHS = "lengths"
_INT64 = np.dtype(np.int64)
_PAIR = re.compile(r"^(.*) \|\|\| (.*)$")
_BLOCK_BYTES = 1 << 27  # Bytes of activations; three blocks are in memory.
_BLOCK_BATCHES = 200
# Activation of a dense layer -> function.
_ACTIVATIONS = {
    "Tanh": ops.tanh,
    "Identity": lambda x: x,
    "ReLU": ops.relu,
    "GELU": lambda x: ops.gelu(x, approximate=False),
    "Sigmoid": ops.sigmoid,
    "SiLU": ops.silu,
}


@dataclasses.dataclass(frozen=True, eq=False)
class ExtractionObjective:
    """Selects layers, and pools them to vectors of texts.

    Attributes:
      layers: numbers of the layers; -1 is the last layer.
      modules: how the vectors of texts are made from a layer.
      config: the encoder's hyperparameters.
    """

    layers: list[int]
    modules: sentence_modules.SentenceModules
    config: BertConfig

    def make_model(self, *, attention: str, dtype: Any, **unused: Any) -> Any:
        """Makes the encoder; see task_model.Objective."""
        return encoder.make_encoder(
            self.config, attention=attention, dtype=dtype
        )

    @property
    def is_pooled(self) -> bool:
        """Whether a text has one vector."""
        return self.modules.pooling != sentence_modules.NO_POOLING

    @property
    def vector_size(self) -> int:
        """The size of a vector; see SentenceModules."""
        size = self.config.hidden_size
        return self.modules.vector_size(size) if self.is_pooled else size

    def predict(
        self, model: Any, features: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Returns each layer by name: float32 [B, S, H], pooled [B, size]."""
        mask = features["input_mask"]
        outputs = model(features["input_ids"], mask, features["segment_ids"])
        layers = {}
        for layer in self.layers:
            x = ops.cast(outputs.all_encoder_layers[layer], "float32")
            if self.is_pooled:
                x = pooling.pool(self.modules.pooling, x, mask)
            for dense in self.modules.dense:
                x = ops.matmul(x, dense.kernel) + dense.bias
                x = _ACTIVATIONS[dense.activation](x)
            if self.modules.normalize:
                x = pooling.normalized(x)
            x = x[..., : self.modules.truncate_dim]
            layers[_name(layer)] = x
        return layers


def _name(layer: int) -> str:
    return f"layer_{layer}"


def parse_layers(
    text: str, config: BertConfig, *, name: str = "--layers"
) -> list[int]:
    """Parses the value of --layers, or of the flag or key `name`."""
    count = config.num_hidden_layers
    layers = []
    for part in text.split(","):
        try:
            layer = int(part)
        except ValueError:
            raise errors.InputError(
                f"{name}={text}: {part!r} is no whole number"
            ) from None
        if not -count <= layer < count:
            raise errors.InputError(
                f"{name}={text}: the model has {count} layers, "
                f"{-count} to {count - 1}, but not {layer}"
            )
        layers.append(layer)
    if len(set(layers)) < len(layers):
        raise errors.InputError(f"{name}={text}: one occurs twice")
    return layers


class Extractor:
    """Predicts the activations of lines with an encoder."""

    def __init__(
        self,
        task: ExtractionObjective,
        start: pretrained.Start,
        strategy: Any,
        *,
        dtype: str,
        jit_compile: bool,
        batch_size: int,
        max_seq_length: int,
        lengths: Sequence[int],
    ):
        """Makes the encoder with its weights and compiles it.

        Args:
          task: selects the layers.
          start: the pre-trained model.
          strategy: the devices.
          dtype: policy of the model's layers.
          jit_compile: whether XLA compiles the model.
          batch_size: lines per batch, over all replicas.
          max_seq_length: length of the model's inputs, in tokens; longer lines
            are truncated.
          lengths: permitted sequence lengths of batches.
        """
        self.task = task
        self.start = start
        self.max_seq_length = max_seq_length
        self._dtype = dtype
        self._batch_size = batch_size
        self._lengths = lengths
        with strategy.scope():
            self._model = encoder.make_encoder(
                start.config, attention=start.attention, dtype=dtype
            )
        pretrained.assign(
            self._model, start.init_checkpoint, tokenizer=start.tokenizer
        )
        self._predictor = inference.Predictor(
            task, self._model, strategy=strategy, jit_compile=jit_compile
        )

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that activations depend on; see streaming.Blocks."""
        return {
            "the model's weights": run_directory.weights_digest(self._model),
            "pooling": self.task.modules.pooling,
            "dense layers": self.task.modules.dense_digest,
            "vector size": self.task.vector_size,
            "normalize": self.task.modules.normalize,
            "max_seq_length": self.max_seq_length,
            **features_lib.tokenizer_recipe(self.start.tokenizer),
            "layers": self.task.layers,
            "batch_size": self._batch_size,
            "lengths": self._lengths,
            "precision": self._dtype,
        }

    @property
    def block_lines(self) -> int:
        """The number of lines per block."""
        task = self.task
        vectors = 1 if task.is_pooled else self.max_seq_length
        line_bytes = 4 * vectors * task.vector_size * len(task.layers)
        batches = max(1, _BLOCK_BYTES // (line_bytes * self._batch_size))
        return self._batch_size * min(batches, _BLOCK_BATCHES)

    def predict(self, features: Features) -> list[dict[str, np.ndarray]]:
        """Returns each line's layers, [tokens, H] or [H], in order."""
        self.start.check_segments(features)
        batches = length_groups.OrderedBatches(
            features, batch_size=self._batch_size, lengths=self._lengths
        )
        lengths = features.lengths
        layers_of_lines: list[dict[str, np.ndarray]] = [{} for _ in lengths]
        for batch in self._predictor.batches(batches):
            for number, row in enumerate(batch["example_index"].tolist()):
                for name in map(_name, self.task.layers):
                    values = batch[name][number]
                    if not self.task.is_pooled:
                        values = values[: lengths[row]].copy()
                    layers_of_lines[row][name] = values
        return layers_of_lines


class LineStream:
    """Lines whose activations are predicted; a streaming.Stream."""

    unit = "lines"

    def __init__(
        self,
        lines: text_files.Lines,
        output: "FeatureFile",
        extractor: Extractor,
    ):
        """Predicts nothing yet.

        Args:
          lines: texts, and pairs `a ||| b`.
          output: the output whose parts are made.
          extractor: predicts the activations.
        """
        self._lines, self._output = lines, output
        self._extractor = extractor
        self._tokenizer = extractor.start.tokenizer
        self._statistics = features_lib.TokenizationStatistics()
        self.block_items = extractor.block_lines
        self.total = lines.total

    def read(self) -> Iterable[tuple[int, str]]:
        """Returns the numbers of lines, from 0, and their texts."""
        return enumerate(line.text.strip() for line in self._lines.read())

    def key(self, item: tuple[int, str]) -> str:
        """Returns the text."""
        return item[1]

    def rows_of(self, item: tuple[int, str]) -> int:
        """Returns 1."""
        del item
        return 1

    def encode(self, items: list[tuple[int, str]]) -> Features:
        """Tokenizes lines."""
        pairs = [
            match.groups() if (match := _PAIR.match(text)) else (text, "")
            for _, text in items
        ]
        first, second = map(list, zip(*pairs, strict=True))
        return features_lib.encode_blocks(
            self._tokenizer,
            [(first, second)],
            max_seq_length=self._extractor.max_seq_length,
            statistics=self._statistics,
        )

    def predict(self, encoded: Features) -> list[dict[str, np.ndarray]]:
        """Returns the layers of each line."""
        return self._extractor.predict(encoded)

    def parts(
        self,
        items: list[tuple[int, str]],
        encoded: Features,
        predicted: list[dict[str, np.ndarray]],
    ) -> streaming.Parts:
        """Returns the parts of the output."""
        tokens = self._tokenizer.vocabulary.tokens
        ids = np.split(encoded.ragged["input_ids"], encoded.row_splits[1:-1])
        return self._output.parts(
            [
                Line(number, row, [tokens[i] for i in row.tolist()], layers)
                for (number, _), row, layers in zip(
                    items, ids, predicted, strict=True
                )
            ]
        )

    def end(self) -> None:
        """Warns of text that truncation lost."""
        length = self._extractor.max_seq_length
        self._statistics.warn(self._lines.name, length)


def extract(
    lines: text_files.Lines, output: "FeatureFile", extractor: Extractor
) -> None:
    """Writes the activations of lines, which are texts or pairs `a ||| b`.

    Raises:
      InputError: there are no lines.
    """
    stream = LineStream(lines, output, extractor)
    if output.path == _STANDARD_OUTPUT:
        count = streaming.run(stream, streaming.StandardOutput(output.form))
    else:
        blocks = streaming.Blocks(
            f"{output.path}.incomplete",
            {"output_format": output.form, **extractor.settings},
        )
        if count := streaming.run(stream, blocks):
            names = list(map(_name, extractor.task.layers))
            output.write(blocks, names, extractor.task.vector_size)
        blocks.remove()
    if not count:
        raise errors.InputError(f"{lines.name}: has no lines")


class Line(NamedTuple):
    """One line of text and its activations.

    number: number of the line, counted from 0.
    ids: int32 [tokens].
    tokens: the tokens.
    layers: name -> float32 [tokens, H] or, pooled, [H].
    """

    number: int
    ids: np.ndarray
    tokens: Sequence[str]
    layers: Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureFile:
    """A file in one of FORMATS.

    Attributes:
      path: path of the file; _STANDARD_OUTPUT prints the lines, in jsonl only.
      form: one of FORMATS.
      pooled: whether a text has one vector.
    """

    path: str
    form: str
    pooled: bool

    def check(self) -> None:
        """Checks whether the file can be written, before any other work.

        Logs a warning if the path ends in the name of another format.

        Raises:
          InputError: the file cannot be written.
        """
        path = self.path
        if path == _STANDARD_OUTPUT:
            if self.form != "jsonl":
                raise errors.InputError(
                    f"--output_file=-: --output_format={self.form} cannot be "
                    "written to standard output, only jsonl"
                )
            return
        file_system.check_output(path, "output_file")
        extension = os.path.splitext(path)[1].removeprefix(".")
        if extension in FORMATS and extension != self.form:
            logging.warning(
                "--output_file=%s is written in the format %s; "
                "--output_format=%s writes %s",
                path,
                self.form,
                extension,
                extension,
            )

    def parts(self, lines: Sequence[Line]) -> streaming.Parts:
        """Returns the parts of a block of at least one line."""
        if self.form == "jsonl":
            text = "".join(_json(line, self.pooled) + "\n" for line in lines)
            return {self.form: text.encode("utf-8")}
        if self.form == "tfrecord":
            records = [_example(line, self.pooled) for line in lines]
            lengths = np.array(list(map(len, records)), _INT64).tobytes()
            return {_LENGTHS: lengths, self.form: b"".join(records)}
        if self.form == "parquet":
            return {self.form: _table(lines, self.pooled)}
        arrays: dict[str, list[np.ndarray]] = {
            _LENGTHS: [np.array([len(line.ids) for line in lines], _INT64)],
            "input_ids": [line.ids.astype(np.int32) for line in lines],
        }
        for name in lines[0].layers:
            arrays[name] = [line.layers[name] for line in lines]
        return {
            name: b"".join(np.ascontiguousarray(x).tobytes() for x in values)
            for name, values in arrays.items()
        }

    def write(
        self, blocks: streaming.Blocks, layers: Sequence[str], vector_size: int
    ) -> None:
        """Writes the file, which appears when it is complete.

        `blocks` have the parts of `parts`; `layers` are names.
        """
        if folder := os.path.dirname(self.path):
            file_system.make_folder(folder)
        if self.form == "jsonl":
            blocks.write(self.form, self.path)
            return
        with atomic.replacing(self.path, on_disk=True) as hidden:
            if self.form == "npz":
                _write_npz(hidden, blocks, layers, vector_size, self.pooled)
            elif self.form == "tfrecord":
                _write_tfrecord(hidden, blocks)
            else:
                _write_parquet(hidden, blocks)


def _json(line: Line, pooled: bool) -> str:
    """Returns an object with values to six decimals."""
    columns = [
        (name.removeprefix("layer_"), values.tolist())
        for name, values in line.layers.items()
    ]
    size = next(iter(line.layers.values())).shape[-1]
    # One format string per row is three times as fast as json.dumps.
    template = ", ".join(["%.6f"] * size)

    def layers(rows: Iterable[tuple[str, list[float]]]) -> str:
        parts = (
            f'{{"index": {index}, "values": [{template % tuple(row)}]}}'
            for index, row in rows
        )
        return f"[{', '.join(parts)}]"

    head = f'{{"linex_index": {line.number}, '
    if pooled:
        return f'{head}"layers": {layers(columns)}}}'
    features = ", ".join(
        f'{{"token": {json.dumps(token)}, "layers": '
        + layers((index, rows[i]) for index, rows in columns)
        + "}"
        for i, token in enumerate(line.tokens)
    )
    return f'{head}"features": [{features}]}}'


def _example(line: Line, pooled: bool) -> bytes:
    """Returns a serialized tf.train.Example."""
    example = tf.train.Example()
    feature = example.features.feature
    feature["linex_index"].int64_list.value.append(line.number)
    if not pooled:
        feature["input_ids"].int64_list.value.extend(line.ids.tolist())
    for name, values in line.layers.items():
        feature[name].float_list.value.extend(values.ravel().tolist())
    return example.SerializeToString()


def _write_tfrecord(path: str, blocks: streaming.Blocks) -> None:
    parts = zip(blocks.parts(_LENGTHS), blocks.parts("tfrecord"), strict=True)
    with tf.io.TFRecordWriter(path) as writer:
        for lengths, records in parts:
            ends = np.cumsum(np.frombuffer(lengths, _INT64)).tolist()
            for start, end in itertools.pairwise([0, *ends]):
                writer.write(records[start:end])


def _table(lines: Sequence[Line], pooled: bool) -> bytes:
    """Returns a table of one row per line; [tokens, H] is a flat list."""
    import pyarrow

    columns: dict[str, Any] = {
        "linex_index": pyarrow.array([line.number for line in lines])
    }
    if not pooled:
        columns["input_ids"] = _lists([line.ids for line in lines])
        columns["tokens"] = pyarrow.array([[*x.tokens] for x in lines])
    for name in lines[0].layers:
        columns[name] = _lists([line.layers[name] for line in lines])
    table = pyarrow.table(columns)
    buffer = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(buffer, table.schema) as stream:
        stream.write_table(table)
    return buffer.getvalue().to_pybytes()


def _lists(arrays: Sequence[np.ndarray]) -> Any:
    import pyarrow

    flat = [array.ravel() for array in arrays]
    ends = np.cumsum([0, *map(len, flat)])
    return pyarrow.LargeListArray.from_arrays(ends, np.concatenate(flat))


def _write_parquet(path: str, blocks: streaming.Blocks) -> None:
    import pyarrow
    from pyarrow import parquet

    with contextlib.ExitStack() as stack:
        writer = None
        for part in blocks.parts("parquet"):
            table = pyarrow.ipc.open_stream(part).read_all()
            if writer is None:
                writer = stack.enter_context(
                    parquet.ParquetWriter(path, table.schema)
                )
            writer.write_table(table)


def _write_npz(
    path: str,
    blocks: streaming.Blocks,
    layers: Sequence[str],
    vector_size: int,
    pooled: bool,
) -> None:
    """Writes each array as a stream, after its length is known."""
    num_lines = num_tokens = 0
    for part in blocks.parts(_LENGTHS):
        lengths = np.frombuffer(part, _INT64)
        num_lines += len(lengths)
        num_tokens += int(lengths.sum())

    arrays = {}
    if not pooled:
        splits = streaming.row_splits(blocks.parts(_LENGTHS))
        ids = blocks.parts("input_ids")
        arrays["row_splits"] = streaming.NpzArray(
            "<i8", (num_lines + 1,), splits
        )
        arrays["input_ids"] = streaming.NpzArray("<i4", (num_tokens,), ids)
    shape = (num_lines if pooled else num_tokens, vector_size)
    for name in layers:
        arrays[name] = streaming.NpzArray("<f4", shape, blocks.parts(name))
    streaming.write_npz(path, arrays)
