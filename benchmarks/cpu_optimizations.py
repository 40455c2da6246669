r"""Measures what each optimization in training/cpu gains of a complete step.

    python benchmarks/cpu_optimizations.py --work=classify --precision=bfloat16

Runs the step with all optimizations, and with all but one, in turns in one
process. Prints medians of seconds and of processor seconds per turn, and the
ratio to the step with all: 1.10 means that the optimization saves a tenth.

    pretrain    step of BERT-Mini or --size, sequence 128
    train       step of a classifier of 6 layers, H=384, 32 pairs of 64 tokens
    classify    its predictions for 256 pairs
    answer      predictions for 32 SQuAD windows of 384 tokens

The weights are random. Lengths are unknown to the graph, as in real runs.
"""

import dataclasses
import itertools
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, Literal
from unittest import mock

sys.path.insert(0, os.path.join(os.path.dirname(__file__), os.pardir))

import foundation.tensorflow_setup  # noqa: F401, I001

import numpy as np
import tensorflow as tf

from data import examples
from foundation import config_flags
from modeling import models
from modeling.config import BertConfig
from tasks.classification import objective
from tasks.pretraining import objectives
from tasks.squad import squad_job
from training import feed, inference, optimizers, precision, strategy
from training import step as steps_lib
from training.cpu import onednn

field = config_flags.field
SIZES = {"mini": (4, 256, 4), "base": (12, 768, 12), "minilm": (6, 384, 12)}
VOCABULARY = 30522
ALL = "all"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """The flags."""

    work: Literal["pretrain", "train", "classify", "answer"] = field(
        "What is measured.", "classify"
    )
    size: Literal["mini", "base"] = field("Of the model in pretrain.", "mini")
    batch_size: int = field("Sequences per step of pretrain.", 16)
    precision: Literal["auto", "float32", "bfloat16"] = field(
        "Of the computation.", "auto"
    )
    steps: int = field("Training steps per turn.", 3)
    rounds: int = field("Turns of each variant.", 7)


def draw_batch(rows: int, length: int) -> dict[str, np.ndarray]:
    """Draws features of [rows, length] for all models here."""
    draw = np.random.default_rng(0)
    shape, predictions = (rows, length), round(length * 0.15)

    def ids(*shape):
        return draw.integers(1000, VOCABULARY, shape)

    positions = [draw.permutation(length)[:predictions] for _ in range(rows)]
    batch = {
        "input_ids": ids(*shape),
        "input_mask": np.ones(shape),
        "segment_ids": np.indices(shape)[1] > length // 2,
        "label_ids": draw.integers(0, 2, rows),
        "is_real_example": np.ones(rows),
        "example_index": np.arange(rows),
    }
    pretraining = {
        "masked_lm_positions": np.sort(positions),
        "masked_lm_ids": ids(rows, predictions),
        "next_sentence_labels": draw.integers(0, 2, (rows, 1)),
    }
    arrays = {k: x.astype(np.int32) for k, x in (batch | pretraining).items()}
    weights = np.ones((rows, predictions), np.float32)
    return arrays | {"masked_lm_weights": weights}


def make_dataset(batch: dict[str, np.ndarray], count: int) -> feed.MakeBatches:
    """Returns batches, all the same, whose lengths a graph does not know."""

    def forget_length(x):
        shape = [x.shape[0], *[None] * (len(x.shape) - 1)]
        return tf.raw_ops.PlaceholderWithDefault(input=x, shape=shape)

    def make(*, first_batch, part, num_parts):
        del first_batch, part, num_parts
        data = tf.data.Dataset.from_tensors(batch).repeat(count)
        return data.map(lambda x: {k: forget_length(v) for k, v in x.items()})

    return make


