"""Runs everything in minutes: text, vocabulary, records, model, predictions.

    make demo

The text is the docstrings of the installed Python packages. Each step is the
command that you would use for your own text. The output directory of an earlier
demo is removed first.
"""

import dataclasses
import json
import pathlib
import shlex
import shutil
import subprocess
import sys
import time

import bert  # noqa: F401  Makes the folders of the checkout importable.
from data import docstrings
from foundation import config_flags

field = config_flags.field
ROOT = pathlib.Path(__file__).resolve().parent.parent
SENTENCES = (
    "The axis [MASK] which to compute the mean.",
    "An error is [MASK] if the input is not valid.",
    "The default [MASK] is None.",
    "The shape of the [MASK] array.",
    "X : array-like of shape (n_samples, n_[MASK]).",
)
# Short sequences: a small model first learns how neighboring words predict each
# other, and sees twice as many of them in the same time.
LENGTH, PREDICTIONS = 32, 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Demo:
    """What the command line can change."""

    output_dir: str = field("Directory of all outputs.", "demo_output")
    text_megabytes: float = field("Size of the text to collect.", 4.5)
    vocab_size: int = field("Number of tokens of the vocabulary.", 2000)
    num_train_steps: int = field("Steps of pre-training.", 3500)


def main(demo: Demo) -> None:
    """Runs every step; the reports compare the results with guessing."""
    started = time.monotonic()
    folder = pathlib.Path(demo.output_dir)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    say("Collecting English text from the installed packages")
    train, held_out = docstrings.collect(
        str(folder), num_characters=int(demo.text_megabytes * 1e6)
    )
    print(f"{train} modules to train on, {held_out} held out")
    write_records(folder, demo.vocab_size)
    pretrain(folder, demo.vocab_size, demo.num_train_steps)
    say("Filling masks")
    (folder / "sentences.txt").write_text("\n".join(SENTENCES) + "\n")
    run(
        "fill_mask.py",
        model_dir=folder / "pretrained",
        input_file=folder / "sentences.txt",
        top_k=4,
    )
    classify(folder)
    say(f"Done in {time.monotonic() - started:.0f} s; reports for a browser:")
    print(folder / "pretrained/report.html", folder / "classifier/report.html")
    print("For your own text (one paragraph a line, blank lines between")
    print(f"documents), use the commands above with {sys.executable}.")


def write_records(folder: pathlib.Path, vocab_size: int) -> None:
    """Learns a vocabulary and masks both parts of the text."""
    say("Learning a vocabulary")
    run(
        "create_vocabulary.py",
        input_file=folder / "train.txt",
        output_file=folder / "vocab.txt",
        vocab_size=vocab_size,
    )
    say("Making masked records")
    for split, dupe_factor, num_shards in (("train", 5, 4), ("heldout", 1, 1)):
        run(
            "create_pretraining_data.py",
            input_file=folder / f"{split}.txt",
            input_format="paragraphs",
            output_prefix=folder / "shards" / split,
            num_shards=num_shards,
            vocab_file=folder / "vocab.txt",
            max_seq_length=LENGTH,
            max_predictions_per_seq=PREDICTIONS,
            dupe_factor=dupe_factor,
        )


def pretrain(folder: pathlib.Path, vocab_size: int, steps: int) -> None:
    """Trains a small model on masked tokens and next sentences."""
    say("Pre-training a small BERT")
    # In so few steps the model does not overfit, so it needs no dropout.
    config = json.loads((ROOT / "configs/small_cpu.json").read_text())
    config |= {"vocab_size": vocab_size, "num_hidden_layers": 2}
    (folder / "bert_config.json").write_text(json.dumps(config, indent=2))
    run(
        "run_pretraining.py",
        bert_config_file=folder / "bert_config.json",
        input_file=folder / "shards/train-*.tfrecord",
        eval_file=folder / "shards/heldout-*.tfrecord",
        output_dir=folder / "pretrained",
        do_train=True,
        do_eval=True,
        max_seq_length=LENGTH,
        max_predictions_per_seq=PREDICTIONS,
        train_batch_size=64,
        eval_batch_size=64,
        learning_rate=1e-3,
        num_train_steps=steps,
        num_warmup_steps=steps // 10,
        eval_every_steps=-(-steps // 6),
        max_eval_steps=0,
    )


def classify(folder: pathlib.Path) -> None:
    """Fine-tunes the model to name the package of a paragraph."""
    say("Fine-tuning it to classify paragraphs by package")
    run(
        "run_classifier.py",
        task_name="jsonl",
        train_file=folder / "train.jsonl",
        dev_file=folder / "heldout.jsonl",
        label_column="package",
        init_checkpoint=folder / "pretrained",
        output_dir=folder / "classifier",
        do_train=True,
        do_eval=True,
        max_seq_length=64,
        learning_rate=5e-4,
        num_train_epochs=3,
    )


def say(text: str) -> None:
    """Prints the heading of a step."""
    print(f"\n=== {text}", flush=True)


def run(program: str, **flags: object) -> None:
    """Prints a command and runs it."""
    arguments = [f"--{name}={value}" for name, value in flags.items()]
    shown = " \\\n    ".join(map(shlex.quote, arguments))
    print(f"python {program} \\\n    {shown}", flush=True)
    code = subprocess.run([sys.executable, ROOT / program, *arguments])
    if code.returncode:
        sys.exit(code.returncode)


if __name__ == "__main__":
    config_flags.run(Demo, main)
