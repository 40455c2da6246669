"""Writes files of activations, line by line; each file appears when complete.

    jsonl      as released: {"linex_index": 0, "features": [{"token": "[CLS]",
               "layers": [{"index": -1, "values": [...]}]}]}
    npz        input_ids [T], row_splits [N + 1], layer_-1 [T, H] of all lines
    tfrecord   one tf.train.Example per line with the same names
    parquet    one row per line with the same names; needs pyarrow

Files of pooled texts have "layers" instead of "features", and layer_-1 [N, H].
"""

import contextlib
import importlib.util
import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow as tf
from absl import logging

from foundation import errors, file_system

FORMATS = ("jsonl", "npz", "tfrecord", "parquet")
_NEEDS_DISK = ("npz", "parquet")  # In a bucket, the complete file is copied.
_COPY_BYTES = 1 << 22


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


class Writer(Protocol):
    """Writes lines in their order."""

    def write(self, lines: Sequence[Line]) -> None:
        """Writes at least one line; a call makes a row group in Parquet."""


@contextlib.contextmanager
def open_writer(path: str, form: str, *, pooled: bool) -> Iterator[Writer]:
    """Opens a writer of one of FORMATS.

    Logs a warning if the path ends in the name of another format.

    Raises:
      InputError: see check.
    """
    check(path, form)
    extension = os.path.splitext(path)[1].removeprefix(".")
    if extension in FORMATS and extension != form:
        logging.warning(
            "--output_file=%s is written in the format %s; "
            "--output_format=%s writes %s",
            path,
            form,
            extension,
            extension,
        )
    writers = {
        "jsonl": _JsonWriter,
        "npz": _NpzWriter,
        "tfrecord": _RecordWriter,
        "parquet": _ParquetWriter,
    }
    folder = os.path.dirname(path)
    if folder:
        tf.io.gfile.makedirs(folder)
    with file_system.replacing(path, on_disk=form in _NEEDS_DISK) as hidden:
        with contextlib.ExitStack() as stack:
            writer = writers[form](hidden, pooled, stack)
            yield writer
            if isinstance(writer, _NpzWriter):
                writer.finish()


def check(path: str, form: str) -> None:
    """Checks whether a file can be written, before any other work.

    Raises:
      InputError: the path is a directory, or a package is missing.
    """
    if tf.io.gfile.isdir(path):
        raise errors.InputError(
            f"--output_file={path}: is a directory, not a file"
        )
    if not os.path.basename(path):
        raise errors.InputError(f"--output_file={path}: names no file")
    if form == "parquet" and importlib.util.find_spec("pyarrow") is None:
        raise errors.InputError(
            "--output_format=parquet needs pyarrow: pip install .[parquet]"
        )


class _JsonWriter:
    """Writes one object per line, with values to six decimals."""

    def __init__(self, path: str, pooled: bool, stack: contextlib.ExitStack):
        self._pooled = pooled
        self._file = stack.enter_context(tf.io.gfile.GFile(path, "w"))
        self._template = ""

    def write(self, lines: Sequence[Line]) -> None:
        for line in lines:
            self._file.write(self._text(line) + "\n")

    def _text(self, line: Line) -> str:
        columns = [
            (name.removeprefix("layer_"), values.tolist())
            for name, values in line.layers.items()
        ]
        head = f'{{"linex_index": {line.number}, '
        if self._pooled:
            return f'{head}"layers": {self._layers(columns)}}}'
        features = ", ".join(
            f'{{"token": {json.dumps(token)}, "layers": '
            + self._layers([(index, rows[i]) for index, rows in columns])
            + "}"
            for i, token in enumerate(line.tokens)
        )
        return f'{head}"features": [{features}]}}'

    def _layers(self, columns) -> str:
        # One format string per row is three times as fast as json.dumps.
        values = columns[0][1]
        self._template = self._template or ", ".join(["%.6f"] * len(values))
        parts = (
            f'{{"index": {index}, "values": [{self._template % tuple(row)}]}}'
            for index, row in columns
        )
        return f"[{', '.join(parts)}]"


