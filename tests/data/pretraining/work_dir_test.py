"""Proves when a run continues, and which existing files it refuses.

pytest tests/data/pretraining/work_dir_test.py
"""

import io
import json
import pathlib

import pytest
import tensorflow as tf

from data import records
from data.pretraining import generation, token_store, work_dir
from data.tokenization import vocabulary
from foundation import errors
from tests.data.pretraining.recipes import hashes, make, recipe_for

pytestmark = pytest.mark.usefixtures("small_tasks")


def test_a_finished_run_recognizes_itself(text, tmp_path, monkeypatch):
    recipe = recipe_for(text, tmp_path)
    made, before = make(recipe), hashes(tmp_path)
    monkeypatch.setattr(generation, "_tokenize", None)
    assert make(recipe) == made
    assert hashes(tmp_path) == before


@pytest.mark.parametrize(
    "change, match",
    [
        ({"seed": 2}, "--random_seed: 1 then, 2 now"),
        ({"dupe_factor": 5}, "--dupe_factor: 4 then, 5 now"),
        ({"masked_lm_prob": 0.2}, "--masked_lm_prob: 0.15 then, 0.2 now"),
        ({"shards": 3}, "--output_file, --output_prefix or --num_shards"),
    ],
)
def test_changed_flags_are_refused(text, tmp_path, change, match):
    make(recipe_for(text, tmp_path))
    before = hashes(tmp_path)
    with pytest.raises(errors.InputError, match=match) as caught:
        make(recipe_for(text, tmp_path, **change))
    assert "\n" not in str(caught.value)
    assert hashes(tmp_path) == before


def test_changed_text_is_refused(text, tmp_path):
    copy = tmp_path / "copy.txt"
    copy.write_text(pathlib.Path(text).read_text())
    (tmp_path / "out").mkdir()
    make(recipe_for(str(copy), tmp_path / "out"))
    copy.write_text(pathlib.Path(text).read_text()[:-2])
    with pytest.raises(errors.InputError, match="--input_files: other files"):
        make(recipe_for(str(copy), tmp_path / "out"))


def test_an_unfinished_run_with_other_flags_is_refused(
    text, tmp_path, monkeypatch
):
    monkeypatch.setattr(generation, "_write_shards", None)
    with pytest.raises(TypeError):
        make(recipe_for(text, tmp_path))
    with pytest.raises(errors.InputError, match="work: belongs .*random_seed"):
        make(recipe_for(text, tmp_path, seed=2))


def test_other_shards_are_not_overwritten(text, tmp_path):
    (tmp_path / "a-1.tfrecord").write_text("precious")
    with pytest.raises(errors.InputError, match="a-1.tfrecord: exists"):
        make(recipe_for(text, tmp_path))
    assert (tmp_path / "a-1.tfrecord").read_text() == "precious"


def test_a_missing_or_changed_shard_is_named(text, tmp_path):
    recipe = recipe_for(text, tmp_path)
    make(recipe)
    path = tmp_path / "a-1.tfrecord"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(errors.InputError, match="a-1.tfrecord: not the"):
        make(recipe)
    path.unlink()
    with pytest.raises(errors.InputError, match="a-1.tfrecord is missing"):
        make(recipe)


def test_two_runs_cannot_use_one_directory(text, tmp_path):
    recipe = recipe_for(text, tmp_path)
    with work_dir.locked(recipe, recipe.output_files):
        with pytest.raises(errors.InputError, match="another run is using it"):
            with work_dir.locked(recipe, recipe.output_files):
                pass


def test_one_document_is_refused_unless_allowed(tmp_path):
    path = tmp_path / "one.txt"
    path.write_text("a b c.\nd e f.\n" * 30)
    recipe = recipe_for(str(path), tmp_path)
    with pytest.raises(errors.InputError, match="one document only.*--allow_"):
        make(recipe)
    made = make(recipe, allow_single_document=True)
    assert made.record_count > 2 and made.totals["documents"] == 1


@pytest.mark.parametrize("content", ["", "\n \n\n", "\u200b\n"])
def test_text_without_a_token_is_refused(tmp_path, content):
    path = tmp_path / "empty.txt"
    path.write_text(content)
    with pytest.raises(errors.InputError, match="empty.txt: holds no text"):
        make(recipe_for(str(path), tmp_path))
    assert not (tmp_path / "work").exists()


def test_fewer_instances_than_shards_are_refused(tmp_path):
    path = tmp_path / "few.txt"
    path.write_text("a b.\n\nc d.\n")
    with pytest.raises(
        errors.InputError, match="only 8 instances for 9 shards"
    ):
        make(recipe_for(str(path), tmp_path, shards=9))


def test_a_full_disk_leaves_no_shard_under_a_final_name(
    text, tmp_path, monkeypatch
):
    recipe = recipe_for(text, tmp_path)
    whole = records.ShardWriter.write

    def write(self, serialized):
        if self.path.endswith("slice-00001-of-a-1.tfrecord"):
            raise OSError(28, "No space left on device")
        whole(self, serialized)

    monkeypatch.setattr(records.ShardWriter, "write", write)
    with pytest.raises(OSError, match="No space left"):
        make(recipe)
    assert [x.name for x in tmp_path.glob("a-*")] == ["a-0.tfrecord"]
    assert not list(tmp_path.rglob("*.incomplete"))
    monkeypatch.setattr(records.ShardWriter, "write", whole)
    assert make(recipe).record_count > 200


