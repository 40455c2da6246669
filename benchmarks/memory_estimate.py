r"""Compares the memory that --dry_run estimates with the measured peak.

    python benchmarks/memory_estimate.py --precision=bfloat16

Each case pre-trains a model with random weights for four steps in a process of
its own, and compares the estimate made before the first step with the most
memory that the process used. The time is the median of the last three steps.
Prints a Markdown table. BERT-Base needs about 8 GiB.
"""

import dataclasses
import os
import statistics
import subprocess
import sys
import time
from typing import Literal

sys.path.insert(0, os.path.join(os.path.dirname(__file__), os.pardir))

import smoke

from foundation import config_flags

field = config_flags.field
# Layers, hidden size, heads.
SIZES = {"mini": (4, 256, 4), "small": (4, 512, 8), "base": (12, 768, 12)}
VOCABULARY = 30522
_TIMED_STEPS = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """The flags."""

    cases: str = field(
        "Model, batch size and length of each case.",
        "mini:32:128,small:32:128,base:32:128,base:8:512",
    )
    precision: Literal["float32", "bfloat16"] = field(
        "Of the computation; bfloat16 as in runs of 200 steps or more.",
        "bfloat16",
    )
    recompute: Literal["nothing", "attention", "blocks"] = field(
        "What the backward pass computes again.", "nothing"
    )
    accumulation: int = field("Micro-batches per step.", 1, at_least=1)
    side: Literal["all", "one"] = field("Set by the script itself.", "all")


def measure(config: Config) -> None:
    """Prints the row of one case."""
    import numpy as np
    import tensorflow as tf

    import foundation.tensorflow_setup  # noqa: F401
    from jobs import assembly
    from modeling import models
    from modeling.config import BertConfig
    from tasks.pretraining import objectives
    from training import cost, feed, optimizers, precision, step, strategy

    size, rows, length = config.cases.split(":")
    layers, hidden, heads = SIZES[size]
    bert = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * hidden,
        type_vocab_size=2,
    )
    del assembly  # Its import registers compiled functions.
    device = strategy.create("one_device")
    policy = precision.policy(config.precision)
    with device.scope():
        model = models.PretrainingModel(
            bert, dtype=policy, recompute=config.recompute
        )
        optimizer = optimizers.Optimizer(
            optimizers.AdamW(),
            model.trainable_variables,
            optimizers.WarmupDecay(peak=1e-4, num_train_steps=1000),
        )
    learner = step.Learner(objectives.PretrainingObjective(), model, optimizer)
    train_step = step.TrainStep(
        learner,
        strategy=device,
        seed=1,
        compile_functions=config.precision == "bfloat16",
    )
    shape = int(rows), int(length)
    predictions = int(rows), 20 if length == "128" else 77
    rng = np.random.default_rng(0)
    arrays = {
        "input_ids": rng.integers(1, VOCABULARY, shape),
        "input_mask": np.ones(shape),
        "segment_ids": np.zeros(shape),
        "masked_lm_positions": rng.integers(1, int(length), predictions),
        "masked_lm_ids": rng.integers(1, VOCABULARY, predictions),
        "next_sentence_labels": np.zeros((int(rows), 1)),
    }
    features = {name: x.astype(np.int32) for name, x in arrays.items()}
    features["masked_lm_weights"] = np.ones(predictions, np.float32)

    def make_batches(*, first_batch, part, num_parts):
        del first_batch, part, num_parts
        return tf.data.Dataset.from_tensors(features).repeat()

    found = cost.estimate(
        learner,
        train_step,
        make_batches,
        replicas=1,
        accumulation=config.accumulation,
    ).memory
    batches = iter(
        feed.distribute(
            device,
            make_batches,
            num_accumulation_steps=config.accumulation,
            is_endless=True,
        )
    )
    train_step(batches, 0, 1)
    clock, processor = [], []
    for i in range(_TIMED_STEPS):
        started = time.monotonic(), time.process_time()
        train_step(batches, 1 + i, 1)
        clock.append(time.monotonic() - started[0])
        processor.append(time.process_time() - started[1])
    peak = cost.resident_bytes(is_peak=True)
    numbers = (found.peak, found.total, peak)
    cells = [f"{x / 2**30:.2f}" for x in numbers]
    times = (statistics.median(x) for x in (clock, processor))
    cells += [f"{found.total / peak:.2f}", *(f"{x:.1f}" for x in times)]
    print(f"| {size} | {rows} x {length} | {' | '.join(cells)} |", flush=True)


def main(config: Config) -> None:
    """Runs every case in a process of its own."""
    if config.side == "one":
        return measure(config)
    names = "model", "batch x length", "activations and gradients", "estimate"
    names += "peak", "ratio", "s per step", "processor s per step"
    print(f"| {' | '.join(names)} |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for case in config.cases.split(","):
        flags = dataclasses.asdict(config) | {"cases": case, "side": "one"}
        given = [f"--{name}={value}" for name, value in flags.items()]
        subprocess.run([sys.executable, __file__, *given], check=True)
    return None


if __name__ == "__main__":
    with smoke.flags(
        {
            "cases": "mini:2:128",
        }
    ):
        config_flags.run(Config, main)
