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
    lines = dry_run.estimate(recipe, num_workers=3)
    assert not list((tmp_path / "out").iterdir())
    shown = {line[:22].rstrip(): line[22:] for line in lines}
    assert 50 < float(shown["sampled"].removesuffix(" %")) < 100
    made = recipes.make(recipe)
    totals = {**made.totals, "tokens": made.totals["pieces"]}
    totals["records"] = made.record_count
    for name in ("documents", "sentences", "tokens", "instances", "records"):
        estimated = int(shown[name].replace(",", ""))
        assert estimated == pytest.approx(totals[name], rel=0.1), name
    number, unit = shown["bytes of shards"].split()
    estimated = float(number) * {"B": 1, "kB": 1e3, "MB": 1e6}[unit]
    size = sum(shard.bytes for shard in made.shards)
    assert estimated == pytest.approx(size, 0.1)
    assert shown["time"].endswith("seconds, 3 worker(s)")
