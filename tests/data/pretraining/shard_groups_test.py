"""Proves that runs on many machines give the shards that one run gives.

pytest tests/data/pretraining/shard_groups_test.py
"""

import importlib.util
import pathlib
import subprocess
import sys
import threading
from concurrent import futures

import pytest

from data import workers
from data.pretraining import generation
from data.tokenization import vocabulary
from tests.data.pretraining.recipes import TOKENS, hashes, make, recipe_for

pytestmark = pytest.mark.usefixtures("small_tasks")


@pytest.fixture(scope="module")
def expected(text, small_tasks, tmp_path_factory):
    """What one run with one worker gives."""
    folder = tmp_path_factory.mktemp("expected")
    make(recipe_for(text, folder, shards=5))
    return hashes(folder)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 1, 2, 0)])
def test_groups_that_run_one_after_the_other_make_the_same(
    text, tmp_path, expected, order
):
    """An array job whose tasks never run at the same time ends all the same."""
    folder = tmp_path / "out"
    folder.mkdir()
    recipe = recipe_for(text, folder, shards=5)
    for index in order:
        group = generation.ShardGroup(index, 3)
        made = make(recipe, group=group)
        assert (made is not None) == (index == order[-1])
        for shard in group.own(recipe.output_files):
            assert pathlib.Path(shard).exists()
    assert hashes(folder) == expected


def test_groups_divide_everything_among_them():
    found = [generation.ShardGroup(n, 3).own(range(10)) for n in range(3)]
    assert sorted(sum(found, [])) == list(range(10))
    for n in range(3):
        tasks = generation.ShardGroup(n, 3).own_first(range(10))
        assert sorted(tasks) == list(range(10))
        assert tasks[: len(found[n])] == found[n]


def test_groups_that_run_at_the_same_time_make_the_same(
    text, tmp_path, expected
):
    folder = tmp_path / "out"
    folder.mkdir()
    together = threading.Barrier(3)

    def run(index):
        together.wait()
        recipe = recipe_for(text, folder, shards=5)
        return make(recipe, group=generation.ShardGroup(index, 3))

    with futures.ThreadPoolExecutor(3) as pool:
        made = list(pool.map(run, range(3)))
    assert any(made)
    assert hashes(folder) == expected


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("apache_beam") is None,
    reason="needs apache_beam: pip install -e '.[beam]'",
)
def test_beam_makes_the_same_shards_in_several_processes(
    text, tmp_path, repository
):
    words = tmp_path / "vocab.txt"
    vocabulary.Vocabulary.from_tokens(TOKENS).to_file(str(words))
    options = "--direct_num_workers=2 --direct_running_mode=multi_processing"
    beam = ["--beam_runner=DirectRunner", f"--beam_options={options}"]
    made = []
    for name, more in (("local", []), ("beam", beam)):
        folder = tmp_path / name
        arguments = [
            str(repository / "create_pretraining_data.py"),
            f"--input_file={text}",
            f"--vocab_file={words}",
            f"--output_prefix={folder}/x",
            "--num_shards=4",
            "--pack_sequences",
            "--num_workers=1",
            *more,
        ]
        subprocess.run([sys.executable, *arguments], check=True, cwd=tmp_path)
        made.append(hashes(folder))
    assert made[0] == made[1] and len(made[0]) == 6


def test_a_missing_beam_is_said_in_one_line(text, tmp_path, monkeypatch):
    for name in [x for x in sys.modules if x.startswith("apache_beam")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    monkeypatch.setitem(sys.modules, "apache_beam.options", None)
    recipe = recipe_for(text, tmp_path)
    with pytest.raises(ValueError, match=r"pip install -e '\.\[beam\]'"):
        workers.BeamWorkers(1, recipe, "", runner="DirectRunner")
