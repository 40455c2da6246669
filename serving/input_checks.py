"""Refuses inputs that a model cannot compute, inside a graph.

    input_word_ids: row 2: 30600 is not from 0 to 30521
    segment_ids: row 0, choice 1: 2 is not from 0 to 1
    input_ids: row 3: 600 ids, not from 1 to 512

The model would embed an id outside of its table as another one, and rows of
different lengths can end the process. Each line begins with the name of an
input and, where one row is to blame, the number of the row in the batch, from
0; `servable` replaces it by the number in the client's request.

All checks of a batch are a few reductions and one branch. The lines are made in
the branch, which is taken only for a refusal.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf


class Limits(NamedTuple):
    """What a model has.

    Attributes:
      num_words: rows of the table of words.
      num_segments: rows of the table of segments.
      num_positions: tokens of the longest sequence.
    """

    num_words: int
    num_segments: int
    num_positions: int

    @property
    def counts(self) -> dict[str, int]:
        """Name of a feature -> how many values it can have, from 0."""
        return {
            "input_ids": self.num_words,
            "input_mask": 2,
            "segment_ids": self.num_segments,
        }


class _Check(NamedTuple):
    """A reason to refuse a batch.

    Attributes:
      is_bad: bool, of any shape.
      line: maps the index of the first bad element, in the flat array, to the
        parts of the line, strings and integers.
    """

    is_bad: tf.Tensor
    line: Callable[[tf.Tensor], Sequence[Any]]


def texts(inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Refuses different numbers of rows, and rows without an ending.

    Args:
      inputs: name -> string [B], or [B, K] of endings.

    Returns:
      The same tensors, which exist only if they are accepted.
    """
    checks = _row_counts(inputs)
    for name, values in inputs.items():
        if values.shape.rank == 2:
            checks.append(_no_choices(name, _lengths(values, 1), name))
    return _accepted(checks, inputs)


