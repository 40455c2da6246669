"""Tiny sentence files, and calls of run_classifier.py with flags."""

import csv
import random

import tiny_runs

import run_classifier

GOOD, BAD = ["good", "fine", "nice"], ["bad", "poor", "sad"]
FILLING = [f"w{i}" for i in range(20)]
WORDS = tiny_runs.SPECIAL + GOOD + BAD + FILLING


def sentences(seed, count):
    """Returns texts of different lengths, and whether each has a good word."""
    rng = random.Random(seed)
    for _ in range(count):
        label = rng.randrange(2)
        words = rng.choices(FILLING, k=rng.choice([1, 2, 3, 10, 25]))
        words.insert(0, rng.choice(GOOD if label else BAD))
        yield " ".join(words), label


def make_data(folder, dropout=0.1, **sizes):
    """Saves a tiny encoder with its vocabulary, and data in several forms."""
    tiny_runs.save_encoder(
        folder / "encoder",
        WORDS,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        **sizes,
    )
    for name, seed, count in (("train", 1, 203), ("dev", 2, 41)):
        rows = list(sentences(seed, count))
        with open(folder / f"{name}.csv", "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["id", "review", "verdict"])
            for i, (text, label) in enumerate(rows):
                writer.writerow([f"{name}{i}", text, ["no", "yes"][label]])
        lines = [f"{text}\t{label}\n" for text, label in rows]
        (folder / f"{name}.tsv").write_text(
            "sentence\tlabel\n" + "".join(lines)
        )
    lines = [f"{i}\t{text}\n" for i, (text, _) in enumerate(sentences(3, 9))]
    (folder / "test.tsv").write_text("index\tsentence\n" + "".join(lines))


def run(folder, name, *switches, **flags):
    """Calls run_classifier.py with flags; returns its output directory."""
    flags = {
        "init_checkpoint": folder / "encoder",
        "output_dir": folder / name,
        "max_seq_length": 32,
        "learning_rate": 5e-3,
        "save_checkpoints_steps": 1000,
        "precision": "float32",
        "num_train_epochs": 6,
    } | flags
    tiny_runs.run(
        run_classifier, run_classifier.ClassifierFlags, *switches, **flags
    )
    return folder / name


def run_csv(folder, name, *switches, **flags):
    """Calls run_classifier.py on a CSV table; returns its output directory."""
    own = {
        "task_name": "csv",
        "train_file": folder / "train.csv",
        "dev_file": folder / "dev.csv",
        "text_column": "review",
        "label_column": "verdict",
    }
    return run(folder, name, *switches, **(own | flags))
