"""The shards of a pre-training data job, and the parts they are written in.

    global order  0 ......... 40000 ......... 80000      ranks of instances
    shards        |     shard 0     |     shard 1     |
    parts         |  0  |  1  |  2  |  0  |  1  |  2  |  16,384 ranks at most

A part is one task: its instances are looked up, masked, packed if so asked,
encoded and written under a name that it gets when it is whole.
"""

import dataclasses
import os
import shutil
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from data import instance_order, instances, masking, packing, records
from data.pretraining_job import Job, open_store

PART_INSTANCES = 1 << 14  # A larger shard is written in parts, then joined.
_BATCH_PIECES = 1 << 17  # Pieces that are masked at once.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    """A range of ranks of the global order, and the file that gets it."""

    shard: str
    path: str  # The shard itself if it has one part only.
    ranks: range
    plans: int


def parts_of_shards(job: Job, total: int, plans: int) -> list[list[Part]]:
    """Cuts the global order into shards of equal size, these into parts."""
    result, count = [], len(job.output_files)
    for number, shard in enumerate(job.output_files):
        begin, end = (total * n // count for n in (number, number + 1))
        pieces = -(-(end - begin) // PART_INSTANCES)
        bounds = [begin + (end - begin) * n // pieces for n in range(pieces)]
        paths = [shard]
        if pieces > 1:
            name = os.path.basename(shard)
            paths = [
                os.path.join(job.work_dir, f"part-{n:05d}-of-{name}")
                for n in range(pieces)
            ]
        result.append(
            [
                Part(shard=shard, path=path, ranks=range(a, b), plans=plans)
                for path, a, b in zip(
                    paths, bounds, [*bounds[1:], end], strict=True
                )
            ]
        )
    return result


def write_part(job: Job, part: Part) -> None:
    """Writes the records of one part under its name, unless it stands."""
    if tf.io.gfile.exists(part.path):
        return
    with records.ShardWriter(part.path) as writer:
        for columns in _batches(job, part):
            writer.write(records.encode(job.schema, columns))


def first_records(job: Job, part: Part, count: int) -> dict[str, np.ndarray]:
    """Returns the features of the first records that a part will hold."""
    columns = next(_batches(job, part))
    return {name: values[:count] for name, values in columns.items()}


def _batches(job: Job, part: Part) -> Iterator[dict[str, np.ndarray]]:
    """Yields the features of a part's records, some at a time."""
    places = instance_order.read_ranks(job.order_dir, part.plans, part.ranks)
    rng = job.rng("masking", part.ranks.start)
    step = max(1, _BATCH_PIECES // job.pairing.max_seq_length)
    if job.packing is None:
        for start in range(0, len(places), step):
            yield _columns(job, places[start : start + step], rng)
        return
    rows = _rows(job, places, job.rng("packing", part.ranks.start))
    order = np.argsort(rows, kind="stable")
    places, rows = places[order], rows[order]
    for first in range(0, int(rows[-1]) + 1, step):
        last = min(first + step, int(rows[-1]) + 1)
        begin, end = np.searchsorted(rows, (first, last))
        columns = _columns(job, places[begin:end], rng)
        own = rows[begin:end] - first
        yield packing.lay_out(columns, own, last - first, job.packing)


def _rows(job, places, rng) -> np.ndarray:
    """Packs the instances of a part: int64 [N], the row of each."""
    lengths = places["a_length"].astype(np.int64) + places["b_length"] + 3
    predictions = masking.prediction_counts(lengths, job.masking)
    return packing.pack(lengths, predictions, job.packing, rng)


def _columns(job, places, rng) -> dict[str, np.ndarray]:
    """Builds the features of a batch of instances."""
    assembled = instances.assemble(
        open_store(job).take,
        places,
        max_seq_length=job.pairing.max_seq_length,
        vocabulary=job.vocabulary,
    )
    masked = masking.mask(
        assembled.input_ids,
        assembled.is_candidate,
        assembled.lengths,
        rule=job.masking,
        vocabulary=job.vocabulary,
        rng=rng,
    )
    return {
        **masked._asdict(),
        "input_mask": assembled.input_mask,
        "segment_ids": assembled.segment_ids,
        "next_sentence_labels": places["is_random"][:, None],
    }


def join_parts(parts: list[Part]) -> None:
    """Puts the parts of a shard end to end under its final name.

    Records, and likewise members of a .gz file, may simply follow each other.
    """
    shard = parts[0].shard
    if parts[0].path == shard:
        return
    with (
        records.hidden_name(shard) as hidden,
        tf.io.gfile.GFile(hidden, "wb") as file,
    ):
        for part in parts:
            with open(part.path, "rb") as source:
                shutil.copyfileobj(source, file, 1 << 24)
    for part in parts:
        os.remove(part.path)
