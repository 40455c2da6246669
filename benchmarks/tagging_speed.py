"""Measures tagging and feature extraction beside transformers and PyTorch.

    python benchmarks/tagging_speed.py --data_file=eng.train \
        --init_checkpoint=MODEL_DIR --peer_python=/path/to/python/with/torch

Both have the same sentences, already tokenized, in batches of 32: ours of
similar length, the peer's padded to the longest of each, random ones to train
on and ones in the file's order to extract from. The processes take turns.
Prints the medians of sentences per second, and their ratios.
"""

import dataclasses
import os
import sys
import tempfile
from typing import Literal

sys.path.insert(0, os.path.join(os.path.dirname(__file__), os.pardir))

import numpy as np
import turns

from training import config_flags

field = config_flags.field


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """What is measured."""

    data_file: str = field("CoNLL's format.")
    init_checkpoint: str = field("A model directory that both read.")
    peer_python: str | None = field(
        "Python with torch and transformers; None: ours alone.", None
    )
    batch_size: int = field("Sentences per step.", 32)
    precision: Literal["auto", "float32", "bfloat16"] = field(
        "Of both.", "auto"
    )
    rounds: int = field("How often the two take turns.", 3)
    steps: int = field("Batches per turn.", 20)
    work: Literal["compare", "train", "extract"] = field(
        "Used by itself.", "compare"
    )
    side: Literal["ours", "peer"] = field("Used by itself.", "ours")
    examples: str | None = field("Used by itself.", None)


def tokenize(config: Config, folder: str) -> str:
    """Writes the sentences as arrays; returns the file."""
    from data import conll, conll_tags, tagging
    from tasks import checkpoint_sources, tokenizer_files

    sentences = conll.read(config.data_file)
    scheme = conll.scheme(sentences)
    labels = conll_tags.labels(conll.types(sentences, scheme), "bio2")
    source = checkpoint_sources.read(config.init_checkpoint)
    features = tagging.encode(
        tokenizer_files.load(source.directory),
        sentences,
        conll.encode_tags(sentences, scheme, labels),
        max_seq_length=128,
    )
    path = os.path.join(folder, "sentences.npz")
    splits = features.row_splits
    np.savez(path, row_splits=splits, classes=len(labels), **features.ragged)
    return path


def make_ours(config: Config):
    """Returns what works once, and the precision."""
    import tensorflow as tf

    from data import length_groups
    from data.features import Features
    from modeling import models
    from tasks import batches, feature_extraction, model_files, tagging
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

    with np.load(config.examples) as file:
        arrays = dict(file)
    classes = int(arrays.pop("classes"))
    features = Features(row_splits=arrays.pop("row_splits"), ragged=arrays)
    dtype = precision.choose(config.precision)
    policy = precision.policy(dtype)
    scope = strategy.create("one_device")
    bert = read(config.init_checkpoint).config
    options = {
        "batch_size": config.batch_size,
        "lengths": length_groups.permitted_lengths(128),
    }
    if config.work == "extract":
        with scope.scope():
            model = feature_extraction.make_encoder(bert, dtype=policy)
        model_files.warm_start(model, config.init_checkpoint)
        task = feature_extraction.ExtractionTask([-1], pooling="mean")
        predictor = prediction.Predictor(task, model, strategy=scope)
        count = config.batch_size * config.steps
        end = features.row_splits[count]
        some = Features(
            row_splits=features.row_splits[: count + 1],
            ragged={name: x[:end] for name, x in arrays.items()},
        )
        make = batches.predict(some, **options)
        return dtype, lambda: predictor(make, count)
    with scope.scope():
        model = models.TaggingModel(bert, num_classes=classes, dtype=policy)
        optimizer = optimizers.Optimizer(
            optimizers.AdamW(),
            model.trainable_variables,
            schedules.WarmupDecay(peak=2e-5, num_train_steps=10**6),
        )
    model_files.warm_start(model, config.init_checkpoint)
    task = tagging.TaggingTask()
    train_step = step.TrainStep(task, model, optimizer, strategy=scope, seed=1)
    make = batches.train(features, seed=1, **options)
    endless = iter(feed.distribute(scope, make, is_endless=True))
    number = tf.Variable(0, dtype=tf.int64)

    def run():
        train_step(endless, int(number), config.steps)
        number.assign_add(config.steps)

    return dtype, run


def make_peer(config: Config):
    """Returns what works once, and the precision."""
    import torch
    import transformers

    with np.load(config.examples) as file:
        arrays = dict(file)
    splits = arrays["row_splits"]
    autocast = torch.autocast(
        "cpu", dtype=torch.bfloat16, enabled=config.precision == "bfloat16"
    )

    def batch(rows) -> dict:
        length = max(splits[row + 1] - splits[row] for row in rows)
        shape = (len(rows), length)
        found = {
            "input_ids": np.zeros(shape, np.int64),
            "attention_mask": np.zeros(shape, np.int64),
            "labels": np.full(shape, -100, np.int64),
        }
        for i, row in enumerate(rows):
            part = slice(splits[row], splits[row + 1])
            size = part.stop - part.start
            labels = arrays["label_ids"][part]
            found["input_ids"][i, :size] = arrays["input_ids"][part]
            found["attention_mask"][i, :size] = 1
            found["labels"][i, :size] = np.where(labels < 0, -100, labels)
        return {name: torch.tensor(x) for name, x in found.items()}

    if config.work == "extract":
        model = transformers.AutoModel.from_pretrained(config.init_checkpoint)
        model = model.float().eval()

        def extract():
            with torch.inference_mode(), autocast:
                for start in range(config.steps):
                    first = start * config.batch_size
                    made = batch(range(first, first + config.batch_size))
                    made.pop("labels")
                    mask = made["attention_mask"][..., None]
                    last = model(**made).last_hidden_state
                    (last * mask).sum(1) / mask.sum(1)

        return config.precision, extract
    model = transformers.AutoModelForTokenClassification.from_pretrained(
        config.init_checkpoint, num_labels=int(arrays["classes"])
    ).float()
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, fused=True)
    draw = np.random.default_rng(1)

    def train():
        for _ in range(config.steps):
            rows = draw.permutation(len(splits) - 1)[: config.batch_size]
            with autocast:
                loss = model(**batch(rows)).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()

    return config.precision, train


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
        run()  # Compiles, and meets the lengths that there are.
        return turns.serve(run, note)
    from training import precision

    chosen = precision.choose(config.precision)
    with tempfile.TemporaryDirectory() as folder:
        config = dataclasses.replace(
            config, precision=chosen, examples=tokenize(config, folder)
        )
        for work in ("train", "extract"):
            _compare(dataclasses.replace(config, work=work))
    return None


def _compare(config: Config) -> None:
    sides = {"ours": command(config, sys.executable)}
    if config.peer_python:
        sides["peer"] = command(config, config.peer_python, side="peer")
    taken = turns.compare(sides, rounds=config.rounds)
    done = config.batch_size * config.steps
    for name, x in taken.items():
        print(
            f"{config.work}, {name}: {done / x.seconds:.1f} sentences/s, "
            f"{done / x.processor_seconds:.1f} per processor second"
        )
    if "peer" in taken:
        ratio = taken["peer"].seconds / taken["ours"].seconds
        print(
            f"{config.work}, ratio ours / peer: {ratio:.2f} "
            f"(batch {config.batch_size}, {config.precision})"
        )


if __name__ == "__main__":
    config_flags.run(Config, main)
