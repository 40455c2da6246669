"""Proves that shards which do not fit a run are refused in one line.

pytest tests/data/manifest_test.py
"""

import dataclasses
import json
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
    with records.ShardWriter(str(path)) as writer:
        writer.write(records.encode(kind, rows))


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


def test_a_shard_in_the_working_directory_finds_its_manifest(
    made, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    name = "a-00000-of-00002.tfrecord"
    assert manifest.find([name]) == {name: made[1]}


def test_fitting_shards_pass(made, tmp_path):
    write_shard(tmp_path / "other.tfrecord")
    manifest.check(
        [*made[0], str(tmp_path / "other.tfrecord")],
        max_seq_length=16,
        max_predictions_per_seq=4,
        vocabulary=WORDS,
    )


def test_another_length_is_refused(made):
    refused(
        made[0], r"--max_seq_length=128: .*made with 16", max_seq_length=128
    )


def test_another_number_of_predictions_is_refused(made):
    refused(
        made[0],
        r"--max_predictions_per_seq=20: .*made with 4",
        max_predictions_per_seq=20,
    )


def test_another_vocabulary_is_refused(made):
    other = Words(size=60, sha256="bb", path="other.txt")
    refused(made[0], "another vocabulary.*50 entries.*other", vocabulary=other)


def test_a_cut_shard_is_refused(made):
    with open(made[0][1], "r+b") as file:
        file.truncate(100)
    refused(made[0], "00001-of-00002.tfrecord: 100 bytes, its manifest says")


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
    with records.ShardWriter(path) as writer:
        writer.write([b"\xff\xff not a record"])
    refused([path], "record 1 is not a tf.train.Example")


def test_a_file_that_is_not_a_shard_is_refused(tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("The man went to the store. " * 10)
    refused([str(path)], "x.txt: record 1 is .* or these are not TFRecords")
    path.write_bytes(b"\x05" + b"\0" * 7 + b"\xff" * 30)
    refused([str(path)], "x.txt: record 1 is truncated or damaged")
    path.write_bytes(b"")
    refused([str(path)], "x.txt: holds no records")


@pytest.mark.parametrize("text", ["", "{", "[]", "\xff", "[" * 100000])
def test_a_file_that_is_no_object_is_refused(tmp_path, text):
    path = tmp_path / "a.manifest.json"
    path.write_text(text)
    with pytest.raises(errors.InputError, match="a.manifest.json:"):
        manifest.read(str(path))


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (["kind"], None),
        (["max_seq_length"], 2**62),
        (["max_predictions_per_seq"], -4),
        (["vocabulary", "size"], "50"),
        (["vocabulary", "file"], float("nan")),
        (["tokenizer", "do_lower_case"], "yes"),
        (["tokenizer", "do_upper_case"], True),
        (["shards", 0, "file"], ["a"]),
        (["shards", 0, "records"], "3"),
        (["shards", 0, "records"], -5),
        (["shards", 0, "records"], 2**70),
        (["shards", 0, "bytes"], 1.5),
        (["job", "input_files"], [1]),
        (["totals", "instances"], None),
        (["packing"], {"predictions_per_row": 4}),
        (["packing"], []),
    ],
)
def test_a_wrong_value_is_named(made, tmp_path, keys, value):
    path = tmp_path / "a.manifest.json"
    fields = inner = json.loads(path.read_text())
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    path.write_text(json.dumps(fields))
    # The keys of a mapping are not named.
    named = keys[0] if keys[0] in ("tokenizer", "totals") else keys[-1]
    refused(made[0], r"a.manifest.json: .*" + str(named))


def test_a_manifest_of_another_version_is_refused(made, tmp_path):
    fields = dataclasses.asdict(made[1]) | {"format_version": 99}
    path = tmp_path / "b.manifest.json"
    path.write_text(json.dumps(fields))
    with pytest.raises(errors.InputError, match="format_version: .*99"):
        manifest.read(str(path))


@pytest.mark.parametrize(
    "text", ["{", '{"format_version": 1}', '{"name": "an app", "icons": []}']
)
def test_manifests_of_other_programs_are_ignored(made, tmp_path, text, caplog):
    (tmp_path / "app.manifest.json").write_text(text)
    assert set(manifest.find(made[0])) == set(made[0])
    assert "app.manifest.json: not a manifest of shards; ignored" in caplog.text


@pytest.mark.parametrize("name", ["sha256", "size", "file"])
def test_a_manifest_without_its_vocabulary_is_refused(made, tmp_path, name):
    path = tmp_path / "a.manifest.json"
    fields = json.loads(path.read_text())
    del fields["vocabulary"][name]
    path.write_text(json.dumps(fields))
    refused(made[0], f"a.manifest.json: vocabulary: .*{name}")


def test_a_listed_shard_that_is_missing_is_named(made, tmp_path):
    (tmp_path / "a-00001-of-00002.tfrecord").unlink()
    refused(made[0][:1], "a.manifest.json lists .*a-00001-of-00002.tfrecord")
    # Other shards in the same directory do not need it.
    write_shard(tmp_path / "other.tfrecord")
    assert manifest.counts([str(tmp_path / "other.tfrecord")]) == [3]


def test_a_damaged_manifest_of_the_shards_is_refused(made, tmp_path):
    path = tmp_path / "a.manifest.json"
    path.write_text(path.read_text()[:-20])
    with pytest.raises(errors.InputError, match="a.manifest.json:34: "):
        manifest.find(made[0])
