r"""Measures how fast SQuAD is read, tokenized and cut into windows.

    python benchmarks/squad_windows_speed.py --train_file=train-v1.1.json \
        --vocab_file=vocab.txt

Measures what run_squad.py does before the first training step, except for
writing records: it parses the JSON, finds the answers in the text, tokenizes,
and cuts windows. Prints seconds and questions per second of each part and of
all.
"""

import dataclasses
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), os.pardir))

import smoke

import foundation.tensorflow_setup  # noqa: F401
from data.tokenization import vocabulary, wordpiece
from foundation import config_flags
from tasks.squad import dataset, settings, windowing

field = config_flags.field


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """The flags of this measurement."""

    train_file: str = field("Files in SQuAD's JSON, separated by commas.")
    vocab_file: str = field("Vocabulary of the model.")
    do_lower_case: bool = field("Whether the model is uncased.", True)
    max_seq_length: int = field("Tokens of a window.", 384)
    doc_stride: int = field("Tokens between starts of windows.", 128)
    max_query_length: int = field("Tokens of a question.", 64)


def main(config: Config) -> None:
    """Measures one pass, because a run makes one pass."""
    clock = [time.perf_counter()]
    found = dataset.for_training(dataset.read(config.train_file))
    clock.append(time.perf_counter())
    tokenizer = wordpiece.Tokenizer(
        vocabulary.Vocabulary.from_file(config.vocab_file),
        do_lower_case=config.do_lower_case,
    )
    sizes = settings.WindowSizes(
        max_seq_length=config.max_seq_length,
        doc_stride=config.doc_stride,
        max_query_length=config.max_query_length,
    )
    windows = windowing.make_windows(found, tokenizer, sizes, is_training=True)
    clock.append(time.perf_counter())
    print(f"{len(found)} questions, {len(windows)} windows")
    for name, first, last in (
        ("reading", 0, 1),
        ("tokenizing and windowing", 1, 2),
        ("all", 0, 2),
    ):
        seconds = clock[last] - clock[first]
        speed = len(found) / seconds
        print(f"{name}: {seconds:.2f} s, {speed:.0f} questions/s")


if __name__ == "__main__":
    with smoke.flags(
        {
            "train_file": "DATA/squad/train-v1.1.json",
            "vocab_file": "DATA/vocab.txt",
            "max_seq_length": 64,
            "max_query_length": 16,
            "doc_stride": 16,
        }
    ):
        config_flags.run(Config, main)
