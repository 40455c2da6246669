"""Proves what stands in the records of a job: packed ones, first ones.

pytest tests/data/pretraining/pretraining_parts_test.py
"""

import logging
import pathlib

import pytest

from data import records
from data.pretraining import data_job, shard_files
from tests.data.pretraining import shard_jobs
from tests.data.pretraining.shard_jobs import job_for, make, parsed

pytestmark = pytest.mark.usefixtures("small_tasks")


def unmasked(rows):
    """Returns each instance's pieces, segments and label, as sorted tuples."""
    found = []
    packed = "position_ids" in rows
    for row in range(len(rows["input_ids"])):
        ids = rows["input_ids"][row].copy()
        used = rows["masked_lm_weights"][row] > 0
        at = rows["masked_lm_positions"][row][used]
        ids[at] = rows["masked_lm_ids"][row][used]
        for number in range(1, rows["input_mask"][row].max() + 1):
            here = rows["input_mask"][row] == number
            found.append(
                (
                    ids[here].tolist(),
                    rows["segment_ids"][row][here].tolist(),
                    int(rows["next_sentence_labels"][row][number - 1]),
                    int(here[at].sum()),
                )
            )
            if packed:
                places = rows["position_ids"][row][here]
                assert places.tolist() == list(range(len(places)))
                start = rows["next_sentence_positions"][row][number - 1]
                assert start == here.argmax()
    return sorted(found)


def test_packed_shards_hold_the_same_instances_in_fewer_rows(text, tmp_path):
    jobs = []
    for name, packed in (("alone", False), ("packed", True)):
        (tmp_path / name).mkdir()
        job = job_for(text, tmp_path / name, packed=packed, short_seq_prob=0.3)
        jobs.append((job, make(job), parsed(job)))
    (_, alone, rows), (job, made, packed_rows) = jobs
    assert unmasked(packed_rows) == unmasked(rows)
    assert made.record_count < 0.9 * alone.record_count
    assert made.record_count == len(packed_rows["input_ids"])
    assert made.kind == "packed_pretraining" and made.schema == job.schema
    count = alone.record_count
    assert made.packing["packing_factor"] == count / made.record_count
    real = (packed_rows["input_mask"] > 0).mean()
    assert made.packing["efficiency"] == pytest.approx(real)
    real = (rows["input_mask"] > 0).mean()
    assert made.packing["efficiency_unpacked"] == pytest.approx(real)


@pytest.mark.parametrize("packed", [False, True])
def test_the_first_records_are_shown_before_the_shards_are_written(
    text, tmp_path, monkeypatch, caplog, packed
):
    job = job_for(text, tmp_path, packed=packed)
    shown_before = []
    whole = data_job.write_part

    def write_part(job, part):
        shown_before.append(caplog.text.count("*** Example ***"))
        return whole(job, part)

    monkeypatch.setattr(data_job, "write_part", write_part)
    with caplog.at_level(logging.INFO, logger="absl"):
        make(job)
    assert shown_before[0] == shard_files._EXAMPLES_SHOWN == 3
    first = parsed(job)
    ids = first["input_ids"][0][first["input_mask"][0] > 0]
    tokens = " ".join(job.vocabulary.tokens[i] for i in ids)
    assert f"tokens: {tokens}" in caplog.text
    for name in job.schema.names:
        assert f"\n{name}: " in caplog.text


def test_jobs_of_one_seed_draw_other_masks_from_other_text(text, tmp_path):
    """Training and held-out shards of one seed have nothing in common."""
    other = tmp_path / "other.txt"
    other.write_text(shard_jobs.random_documents(1))
    same = tmp_path / "renamed.txt"
    same.write_text(pathlib.Path(text).read_text())
    jobs = [job_for(str(x), tmp_path) for x in (text, other, same)]
    draws = [job.rng("masking", 0).random(8).tolist() for job in jobs]
    assert draws[0] == draws[2]
    assert not set(draws[0]) & set(draws[1])
    purposes = [jobs[0].rng(x, 0).random() for x in ("masking", "pairing")]
    assert purposes[0] != purposes[1]


def test_a_standing_part_is_not_written_again(text, tmp_path):
    job = job_for(text, tmp_path)
    path = tmp_path / "standing.tfrecord"
    with records.ShardWriter(str(path)) as writer:
        writer.write([b"stands"])
    part = data_job.Part(
        shard=str(path), path=str(path), ranks=range(0, 9), plans=1
    )
    data_job.write_part(job, part)
    assert list(records.read(str(path))) == [b"stands"]
