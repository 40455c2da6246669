"""Features of many examples in memory, without padding, and their records.

    tokens       [CLS] is this jack ##son ##ville ? [SEP] no it is not . [SEP]
    segment_ids    0    0   0    0    0     0     0   0   1  1  1  1   1   1

A fine-tuning set fits in memory without its padding: MNLI's 393 thousand pairs
take 80 MB. Batches of any length are then made without reading, in any order.

    row_splits  0            5         9            sequence i is [splits[i],
    input_ids   CLS a b c SEP CLS d e SEP ...       splits[i + 1])
    label_ids   1             0                     one row an example

`stored` keeps them on disk, as padded records with
google-research/bert's names, until something changes:

    output_dir/train.tf_record        the records
    output_dir/train.tf_record.json   the receipt: what they were made from
                                      (digest of the texts, vocabulary, flags)
"""

import dataclasses
import functools
import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from data import receipts
from data import schema as schemas
from data.tokenization import wordpiece
from foundation import errors, file_system

FORMAT_VERSION = 2
_RECORDS_AT_ONCE = 2048
# The padding of label_ids; other features are padded with 0.
_PADDING = {"label_ids": -1}
_IS_REAL = "is_real_example"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Features:
    """N examples of one or several of R sequences.

    Each has one sequence, or K choices, or its own number of windows.

    Attributes:
      row_splits: int64 [R + 1].
      ragged: name -> [T] or [T, D], one row for each token (input_ids,
        segment_ids).
      dense: name -> [N, ...], one row for each example (label_ids).
      num_choices: K; 0 means one sequence without the axis of choices.
      window_splits: int64 [N + 1]; the windows of example i are the sequences
        [splits[i], splits[i + 1]). None if the texts are not divided.
    """

    row_splits: np.ndarray
    ragged: Mapping[str, np.ndarray]
    dense: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    num_choices: int = 0
    window_splits: np.ndarray | None = None

    def __len__(self) -> int:
        """Returns N."""
        return len(self._example_splits) - 1

    @functools.cached_property
    def _example_splits(self) -> np.ndarray:
        """The first sequence of each example, and R: int64 [N + 1]."""
        if self.window_splits is not None:
            return self.window_splits
        return np.arange(0, len(self.row_splits), self.num_choices or 1)

    @functools.cached_property
    def counts(self) -> np.ndarray:
        """The number of sequences of every example: int64 [N]."""
        return np.diff(self._example_splits)

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """The length of every example's longest sequence: int64 [N]."""
        if not len(self):
            return np.zeros(0, np.int64)
        lengths = np.diff(self.row_splits)
        return np.maximum.reduceat(lengths, self._example_splits[:-1])

    @property
    def sizes(self) -> np.ndarray:
        """The padded tokens of every example as a batch of one: int64 [N]."""
        return self.counts * self.lengths

    def batch(
        self, rows: np.ndarray, length: int, count: int | None = None
    ) -> dict[str, np.ndarray]:
        """Returns some examples padded to a length: [B, S] or [B, K, S].

        Floats remain floats; other values become int32.

        A window that an example lacks has an input_mask of 0.

        Args:
          rows: int [B], which examples.
          length: S, at least that of the longest.
          count: K of windows; by default that of the example with most.
        """
        if count is None:
            count = int(self.counts[rows].max(initial=1))
        number = np.arange(count)
        chosen = (self._example_splits[rows][:, None] + number).ravel()
        is_sequence = (number < self.counts[rows][:, None]).ravel()
        chosen[~is_sequence] = 0
        starts = self.row_splits[chosen][:, None]
        ends = self.row_splits[chosen + 1][:, None]
        positions = starts + np.arange(length)
        is_token = (positions < ends) & is_sequence[:, None]
        positions[~is_token] = 0
        has_axis = self.num_choices or self.window_splits is not None
        shape = [len(rows), *([count] if has_axis else []), length]
        result = {"input_mask": is_token.astype(np.int32).reshape(shape)}
        for name, flat in self.ragged.items():
            values = flat[positions] if len(flat) else positions
            values[~is_token] = _PADDING.get(name, 0)
            result[name] = values.reshape(*shape, *flat.shape[1:])
        result |= {name: values[rows] for name, values in self.dense.items()}
        for name, values in result.items():
            dtype = np.float32 if values.dtype.kind == "f" else np.int32
            result[name] = values.astype(dtype)
        return result


def by_token(
    batches: Iterable[dict[str, np.ndarray]], splits: np.ndarray
) -> dict[str, np.ndarray]:
    """Returns values [T, ...] of tokens, from values [B, S, ...] of batches.

    Args:
      batches: the values by name, with the `example_index` of each row.
      splits: int64 [R + 1]; the tokens of row i are [splits[i], splits[i + 1]).
    """
    joined: dict[str, np.ndarray] = {}
    for values in batches:
        rows = values.pop("example_index")
        length = next(iter(values.values())).shape[1]
        positions = splits[rows][:, None] + np.arange(length)
        is_token = positions < splits[rows + 1][:, None]
        for name, value in values.items():
            if name not in joined:
                shape = (splits[-1], *value.shape[2:])
                joined[name] = np.zeros(shape, value.dtype)
            joined[name][positions[is_token]] = value[is_token]
    return joined


