"""Runs everything in minutes: text, vocabulary, records, model, predictions.

    make demo

The text is the docstrings of the installed Python packages. Each step is the
command that you would use for your own text. The output directory of an earlier
demo is removed first.
"""

import collections
import dataclasses
import functools
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

from foundation import config_flags, file_system

field = config_flags.field
HERE = os.path.dirname(os.path.abspath(__file__))
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
class DemoConfig:
    """Everything demo.py needs to know."""

    output_dir: str = field("Directory of all outputs.", "demo_output")
    text_megabytes: float = field("Size of the text to collect.", 4.5)
    vocab_size: int = field("Number of tokens of the vocabulary.", 2000)
    num_train_steps: int = field("Steps of pre-training.", 3500)


config_flags.parse_early(DemoConfig, __name__)

import foundation.tensorflow_setup  # noqa: F401
from data import docstrings
from modeling.config import BertConfig
from tasks.pretraining import pretraining_data


def main(config: DemoConfig) -> None:
    """Runs every step and prints a table of the results."""
    started = time.monotonic()
    file_system.check_output_folder(config.output_dir, "output_dir")
    path = functools.partial(os.path.join, config.output_dir)
    file_system.refuse_remote(
        config.output_dir, "output_dir", "the directory is removed first"
    )
    shutil.rmtree(config.output_dir, ignore_errors=True)
    os.makedirs(config.output_dir)
    _say("Collecting English text from the installed packages")
    train, held_out = docstrings.collect(
        config.output_dir, num_characters=int(config.text_megabytes * 1e6)
    )
    print(f"{train} modules to train on, {held_out} held out")
    _vocabulary_and_records(config, path)
    _pretrain(config, path)
    _say("Filling masks")
    with open(path("sentences.txt"), "w", encoding="utf-8") as file:
        file.write("\n".join(SENTENCES) + "\n")
    filled = _run(
        "fill_mask.py",
        model_dir=path("pretrained"),
        input_file=path("sentences.txt"),
        top_k=4,
    )
    _classify(path)
    _summary(path, filled, time.monotonic() - started)


def _vocabulary_and_records(config: DemoConfig, path) -> None:
    _say("Learning a vocabulary")
    _run(
        "create_vocabulary.py",
        input_file=path("train.txt"),
        output_file=path("vocab.txt"),
        vocab_size=config.vocab_size,
    )
    _say("Making masked records")
    for split, dupe_factor in (("train", 5), ("heldout", 1)):
        _run(
            "create_pretraining_data.py",
            input_file=path(f"{split}.txt"),
            input_format="paragraphs",
            output_prefix=path(f"shards/{split}"),
            num_shards=4 if split == "train" else 1,
            vocab_file=path("vocab.txt"),
            max_seq_length=LENGTH,
            max_predictions_per_seq=PREDICTIONS,
            dupe_factor=dupe_factor,
        )


def _pretrain(config: DemoConfig, path) -> None:
    _say("Pre-training a small BERT")
    # The released initializer range, 0.02, suits 768 units; with 128 units the
    # context has too little effect on a masked position to learn in minutes. In
    # so few steps the model does not overfit, so it needs no dropout.
    bert_config = BertConfig(
        vocab_size=config.vocab_size,
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=512,
        max_position_embeddings=128,
        type_vocab_size=2,
        initializer_range=0.05,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    with open(path("bert_config.json"), "w", encoding="utf-8") as file:
        json.dump(bert_config.to_dict(), file, indent=2)
    _run(
        "run_pretraining.py",
        bert_config_file=path("bert_config.json"),
        input_file=path("shards/train-*.tfrecord"),
        eval_file=path("shards/heldout-*.tfrecord"),
        output_dir=path("pretrained"),
        do_train=True,
        do_eval=True,
        max_seq_length=LENGTH,
        max_predictions_per_seq=PREDICTIONS,
        train_batch_size=64,
        eval_batch_size=64,
        learning_rate=1e-3,
        num_train_steps=config.num_train_steps,
        num_warmup_steps=config.num_train_steps // 10,
        log_every_steps=max(config.num_train_steps // 20, 1),
        eval_every_steps=-(-config.num_train_steps // 6),
        max_eval_steps=0,
    )


def _classify(path) -> None:
    _say("Fine-tuning it to classify paragraphs by package")
    _run(
        "run_classifier.py",
        task_name="jsonl",
        train_file=path("train.jsonl"),
        dev_file=path("heldout.jsonl"),
        label_column="package",
        init_checkpoint=path("pretrained"),
        output_dir=path("classifier"),
        do_train=True,
        do_eval=True,
        max_seq_length=64,
        learning_rate=5e-4,
        num_train_epochs=3,
    )


def _summary(path, filled: str, seconds: float) -> None:
    """Prints the metrics, and those that guessing would reach."""
    with open(path("pretrained/metrics.jsonl"), encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    evaluations = [line for line in lines if "eval/loss" in line]
    baseline = pretraining_data.baseline_on(
        path("shards/heldout-*.tfrecord"), LENGTH, PREDICTIONS
    )
    _say(f"Done in {seconds:.0f} s")
    print(_accuracies(evaluations, baseline))
    print("\n" + filled)
    with open(path("heldout.jsonl"), encoding="utf-8") as file:
        labels = collections.Counter(json.loads(x)["package"] for x in file)
    with open(path("classifier/eval_results.json"), encoding="utf-8") as file:
        accuracy = json.load(file)["eval_accuracy"]
    most_frequent = labels.most_common(1)[0][1] / labels.total()
    print(f"Package of a held-out paragraph: right for {accuracy:.1%};")
    print(f"always the most frequent package would be for {most_frequent:.1%}")
    print("\nReports for a browser:")
    print(path("pretrained/report.html"), path("classifier/report.html"))
    print("For your own text (one paragraph a line, blank lines between")
    print(f"documents), use the commands above with {sys.executable}.")


def _accuracies(
    evaluations: Sequence[Mapping[str, float]], baseline: Mapping[str, float]
) -> str:
    """Returns the table of a pre-training, and how to read it.

    Args:
      evaluations: the lines of metrics.jsonl with held-out metrics.
      baseline: see pretraining_data.baseline.
    """
    lines = ["held out   loss  masked-LM accuracy  next-sentence accuracy"]
    for line in evaluations:
        lines.append(
            f"step {line['step']:>5} {line['eval/loss']:5.2f} "
            f"{line['eval/masked_lm_accuracy']:18.1%} "
            f"{line['eval/next_sentence_accuracy']:23.1%}"
        )
    lines.append(
        f"guessing         {baseline['masked_lm_accuracy']:18.1%} "
        f"{baseline['next_sentence_accuracy']:23.1%}"
    )
    lines.append(
        "(guessing: for each masked token the most frequent token, and for\n"
        "each pair of sentences the more frequent of its two labels)"
    )
    return "\n".join(lines)


def _say(text: str) -> None:
    print(f"\n=== {text}", flush=True)


def _run(program: str, **flags) -> str:
    """Prints a command, runs it and returns its output."""
    arguments = [f"--{name}={value}" for name, value in flags.items()]
    shown = " \\\n    ".join(map(shlex.quote, arguments))
    print(f"python {program} \\\n    {shown}", flush=True)
    result = subprocess.run(
        [sys.executable, os.path.join(HERE, program), *arguments],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    print(result.stdout, end="", flush=True)
    if result.returncode:
        sys.exit(result.returncode)
    return result.stdout


if __name__ == "__main__":
    config_flags.run(DemoConfig, main)
