"""Packing: several instances in one row of max_seq_length.

    three instances        one row
    A A A A [0 0 0 0]      input_mask    1 1 1 1 2 2 3 3
    B B [0 0 0 0 0 0]      position_ids  0 1 2 3 0 1 0 1
    C C [0 0 0 0 0 0]      next_sentence_positions  0 4 6

An instance keeps its pieces, segments, predictions and label; only where it
lies changes, so that a model which lets no instance see another has the same
losses. `pack` says which instances share a row, `lay_out` moves them there.
"""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True, kw_only=True)
class PackingRule:
    """What a row has room for."""

    max_seq_length: int
    predictions_per_row: int
    instances_per_row: int


def rule_for(
    max_seq_length: int,
    max_predictions_per_seq: int,
    masked_lm_prob: float,
    instances_per_row: int,
) -> PackingRule:
    """Returns the rule for instances that are masked in a certain way.

    The predictions of a full row are those of one instance as long as it; the
    few besides make room for what rounding adds in each instance.
    """
    expected = int(max_seq_length * masked_lm_prob) + 4
    most = min(expected, instances_per_row * max_predictions_per_seq)
    return PackingRule(
        max_seq_length=max_seq_length,
        predictions_per_row=max(most, max_predictions_per_seq),
        instances_per_row=instances_per_row,
    )


def pack(
    lengths: np.ndarray,
    predictions: np.ndarray,
    rule: PackingRule,
    rng: np.random.Generator,
) -> np.ndarray:
    """Chooses a row for each instance: best fit, the longest first.

    Args:
      lengths: int [N], with [CLS] and both [SEP].
      predictions: int [N], how many pieces each predicts at most.
      rule: what a row has room for.
      rng: puts the rows in random order.

    Returns:
      int64 [N], the row of each instance, counted from 0 without a gap.
    """
    # by_room[n] are the rows that still have room for n pieces; bit n of
    # `rooms` says that there is one.
    by_room: list[list[int]] = [[] for _ in range(rule.max_seq_length + 1)]
    rooms, held, predicted, chosen = 0, [], [], []
    order = np.argsort(-lengths, kind="stable")
    for length, wanted in zip(
        lengths[order].tolist(), predictions[order].tolist(), strict=True
    ):
        fitting, row, room = rooms >> length, None, rule.max_seq_length
        if fitting:
            least = length + (fitting & -fitting).bit_length() - 1
            candidate = by_room[least][-1]
            if predicted[candidate] + wanted <= rule.predictions_per_row:
                row, room = candidate, least
                by_room[least].pop()
                rooms ^= 0 if by_room[least] else 1 << least
        if row is None:
            row = len(held)
            held.append(0)
            predicted.append(0)
        chosen.append(row)
        held[row] += 1
        predicted[row] += wanted
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
      rule: what a row has room for.

    Returns:
      The features of schema.packed_pretraining, `count` rows.
    """
    is_real = columns["input_mask"] > 0
    lengths = is_real.sum(1)
    number = _number_in_row(rows, count)
    start = np.cumsum(lengths) - lengths
    start -= start[np.arange(len(rows)) - number]
    instance, column = np.nonzero(is_real)

    def in_places(values):
        result = np.zeros((count, rule.max_seq_length), np.int32)
        result[rows[instance], start[instance] + column] = values
        return result

    def in_pairs(values, dtype=np.int32):
        result = np.zeros((count, rule.instances_per_row), dtype)
        result[rows, number] = values
        return result

    return {
        "input_ids": in_places(columns["input_ids"][is_real]),
        "input_mask": in_places(number[instance] + 1),
        "segment_ids": in_places(columns["segment_ids"][is_real]),
        "position_ids": in_places(column),
        **_predictions(columns, rows, start, count, rule),
        "next_sentence_positions": in_pairs(start),
        "next_sentence_labels": in_pairs(columns["next_sentence_labels"][:, 0]),
        "next_sentence_weights": in_pairs(1.0, np.float32),
    }


def _predictions(columns, rows, start, count, rule) -> dict[str, np.ndarray]:
    is_used = columns["masked_lm_weights"] > 0
    instance = np.nonzero(is_used)[0]
    row = rows[instance]
    place = (row, _number_in_row(row, count))

    def placed(values, dtype=np.int32):
        result = np.zeros((count, rule.predictions_per_row), dtype)
        result[place] = values
        return result

    positions = columns["masked_lm_positions"][is_used]
    return {
        "masked_lm_positions": placed(positions + start[instance]),
        "masked_lm_ids": placed(columns["masked_lm_ids"][is_used]),
        "masked_lm_weights": placed(1.0, np.float32),
    }


def _number_in_row(rows, count) -> np.ndarray:
    """Counts 0, 1, 2, ... within each run of equal, ascending rows."""
    first = np.searchsorted(rows, np.arange(count))
    return np.arange(len(rows)) - first[rows]
