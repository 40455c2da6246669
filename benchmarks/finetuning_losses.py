r"""Compares the losses of fine-tuning, step by step, with transformers.

    python benchmarks/finetuning_losses.py --data_file=eng.train \
        --init_checkpoint=MODEL_DIR --peer_python=/path/to/python/with/torch

Both sides tag the same batches, starting from the same weights including the
head: transformers reads the directory in which our model is saved. Float32, no
dropout, AdamW with bias correction, clipping, warm-up over 10 % of the steps.
The learning rate decays from step 0, as in google-research/bert. With
--peer_schedule=transformers the peer's decays from the end of the warm-up, and
is 1.11 times as high from there on.

Prints losses, gradient norms, and the largest relative difference of losses.
Exits with code 1 if it exceeds 1e-4. Without --peer_python only our side runs.
"""

import dataclasses
import os
import subprocess
import sys
import tempfile
from typing import Literal

sys.path.insert(0, os.path.join(os.path.dirname(__file__), os.pardir))

import comparison
import examples
import numpy as np
import smoke
import tagging_speed

from foundation import config_flags

field = config_flags.field
SEED = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """The flags of this comparison."""

    data_file: str = field("A file in CoNLL's format.")
    init_checkpoint: str = field("A model directory that both sides read.")
    peer_python: str | None = field(comparison.PEER_PYTHON, None)
    peer_schedule: Literal["released", "transformers"] = field(
        "Decay of the peer's learning rate.", "released"
    )
    learning_rate: float = field("Peak learning rate.", 5e-5)
    batch_size: int = field("Sentences per step.", 32)
    steps: int = field("Steps to compare.", 100)
    total_steps: int = field("Steps of the schedule.", 438)
    folder: str | None = field("Set by the script itself.", None)

    @property
    def warmup(self) -> int:
        """Steps of warm-up."""
        return self.total_steps // 10


def make_batches(config: Config, features):
    """Returns a function that makes the batches, and their rows [steps, B]."""
    from data import length_groups

    size = config.batch_size
    make = length_groups.endless_batches(
        features,
        batch_size=size,
        seed=SEED,
        lengths=length_groups.permitted_lengths(128),
    )
    order = length_groups.Order(features.lengths, batch_size=size, seed=SEED)
    return make, np.stack([order.batch(i) for i in range(config.steps)])


def run_ours(config: Config, folder: str) -> None:
    """Saves the initial model, trains it, and writes rows and losses."""
    from tasks.ner import tagging
    from training import feed, optimizers, step, strategy
    from weights import checkpoint_sources, model_directory, pretrained

    arrays = examples.read(os.path.join(folder, "sentences.npz"))
    bert = dataclasses.replace(
        checkpoint_sources.read(config.init_checkpoint).config,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    objective = tagging.TaggingObjective(
        config=bert, labels=examples.numbered_labels(arrays)
    )
    device = strategy.create("one_device")
    with device.scope():
        model = objective.make_model(seed=SEED)
        optimizer = optimizers.Optimizer(
            optimizers.AdamW(bias_correction=True),
            model.trainable_variables,
            optimizers.WarmupDecay(
                peak=config.learning_rate,
                num_train_steps=config.total_steps,
                num_warmup_steps=config.warmup,
            ),
        )
    pretrained.assign(model, config.init_checkpoint)
    model_directory.save(model, os.path.join(folder, "start"))
    make, rows = make_batches(config, examples.to_features(arrays))
    train = step.TrainStep(
        step.Learner(objective, model, optimizer),
        strategy=device,
        seed=SEED,
    )
    batches = iter(feed.distribute(device, make, is_endless=True))
    found = train(batches, 0, config.steps)
    np.savez(
        os.path.join(folder, "ours.npz"),
        rows=rows,
        losses=found.sums[:, 0],
        norms=found.gradient_norms,
    )


def run_peer(config: Config) -> None:
    """Trains transformers' tagger on the same rows and writes its losses."""
    import torch_peer
    import transformers

    folder = config.folder
    arrays = examples.read(os.path.join(folder, "sentences.npz"))
    model = transformers.AutoModelForTokenClassification.from_pretrained(
        os.path.join(folder, "start")
    )
    model = model.float().train()
    optimizer = torch_peer.adamw(model, config.learning_rate)
    schedule = torch_peer.schedule(
        config.peer_schedule,
        optimizer,
        steps=config.total_steps,
        warmup=config.warmup,
    )
    losses, norms = [], []
    for rows in examples.read(os.path.join(folder, "ours.npz"))["rows"]:
        batch = torch_peer.tensors(examples.padded(arrays, rows))
        loss = model(**batch).loss
        losses.append(loss.item())
        norms.append(torch_peer.step(model, loss, optimizer))
        schedule.step()
    path = os.path.join(folder, "peer.npz")
    np.savez(path, losses=losses, norms=norms)


def main(config: Config) -> None:
    """Trains both sides and prints their difference."""
    if config.folder:
        return run_peer(config)
    with tempfile.TemporaryDirectory() as folder:
        tagging_speed.tokenize(config.data_file, config.init_checkpoint, folder)
        run_ours(config, folder)
        names = ["ours"]
        if config.peer_python:
            command = comparison.command(
                __file__, config, config.peer_python, folder=folder
            )
            subprocess.run(command, check=True)
            names.append("peer")
        sides = {
            name: examples.read(os.path.join(folder, f"{name}.npz"))
            for name in names
        }
    shown = ", ".join(sides)
    print(f"step  losses: {shown}  norms: {shown}")
    for i in range(0, config.steps, max(1, config.steps // 10)):
        columns = [
            side[name][i]
            for name in ("losses", "norms")
            for side in sides.values()
        ]
        print(f"{i:4d}", *(f"{value:.6f}" for value in columns))
    if "peer" not in sides:
        return None
    apart = np.abs(sides["ours"]["losses"] / sides["peer"]["losses"] - 1).max()
    print(f"largest relative difference of losses: {apart:.2g}")
    sys.exit(1 if apart > 1e-4 else 0)


if __name__ == "__main__":
    with smoke.flags(
        {
            "data_file": "DATA/conll2003/eng.train",
            "init_checkpoint": "DATA/model",
            "batch_size": 4,
            "steps": 4,
            "total_steps": 10,
        },
        smoke.encoder,
    ):
        config_flags.run(Config, main)