def make_training(
    config: Config, model: Any, task: Any, batch: dict[str, np.ndarray]
) -> dict[str, Callable[[], Any]]:
    """Returns functions that train for a turn, by the name of the variant."""
    scope = strategy.create("one_device")
    optimizer = optimizers.Optimizer(
        optimizers.AdamW(),
        model.trainable_variables,
        optimizers.WarmupDecay(peak=1e-5, num_train_steps=10**6),
    )
    make = make_dataset(batch, -1)

    def make_run(compile_functions: bool):
        step = steps_lib.TrainStep(
            steps_lib.Learner(task, model, optimizer),
            strategy=scope,
            seed=1,
            compile_functions=compile_functions,
        )
        batches = iter(feed.distribute(scope, make, is_endless=True))
        first = itertools.count(0, config.steps)
        return lambda: step(batches, next(first), config.steps)

    return {ALL: make_run(True), "compiled functions": make_run(False)}


def make_predictions(
    model: Any, task: Any, batch: dict[str, np.ndarray], count: int
) -> dict[str, Callable[[], Any]]:
    """Returns functions that predict for a turn, by the name of the variant."""
    scope = strategy.create("one_device")
    make = make_dataset(batch, count)
    primitives = {"layer_norm": onednn.layer_norm}
    if model.compute_dtype == "bfloat16":
        primitives["softmax"] = onednn.softmax

    def make_run(without: str):
        predictor = inference.Predictor(task, model, strategy=scope)
        used = {k: v for k, v in primitives.items() if k != without}
        limit = 0 if without == "constants" else onednn._MOST_BYTES
        with (
            mock.patch.object(onednn, "_primitives", lambda: used),
            mock.patch.object(onednn, "_MOST_BYTES", limit),
            mock.patch.object(onednn, "_DTYPES", (model.compute_dtype,)),
        ):
            list(predictor.batches(make))  # Traces the graph.
        return lambda: list(predictor.batches(make))

    return {k: make_run(k) for k in (ALL, "constants", *primitives)}


def make_runs(config: Config) -> dict[str, Callable[[], Any]]:
    """Returns a function for each variant, named by what it lacks."""
    policy = precision.policy(precision.choose(config.precision))
    size = config.size if config.work == "pretrain" else "minilm"
    layers, hidden, heads = SIZES[size]
    bert = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * hidden,
        type_vocab_size=2,
    )
    if config.work == "pretrain":
        model = models.PretrainingModel(bert, dtype=policy)
        batch = draw_batch(config.batch_size, 128)
        return make_training(config, model, objectives.PretrainingTask(), batch)
    if config.work == "answer":
        model = models.QuestionAnsweringModel(bert, dtype=policy)
        batch = draw_batch(8, 384)
        return make_predictions(model, squad_job.SpanTask(), batch, 4)
    model = models.ClassificationModel(bert, num_classes=2, dtype=policy)
    task = objective.ClassificationTask(examples.CLASSIFICATION)
    batch = draw_batch(32, 64)
    if config.work == "train":
        return make_training(config, model, task, batch)
    return make_predictions(model, task, batch, 8)


def measure(run: Callable[[], Any]) -> tuple[float, float]:
    """Returns seconds and processor seconds (user and system) of a call."""

    def used() -> float:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return usage.ru_utime + usage.ru_stime

    started, used_before = time.perf_counter(), used()
    run()
    return time.perf_counter() - started, used() - used_before


def main(config: Config) -> None:
    """Measures the variants in turns, in alternating order."""
    runs = make_runs(config)
    for run in runs.values():
        run()
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for number in range(config.rounds):
        names = list(runs) if number % 2 else list(reversed(runs))
        for name in names:
            taken[name].append(measure(runs[name]))
    chosen = precision.choose(config.precision)
    print(f"{config.work}, {config.size}, {chosen}, {config.rounds} rounds")
    for name, pairs in taken.items():
        seconds, used = map(statistics.median, zip(*pairs, strict=True))
        ratios = [
            [one / other for one, other in zip(pair, base, strict=True)]
            for pair, base in zip(pairs, taken[ALL], strict=True)
        ]
        wall, cpu = map(statistics.median, zip(*ratios, strict=True))
        print(
            f"  {'all' if name == ALL else 'without ' + name:30s}"
            f"{seconds:8.3f} s {used:8.3f} processor s"
            f"   ratio {wall:.3f}, by CPU time {cpu:.3f}"
        )


if __name__ == "__main__":
    config_flags.run(Config, main)
