"""Proves that a dry run estimates well, and leaves nothing behind.

pytest tests/data/pretraining/dry_run_test.py
"""

import dataclasses
import pathlib

import pytest

from data.pretraining import dry_run
from tests.data.pretraining import recipes


@pytest.fixture
def recipe(tmp_path):
    """A recipe of nine files, of which not all are read."""
    paths = []
    for seed in range(9):
        path = tmp_path / f"{seed}.txt"
        path.write_text(recipes.random_documents(seed))
        paths.append(str(path))
    (tmp_path / "out").mkdir()
    return recipes.recipe_for(paths, tmp_path / "out")


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_the_estimate_is_near_what_the_job_makes(recipe, tmp_path, suffix):
    recipe = recipes.recipe_for(
        recipe.input_files, tmp_path / "out", suffix=suffix
    )
    estimate = dry_run.estimate(recipe)
    assert not list((tmp_path / "out").iterdir())
    assert 1 < estimate.factor < 2
    made = recipes.make(recipe)
    for name in ("documents", "sentences", "pieces", "instances"):
        expected = pytest.approx(made.totals[name], rel=0.1)
        assert estimate.totals[name] * estimate.factor == expected, name
    size = sum(shard.bytes for shard in made.shards)
    assert estimate.shard_bytes * estimate.factor == pytest.approx(size, 0.1)
    assert estimate.seconds > 0


def test_the_estimate_is_shown_in_units_for_people(recipe):
    estimate = dry_run.Estimate(
        factor=1000.0,
        file_bytes=15_000_000_000,
        totals=dict(documents=2, sentences=30, pieces=500, instances=40),
        records=40,
        shard_bytes=31_234,
        work_dir_bytes=1,
        seconds=9.0,
    )
    lines = list(estimate.lines(num_workers=2))
    shown = {line[:22].strip(): line[22:] for line in lines}
    assert shown["instances"] == "40,000"
    assert shown["bytes of shards"] == "31.2 MB"
    assert shown["time"] == "75 minutes, 2 worker(s)"


def test_the_sample_is_taken_from_all_files(recipe, tmp_path):
    paths = []
    for n in range(15):
        paths.append(str(tmp_path / f"{n}.txt"))
        pathlib.Path(paths[-1]).write_text(f"{n}\n")
    many = dataclasses.replace(recipe, input_files=tuple(paths))
    sampled = [int(block.data) for block in dry_run._sample(many)]
    assert sampled == [0, 1, 3, 5, 7, 9, 11, 13]
