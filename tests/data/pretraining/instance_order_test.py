"""Proves that ranks of the global order are one sort of all plans.

pytest tests/data/pretraining/instance_order_test.py
"""

import numpy as np

from data.pretraining import data_job, instances


def write(folder, sizes):
    rng = np.random.default_rng(0)
    plans = []
    for number, size in enumerate(sizes):
        places = np.zeros(size, instances.PLACE)
        places["key"] = rng.integers(0, 1 << 64, size, np.uint64)
        places["a_start"] = number * 1000 + np.arange(size)
        plan = instances.Plan(places, 7)
        data_job.write_plan(str(folder), number, plan)
        plans.append(places)
    data_job.merge_indexes(str(folder), len(sizes))
    return np.concatenate(plans)


def test_ranges_of_ranks_cut_the_sorted_whole(tmp_path):
    every = write(tmp_path, [300, 0, 1, 500])
    every = every[np.argsort(every["key"], kind="stable")]
    for bounds in ([0, 801], [0, 1, 2, 400, 800, 801], [0, 333, 666, 801]):
        got = [
            data_job.read_ranks(str(tmp_path), 4, range(a, b))
            for a, b in zip(bounds, bounds[1:], strict=False)
        ]
        assert np.concatenate(got).tobytes() == every.tobytes()


def test_the_order_mixes_the_plans_evenly(tmp_path):
    write(tmp_path, [1000] * 4)
    first = data_job.read_ranks(str(tmp_path), 4, range(1000))
    shares = np.bincount(first["a_start"] // 1000, minlength=4)
    assert abs(shares - 250).max() < 5 * (1000 * 0.25 * 0.75) ** 0.5


def test_a_plan_stands_only_when_its_totals_do(tmp_path):
    assert data_job.standing_plan(str(tmp_path), 0) is None
    write(tmp_path, [10])
    totals = data_job.standing_plan(str(tmp_path), 0)
    assert totals == (10, 0, 7, 30)
    (tmp_path / "plan-00000.json").unlink()
    assert data_job.standing_plan(str(tmp_path), 0) is None
