"""Files of activations, made of blocks of lines.

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
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from foundation import errors, file_system
from jobs import streaming

FORMATS = ("jsonl", "npz", "tfrecord", "parquet")
STANDARD_OUTPUT = "-"
_LENGTHS = "lengths"  # Part of a block: the tokens of each line, int64.
_INT64 = np.dtype(np.int64)


class Line(NamedTuple):
    """One line of text and its activations.

    number: counted from 0.
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
      path: STANDARD_OUTPUT prints the lines, in jsonl only.
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
          InputError: it cannot.
        """
        path = self.path
        if path == STANDARD_OUTPUT:
            if self.form != "jsonl":
                raise errors.InputError(
                    f"--output_file=-: --output_format={self.form} cannot be "
                    "written to standard output, only jsonl"
                )
            return
        if tf.io.gfile.isdir(path):
            raise errors.InputError(
                f"--output_file={path}: is a directory, not a file"
            )
        if not os.path.basename(path):
            raise errors.InputError(f"--output_file={path}: names no file")
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
        arrays = {
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
        self, blocks: streaming.Blocks, layers: Sequence[str], hidden_size: int
    ) -> None:
        """Writes the file, which appears when it is complete.

        Args:
          blocks: of `parts`.
          layers: the names of the layers.
          hidden_size: H.
        """
        folder = os.path.dirname(self.path)
        if folder:
            tf.io.gfile.makedirs(folder)
        if self.form == "jsonl":
            blocks.write(self.form, self.path)
            return
        with file_system.replacing(self.path, on_disk=True) as hidden:
            if self.form == "npz":
                _write_npz(hidden, blocks, layers, hidden_size, self.pooled)
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
    hidden_size: int,
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
    shape = (num_lines if pooled else num_tokens, hidden_size)
    for name in layers:
        arrays[name] = streaming.NpzArray("<f4", shape, blocks.parts(name))
    streaming.write_npz(path, arrays)
