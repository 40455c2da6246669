"""Proves what may go on where a job's shards, or others, lie already.

pytest tests/data/pretraining/pretraining_place_test.py
"""

import json
import pathlib

import pytest

from data import records
from data.pretraining import shard_files
from data.tokenization import vocabulary
from foundation import errors
from tests.data.pretraining.shard_jobs import hashes, job_for, make

pytestmark = pytest.mark.usefixtures("small_tasks")


def test_a_finished_run_recognizes_itself(text, tmp_path, monkeypatch):
    job = job_for(text, tmp_path)
    made, before = make(job), hashes(tmp_path)
    monkeypatch.setattr(shard_files, "_tokenize", None)
    assert make(job) == made
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
def test_changed_flags_in_the_same_place_are_refused(
    text, tmp_path, change, match
):
    make(job_for(text, tmp_path))
    before = hashes(tmp_path)
    with pytest.raises(errors.InputError, match=match) as caught:
        make(job_for(text, tmp_path, **change))
    assert "\n" not in str(caught.value)
    assert hashes(tmp_path) == before


def test_changed_text_in_the_same_place_is_refused(text, tmp_path):
    copy = tmp_path / "copy.txt"
    copy.write_text(pathlib.Path(text).read_text())
    (tmp_path / "out").mkdir()
    make(job_for(str(copy), tmp_path / "out"))
    copy.write_text(pathlib.Path(text).read_text()[:-2])
    with pytest.raises(errors.InputError, match="--input_files: other files"):
        make(job_for(str(copy), tmp_path / "out"))


def test_an_unfinished_run_with_other_flags_is_refused(
    text, tmp_path, monkeypatch
):
    monkeypatch.setattr(shard_files, "_write_shards", None)
    with pytest.raises(TypeError):
        make(job_for(text, tmp_path))
    with pytest.raises(errors.InputError, match="work: belongs .*random_seed"):
        make(job_for(text, tmp_path, seed=2))


def test_a_place_that_holds_other_shards_is_refused(text, tmp_path):
    (tmp_path / "a-1.tfrecord").write_text("precious")
    with pytest.raises(errors.InputError, match="a-1.tfrecord: exists"):
        make(job_for(text, tmp_path))
    assert (tmp_path / "a-1.tfrecord").read_text() == "precious"


def test_a_missing_or_changed_shard_is_named(text, tmp_path):
    job = job_for(text, tmp_path)
    make(job)
    path = tmp_path / "a-1.tfrecord"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(errors.InputError, match="a-1.tfrecord: not the"):
        make(job)
    path.unlink()
    with pytest.raises(errors.InputError, match="a-1.tfrecord is gone"):
        make(job)


def test_two_runs_cannot_work_in_one_place(text, tmp_path):
    job = job_for(text, tmp_path)
    with shard_files.claimed(job, {}, job.output_files):
        with pytest.raises(errors.InputError, match="another run is at work"):
            with shard_files.claimed(job, {}, job.output_files):
                pass


def test_one_document_is_refused_unless_asked_for(tmp_path):
    path = tmp_path / "one.txt"
    path.write_text("a b c.\nd e f.\n" * 30)
    job = job_for(str(path), tmp_path)
    with pytest.raises(errors.InputError, match="one document only.*--allow_"):
        make(job)
    made = make(job, allow_single_document=True)
    assert made.record_count > 2 and made.totals["documents"] == 1


@pytest.mark.parametrize("content", ["", "\n \n\n", "\u200b\n"])
def test_text_without_a_piece_is_refused(tmp_path, content):
    path = tmp_path / "empty.txt"
    path.write_text(content)
    with pytest.raises(errors.InputError, match="empty.txt: holds no text"):
        make(job_for(str(path), tmp_path))
    assert not (tmp_path / "work").exists()


def test_fewer_instances_than_shards_are_refused(tmp_path):
    path = tmp_path / "few.txt"
    path.write_text("a b.\n\nc d.\n")
    with pytest.raises(
        errors.InputError, match="only 8 instances for 9 shards"
    ):
        make(job_for(str(path), tmp_path, shards=9))