class _NpzWriter:
    """Keeps each array in a temporary file until its length is known."""

    def __init__(self, path: str, pooled: bool, stack: contextlib.ExitStack):
        self._path = path
        self._pooled = pooled
        self._stack = stack
        # name -> file, length, first values; it does not grow with the lines.
        self._arrays: dict[str, list] = {}
        self._num_tokens = 0

    def write(self, lines: Sequence[Line]) -> None:
        for line in lines:
            if not self._pooled:
                self._append_split(len(line.ids))
                self._append("input_ids", line.ids)
            for name, values in line.layers.items():
                self._append(name, values[None] if self._pooled else values)

    def _append_split(self, tokens: int) -> None:
        """Appends the end of a line, and at first the start 0."""
        if not self._arrays:
            self._append("row_splits", np.zeros(1, np.int64))
        self._num_tokens += tokens
        self._append("row_splits", np.array([self._num_tokens], np.int64))

    def _append(self, name: str, values: np.ndarray) -> None:
        if name not in self._arrays:
            file = self._stack.enter_context(
                tempfile.TemporaryFile(dir=os.path.dirname(self._path) or None)
            )
            self._arrays[name] = [file, 0, values]
        array = self._arrays[name]
        array[0].write(np.ascontiguousarray(values).data)
        array[1] += len(values)

    def finish(self) -> None:
        with zipfile.ZipFile(self._path, "w") as archive:
            for name, (file, count, example) in self._arrays.items():
                header = {
                    "descr": np.lib.format.dtype_to_descr(example.dtype),
                    "fortran_order": False,
                    "shape": (count, *example.shape[1:]),
                }
                file.seek(0)
                entry = archive.open(f"{name}.npy", "w", force_zip64=True)
                with entry:
                    np.lib.format.write_array_header_1_0(entry, header)
                    shutil.copyfileobj(file, entry, _COPY_BYTES)


class _RecordWriter:
    """Writes one tf.train.Example per line."""

    def __init__(self, path: str, pooled: bool, stack: contextlib.ExitStack):
        self._pooled = pooled
        self._writer = stack.enter_context(tf.io.TFRecordWriter(path))

    def write(self, lines: Sequence[Line]) -> None:
        for line in lines:
            example = tf.train.Example()
            feature = example.features.feature
            feature["linex_index"].int64_list.value.append(line.number)
            if not self._pooled:
                feature["input_ids"].int64_list.value.extend(line.ids.tolist())
            for name, values in line.layers.items():
                feature[name].float_list.value.extend(values.ravel().tolist())
            self._writer.write(example.SerializeToString())


class _ParquetWriter:
    """Writes one row per line; [tokens, H] is a flat list."""

    def __init__(self, path: str, pooled: bool, stack: contextlib.ExitStack):
        self._path = path
        self._pooled = pooled
        self._stack = stack
        self._writer: Any = None

    def write(self, lines: Sequence[Line]) -> None:
        import pyarrow
        from pyarrow import parquet

        columns: dict[str, Any] = {
            "linex_index": pyarrow.array([line.number for line in lines])
        }
        if not self._pooled:
            columns["input_ids"] = _lists([line.ids for line in lines])
            columns["tokens"] = pyarrow.array([[*x.tokens] for x in lines])
        for name in lines[0].layers:
            columns[name] = _lists([line.layers[name] for line in lines])
        table = pyarrow.table(columns)
        if self._writer is None:
            self._writer = self._stack.enter_context(
                parquet.ParquetWriter(self._path, table.schema)
            )
        self._writer.write_table(table)


def _lists(arrays: Sequence[np.ndarray]) -> Any:
    import pyarrow

    flat = [array.ravel() for array in arrays]
    ends = np.cumsum([0, *map(len, flat)])
    return pyarrow.LargeListArray.from_arrays(ends, np.concatenate(flat))
