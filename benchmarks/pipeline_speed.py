"""Measures how many records per second the input pipeline delivers.

    python benchmarks/pipeline_speed.py --input_file='shards/*.tfrecord'

Without --input_file it writes shards of random records. Measures shuffling,
parsing and batching as in run_pretraining.py, compared with the pipeline of
google-research/bert's run_pretraining.py (parse one record at a time, shuffle a
buffer of 100), written with today's tf.data.
"""

import dataclasses
import os
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), os.pardir))

import numpy as np
import tensorflow as tf

import foundation.tensorflow_setup  # noqa: F401
from data import pipelines, records, schema
from foundation import config_flags

field = config_flags.field


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """The flags of this measurement."""

    input_file: str | None = field(
        "Pattern of shards; None writes random ones.", None
    )
    max_seq_length: int = field("Sequence length of the shards.", 128)
    max_predictions_per_seq: int = field("Predictions of the shards.", 20)
    batch_size: int = field("Records per batch.", 32)
    seconds: float = field("Duration of each measurement.", 5.0)


def write_shards(folder: str, kind: schema.Schema) -> list[str]:
    """Writes 8 shards of 4,096 random records; returns their paths."""
    draw = np.random.RandomState(0)
    columns = {
        feature.name: draw.randint(0, 2, (4096, *feature.shape)).astype(
            feature.dtype
        )
        for feature in kind.features
    }
    for name, limit in (("input_ids", 30522), ("masked_lm_ids", 30522)):
        columns[name] = draw.randint(0, limit, columns[name].shape)
    encoded = records.encode(kind, columns)
    paths = [f"{folder}/{i}.tfrecord" for i in range(8)]
    for path in paths:
        with records.ShardWriter(path) as writer:
            writer.write(encoded)
    return paths


def reference_batches(
    paths: list[str], kind: schema.Schema, batch_size: int
) -> tf.data.Dataset:
    """Returns the batches of google-research/bert's input function."""
    spec = {
        f.name: tf.io.FixedLenFeature(f.shape, getattr(tf, f.dtype))
        for f in kind.features
    }

    def parse(record):
        example = tf.io.parse_single_example(record, spec)
        return {
            name: tf.cast(v, tf.int32) if v.dtype == tf.int64 else v
            for name, v in example.items()
        }

    return (
        tf.data.Dataset.from_tensor_slices(paths)
        .repeat()
        .shuffle(len(paths))
        .interleave(
            tf.data.TFRecordDataset,
            cycle_length=min(4, len(paths)),
        )
        .shuffle(100)
        .map(parse, num_parallel_calls=4)
        .batch(batch_size, drop_remainder=True)
    )


def measure(batches: tf.data.Dataset, config: Config) -> tuple[float, float]:
    """Returns records per second and per processor second."""
    iterator = iter(batches)
    next(iterator)
    started, used, count = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - started < config.seconds:
        next(iterator)
        count += config.batch_size
    wall = time.perf_counter() - started
    return count / wall, count / (time.process_time() - used)


def main(config: Config) -> None:
    """Prints the speed of both pipelines and their ratio."""
    kind = schema.pretraining(
        config.max_seq_length, config.max_predictions_per_seq
    )
    with tempfile.TemporaryDirectory() as folder:
        if config.input_file:
            paths = sorted(tf.io.gfile.glob(config.input_file))
        else:
            paths = write_shards(folder, kind)
        ours = pipelines.train_batches(
            paths, kind, batch_size=config.batch_size, seed=1
        )
        reference = reference_batches(paths, kind, config.batch_size)
        rates = {}
        for name, batches in (("ours", ours), ("reference", reference)):
            wall, processor = measure(batches, config)
            rates[name] = processor
            print(
                f"{name}: {wall:.0f} records/s, {processor:.0f} per "
                "processor second"
            )
        ratio = rates["ours"] / rates["reference"]
        print(f"ratio per processor second: {ratio:.2f}")
        started = time.perf_counter()
        resumed = pipelines.train_batches(
            paths,
            kind,
            batch_size=config.batch_size,
            seed=1,
            first_batch=10**7,
        )
        next(iter(resumed))
        seconds = time.perf_counter() - started
        print(
            f"first batch of a run resumed at step 10,000,000: {seconds:.1f} s"
        )


if __name__ == "__main__":
    config_flags.run(Config, main)
