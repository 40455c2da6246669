"""Measures how many records a second the input pipeline hands to training.

    python benchmarks/pipeline_speed.py --input_file='shards/*.tfrecord'

Without --input_file it makes shards of its own. Shuffling, parsing and cutting
into batches, as run_pretraining.py does it, and nothing else; beside it, the
pipeline of the released run_pretraining.py (parse one record at a time, shuffle
a buffer of 100), written with today's tf.data.
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
    """What is read."""

    input_file: str | None = field("Glob of shards; None makes some.", None)
    max_seq_length: int = field("As the shards were made.", 128)
    max_predictions_per_seq: int = field("As the shards were made.", 20)
    batch_size: int = field("Records per batch.", 32)
    seconds: float = field("How long each is measured.", 5.0)


def write_shards(folder: str, kind: schema.Schema) -> list[str]:
    """Makes 8 shards of 4,096 records."""
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


def released(
    paths: list[str], kind: schema.Schema, batch_size: int
) -> tf.data.Dataset:
    """Makes the released input function's batches."""
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
    """Returns records per second, and per second of one processor."""
    iterator = iter(batches)
    next(iterator)
    started, used, count = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - started < config.seconds:
        next(iterator)
        count += config.batch_size
    wall = time.perf_counter() - started
    return count / wall, count / (time.process_time() - used)


def main(config: Config) -> None:
    """Prints both and their ratio."""
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
        theirs = released(paths, kind, config.batch_size)
        rates = {}
        for name, batches in (("ours", ours), ("released", theirs)):
            wall, processor = measure(batches, config)
            rates[name] = processor
            print(
                f"{name}: {wall:.0f} records/s, {processor:.0f} per "
                "processor second"
            )
        ratio = rates["ours"] / rates["released"]
        print(f"ratio per processor second: {ratio:.2f}")
        started = time.perf_counter()
        far = pipelines.train_batches(
            paths,
            kind,
            batch_size=config.batch_size,
            seed=1,
            first_batch=10**7,
        )
        next(iter(far))
        seconds = time.perf_counter() - started
        print(
            f"first batch of a run resumed at step 10,000,000: {seconds:.1f} s"
        )


if __name__ == "__main__":
    config_flags.run(Config, main)
