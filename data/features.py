"""Features of many examples in memory, without padding, and their records.

What a task is fine-tuned on fits in memory once the padding is left out: MNLI's
393 thousand pairs take 80 MB. Batches of any length are then cut without
reading, in any order.

    row_splits  0            5         9            sequence i is [splits[i],
    input_ids   CLS a b c SEP CLS d e SEP ...       splits[i + 1])
    label_ids   1             0                     one row an example

The records on disk are padded and named as google-research/bert's.
"""

import contextlib
import dataclasses
import functools
import json
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from data import records
from data import schema as schemas
from data.tokenization import wordpiece
from foundation import errors, file_system

_CHUNK = 2048
# What stands where a row has ended; other ragged features end in 0.
_PADDING = {"label_ids": -1}
_IS_REAL = "is_real_example"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Features:
    """N examples of K sequences each; K is 1 but for multiple choice.

    Attributes:
      row_splits: int64 [N * K + 1].
      ragged: name -> [T], one value for each piece (input_ids, segment_ids).
      dense: name -> [N, ...], one row for each example (label_ids).
      num_choices: K; 0 means one sequence without the axis of choices.
    """

    row_splits: np.ndarray
    ragged: Mapping[str, np.ndarray]
    dense: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    num_choices: int = 0

    def __len__(self) -> int:
        """Returns N."""
        return (len(self.row_splits) - 1) // (self.num_choices or 1)

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """The pieces of every example's longest sequence: int64 [N]."""
        lengths = np.diff(self.row_splits)
        return lengths.reshape(len(self), -1).max(axis=1, initial=0)

    def batch(self, rows: np.ndarray, length: int) -> dict[str, np.ndarray]:
        """Returns some examples padded to a length: [B, S] or [B, K, S].

        Args:
          rows: int [B], which examples.
          length: S, at least that of the longest.
        """
        choices = self.num_choices or 1
        sequences = (rows[:, None] * choices + np.arange(choices)).ravel()
        starts = self.row_splits[sequences][:, None]
        ends = self.row_splits[sequences + 1][:, None]
        places = starts + np.arange(length)
        is_piece = places < ends
        places[~is_piece] = 0
        shape = [len(rows), *([choices] if self.num_choices else []), length]
        result = {"input_mask": is_piece.astype(np.int32)}
        for name, flat in self.ragged.items():
            padding = _PADDING.get(name, 0)
            values = flat[places] if len(flat) else places
            result[name] = np.where(is_piece, values, padding).astype(np.int32)
        result = {name: x.reshape(shape) for name, x in result.items()}
        for name, values in self.dense.items():
            dtype = np.float32 if values.dtype.kind == "f" else np.int32
            result[name] = values[rows].astype(dtype)
        return result


def write(path: str, schema: schemas.Schema, features: Features) -> None:
    """Writes one record an example, all padded to the schema's length."""
    length = schema["input_ids"].shape[-1]
    with records.ShardWriter(path) as writer:
        for start in range(0, len(features), _CHUNK):
            rows = np.arange(start, min(start + _CHUNK, len(features)))
            columns = features.batch(rows, length)
            if _IS_REAL in schema.names:
                columns[_IS_REAL] = np.ones((len(rows), 1), np.int32)
            writer.write(records.encode(schema, columns))


def read(path: str, schema: schemas.Schema) -> Features:
    """Reads what `write` (or google-research/bert) wrote."""
    shape = schema["input_ids"].shape
    ragged_names = schema.ragged_names
    lengths, ragged, dense = [], {}, {}
    for parsed in _parsed(path, schema):
        is_piece = parsed.pop("input_mask").reshape(-1, shape[-1]) > 0
        lengths.append(is_piece.sum(axis=1))
        parsed.pop(_IS_REAL, None)
        for name, values in parsed.items():
            if name in ragged_names:
                values = values.reshape(is_piece.shape)[is_piece]
                ragged.setdefault(name, []).append(values)
            else:
                dense.setdefault(name, []).append(values)
    if not lengths:
        raise errors.InputError(f"{path}: holds no records")
    return Features(
        row_splits=np.concatenate([[0], np.cumsum(np.concatenate(lengths))]),
        ragged={name: np.concatenate(x) for name, x in ragged.items()},
        dense={name: np.concatenate(x) for name, x in dense.items()},
        num_choices=shape[0] if len(shape) == 2 else 0,
    )


