r"""Compares SQuAD scores after training on a part with transformers.

    python benchmarks/squad_scores.py --train_file=train-v1.1.json \
        --predict_file=dev-v1.1.json --every=40 --init_checkpoint=MODEL \
        --output_dir=scores --peer_python=/path/to/python/with/torch

Both sides train on every 40th question and predict all of --predict_file, with
the same batch size, peak learning rate, epochs, warm-up and weight decay. Ours
is run_squad.py, the peer is squad_peer.py. tasks.squad.metrics scores
both. With --halves, --train_file is a file of SQuAD 2.0: both sides train on
every other article and predict the remaining articles, and are compared by
best_f1, each with its best threshold. If it was interrupted, the same command
continues with the next seed. Exits with code 1 if the means differ by more than
three standard errors.
"""

import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable

sys.path.insert(0, os.path.join(os.path.dirname(__file__), os.pardir))

import comparison
import smoke

from foundation import config_flags

field = config_flags.field
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(comparison.ScoreComparison):
    """The flags of this comparison."""

    train_file: str = field("A file in SQuAD's JSON.")
    predict_file: str | None = field("A file in SQuAD's JSON.", None)
    every: int = field("Train on every N-th question.", 40)
    halves: bool = field(
        "Train on every other article and predict the others.", False
    )
    num_seeds: int = field("Runs of each side, with seeds 1, 2, ...", 1)
    train_batch_size: int = field("Windows per step.", 16)
    learning_rate: float = field("Peak learning rate.", 1e-4)
    num_train_epochs: float = field("Epochs.", 2.0)
    max_seq_length: int = field("Tokens of a window.", 384)
    doc_stride: int = field(
        "Tokens from the start of a window to the start of the next; for the "
        "peer, tokens by which they overlap.",
        128,
    )


def split_data(config: Config) -> tuple[str, str]:
    """Writes the training and the prediction set; returns both paths."""
    from foundation import file_system

    values = file_system.read_json(file_system.find(config.train_file))
    paths = [os.path.join(config.output_dir, f"{n}.json") for n in ("a", "b")]
    if config.halves:
        for i, path in enumerate(paths):
            write(path, {"data": values["data"][i::2]})
        return paths[0], paths[1]
    number = 0
    for article in values["data"]:
        for paragraph in article["paragraphs"]:
            numbered = list(enumerate(paragraph["qas"], number))
            number += len(numbered)
            paragraph["qas"] = [
                qa for i, qa in numbered if i % config.every == 0
            ]
    write(paths[0], values)
    # The peer cannot read compressed files.
    values = file_system.read_json(file_system.find(config.predict_file))
    write(paths[1], values)
    return paths[0], paths[1]


def write(path: str, values: dict) -> None:
    """Writes a JSON file."""
    with open(path, "w", encoding="utf-8") as file:
        json.dump(values, file)


def run_ours(
    config: Config, train: str, predict: str, seed: int, folder: str
) -> None:
    """Runs run_squad.py."""
    flags = config.our_flags(
        "max_seq_length",
        "doc_stride",
        train_file=train,
        predict_file=predict,
        predict_batch_size=16,
        random_seed=seed,
        output_dir=folder,
        do_train=True,
        do_predict=True,
        version_2_with_negative=config.halves,
    )
    command = [sys.executable, os.path.join(ROOT, "run_squad.py"), *flags]
    subprocess.run(command, check=True)


def run_peer(
    config: Config, train: str, predict: str, seed: int, folder: str
) -> None:
    """Runs squad_peer.py."""
    flags = config.peer_flags(
        train_file=train,
        predict_file=predict,
        max_seq_length=config.max_seq_length,
        doc_stride=config.doc_stride,
        seed=seed,
        output_dir=folder,
    )
    script = os.path.join(os.path.dirname(__file__), "squad_peer.py")
    command = [config.peer_python, script, *flags]
    command += ["--version_2_with_negative"] if config.halves else []
    subprocess.run(command, check=True)


def scores(
    config: Config, side: str, run: Callable, train: str, predict: str
) -> list[float]:
    """Runs a side with all seeds; returns the F1, or best_f1, of each."""
    from tasks.squad import dataset

    found = dataset.read(predict)
    result = []
    for seed in range(1, config.num_seeds + 1):
        folder = os.path.join(config.output_dir, f"{side}{seed}")
        started = time.monotonic()
        if not os.path.exists(os.path.join(folder, "predictions.json")):
            run(config, train, predict, seed, folder)
        values = evaluate(found, folder)
        shown = {name: round(value, 2) for name, value in values.items()}
        seconds = time.monotonic() - started
        print(f"{side} seed {seed}: {shown}, {seconds:.0f} s", flush=True)
        result.append(values["best_f1" if config.halves else "f1"])
    return result


def evaluate(found, folder: str) -> dict[str, float]:
    """Returns the metrics of a side; for 2.0 also with its best threshold."""
    from tasks.squad import metrics

    path = os.path.join(folder, "predictions.json")
    given = metrics.read_json(path, str)
    values = metrics.evaluate(found, given)
    if not found.has_impossible:
        return values
    path = os.path.join(folder, "nbest_predictions.json")
    if os.path.exists(path):  # Ours; its predictions.json used a threshold.
        lists = metrics.read_json(path, list)
        given = {
            number: next((e["text"] for e in entries if e["text"]), "")
            for number, entries in lists.items()
        }
    path = os.path.join(folder, "null_odds.json")
    odds = metrics.read_json(path, (int, float))
    best = metrics.best_thresholds(found, given, odds)
    return values | metrics.threshold_values(best)


def main(config: Config) -> None:
    """Runs all seeds and prints mean and standard deviation of both sides."""
    config.check_recipe()
    train, predict = split_data(config)
    sides = {"ours": scores(config, "ours", run_ours, train, predict)}
    if config.peer_python:
        sides["peer"] = scores(config, "peer", run_peer, train, predict)
    title = "best F1" if config.halves else "F1"
    sys.exit(1 if comparison.compare_scores(title, sides) else 0)


if __name__ == "__main__":
    with smoke.flags(
        {
            "train_file": "DATA/squad/train-v1.1.json",
            "predict_file": "DATA/squad/dev-v1.1.json",
            "every": 2,
            "init_checkpoint": "DATA/model",
            "output_dir": "DATA/scores",
            "num_train_epochs": 1,
            "train_batch_size": 4,
            "max_seq_length": 96,
            "doc_stride": 16,
        },
        smoke.encoder,
    ):
        config_flags.run(Config, main)