def features(
    inputs: Mapping[str, tf.Tensor], names: Mapping[str, str], limits: Limits
) -> dict[str, tf.Tensor]:
    """Refuses features that the model does not have.

    Args:
      inputs: feature -> int32 [B, S], or [B, K, S] of multiple choice.
      names: feature -> the client's name of it.
      limits: what the model has.

    Returns:
      The same tensors, which exist only if they are accepted.
    """
    named = {names[feature]: inputs[feature] for feature in names}
    first, *others = named
    shape = tf.shape(named[first])
    checks = _row_counts(named)
    for name in others:
        checks.append(_row_shapes(name, named[name], first, shape))
    if named[first].shape.rank == 3:
        checks.append(_no_choices(first, _lengths(named[first], 1), "choices"))
    checks.append(_num_ids(first, _lengths(named[first], -1), limits))

    def place(index):
        index, length = tf.cast(index, tf.int32), shape[-1]
        if shape.shape[0] == 2:
            return [index // length]
        return [index // (shape[1] * length), index // length % shape[1]]

    for feature, name in names.items():
        count = limits.counts[feature]
        checks.append(_values(name, inputs[feature], count, place))
    return _accepted(checks, inputs)


def records(
    inputs: Mapping[str, tf.RaggedTensor],
    limits: Limits,
    choice_length: int | None,
) -> dict[str, tf.RaggedTensor]:
    """Refuses the features of records that the model does not have.

    Args:
      inputs: feature -> int64 [B, None].
      limits: what the model has.
      choice_length: ids of a choice, of which a row has one after the other;
        None if a row is one sequence.

    Returns:
      The same tensors, which exist only if they are accepted.
    """
    first, *others = limits.counts
    lengths = {name: inputs[name].row_lengths() for name in limits.counts}
    checks = [_row_lengths(name, first, lengths) for name in others]
    length = lengths[first]
    if choice_length is None:
        checks.append(_num_ids(first, length, limits))
    else:
        is_bad = (length == 0) | (length % choice_length != 0)
        problem = f" ids, not {choice_length} for each choice"
        checks.append(_row_check(first, is_bad, length, problem))
        checks.append(_differing_counts(first, length, choice_length))
    for name, count in limits.counts.items():

        def place(index, rows=inputs[name]):
            row = tf.gather(rows.value_rowids(), index)
            if choice_length is None:
                return [row]
            index -= tf.cast(tf.gather(rows.row_starts(), row), tf.int64)
            return [row, index // choice_length]

        checks.append(_values(name, inputs[name].values, count, place))
    return _accepted(checks, inputs)


def text_records(
    inputs: Mapping[str, tf.RaggedTensor], specs: Mapping[str, tf.TensorSpec]
) -> dict[str, tf.Tensor]:
    """Refuses records that lack a text, or differ in their numbers of endings.

    Args:
      inputs: name -> string [B, None].
      specs: name -> string [B] of one text, or [B, K] of several.

    Returns:
      Name -> a tensor as in `specs`.
    """
    checks = []
    for name, spec in specs.items():
        length = inputs[name].row_lengths()
        if spec.shape.rank == 1:
            problem = " texts instead of one"
            checks.append(_row_check(name, length != 1, length, problem))
        else:
            checks.append(_no_choices(name, length, name))
            checks.append(_differing_counts(name, length, 1))
    return {
        name: x.values if specs[name].shape.rank == 1 else x.to_tensor()
        for name, x in _accepted(checks, inputs).items()
    }


def _accepted(
    checks: Sequence[_Check], inputs: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the inputs behind an operation that fails for a bad element."""
    if not checks:
        return dict(inputs)
    are_bad = tf.stack([tf.reduce_any(check.is_bad) for check in checks])

    def make_line(check):
        is_bad = tf.cast(tf.reshape(check.is_bad, [-1]), tf.int8)
        parts = check.line(tf.argmax(is_bad))
        return tf.strings.join(
            [
                part if isinstance(part, str) else tf.strings.as_string(part)
                for part in parts
            ]
        )

    def fail():
        number = tf.argmax(tf.cast(are_bad, tf.int8), output_type=tf.int32)
        line = tf.switch_case(
            number, [lambda check=check: make_line(check) for check in checks]
        )
        with tf.control_dependencies([tf.debugging.Assert(False, [line])]):
            return tf.constant(False)

    passed = tf.cond(tf.reduce_any(are_bad), fail, lambda: tf.constant(True))
    with tf.control_dependencies([passed]):
        return tf.nest.map_structure(
            tf.identity, dict(inputs), expand_composites=True
        )


def _row(name: str, index: tf.Tensor) -> list[Any]:
    return [f"{name}: row ", index, ": "]


def _row_counts(inputs: Mapping[str, tf.Tensor]) -> list[_Check]:
    """Checks that all inputs have as many rows as the first."""
    first, *others = inputs
    expected = tf.shape(inputs[first])[0]

    def check(name: str) -> _Check:
        count = tf.shape(inputs[name])[0]
        return _Check(
            count != expected,
            lambda _: [
                f"{name}: ",
                count,
                f" rows, but {first} has ",
                expected,
            ],
        )

    return list(map(check, others))


def _lengths(values: tf.Tensor, axis: int) -> tf.Tensor:
    """Returns int32 [B], the size of an axis for each row of a tensor."""
    shape = tf.shape(values)
    return tf.fill([shape[0]], shape[axis])


def _row_check(
    name: str, is_bad: tf.Tensor, lengths: tf.Tensor, problem: str
) -> _Check:
    """Checks rows, bool [B]; the line has a row's length, of int [B]."""
    return _Check(
        is_bad, lambda i: [*_row(name, i), tf.gather(lengths, i), problem]
    )


def _no_choices(name: str, counts: tf.Tensor, what: str) -> _Check:
    """Checks that rows have a choice: int [B]."""
    problem = f" {what}, at least 1 is needed"
    return _row_check(name, counts == 0, counts, problem)


def _num_ids(name: str, lengths: tf.Tensor, limits: Limits) -> _Check:
    """Checks that the model has as many positions as each row: int [B]."""
    is_bad = (lengths < 1) | (lengths > limits.num_positions)
    problem = f" ids, not from 1 to {limits.num_positions}"
    return _row_check(name, is_bad, lengths, problem)


def _row_shapes(
    name: str, values: tf.Tensor, first: str, expected: tf.Tensor
) -> _Check:
    """Checks that rows have the shape of those of the first input."""
    shape = tf.shape(values)

    def size(shape):
        choices = [shape[1], " choices of "] if values.shape.rank == 3 else []
        return [*choices, shape[-1], " values"]

    return _Check(
        shape[1:] != expected[1:],
        lambda _: [
            f"{name}: row 0: ",
            *size(shape),
            f", but {first} has ",
            *size(expected),
        ],
    )


def _row_lengths(
    name: str, first: str, lengths: Mapping[str, tf.Tensor]
) -> _Check:
    """Checks that the rows are as long as those of the first input."""
    return _Check(
        lengths[name] != lengths[first],
        lambda i: [
            *_row(name, i),
            tf.gather(lengths[name], i),
            f" values, but {first} has ",
            tf.gather(lengths[first], i),
        ],
    )


def _differing_counts(name: str, lengths: tf.Tensor, unit: int) -> _Check:
    """Checks that all rows have as many choices."""
    most = tf.reduce_max(lengths)
    return _Check(
        lengths != most,
        lambda i: [
            *_row(name, i),
            tf.gather(lengths, i) // unit,
            " choices, but the rows of a request need the same number; "
            "another one has ",
            most // unit,
        ],
    )


def _values(
    name: str,
    values: tf.Tensor,
    count: int,
    place: Callable[[tf.Tensor], Sequence[tf.Tensor]],
) -> _Check:
    """Checks that values are from 0 to `count` - 1.

    Args:
      name: the client's name of the input.
      values: integers of any shape.
      count: how many values are accepted.
      place: maps an index in the flat array to a row, and a choice if there
        are several.
    """

    def line(index):
        row, *choices = place(index)
        return [
            f"{name}: row ",
            row,
            *(part for choice in choices for part in (", choice ", choice)),
            ": ",
            tf.gather(tf.reshape(values, [-1]), index),
            f" is not from 0 to {count - 1}",
        ]

    return _Check((values < 0) | (values >= count), line)