def _parsed(path, schema) -> Iterator[dict[str, np.ndarray]]:
    path = os.fspath(path)
    dataset = tf.data.TFRecordDataset(path, records.compression_type(path))
    dataset = dataset.batch(_CHUNK).map(lambda x: records.parse(x, schema))
    try:
        for parsed in dataset.prefetch(1):
            yield {name: x.numpy() for name, x in parsed.items()}
    except tf.errors.OpError as error:
        reason = str(error.message).splitlines()[0]
        raise errors.InputError(
            f"{path}: cannot be read, remove it to have it made again: {reason}"
        ) from None


# ----------------------------------------------------------------------
# Records of a fine-tuning run: made once, and again when something changed.
#
#     output_dir/train.tf_record        as google-research/bert writes them
#     output_dir/train.tf_record.json   what they were made from
#
# The second file names the texts' digest, the vocabulary, the flags; where all
# of
# it is as now, and the records are whole, nothing is tokenized.

FORMAT_VERSION = 1
SUFFIX = ".json"


def prepare(
    path: str,
    schema: schemas.Schema,
    job: Mapping[str, Any],
    make: Callable[[], Features],
) -> Features:
    """Returns the features of a set, from its records if they are current.

    Args:
      path: of the records.
      schema: what they hold.
      job: JSON values that decide what they hold.
      make: makes the features.
    """
    job = _complete(job, schema)
    if _is_current(path, job):
        features = read(path, schema)
        logging.info("%s: %d records, as they stand", path, len(features))
        return features
    features = make()
    _write(path, schema, job, features)
    return features


def read_note(path: str) -> dict[str, Any]:
    """Reads what a file was made from; {} where nothing tells."""
    try:
        with tf.io.gfile.GFile(path + SUFFIX) as file:
            note = json.loads(file.read())
    except (tf.errors.NotFoundError, ValueError):
        return {}
    return note if isinstance(note, dict) else {}


def write_note(path: str, note: Mapping[str, Any]) -> None:
    """Notes beside a file what it was made from."""
    file_system.write_json(path + SUFFIX, note, indent=1)


def remove_note(path: str) -> None:
    """Makes a file that is about to change count as unfinished."""
    # There may be none, or another worker has just removed it.
    with contextlib.suppress(tf.errors.NotFoundError):
        tf.io.gfile.remove(path + SUFFIX)


def tokenizer_job(tokenizer: wordpiece.Tokenizer) -> dict[str, Any]:
    """Returns the part of a job that says how text becomes pieces."""
    return {"vocabulary": tokenizer.vocabulary.sha256, **tokenizer.settings}


def _complete(job, schema: schemas.Schema) -> dict[str, Any]:
    """Adds the schema; what is read again from JSON is compared with it."""
    described = {
        feature.name: [feature.dtype, *feature.shape]
        for feature in schema.features
    }
    return json.loads(json.dumps({**job, "schema": described}))


def _write(path, schema, job, features) -> None:
    tf.io.gfile.makedirs(os.path.dirname(path) or ".")
    remove_note(path)
    write(path, schema, features)
    note = {
        "format_version": FORMAT_VERSION,
        "records": len(features),
        "bytes": tf.io.gfile.stat(path).length,
        "job": job,
    }
    write_note(path, note)
    logging.info("%s: %d records written", path, len(features))


def _is_current(path: str, job: Mapping[str, Any]) -> bool:
    note = read_note(path)
    return (
        note.get("format_version") == FORMAT_VERSION
        and note.get("job") == job
        and tf.io.gfile.exists(path)
        and note.get("bytes") == tf.io.gfile.stat(path).length
    )