def test_a_full_disk_leaves_no_shard_under_a_final_name(
    text, tmp_path, monkeypatch
):
    job = job_for(text, tmp_path)
    whole = records.ShardWriter.write

    def write(self, serialized):
        if self.path.endswith("part-00001-of-a-1.tfrecord"):
            raise OSError(28, "No space left on device")
        whole(self, serialized)

    monkeypatch.setattr(records.ShardWriter, "write", write)
    with pytest.raises(OSError, match="No space left"):
        make(job)
    assert [x.name for x in tmp_path.glob("a-*")] == ["a-0.tfrecord"]
    assert not list(tmp_path.rglob("*.incomplete"))
    monkeypatch.setattr(records.ShardWriter, "write", whole)
    assert make(job).record_count > 200


def test_bad_text_names_its_file_and_leaves_the_place_clean(text, tmp_path):
    bad = tmp_path / "bad.txt"
    bad.write_bytes("a b.\n".encode("utf-16"))
    job = job_for((text, str(bad)), tmp_path)
    with pytest.raises(errors.InputError, match="bad.txt: line 1"):
        make(job)
    assert [x.name for x in tmp_path.iterdir()] == ["bad.txt"]


def test_the_vocabulary_lies_beside_the_shards(text, tmp_path):
    job = job_for(text, tmp_path)
    made = make(job)
    words = tmp_path / made.vocabulary["file"]
    copy = vocabulary.Vocabulary.from_file(str(words))
    assert copy.sha256 == made.vocabulary["sha256"] == job.vocabulary.sha256
    words.unlink()
    make(job)
    assert words.exists()
    words.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n")
    with pytest.raises(errors.InputError, match="a.vocab.txt: another voc"):
        make(job)


def test_packed_and_other_shards_are_not_taken_for_each_other(text, tmp_path):
    make(job_for(text, tmp_path))
    with pytest.raises(errors.InputError, match="--pack_sequences: None then"):
        make(job_for(text, tmp_path, packed=True))
    other = tmp_path / "other"
    other.mkdir()
    make(job_for(text, other, packed=True))
    with pytest.raises(errors.InputError, match="--pack_sequences: .* None"):
        make(job_for(text, other))


def test_a_working_directory_with_files_of_others_is_refused(text, tmp_path):
    job = job_for(text, tmp_path)
    theirs = pathlib.Path(job.work_dir) / "thesis.txt"
    theirs.parent.mkdir()
    theirs.write_text("x")
    with pytest.raises(errors.InputError, match="holds thesis.txt"):
        make(job)
    assert theirs.read_text() == "x"


@pytest.mark.parametrize(
    "name", ["lock-1", ".job.json.0123456789ab.incomplete"]
)
def test_what_a_run_leaves_first_does_not_stop_the_next(text, tmp_path, name):
    job = job_for(text, tmp_path)
    left = pathlib.Path(job.work_dir) / name
    left.parent.mkdir()
    left.write_text("")
    assert make(job).record_count > 0
    assert not left.parent.exists()


def test_a_run_of_another_job_that_begins_meanwhile_is_seen(
    text, tmp_path, monkeypatch
):
    job = job_for(text, tmp_path)
    look = shard_files._refuse_other_files

    def then_another_begins(work_dir):
        look(work_dir)
        other = shard_files.describe(job_for(text, tmp_path, seed=2))
        pathlib.Path(work_dir).mkdir()
        (pathlib.Path(work_dir) / "job.json").write_text(json.dumps(other))
        look(work_dir)  # Its own is nothing foreign.

    monkeypatch.setattr(shard_files, "_refuse_other_files", then_another_begins)
    with pytest.raises(errors.InputError, match="--random_seed: 2 then, 1 now"):
        make(job)


def test_a_finished_job_leaves_the_directory_of_another_alone(text, tmp_path):
    job = job_for(text, tmp_path)
    make(job)
    theirs = pathlib.Path(job.work_dir) / "job.json"
    theirs.parent.mkdir()
    theirs.write_text(json.dumps({"random_seed": 2}))
    make(job)
    assert theirs.exists()
    description = shard_files.describe(job)
    theirs.write_text(json.dumps(description))
    make(job)
    assert not theirs.parent.exists()
