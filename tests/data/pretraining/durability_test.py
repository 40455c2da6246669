"""Proves that a damaged file is never used, whichever it is.

A killed run leaves files; a power failure truncates one of them or fills it
with zeros. The next run makes the shards of an undisturbed run, or ends with
one line that names the file.

pytest tests/data/pretraining/durability_test.py
"""

import pytest

from data import records
from data.pretraining import generation, work_dir
from foundation import errors
from tests.data.pretraining.recipes import hashes, make, recipe_for

pytestmark = pytest.mark.usefixtures("small_tasks")


class Killed(BaseException):
    """Ends a run like SIGKILL: nothing of the project handles it."""


@pytest.fixture(scope="module")
def expected(text, small_tasks, tmp_path_factory):
    """The hashes of all files of an undisturbed run."""
    folder = tmp_path_factory.mktemp("expected")
    make(recipe_for(text, folder, shards=4))
    return hashes(folder)


def killed(recipe, monkeypatch, owner, name, calls):
    """Makes shards until the given call of a function."""
    original, count = getattr(owner, name), [0]

    def mortal(*arguments, **switches):
        count[0] += 1
        if count[0] > calls:
            raise Killed
        return original(*arguments, **switches)

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, mortal)
        with pytest.raises(Killed):
            make(recipe)


# When the run is killed, and the damaged file.
CASES = [
    ((generation, "_join", 3), "a-0.tfrecord"),
    ((generation, "_join", 3), "a-2.tfrecord"),
    ((generation, "_join", 1), "work/slice-00000-of-a-1.tfrecord"),
    ((generation, "_join", 1), "work/finished/a-0.tfrecord.json"),
    ((generation, "_join", 0), "work/table-00001"),
    ((generation, "_join", 0), "work/finished/table-00001.json"),
    ((generation, "_join", 0), "work/index"),
    ((generation, "_join", 0), "work/store"),
    ((generation, "_join", 0), "work/finished/store.json"),
    ((generation, "write_block", 1), "work/block-000000"),
    ((generation, "write_block", 1), "work/finished/block-000000.json"),
    ((work_dir, "join_blocks", 0), "work/block-000000"),
    ((work_dir, "discard", 1), "work/store"),
    ((records, "write", 5), "work/table-00000"),
]


@pytest.mark.parametrize(
    "kill, name, damage",
    [(*x, ("emptied", "zeroed")[i % 2]) for i, x in enumerate(CASES)],
)
def test_a_damaged_file_is_made_again(
    text, tmp_path, monkeypatch, expected, kill, name, damage
):
    folder = tmp_path / "out"
    folder.mkdir()
    recipe = recipe_for(text, folder, shards=4)
    killed(recipe, monkeypatch, *kill)
    path = folder / name
    size = path.stat().st_size
    kept = b"" if damage == "emptied" else path.read_bytes()[: size // 2]
    path.write_bytes(kept if damage == "emptied" else kept.ljust(size, b"\0"))
    made = make(recipe)
    assert hashes(folder) == expected
    sizes = [shard.records for shard in made.shards]
    assert sizes == records.counts(recipe.output_files)


@pytest.mark.parametrize("suffix, packed", [("", True), (".gz", False)])
def test_a_damaged_shard_of_each_kind_is_made_again(
    text, tmp_path, monkeypatch, suffix, packed
):
    options = dict(shards=4, suffix=suffix, pack_sequences=packed)
    for name in ("expected", "out"):
        (tmp_path / name).mkdir()
    make(recipe_for(text, tmp_path / "expected", **options))
    recipe = recipe_for(text, tmp_path / "out", **options)
    killed(recipe, monkeypatch, generation, "_join", 2)
    path = tmp_path / "out" / f"a-0.tfrecord{suffix}"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    make(recipe)
    assert hashes(tmp_path / "out") == hashes(tmp_path / "expected")


def test_a_damaged_recipe_is_named(text, tmp_path, monkeypatch):
    recipe = recipe_for(text, tmp_path)
    killed(recipe, monkeypatch, generation, "_join", 1)
    (tmp_path / "work" / "recipe.json").write_bytes(b"")
    with pytest.raises(errors.InputError, match="work/recipe.json:"):
        make(recipe)


@pytest.mark.parametrize(
    "name", ["a.manifest.json", "a.vocab.txt", "a-0.tfrecord"]
)
def test_a_damaged_file_of_a_complete_run_is_named(text, tmp_path, name):
    recipe = recipe_for(text, tmp_path)
    make(recipe)
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(errors.InputError, match=name):
        make(recipe)
    for path in tmp_path.glob("a*"):  # As the message says.
        path.unlink()
    assert make(recipe).record_count