class Windows(NamedTuple):
    """How a text that is longer than a sequence is divided into windows.

    Attributes:
      stride: the number of tokens from the start of a window to that of the
        next; smaller where a window has fewer.
      most: the largest number of windows of a text, which ends with the last.
    """

    stride: int
    most: int


def from_sequences(
    examples: Sequence[Sequence[Any]],
    *,
    num_choices: int = 0,
    are_windows: bool = False,
) -> Features:
    """Returns the input_ids and segment_ids of N examples.

    Args:
      examples: the sequences of each, such as tokens of finetuning.task: `ids`
        and `segment_ids`.
      num_choices: see Features.
      are_windows: whether the sequences of an example are windows of a text.
    """
    rows = list(itertools.chain.from_iterable(examples))

    def flat(values: Iterable[Sequence[int]]) -> np.ndarray:
        return np.array([*itertools.chain.from_iterable(values)], np.int32)

    def splits(values: Iterable[Sequence[Any]]) -> np.ndarray:
        return np.cumsum([0, *map(len, values)])

    return Features(
        row_splits=splits(row.ids for row in rows),
        ragged={
            "input_ids": flat(row.ids for row in rows),
            "segment_ids": flat(row.segment_ids for row in rows),
        },
        num_choices=num_choices,
        window_splits=splits(examples) if are_windows else None,
    )


def stored(
    path: str,
    schema: schemas.Schema,
    tokenizer: wordpiece.Tokenizer,
    made_from: Mapping[str, Any],
    make: Callable[[], Features],
) -> Features:
    """Returns the features of a set that is kept as records.

    Args:
      path: the records; they are made again if anything differs.
      schema: schema of the records.
      tokenizer: tokenizer of the model.
      made_from: the JSON values that determine the features, besides schema and
        tokenizer.
      make: makes the features.
    """
    values = {
        "format_version": FORMAT_VERSION,
        **made_from,
        "tokenizer": tokenizer_recipe(tokenizer),
        "schema": {x.name: [x.dtype, *x.shape] for x in schema.features},
    }
    made = []

    def write_made(temporary: str) -> dict[str, int]:
        logging.info("%s: tokenizing the texts ...", path)
        made.append(make())
        return {"records": write(temporary, schema, made[0])}

    file_system.make_folder(os.path.dirname(path))
    receipt = receipts.finished(
        path, f"{path}.json", write_made, json.loads(json.dumps(values))
    )
    logging.info("%s: %d records", path, receipt.counts["records"])
    return made[0] if made else read(path, schema)


def tokenizer_recipe(tokenizer: wordpiece.Tokenizer) -> dict[str, Any]:
    """Returns the part of a recipe that determines how text becomes tokens."""
    return {"vocabulary": tokenizer.vocabulary.sha256, **tokenizer.settings}


def write(path: str, schema: schemas.Schema, features: Features) -> int:
    """Writes one record per example, all padded to the schema's length.

    Returns:
      The number of records.
    """
    from data import records  # Not at the top: it imports TensorFlow.

    length = schema["input_ids"].shape[-1]

    def batches() -> Iterator[list[bytes]]:
        for start in range(0, len(features), _RECORDS_AT_ONCE):
            end = min(start + _RECORDS_AT_ONCE, len(features))
            columns = features.batch(np.arange(start, end), length)
            if _IS_REAL in schema.names:
                columns[_IS_REAL] = np.ones((end - start, 1), np.int32)
            yield records.encode(schema, columns)

    return records.write(path, batches())


def read(path: str, schema: schemas.Schema) -> Features:
    """Reads the records of `write` or of google-research/bert."""
    shape = schema["input_ids"].shape
    ragged_names = schema.ragged_names
    lengths = []
    ragged: dict[str, list[np.ndarray]] = {}
    dense: dict[str, list[np.ndarray]] = {}
    for parsed in _parsed(path, schema):
        is_token = parsed.pop("input_mask").reshape(-1, shape[-1]) > 0
        lengths.append(is_token.sum(axis=1))
        parsed.pop(_IS_REAL, None)
        for name, values in parsed.items():
            if name in ragged_names:
                values = values.reshape(is_token.shape)[is_token]
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
    import tensorflow as tf

    from data import records

    path = os.fspath(path)
    dataset = tf.data.TFRecordDataset(path, records.compression_type(path))
    dataset = dataset.batch(_RECORDS_AT_ONCE)
    dataset = dataset.map(lambda x: records.parse(x, schema))
    try:
        for parsed in dataset.prefetch(1):
            yield {name: x.numpy() for name, x in parsed.items()}
    except records.FAILURES as error:
        raise errors.InputError(
            f"{path}: cannot be read; remove it to have it made again: "
            f"{errors.reason(error)}"
        ) from None
