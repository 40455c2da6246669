r"""Compares the losses of fine-tuning, step by step, with transformers'.

    python benchmarks/finetuning_losses.py --data_file=eng.train \
        --init_checkpoint=MODEL_DIR --peer_python=/path/to/python/with/torch

Both tag the same batches from the same weights, head included: transformers
reads the directory that our model is saved in. No dropout, float32, AdamW with
bias correction, clipping, a tenth of warm-up. The rate is the released one;
--peer_schedule=transformers gives the peer its own, which decays from the end
of the warm-up on, not from the first step, and is 1.11 times as high from
there.

Prints losses and gradient norms, and the largest relative difference of
losses; exits with 1 if it exceeds 1e-4.
"""

import dataclasses
import os
import subprocess
import sys
import tempfile
from typing import Literal

sys.path.insert(0, os.path.join(os.path.dirname(__file__), os.pardir))


import example_arrays
import numpy as np
import tagging_speed
import turns

from foundation import config_flags

field = config_flags.field
SEED = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """What is compared."""

    data_file: str = field("CoNLL's format.")
    init_checkpoint: str = field("A model directory that both read.")
    peer_python: str = field("Python with absl-py, torch and transformers.")
    peer_schedule: Literal["released", "transformers"] = field(
        "How the peer's rate decays.", "released"
    )
    learning_rate: float = field("Peak.", 5e-5)
    batch_size: int = field("Sentences per step.", 32)
    steps: int = field("To compare.", 100)
    total_steps: int = field("Of the schedule.", 438)
    folder: str | None = field("Used by itself.", None)

    @property
    def warmup(self) -> int:
        """Steps of warm-up."""
        return self.total_steps // 10


def make_batches(config: Config, features):
    """Returns what makes the batches, and the rows of each [steps, B]."""
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
    """Saves the model as it begins, trains it, and writes rows and losses."""
    from modeling import models
    from tasks.ner import tagging
    from training import feed, optimizers, step, strategy
    from weights import checkpoint_sources, model_directory, pretrained

    arrays = example_arrays.read(os.path.join(folder, "sentences.npz"))
    bert = dataclasses.replace(
        checkpoint_sources.read(config.init_checkpoint).config,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    device = strategy.create("one_device")
    with device.scope():
        model = models.TaggingModel(
            bert, num_classes=int(arrays["classes"]), seed=SEED
        )
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
    make, rows = make_batches(config, example_arrays.to_features(arrays))
    train = step.TrainStep(
        tagging.TaggingTask(), model, optimizer, strategy=device, seed=SEED
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
    import torch
    import torch_peer
    import transformers

    folder = config.folder
    arrays = example_arrays.read(os.path.join(folder, "sentences.npz"))
    model = transformers.AutoModelForTokenClassification.from_pretrained(
        os.path.join(folder, "start")
    )
    model = model.float().train()
    decayed, others = [], []
    for name, weight in model.named_parameters():
        is_kept = "LayerNorm" in name or name.endswith("bias")
        (others if is_kept else decayed).append(weight)
    optimizer = torch.optim.AdamW(
        [
            {"params": decayed, "weight_decay": 0.01},
            {"params": others, "weight_decay": 0.0},
        ],
        lr=config.learning_rate,
        eps=1e-6,
    )
    schedule = torch_peer.schedule(
        config.peer_schedule,
        optimizer,
        steps=config.total_steps,
        warmup=config.warmup,
    )
    losses, norms = [], []
    for rows in example_arrays.read(os.path.join(folder, "ours.npz"))["rows"]:
        batch = torch_peer.tensors(example_arrays.padded(arrays, rows))
        loss = model(**batch).loss
        losses.append(loss.item())
        norms.append(torch_peer.step(model, loss, optimizer))
        schedule.step()
    path = os.path.join(folder, "peer.npz")
    np.savez(path, losses=losses, norms=norms)


def main(config: Config) -> None:
    """Runs both and prints how far they are apart."""
    if config.folder:
        return run_peer(config)
    with tempfile.TemporaryDirectory() as folder:
        tagging_speed.tokenize(config, folder)
        run_ours(config, folder)
        command = turns.command(
            __file__, config, config.peer_python, folder=folder
        )
        subprocess.run(command, check=True)
        ours, peer = (
            example_arrays.read(os.path.join(folder, f"{side}.npz"))
            for side in ("ours", "peer")
        )
    print("step  losses: ours, peer  norms: ours, peer")
    for i in range(0, config.steps, max(1, config.steps // 10)):
        columns = [
            x[name][i] for name in ("losses", "norms") for x in (ours, peer)
        ]
        print(f"{i:4d}", *(f"{value:.6f}" for value in columns))
    apart = np.abs(ours["losses"] / peer["losses"] - 1).max()
    print(f"largest relative difference of losses: {apart:.2g}")
    sys.exit(1 if apart > 1e-4 else 0)


if __name__ == "__main__":
    config_flags.run(Config, main)