@pytest.mark.parametrize("name", ["work/store/tokens.bin", "a-0.tfrecord"])
def test_a_full_disk_is_named_with_the_file(text, tmp_path, monkeypatch, name):
    """Also where TensorFlow writes, whose message has no path."""

    def fail(*_):
        if "store" in name:
            raise OSError(28, "No space left on device")
        raise tf.errors.ResourceExhaustedError(
            None, None, "{{function_node}}; No space left on device"
        )

    class Full(io.BytesIO):
        write, name = fail, str(tmp_path / "work/store/tokens.bin")

    if "store" in name:
        append = token_store._append
        monkeypatch.setattr(
            token_store, "_append", lambda _, data: append(Full(), data)
        )
    else:
        monkeypatch.setattr(records.ShardWriter, "write", fail)
        monkeypatch.setattr(generation, "SLICE_INSTANCES", 10**6)
    with pytest.raises(OSError) as caught:
        make(recipe_for(text, tmp_path))
    assert caught.value.filename == str(tmp_path / name)
    assert caught.value.strerror == "No space left on device"


def test_bad_text_names_its_file_and_leaves_nothing(text, tmp_path):
    bad = tmp_path / "bad.txt"
    bad.write_bytes("a b.\n".encode("utf-16"))
    recipe = recipe_for((text, str(bad)), tmp_path)
    with pytest.raises(errors.InputError, match="bad.txt: line 1"):
        make(recipe)
    assert [x.name for x in tmp_path.iterdir()] == ["bad.txt"]


def test_the_vocabulary_lies_beside_the_shards(text, tmp_path):
    recipe = recipe_for(text, tmp_path)
    made = make(recipe)
    words = tmp_path / made.vocabulary["file"]
    copy = vocabulary.Vocabulary.from_file(str(words))
    assert copy.sha256 == made.vocabulary["sha256"] == recipe.vocabulary.sha256
    words.unlink()
    make(recipe)
    assert words.exists()
    words.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n")
    with pytest.raises(errors.InputError, match="a.vocab.txt: differs from"):
        make(recipe)


def test_packed_and_other_shards_are_not_taken_for_each_other(text, tmp_path):
    make(recipe_for(text, tmp_path))
    with pytest.raises(errors.InputError, match="--pack_sequences: None then"):
        make(recipe_for(text, tmp_path, packed=True))
    other = tmp_path / "other"
    other.mkdir()
    make(recipe_for(text, other, packed=True))
    with pytest.raises(errors.InputError, match="--pack_sequences: .* None"):
        make(recipe_for(text, other))


def test_a_working_directory_with_files_of_others_is_refused(text, tmp_path):
    recipe = recipe_for(text, tmp_path)
    theirs = pathlib.Path(recipe.work_dir) / "thesis.txt"
    theirs.parent.mkdir()
    theirs.write_text("x")
    with pytest.raises(errors.InputError, match="holds thesis.txt"):
        make(recipe)
    assert theirs.read_text() == "x"


@pytest.mark.parametrize(
    "name", ["lock-1", ".recipe.json.0123456789ab.incomplete"]
)
def test_what_a_run_leaves_first_does_not_stop_the_next(text, tmp_path, name):
    recipe = recipe_for(text, tmp_path)
    left = pathlib.Path(recipe.work_dir) / name
    left.parent.mkdir()
    left.write_text("")
    assert make(recipe).record_count > 0
    assert not left.parent.exists()


def test_a_run_of_another_job_that_begins_meanwhile_is_seen(
    text, tmp_path, monkeypatch
):
    recipe = recipe_for(text, tmp_path)
    look = work_dir._refuse_other_files

    def then_another_begins(folder):
        look(folder)
        other = recipe_for(text, tmp_path, seed=2).describe()
        pathlib.Path(folder).mkdir()
        (pathlib.Path(folder) / "recipe.json").write_text(json.dumps(other))
        look(folder)  # These files are its own.

    monkeypatch.setattr(work_dir, "_refuse_other_files", then_another_begins)
    with pytest.raises(errors.InputError, match="--random_seed: 2 then, 1 now"):
        make(recipe)


def test_a_finished_job_leaves_the_directory_of_another_alone(text, tmp_path):
    recipe = recipe_for(text, tmp_path)
    make(recipe)
    theirs = pathlib.Path(recipe.work_dir) / "recipe.json"
    theirs.parent.mkdir()
    theirs.write_text(json.dumps({"random_seed": 2}))
    make(recipe)
    assert theirs.exists()
    description = recipe.describe()
    theirs.write_text(json.dumps(description))
    make(recipe)
    assert not theirs.parent.exists()


def test_another_vocabulary_is_named_without_its_digest():
    before, now = ({"vocabulary": digit * 64} for digit in "ab")
    with pytest.raises(errors.InputError, match="--vocab_file: other") as e:
        work_dir.refuse_changes("work", before, now)
    assert "aaaa" not in str(e.value)
