r"""Converts BERT checkpoints of any origin, looks into them, compares them.

    python convert_checkpoint.py --output=bert-base \
        --input=uncased_L-12_H-768_A-12/bert_model.ckpt

    python convert_checkpoint.py --input=bert-base \
        --output=released --output_format=tf1

    python convert_checkpoint.py --input=released --check=bert-base
    python convert_checkpoint.py --input=released/bert_model.ckpt --list

Input is a TensorFlow prefix, a Hugging Face directory or cache folder, a Model
Garden checkpoint or a model directory. All heads come along, and the files that
say how they must be asked; optimizer slots stay behind. --check ends with code
0 if both are equal and 1 if not.

With words of one's own, and for longer texts:

    python convert_checkpoint.py --input=bert-base --output=bert-med \
        --new_words_file=drugs.txt --max_position_embeddings=1024
"""

import dataclasses
from typing import Literal

import foundation.tensorflow_setup  # noqa: F401
from data import text_tables
from foundation import config_flags, file_system
from modeling.config import BertConfig
from weights import (
    checkpoint_sources,
    conversion,
    model_files,
    vocabulary_surgery,
)

field = config_flags.field
# What is done to a model on its way from --input to --output.
_OPERATIONS = ("drop_heads", "new_words_file", "max_position_embeddings")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConversionConfig:
    """Everything convert_checkpoint.py needs to know."""

    input: str = field("The checkpoint: a prefix, a file or a directory.")
    output: str | None = field("Directory to write to.", None)
    output_format: Literal["model_directory", "tf1"] = field(
        "What to write.", "model_directory"
    )
    list: bool = field("Whether to list names, shapes and sizes.", False)
    check: str | None = field("Another checkpoint to compare with.", None)
    tolerance: float = field("Difference that --check lets pass.", 0.0)
    bert_config_file: str | None = field(
        "The hyperparameters, where none lie beside the input.", None
    )
    do_lower_case: bool | None = field(
        "How text was read, where nothing beside the input says so.", None
    )
    drop_heads: bool = field("Whether to keep the encoder only.", False)
    slim: bool = field(
        "Whether to leave out optimizer slots; only tf1 can keep them.", True
    )
    new_words_file: str | None = field(
        "Words to add, one a line, also .gz, .bz2.", None
    )
    new_words_at: Literal["unused", "end"] = field(
        "Whether they replace [unusedN] as far as these go.", "unused"
    )
    max_position_embeddings: int | None = field(
        "Positions to stretch the model to.", None
    )

    def __post_init__(self):
        """Refuses combinations that cannot be meant."""
        if self.output is None and self.check is None and not self.list:
            raise ValueError("--output, --check or --list must be given")
        if self.output is None:
            self._refuse("--output", *_OPERATIONS)
        if self.check is None:
            self._refuse("--check", "tolerance")
        if not self.slim and self.output_format != conversion.TF1:
            raise ValueError("--noslim needs --output_format=tf1")
        if not self.tolerance >= 0:
            raise ValueError(f"--tolerance={self.tolerance}: must be 0 or more")

    def _refuse(self, needed: str, *names: str) -> None:
        """Refuses flags that mean nothing without another."""
        for name in config_flags.given(self):
            if name in names:
                raise ValueError(f"--{name} needs {needed}")


def main(config: ConversionConfig) -> int:
    """Opens, lists if asked, compares if asked, converts if asked."""
    file_system.refuse_remote(
        config.output or "", "output", "copy the model from there"
    )
    needs_data = config.output is not None or config.check is not None
    source = checkpoint_sources.read(config.input, needs_data=needs_data)
    if config.list:
        for line in conversion.contents(source):
            print(line)
    code = 0
    if config.check is not None:
        other = checkpoint_sources.read(config.check)
        result = conversion.compare(source, other, config.tolerance)
        print("\n".join(result.lines))
        code = 0 if result.is_equal else 1
    if config.output is not None:
        checkpoint = conversion.load(
            source,
            config=_bert_config(config),
            do_lower_case=config.do_lower_case,
            drop_heads=config.drop_heads,
            keep_training_state=not config.slim,
        )
        checkpoint = _operate(checkpoint, config)
        written = conversion.write(
            checkpoint, config.output, config.output_format
        )
        left = ", ".join([*source.others, *checkpoint.left_out]) or "nothing"
        beside = "".join(f", {name}" for name in checkpoint.beside)
        print(
            f"{written}: {len(checkpoint.values)} variables "
            f"({checkpoint.architecture}){beside}; left over: {left}"
        )
    return code


def _bert_config(config: ConversionConfig) -> BertConfig | None:
    """Reads --bert_config_file, if it is given."""
    if config.bert_config_file is None:
        return None
    return model_files.read_config(config.bert_config_file)


def _operate(
    checkpoint: conversion.Checkpoint, config: ConversionConfig
) -> conversion.Checkpoint:
    """Adds words and positions, if asked."""
    if config.new_words_file is not None:
        path = text_tables.find(config.new_words_file)
        words = [line for _, line in text_tables.lines(path)]
        checkpoint = vocabulary_surgery.add_words(
            checkpoint, words, path, config.new_words_at
        )
    if config.max_position_embeddings is not None:
        checkpoint = vocabulary_surgery.extend_positions(
            checkpoint, config.max_position_embeddings
        )
    return checkpoint


if __name__ == "__main__":
    config_flags.run(ConversionConfig, main)
