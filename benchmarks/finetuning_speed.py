r"""Measures fine-tuning and prediction, ours beside transformers + PyTorch.

    python benchmarks/finetuning_speed.py --task_name=MRPC --data_dir=MRPC \
        --init_checkpoint=MODEL_DIR --peer_python=/path/to/python/with/torch

Both train on the task's own sentences, already tokenized, batch 32: ours in
batches of similar length, the peer in random ones, padded to the longest of
each; then both predict the test set. The processes take turns. Prints
the medians of examples per second, and their ratios.
"""

import dataclasses
import os
import sys
import tempfile
from typing import Literal

sys.path.insert(0, os.path.join(os.path.dirname(__file__), os.pardir))


import example_arrays
import numpy as np
import tokenized_task
import turns

from foundation import config_flags

field = config_flags.field


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(turns.Race):
    """What is measured."""

    task_name: str = field("Of GLUE.")
    data_dir: str = field("Folder of the task's files.")
    init_checkpoint: str = field("A model directory that both read.")
    batch_size: int = field("Examples per step.", 32)
    # As many as are sorted by length together: no turn has longer sentences.
    steps: int = field("Steps of training per turn.", 50)
    predictions: int = field("Examples to predict per turn, at most.", 1000)
    profile: str | None = field(
        "Where to write traces of ours, in place of a comparison.", None
    )
    work: Literal["all", "train", "predict"] = field("Of these.", "all")
    examples: str | None = field("Used by itself.", None)


def make_ours(config: Config):
    """Returns what works once."""
    import our_side

    from data import length_groups
    from modeling import models
    from tasks.classification import objective
    from weights import checkpoint_sources

    arrays = example_arrays.read(config.examples)
    bert = checkpoint_sources.read(config.init_checkpoint).config
    kind = tokenized_task.open_task(config.task_name, config.data_dir).kind

    def make_model(dtype):
        return models.ClassificationModel(
            bert, num_classes=int(arrays["classes"]), dtype=dtype
        )

    common = {
        "dtype": config.precision,
        "init_checkpoint": config.init_checkpoint,
    }
    task = objective.ClassificationTask(kind)
    options = {
        "batch_size": config.batch_size,
        "lengths": length_groups.permitted_lengths(128),
    }
    if config.work == "predict":
        predictor = our_side.predictor(make_model, task, **common)
        some = example_arrays.to_features(arrays, config.predictions)
        make = length_groups.ordered_batches(some, **options)
        return lambda: predictor(make, len(some))
    features = example_arrays.to_features(arrays)
    make = length_groups.endless_batches(features, seed=1, **options)
    return our_side.training(
        make_model, task, make, steps=config.steps, **common
    )


def make_peer(config: Config):
    """Returns what works once."""
    import torch
    import torch_peer
    import transformers

    arrays = example_arrays.read(config.examples)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        config.init_checkpoint, num_labels=int(arrays["classes"])
    )
    count = len(arrays["row_splits"]) - 1

    def batch(rows) -> dict:
        return torch_peer.tensors(example_arrays.padded(arrays, rows))

    if config.work == "train":
        return torch_peer.training(
            model,
            batch,
            count,
            precision=config.precision,
            batch_size=config.batch_size,
            steps=config.steps,
        )
    model = model.float().eval()
    last = min(count, config.predictions)

    def predict():
        with torch.inference_mode(), torch_peer.autocast(config.precision):
            for start in range(0, last, config.batch_size):
                end = min(start + config.batch_size, last)
                model(**batch(np.arange(start, end)))

    return predict


def main(config: Config) -> None:
    """Lets ours and the peer take turns and prints medians and ratios."""
    if config.side != "both":
        run = (make_ours if config.side == "ours" else make_peer)(config)
        for _ in range(2 if config.work == "train" else 1):
            run()  # Compiles, and meets the lengths that there are.
        return turns.serve(run)
    config = turns.choose_precision(config)
    task = tokenized_task.open_task(config.task_name, config.data_dir)
    with tempfile.TemporaryDirectory() as folder:
        paths = {}  # All are written first: a file may be missing.
        for work, split in (
            ("train", "train"),
            ("predict", task.test_splits[0]),
        ):
            if config.work in ("all", work):
                path = paths[work] = os.path.join(folder, f"{work}.npz")
                tokenized_task.write(path, task, split, config.init_checkpoint)
        for work, path in paths.items():
            _measure(dataclasses.replace(config, work=work, examples=path))
    return None


def _measure(config: Config) -> None:
    if config.profile:
        import trace_table

        print(f"{config.work}:")
        folder = os.path.join(config.profile, config.work)
        return trace_table.show(make_ours(config), folder)
    done = config.batch_size * config.steps
    if config.work == "predict":
        splits = example_arrays.read(config.examples)["row_splits"]
        done = min(config.predictions, len(splits) - 1)
    return turns.race(
        __file__,
        config,
        title=f"{config.task_name} {config.work}, batch {config.batch_size}",
        done=done,
        unit="examples",
    )


if __name__ == "__main__":
    config_flags.run(Config, main)
