"""Proves that ranks of the global order are one sort of all tables.

pytest tests/data/pretraining/shuffle_test.py
"""

import numpy as np

from data.pretraining import instances, shuffle


def write(folder, sizes):
    """Returns all instances, the index and the tables that hold them."""
    rng = np.random.default_rng(0)
    every, tables = [], []
    for number, size in enumerate(sizes):
        found = np.zeros(size, instances.INSTANCE)
        found["key"] = rng.integers(0, 1 << 64, size, np.uint64)
        found["a_start"] = number * 1000 + np.arange(size)
        tables.append(folder / str(number))
        tables[-1].write_bytes(shuffle.table(found))
        every.append(found)
    shuffle.merge_indexes(str(folder / "index"), tables)
    return np.concatenate(every), str(folder / "index"), tables


def test_ranges_of_ranks_cut_the_sorted_whole(tmp_path):
    every, index, tables = write(tmp_path, [300, 0, 1, 500])
    every = every[np.argsort(every["key"], kind="stable")]
    for bounds in ([0, 801], [0, 1, 2, 400, 800, 801], [0, 333, 666, 801]):
        got = [
            shuffle.read_ranks(index, tables, range(a, b))
            for a, b in zip(bounds, bounds[1:], strict=False)
        ]
        assert np.concatenate(got).tobytes() == every.tobytes()


def test_the_order_mixes_the_tables_evenly(tmp_path):
    _, index, tables = write(tmp_path, [1000] * 4)
    first = shuffle.read_ranks(index, tables, range(1000))
    counts = np.bincount(first["a_start"] // 1000, minlength=4)
    assert abs(counts - 250).max() < 5 * (1000 * 0.25 * 0.75) ** 0.5
