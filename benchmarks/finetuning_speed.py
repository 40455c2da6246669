r"""Measures fine-tuning and prediction, compared with transformers.

    python benchmarks/finetuning_speed.py --task_name=MRPC --data_dir=MRPC \
        --init_checkpoint=MODEL_DIR --peer_python=/path/to/python/with/torch

Both sides train on the task's training set and predict its test set, already
tokenized, in batches of 32. Ours groups examples of similar length. The peer
is measured twice: with the default of transformers' Trainer (random training
batches, predictions in the order of the file) and with its group_by_length;
both are padded to the longest example of the batch. --peer_group_by_length
selects one of them. The processes take turns. Prints the medians of examples
per second and their ratios.
"""

import dataclasses
import os
import sys
import tempfile
from typing import Literal

sys.path.insert(0, os.path.join(os.path.dirname(__file__), os.pardir))

import comparison
import examples
import numpy as np
import smoke

from foundation import config_flags

field = config_flags.field


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(comparison.SpeedComparison):
    """The flags of this comparison."""

    task_name: str = field("Name of a GLUE task.")
    data_dir: str = field("Directory of the task's files.")
    init_checkpoint: str = field("A model directory that both sides read.")
    batch_size: int = field("Examples per step.", 32)
    # 50 batches are sorted by length together, so every turn has all lengths.
    steps: int = field("Training steps per turn.", 50)
    predictions: int = field("Maximum number of predictions per turn.", 1000)
    peer_group_by_length: Literal["both", "off", "on"] = field(
        "Whether the peer groups examples of similar length.", "both"
    )
    profile: str | None = field(
        "Directory for traces of our side, instead of a comparison.", None
    )
    work: Literal["all", "train", "predict"] = field("What to measure.", "all")
    examples: str | None = field("Set by the script itself.", None)


def make_ours(config: Config):
    """Returns a function that does our work of one turn."""
    import our_side

    from data import length_groups
    from tasks.classification import objective
    from weights import checkpoint_sources

    arrays = examples.read(config.examples)
    bert = checkpoint_sources.read(config.init_checkpoint).config
    task = objective.ClassificationObjective(
        config=bert,
        kind=examples.open_sentence_task(
            config.task_name, config.data_dir
        ).kind,
        labels=examples.numbered_labels(arrays),
    )

    def make_model(dtype):
        return task.make_model(dtype=dtype)

    common = {
        "dtype": config.precision,
        "init_checkpoint": config.init_checkpoint,
    }
    options = {
        "batch_size": config.batch_size,
        "lengths": length_groups.permitted_lengths(128),
    }
    if config.work == "predict":
        predictor = our_side.predictor(make_model, task, **common)
        features = examples.to_features(arrays, config.predictions)
        batches = length_groups.OrderedBatches(features, **options)
        return lambda: predictor(batches, len(features))
    features = examples.to_features(arrays)
    batches = length_groups.endless_batches(features, seed=1, **options)
    return our_side.training(
        make_model, task, batches, steps=config.steps, **common
    )


def make_peer(config: Config):
    """Returns a function that does the peer's work of one turn."""
    import torch
    import torch_peer
    import transformers

    arrays = examples.read(config.examples)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        config.init_checkpoint, num_labels=int(arrays["classes"])
    )
    lengths = np.diff(arrays["row_splits"])
    is_grouped = config.peer_group_by_length == "on"

    def batch(rows) -> dict:
        return torch_peer.tensors(examples.padded(arrays, rows))

    if config.work == "train":
        return torch_peer.training(
            model,
            batch,
            lengths,
            precision=config.precision,
            batch_size=config.batch_size,
            steps=config.steps,
            group_by_length=is_grouped,
        )
    model = model.float().eval()
    order = np.arange(min(len(lengths), config.predictions))
    if is_grouped:
        order = np.argsort(lengths[order], kind="stable")

    def predict():
        with torch.inference_mode(), torch_peer.autocast(config.precision):
            for start in range(0, len(order), config.batch_size):
                model(**batch(order[start : start + config.batch_size]))

    return predict


def main(config: Config) -> None:
    """Lets the sides take turns and prints medians and ratios."""
    if config.side != "both":
        warm_up_runs = 2 if config.work == "train" else 1
        return comparison.serve(
            config, make_ours, make_peer, warm_up_runs=warm_up_runs
        )
    task = examples.open_sentence_task(config.task_name, config.data_dir)
    splits = {"train": "train", "predict": task.test_splits[0]}
    if config.work != "all":
        splits = {config.work: splits[config.work]}
    with tempfile.TemporaryDirectory() as folder:
        paths = {}  # All are written first, so that a missing file is reported.
        for work, split in splits.items():
            paths[work] = os.path.join(folder, f"{work}.npz")
            examples.tokenize_sentence_task(
                paths[work], task, split, config.init_checkpoint
            )
        for work, path in paths.items():
            _measure(dataclasses.replace(config, work=work, examples=path))
    return None


def _measure(config: Config) -> None:
    if config.profile:
        import trace_table

        print(f"{config.work}:")
        precision = comparison.resolve_precision(config.precision)
        return trace_table.show(
            make_ours(dataclasses.replace(config, precision=precision)),
            os.path.join(config.profile, config.work),
        )
    done = config.batch_size * config.steps
    if config.work == "predict":
        splits = examples.read(config.examples)["row_splits"]
        done = min(config.predictions, len(splits) - 1)
    return comparison.compare_speed(
        __file__,
        config,
        title=f"{config.task_name} {config.work}, batch {config.batch_size}",
        done=done,
        unit="examples",
        peers=comparison.peer_groupings(config.peer_group_by_length),
    )


if __name__ == "__main__":
    with smoke.flags(
        {
            "task_name": "MRPC",
            "data_dir": "DATA/glue/MRPC",
            "init_checkpoint": "DATA/model",
            "batch_size": 4,
            "steps": 2,
            "rounds": 1,
        },
        smoke.encoder,
    ):
        config_flags.run(Config, main)
