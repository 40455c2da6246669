"""Proves that packing moves instances without changing them.

pytest tests/data/pretraining/packing_test.py
"""

import numpy as np

from data.pretraining import packing


def rule(length=64, predictions=14, instances=4):
    return packing.PackingRule(
        max_seq_length=length,
        predictions_per_row=predictions,
        instances_per_row=instances,
    )


def instances_of(count=300, length=64, predictions=10, seed=0):
    """Random records, each recognizable by its tokens."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(5, length, count, endpoint=True)
    sizes[: count // 3] = length
    position = np.arange(length)
    used = np.arange(predictions) < np.maximum(1, sizes // 7)[:, None]
    positions = np.sort(rng.random((count, predictions)), 1)
    positions = (positions * (sizes[:, None] - 1)).astype(np.int32) * used
    is_real = position < sizes[:, None]
    return {
        "input_ids": rng.integers(1, 1000, (count, length)) * is_real,
        "input_mask": is_real.astype(np.int32),
        "segment_ids": is_real * (position > sizes[:, None] // 2),
        "masked_lm_positions": positions,
        "masked_lm_ids": rng.integers(1, 1000, used.shape) * used,
        "masked_lm_weights": used.astype(np.float32),
        "next_sentence_labels": rng.integers(0, 2, (count, 1)),
    }


def packed_rows(columns, room):
    lengths = columns["input_mask"].sum(1)
    wanted = columns["masked_lm_weights"].sum(1).astype(int)
    rows = packing.pack(lengths, wanted, room, np.random.default_rng(1))
    order = np.argsort(rows, kind="stable")
    sorted_columns = {name: x[order] for name, x in columns.items()}
    count = int(rows.max()) + 1
    made = packing.lay_out(sorted_columns, rows[order], count, room)
    return rows, sorted_columns, made


def unpacked(made, number):
    """Takes one instance out of every row that has so many, as tuples."""
    found = []
    for row in range(len(made["input_ids"])):
        here = made["input_mask"][row] == number + 1
        if not here.any():
            continue
        start = made["next_sentence_positions"][row, number]
        at = made["masked_lm_positions"][row]
        mine = (made["masked_lm_weights"][row] > 0) & here[at]
        found.append(
            (
                made["input_ids"][row, here].tolist(),
                made["segment_ids"][row, here].tolist(),
                made["position_ids"][row, here].tolist(),
                (at[mine] - start).tolist(),
                made["masked_lm_ids"][row, mine].tolist(),
                int(made["next_sentence_labels"][row, number]),
            )
        )
    return found


def as_tuples(columns):
    found = []
    for row in range(len(columns["input_ids"])):
        size = columns["input_mask"][row].sum()
        used = columns["masked_lm_weights"][row] > 0
        found.append(
            (
                columns["input_ids"][row, :size].tolist(),
                columns["segment_ids"][row, :size].tolist(),
                list(range(size)),
                columns["masked_lm_positions"][row, used].tolist(),
                columns["masked_lm_ids"][row, used].tolist(),
                int(columns["next_sentence_labels"][row, 0]),
            )
        )
    return found


def test_every_instance_is_found_again_unchanged():
    columns, room = instances_of(), rule()
    _, _, made = packed_rows(columns, room)
    found = [x for number in range(4) for x in unpacked(made, number)]
    assert sorted(found) == sorted(as_tuples(columns))
    assert made["next_sentence_weights"].sum() == 300


def test_no_row_goes_over_what_it_has_room_for():
    columns = instances_of(count=2000)
    for room in (rule(), rule(predictions=10), rule(instances=2)):
        rows, _, made = packed_rows(columns, room)
        lengths = columns["input_mask"].sum(1)
        wanted = columns["masked_lm_weights"].sum(1)
        assert np.bincount(rows, lengths).max() <= room.max_seq_length
        assert np.bincount(rows, wanted).max() <= room.predictions_per_row
        assert np.bincount(rows).max() <= room.instances_per_row
        assert np.bincount(rows).min() >= 1
        assert made["masked_lm_weights"].sum() == wanted.sum()


def test_rows_are_in_random_order_by_the_generator_alone():
    lengths = np.tile([64, 30, 34], 100)
    made = [
        packing.pack(lengths, lengths // 7, rule(), np.random.default_rng(seed))
        for seed in (1, 1, 2)
    ]
    np.testing.assert_array_equal(made[0], made[1])
    assert (made[0] != made[2]).any()
    full = made[0][::3]  # The longest do not all come first.
    assert 60 < full.mean() < 140
