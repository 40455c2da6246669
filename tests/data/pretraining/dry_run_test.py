"""Proves that a dry run estimates well, and leaves nothing behind.

pytest tests/data/pretraining/dry_run_test.py
"""

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
