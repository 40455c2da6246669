"""Proves that shards are a function of text and flags, whatever happens.

pytest tests/data/pretraining_shards_test.py
"""

import functools
import hashlib
import os
import pathlib

import numpy as np
import pytest
import tensorflow as tf

import errors
from data import (
    instances,
    manifest,
    masking,
    pretraining_job,
    pretraining_shards,
    records,
    token_store,
    tokenization,
    vocabulary,
    workers,
)

LETTERS = "abcdefghij"
TOKENS = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "."),
    *LETTERS,
    *("##" + letter for letter in LETTERS),
]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Forty documents of random words over ten letters."""
    rng = np.random.default_rng(0)
    lines = []
    for _ in range(40):
        for _ in range(rng.integers(1, 12)):
            words = [
                "".join(rng.choice(list(LETTERS), rng.integers(1, 4)))
                for _ in range(rng.integers(1, 9))
            ]
            lines.append(" ".join(words) + ".")
        lines.append("")
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n".join(lines))
    return str(path)


@pytest.fixture(autouse=True)
def small_tasks(monkeypatch):
    """Several blocks, plans and parts even of a small text."""
    monkeypatch.setattr(pretraining_job, "PART_RECORDS", 100)
    monkeypatch.setattr(pretraining_job, "_PLAN_PIECES", (500, 500))
    monkeypatch.setattr("data.corpus.BLOCK_BYTES", 2000)
    blocks = pretraining_shards.corpus.read_blocks
    monkeypatch.setattr(
        pretraining_shards.corpus,
        "read_blocks",
        lambda paths: blocks(paths, 2000),
    )


@functools.cache
def tokenizer():
    words = vocabulary.Vocabulary.from_tokens(TOKENS, "vocab.txt")
    return tokenization.Tokenizer(words)


def job_for(text, folder, *, suffix="", shards=2, seed=1, **rules):
    pairing = {"max_seq_length": 40, "dupe_factor": 4, "short_seq_prob": 0.1}
    pairing.update((k, rules.pop(k)) for k in list(rules) if k in pairing)
    return pretraining_job.Job(
        input_files=(text,) if isinstance(text, str) else tuple(text),
        input_format="sentences",
        output_files=tuple(
            f"{folder}/a-{n}.tfrecord{suffix}" for n in range(shards)
        ),
        work_dir=f"{folder}/work",
        tokenizer=tokenizer(),
        pairing=instances.PairingRule(**pairing),
        masking=masking.MaskingRule(**{"max_predictions_per_seq": 5} | rules),
        random_seed=seed,
    )


def make(job, count=1, **switches):
    path = os.path.join(os.path.dirname(job.work_dir), "a.manifest.json")
    with workers.Workers(count, job, "data.pretraining_job") as pool:
        return pretraining_shards.make(
            job, manifest_path=path, pool=pool, **switches
        )


def hashes(folder):
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(pathlib.Path(folder).iterdir())
    }


def parsed(job):
    found = []
    for path in job.output_files:
        found.extend(records.read(path))
    columns = records.parse(tf.constant(found), job.schema)
    return {name: value.numpy() for name, value in columns.items()}


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_the_shards_are_whole_and_the_manifest_says_so(text, tmp_path, suffix):
    job = job_for(text, tmp_path, suffix=suffix)
    made = make(job)
    assert sorted(x.name for x in tmp_path.iterdir()) == [
        f"a-0.tfrecord{suffix}",
        f"a-1.tfrecord{suffix}",
        "a.manifest.json",
    ]
    assert made == manifest.read(f"{tmp_path}/a.manifest.json")
    sizes = [shard.records for shard in made.shards]
    assert sizes == [records.count(path) for path in job.output_files]
    assert max(sizes) - min(sizes) <= 1 and max(sizes) > 100
    assert made.totals["documents"] == 40
    manifest.check(
        list(job.output_files),
        max_seq_length=40,
        max_predictions_per_seq=5,
        vocabulary=job.vocabulary,
    )


def test_the_records_obey_the_released_conventions(text, tmp_path):
    job = job_for(text, tmp_path)
    make(job)
    rows = parsed(job)
    ids, mask, segments = (
        rows[x] for x in ("input_ids", "input_mask", "segment_ids")
    )
    lengths = mask.sum(1)
    column = np.arange(40)
    np.testing.assert_array_equal(mask, column < lengths[:, None])
    assert not ids[mask == 0].any() and not segments[mask == 0].any()
    used = rows["masked_lm_weights"] > 0
    restored = ids.copy()
    row, place = np.nonzero(used)
    restored[row, rows["masked_lm_positions"][row, place]] = rows[
        "masked_lm_ids"
    ][row, place]
    words = job.vocabulary
    assert (restored[:, 0] == words.cls_id).all()
    assert ((restored == words.sep_id).sum(1) == 2).all()
    first_sep = (restored == words.sep_id).argmax(1)
    np.testing.assert_array_equal(
        segments, (column > first_sep[:, None]) & (mask == 1)
    )
    last = restored[np.arange(len(ids)), lengths - 1]
    assert (last == words.sep_id).all()
    assert not (restored == words.mask_id).any()
    assert set(rows["next_sentence_labels"].ravel()) == {0, 1}


def test_the_seed_and_nothing_else_changes_the_shards(text, tmp_path):
    made = []
    for name, seed in (("one", 1), ("two", 1), ("three", 2)):
        (tmp_path / name).mkdir()
        make(job_for(text, tmp_path / name, seed=seed))
        made.append(hashes(tmp_path / name))
    assert made[0] == made[1]
    assert not set(made[0].values()) & set(made[2].values())


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_run_stopped_at_any_write_ends_with_the_same_shards(
    text, tmp_path, monkeypatch, suffix
):
    """Every file operation in turn is the last one of a killed run."""

    class Killed(BaseException):
        pass

    (tmp_path / "whole").mkdir()
    make(job_for(text, tmp_path / "whole", suffix=suffix))
    expected = hashes(tmp_path / "whole")
    left = [0]

    def mortal(function):
        def call(*arguments, **switches):
            left[0] -= 1
            if left[0] < 0:
                raise Killed
            return function(*arguments, **switches)

        return call

    for owner, name in (
        (token_store.Writer, "append"),
        (token_store.Writer, "_note"),
        (token_store.Writer, "finish"),
        (records.ShardWriter, "write"),
        (records.ShardWriter, "__exit__"),
        (pretraining_shards.instance_order, "replace"),
        (pretraining_shards.manifest, "write"),
        (pretraining_job, "join_parts"),
    ):
        monkeypatch.setattr(owner, name, mortal(getattr(owner, name)))
    folder = tmp_path / "killed"
    folder.mkdir()
    job, deaths, finished = job_for(text, folder, suffix=suffix), 0, False
    while not finished:
        left[0] = 4 + deaths % 9
        try:
            make(job)
            finished = True
        except Killed:
            deaths += 1
            assert set(hashes_of_shards(folder)) <= set(expected.values())
            assert deaths < 200
    assert deaths > 5
    assert hashes(folder) == expected


def hashes_of_shards(folder):
    return [
        hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.glob("a-*.tfrecord*")
    ]


def test_a_finished_run_recognizes_itself(text, tmp_path, monkeypatch):
    job = job_for(text, tmp_path)
    made, before = make(job), hashes(tmp_path)
    monkeypatch.setattr(pretraining_shards, "_tokenize", None)
    assert make(job) == made
    assert hashes(tmp_path) == before


@pytest.mark.parametrize(
    "change, match",
    [
        ({"seed": 2}, "--random_seed: 1 then, 2 now"),
        ({"dupe_factor": 5}, "--dupe_factor: 4 then, 5 now"),
        ({"masked_lm_prob": 0.2}, "--masked_lm_prob: 0.15 then, 0.2 now"),
        ({"shards": 3}, "--output_files: other files"),
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
    monkeypatch.setattr(pretraining_shards, "_write_shards", None)
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
    with pretraining_shards._claimed(job, {}):
        with pytest.raises(errors.InputError, match="another run is at work"):
            with pretraining_shards._claimed(job, {}):
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


def test_dropped_text_is_counted(tmp_path):
    path = tmp_path / "dropped.txt"
    path.write_bytes(b"a b\xff c.\n\xe2\x80\x8b\nq.\n\nd e.\n")
    totals = make(job_for(str(path), tmp_path)).totals
    assert totals["invalid_bytes"] == 1
    assert totals["sentences_without_pieces"] == 1
    assert totals["unknown_pieces"] == 1
    assert totals["sentences"] == 3 and totals["lines"] == 5


def test_bad_text_names_its_file_and_leaves_the_place_clean(text, tmp_path):
    bad = tmp_path / "bad.txt"
    bad.write_bytes("a b.\n".encode("utf-16"))
    job = job_for((text, str(bad)), tmp_path)
    with pytest.raises(errors.InputError, match="bad.txt: line 1"):
        make(job)
    assert [x.name for x in tmp_path.iterdir()] == ["bad.txt"]


def test_whole_words_stay_whole_in_the_shards(text, tmp_path):
    job = job_for(text, tmp_path, do_whole_word_mask=True)
    make(job)
    rows = parsed(job)
    words = job.vocabulary.is_continuation
    used = rows["masked_lm_weights"] > 0
    # Where a continuation is predicted, so is the place before it.
    position = rows["masked_lm_positions"]
    continued = used[:, 1:] & words[rows["masked_lm_ids"][:, 1:]]
    gaps = (position[:, 1:] - position[:, :-1])[continued]
    assert len(gaps) > 50 and np.isin(gaps, (1, 2)).all()
