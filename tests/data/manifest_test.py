"""Proves that shards which do not fit a run are refused in one line.

pytest tests/data/manifest_test.py
"""

import types

import numpy as np
import pytest

from data import manifest, records, schema
from foundation import errors


class Words(types.SimpleNamespace):
    """As much of a vocabulary as a manifest needs."""

    def __len__(self):
        """Returns the number of entries."""
        return self.size


WORDS = Words(size=50, sha256="aa", path="vocab.txt")


def write_shard(path, length=16, predictions=4, largest=49, drop=()):
    kind = schema.pretraining(length, predictions)
    kind = schema.Schema(
        "x", tuple(f for f in kind.features if f.name not in drop)
    )
    rows = {}
    for feature in kind.features:
        dtype = np.float32 if feature.dtype == "float32" else np.int32
        rows[feature.name] = np.full((3, *feature.shape), 1, dtype)
    if "input_ids" in rows:
        rows["input_ids"][:, 2] = largest
    records.write(str(path), [records.encode(kind, rows)])


@pytest.fixture
def made(tmp_path):
    """Two shards and their manifest."""
    names = ["a-00000-of-00002.tfrecord", "a-00001-of-00002.tfrecord"]
    shards = []
    for name in names:
        write_shard(tmp_path / name)
        size = (tmp_path / name).stat().st_size
        shards.append(manifest.Shard(file=name, records=3, bytes=size))
    value = manifest.Manifest(
        kind="pretraining",
        max_seq_length=16,
        max_predictions_per_seq=4,
        vocabulary={"file": "vocab.txt", "size": 50, "sha256": "aa"},
        tokenizer={"do_lower_case": True},
        shards=tuple(shards),
        job={"random_seed": 12345},
        totals={"instances": 6},
    )
    manifest.write(str(tmp_path / "a.manifest.json"), value)
    return [str(tmp_path / name) for name in names], value


def refused(paths, match, **change):
    expected = dict(
        max_seq_length=16, max_predictions_per_seq=4, vocabulary=WORDS
    )
    with pytest.raises(errors.InputError, match=match) as caught:
        manifest.check(paths, **{**expected, **change})
    assert "\n" not in str(caught.value)


def test_a_manifest_reads_back_as_written(made, tmp_path):
    paths, value = made
    assert manifest.read(str(tmp_path / "a.manifest.json")) == value
    assert value.record_count == 6
    assert not list(tmp_path.glob(".*"))


def test_shards_find_their_manifest_and_their_counts(made, tmp_path):
    paths, value = made
    write_shard(tmp_path / "other.tfrecord")
    other = str(tmp_path / "other.tfrecord")
    assert manifest.find([*paths, other]) == dict.fromkeys(paths, value)
    assert manifest.counts([*paths, other]) == [3, 3, 3]


def test_fitting_shards_pass(made, tmp_path):
    write_shard(tmp_path / "other.tfrecord")
    manifest.check(
        [*made[0], str(tmp_path / "other.tfrecord")],
        max_seq_length=16,
        max_predictions_per_seq=4,
        vocabulary=WORDS,
    )


def test_shards_without_a_manifest_are_checked_by_their_first_record(tmp_path):
    path = str(tmp_path / "x.tfrecord")
    write_shard(path, length=32)
    refused([path], r"--max_seq_length=16: .*made with 32")
    write_shard(path, predictions=5)
    refused([path], r"--max_predictions_per_seq=4: .*made with 5")
    write_shard(path, largest=50)
    refused([path], "record 1 holds id 50.*50 entries")
    write_shard(path, drop=("masked_lm_ids",))
    refused([path], "feature masked_lm_ids has 0 values instead of 4")
    write_shard(path, drop=("masked_lm_positions",))
    refused([path], "not pre-training records")
    records.write(path, [[b"\xff\xff not a record"]])
    refused([path], "record 1 is not a tf.train.Example")


def test_a_file_that_is_not_a_shard_is_refused(tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("The man went to the store. " * 10)
    refused([str(path)], "x.txt: record 1 is .* or the file ")
    path.write_bytes(b"\x05" + b"\0" * 7 + b"\xff" * 30)
    refused([str(path)], "x.txt: record 1 is truncated or damaged")
    path.write_bytes(b"")
    refused([str(path)], "x.txt: holds no records")
