"""What a pre-training data job will take, estimated from a sample of its text.

Up to eight files, evenly chosen, give a block each; the sample goes through
the whole job, in this process, in a folder that is removed again.
"""

import dataclasses
import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import tensorflow as tf

from data import corpus, workers
from data.pretraining import data_job, instances, shard_files
from data.pretraining.data_job import Job
from foundation import errors

_FILES, _BLOCK_BYTES = 8, 1 << 19


class Estimate(NamedTuple):
    """What was measured on a sample, and how much larger the whole is."""

    factor: float
    file_bytes: int
    totals: dict[str, int]
    records: int
    shard_bytes: int
    store_bytes: int
    seconds: float

    def lines(self, num_workers: int) -> Iterator[str]:
        """Yields the estimate of the whole as lines of text."""
        times = self.factor
        yield f"{'text':22}{_bytes(self.file_bytes)}"
        yield f"{'sampled':22}{100 / times:.3g} %"
        for name in ("documents", "sentences", "pieces", "instances"):
            yield f"{name:22}{self.totals[name] * times:,.0f}"
        yield f"{'records':22}{self.records * times:,.0f}"
        yield f"{'bytes of shards':22}{_bytes(self.shard_bytes * times)}"
        yield f"{'bytes while working':22}{_bytes(self.store_bytes * times)}"
        seconds = self.seconds * times / num_workers
        yield f"{'time':22}{_duration(seconds)}, {num_workers} worker(s)"


def estimate(job: Job) -> Estimate:
    """Measures a sample of a job's text."""
    sizes = [tf.io.gfile.stat(path).length for path in job.input_files]
    with tempfile.TemporaryDirectory() as folder:
        sample = os.path.join(folder, "sample.txt")
        # Documents are cut off by the sampling; they must not run together.
        taken = 0
        with open(sample, "wb") as file:
            for block in _sample(job.input_files):
                file.write(block.data + b"\n\n")
                taken += block.file_bytes
        if not taken:
            raise errors.InputError("--input_file: no text to sample")
        small = dataclasses.replace(
            job,
            input_files=(sample,),
            input_digests=data_job.digest_files([sample]),
            output_files=(os.path.join(folder, "sample.tfrecord"),),
            work_dir=os.path.join(folder, "work"),
        )
        job.tokenizer.encode(["Warm \u00fcp."])
        begin = time.monotonic()
        made = shard_files.make(
            small,
            manifest_path=os.path.join(folder, "sample.manifest.json"),
            pool=workers.Workers(1, small, ""),
            allow_single_document=True,
        )
        seconds = time.monotonic() - begin
    return Estimate(
        factor=sum(sizes) / taken,
        file_bytes=sum(sizes),
        totals=made.totals,
        records=made.record_count,
        shard_bytes=made.shards[0].bytes,
        store_bytes=_store_bytes(job, made.totals),
        seconds=seconds,
    )


def _sample(paths: Iterable[str]) -> Iterator[corpus.Block]:
    paths = list(paths)
    step = max(1, len(paths) // _FILES)
    chosen = paths[::step][:_FILES]
    for path in chosen:
        blocks = corpus.read_blocks([path], _BLOCK_BYTES)
        for block, _ in zip(blocks, range(_FILES // len(chosen)), strict=False):
            yield block


def _store_bytes(job, totals) -> int:
    """The tokenized text and the plans; parts of one shard come besides."""
    return (
        totals["pieces"] * job.dtype.itemsize
        + totals["sentences"] * 8
        + totals["instances"] * instances.PLACE.itemsize
    )


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {seconds:02d} s" if minutes else f"{seconds} s"
