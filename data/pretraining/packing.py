"""Packing: several instances in one record of max_seq_length, a row.

    three instances        one row
    A A A A [0 0 0 0]      input_mask    1 1 1 1 2 2 3 3
    B B [0 0 0 0 0 0]      position_ids  0 1 2 3 0 1 0 1
    C C [0 0 0 0 0 0]      next_sentence_positions  0 4 6

An instance keeps its tokens, segments, predictions and label; only its position
changes. A model in which no instance attends to another has the same losses.
`pack` chooses a row for each instance, `lay_out` moves the instances there.
"""

import functools

import numpy as np

from data.pretraining.settings import PackingRule


def pack(
    lengths: np.ndarray,
    predictions: np.ndarray,
    rule: PackingRule,
    rng: np.random.Generator,
) -> np.ndarray:
    """Chooses a row for each instance: best fit, the longest first.

    Args:
      lengths: int [N], with [CLS] and both [SEP].
      predictions: int [N], the largest number of predictions of each.
      rule: the capacity of a row.
      rng: shuffles the rows.

    Returns:
      int64 [N], the row of each instance; all rows from 0 occur.
    """
    # by_room[n] lists the rows with room for n more tokens; bit n of `rooms` is
    # set if there are any.
    by_room: list[list[int]] = [[] for _ in range(rule.max_seq_length + 1)]
    rooms = 0
    held: list[int] = []
    predicted: list[int] = []
    chosen: list[int] = []
    order = np.argsort(-lengths, kind="stable")
    for length, num_predictions in zip(
        lengths[order].tolist(), predictions[order].tolist(), strict=True
    ):
        fitting, row, room = rooms >> length, None, rule.max_seq_length
        if fitting:
            least = length + (fitting & -fitting).bit_length() - 1
            candidate = by_room[least][-1]
            if (
                predicted[candidate] + num_predictions
                <= rule.predictions_per_row
            ):
                row, room = candidate, least
                by_room[least].pop()
                rooms ^= 0 if by_room[least] else 1 << least
        if row is None:
            row = len(held)
            held.append(0)
            predicted.append(0)
        chosen.append(row)
        held[row] += 1
        predicted[row] += num_predictions
        room -= length
        if held[row] < rule.instances_per_row:
            by_room[room].append(row)
            rooms |= 1 << room
    rows = np.empty(len(lengths), np.int64)
    rows[order] = rng.permutation(len(held))[chosen]
    return rows


def lay_out(
    columns: dict[str, np.ndarray],
    rows: np.ndarray,
    count: int,
    rule: PackingRule,
) -> dict[str, np.ndarray]:
    """Moves instances into their rows.

    Args:
      columns: the features of schema.pretraining, N instances ordered by row.
      rows: int64 [N], ascending, the row of each.
      count: number of rows.
      rule: the capacity of a row.

    Returns:
      The features of schema.packed_pretraining, `count` rows.
    """
    is_real = columns["input_mask"] > 0
    lengths = is_real.sum(1)
    number = _number_in_row(rows, count)
    start = np.cumsum(lengths) - lengths
    start -= start[np.arange(len(rows)) - number]
    instance, column = np.nonzero(is_real)
    by_token = rows[instance], start[instance] + column
    by_instance = rows, number
    is_used = columns["masked_lm_weights"] > 0
    predicting = np.nonzero(is_used)[0]
    row = rows[predicting]
    by_prediction = row, _number_in_row(row, count)

    def scatter(indices, width, values, dtype=np.int32):
        result = np.zeros((count, width), dtype)
        result[indices] = values
        return result

    tokens = functools.partial(scatter, by_token, rule.max_seq_length)
    predictions = functools.partial(
        scatter, by_prediction, rule.predictions_per_row
    )
    pairs = functools.partial(scatter, by_instance, rule.instances_per_row)
    positions = columns["masked_lm_positions"][is_used] + start[predicting]
    return {
        "input_ids": tokens(columns["input_ids"][is_real]),
        "input_mask": tokens(number[instance] + 1),
        "segment_ids": tokens(columns["segment_ids"][is_real]),
        "position_ids": tokens(column),
        "masked_lm_positions": predictions(positions),
        "masked_lm_ids": predictions(columns["masked_lm_ids"][is_used]),
        "masked_lm_weights": predictions(1.0, np.float32),
        "next_sentence_positions": pairs(start),
        "next_sentence_labels": pairs(columns["next_sentence_labels"][:, 0]),
        "next_sentence_weights": pairs(1.0, np.float32),
    }


def _number_in_row(rows, count) -> np.ndarray:
    """Counts 0, 1, 2, ... within each run of equal, ascending rows."""
    first = np.searchsorted(rows, np.arange(count))
    return np.arange(len(rows)) - first[rows]
