"""Measures fine-tuning and prediction, ours beside transformers + PyTorch.

    python benchmarks/finetuning_speed.py --task_name=MRPC --data_dir=MRPC \
        --init_checkpoint=MODEL_DIR --peer_python=/path/to/python/with/torch

Both train on the task's own sentences, already tokenized, batch 32: ours in
batches of similar length, the peer in random ones, padded to the longest of
each; then both predict the development set. The processes take turns. Prints
the medians of examples per second, and their ratios.
"""

import dataclasses
import os
import sys
import tempfile
from typing import Literal

sys.path.insert(0, os.path.join(os.path.dirname(__file__), os.pardir))

import numpy as np
import tokenized_task
import turns

from training import config_flags

field = config_flags.field


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """What is measured."""

    task_name: str = field("Of GLUE.")
    data_dir: str = field("Folder of the task's files.")
    init_checkpoint: str = field("A model directory that both read.")
    peer_python: str | None = field(
        "Python with torch and transformers; None: ours alone.", None
    )
    batch_size: int = field("Examples per step.", 32)
    precision: Literal["auto", "float32", "bfloat16"] = field(
        "Of both; auto as in run_classifier.py.", "auto"
    )
    rounds: int = field("How often the two take turns.", 3)
    steps: int = field("Steps of training per turn.", 25)
    predictions: int = field("Examples to predict per turn.", 400)
    work: Literal["compare", "train", "predict"] = field(
        "Used by itself.", "compare"
    )
    side: Literal["ours", "peer"] = field("Used by itself.", "ours")
    examples: str | None = field("Used by itself.", None)


def make_ours(config: Config):
    """Returns what works once, and the precision."""
    import tensorflow as tf

    from data import examples, length_groups
    from data.features import Features
    from modeling import models
    from tasks import batches, classification, model_files
    from tasks.checkpoint_sources import read
    from training import (
        feed,
        optimizers,
        precision,
        prediction,
        schedules,
        step,
        strategy,
    )

    arrays = tokenized_task.read(config.examples)
    features = Features(
        row_splits=arrays.pop("row_splits"),
        dense={"label_ids": arrays.pop("label_ids")},
        ragged=arrays,
    )
    dtype = precision.choose(config.precision)
    scope = strategy.create("one_device")
    with scope.scope():
        model = models.ClassificationModel(
            read(config.init_checkpoint).config,
            num_classes=2,
            dtype=precision.policy(dtype),
        )
        optimizer = optimizers.Optimizer(
            optimizers.AdamW(),
            model.trainable_variables,
            schedules.WarmupDecay(peak=2e-5, num_train_steps=10**6),
        )
    model_files.warm_start(model, config.init_checkpoint)
    task = classification.ClassificationTask(examples.CLASSIFICATION)
    options = {
        "batch_size": config.batch_size,
        "lengths": length_groups.permitted_lengths(128),
    }
    if config.work == "predict":
        predictor = prediction.Predictor(task, model, strategy=scope)
        some = _first(features, config.predictions)
        make = batches.predict(some, **options)
        return dtype, lambda: predictor(make, len(some))
    train_step = step.TrainStep(task, model, optimizer, strategy=scope, seed=1)
    make = batches.train(features, seed=1, **options)
    endless = iter(feed.distribute(scope, make, is_endless=True))
    number = tf.Variable(0, dtype=tf.int64)

    def run():
        train_step(endless, int(number), config.steps)
        number.assign_add(config.steps)

    return dtype, run


def _first(features, count: int):
    from data.features import Features

    end = features.row_splits[count]
    return Features(
        row_splits=features.row_splits[: count + 1],
        ragged={name: x[:end] for name, x in features.ragged.items()},
        dense={name: x[:count] for name, x in features.dense.items()},
    )


def make_peer(config: Config):
    """Returns what works once, and the precision."""
    import torch
    import transformers

    arrays = tokenized_task.read(config.examples)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        config.init_checkpoint, num_labels=2
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, fused=True)
    autocast = torch.autocast(
        "cpu", dtype=torch.bfloat16, enabled=config.precision == "bfloat16"
    )
    draw = np.random.default_rng(1)
    count = len(arrays["row_splits"]) - 1

    def batch(rows) -> dict:
        found = tokenized_task.padded(arrays, rows)
        return {name: torch.tensor(x).long() for name, x in found.items()}

    def train():
        model.train()
        for _ in range(config.steps):
            rows = draw.permutation(count)[: config.batch_size]
            with autocast:
                loss = model(**batch(rows)).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()

    def predict():
        model.eval()
        with torch.inference_mode(), autocast:
            for start in range(0, config.predictions, config.batch_size):
                end = min(start + config.batch_size, config.predictions)
                model(**batch(np.arange(start, end)))

    run = train if config.work == "train" else predict
    return config.precision, run


def command(config: Config, python: str, **changes) -> list[str]:
    """Returns the command line of a side."""
    flags = {**dataclasses.asdict(config), **changes}
    given = [f"--{k}={v}" for k, v in flags.items() if v is not None]
    return [python, os.path.abspath(__file__), *given]


def main(config: Config) -> None:
    """Lets ours and the peer take turns and prints medians and ratios."""
    if config.work != "compare":
        make = make_ours if config.side == "ours" else make_peer
        note, run = make(config)
        for _ in range(2 if config.work == "train" else 1):
            run()  # Compiles, and meets the lengths that there are.
        return turns.serve(run, note)
    from training import precision

    chosen = precision.choose(config.precision)
    config = dataclasses.replace(config, precision=chosen)
    with tempfile.TemporaryDirectory() as folder:
        paths = tokenized_task.write(
            folder,
            config.task_name,
            data_dir=config.data_dir,
            init_checkpoint=config.init_checkpoint,
        )
        for work, split in (("train", "train"), ("predict", "dev")):
            path = paths[split]
            _compare(dataclasses.replace(config, work=work, examples=path))
    return None


def _compare(config: Config) -> None:
    sides = {"ours": command(config, sys.executable)}
    if config.peer_python:
        sides["peer"] = command(config, config.peer_python, side="peer")
    done = config.predictions
    if config.work == "train":
        done = config.batch_size * config.steps
    taken = turns.compare(sides, rounds=config.rounds)
    rates = {name: done / x.seconds for name, x in taken.items()}
    for name, x in taken.items():
        print(
            f"{config.work}, {name}: {rates[name]:.1f} examples/s, "
            f"{done / x.processor_seconds:.1f} per processor second"
        )
    if "peer" in rates:
        ratio = rates["ours"] / rates["peer"]
        print(
            f"{config.work}, ratio ours / peer: {ratio:.2f} "
            f"({config.task_name}, batch {config.batch_size}, "
            f"{config.precision})"
        )


if __name__ == "__main__":
    config_flags.run(Config, main)
