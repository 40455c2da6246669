r"""Writes the activations of chosen layers, or one vector for every text.

As in google-research/bert's README, one line of text (or "a ||| b") an input:

    python extract_features.py --input_file=input.txt --output_file=out.jsonl \
        --vocab_file=$BERT/vocab.txt --bert_config_file=$BERT/bert_config.json \
        --init_checkpoint=$BERT/bert_model.ckpt --layers=-1,-2,-3,-4 \
        --max_seq_length=128 --batch_size=8

Sentence embeddings, as sentence-transformers computes them:

    python extract_features.py --input_file=input.txt --output_file=out.npz \
        --output_format=npz --init_checkpoint=all-MiniLM-L6-v2 \
        --pooling=mean --normalize --max_seq_length=256

Lines come out in order; memory does not grow with their number. The input may
end in .gz or .bz2.
"""

import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np
from absl import logging

import errors
import tensorflow_setup  # noqa: F401

# isort: split

from data import length_groups
from data.features import Features
from tasks import (
    batches,
    feature_extraction,
    feature_files,
    finetuning,
    model_files,
)
from training import (
    assembly,
    config_flags,
    feed,
    finetuning_config,
    prediction,
    run_config,
)
from training import finetuning as training

field = config_flags.field
Predict = Callable[[Features], Iterator[dict[str, np.ndarray]]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExtractConfig(run_config.DeviceConfig, finetuning_config.EncoderConfig):
    """Everything extract_features.py needs to know."""

    input_file: str = field("One text, or a pair as `a ||| b`, a line.")
    output_file: str = field("Where the activations go.")
    init_checkpoint: str = field("Weights: a model directory or checkpoint.")
    layers: str | None = field(
        "Comma list; -1 is the last. Without it -1,-2,-3,-4, pooled -1.", None
    )
    batch_size: int = field("Over all replicas.", 32)
    output_format: Literal["jsonl", "npz", "tfrecord", "parquet"] = field(
        "jsonl is the released one; the others are smaller.", "jsonl"
    )
    pooling: Literal["none", "cls", "mean", "max"] = field(
        "One vector for each text in place of each piece's.", "none"
    )
    normalize: bool = field("Scale every vector to length 1.", False)
    # Vectors are compared with those of other machines.
    precision: Literal["auto", "float32", "bfloat16", "float16"] = field(
        "auto: bfloat16 where the hardware multiplies it, else float32.",
        "float32",
    )
    strategy: Literal["auto", "one_device", "mirrored", "tpu"] = field(
        "auto: all GPUs, else the CPU.", "auto"
    )
    use_one_hot_embeddings: bool = field(
        "Accepted and not needed: a lookup is as fast.", False
    )

    def __post_init__(self):
        """Refuses numbers that cannot be meant."""
        run_config.require(self, "batch_size", minimum=1)
        run_config.require(self, "max_seq_length", minimum=3)


def main(config: ExtractConfig) -> None:
    """Opens everything, then writes the layers of every line."""
    feature_files.check(config.output_file, config.output_format)
    start = finetuning.open_start(
        output_dir="",
        init_checkpoint=config.init_checkpoint,
        bert_config_file=config.bert_config_file,
        vocab_file=config.vocab_file,
        do_lower_case=config.do_lower_case,
        max_seq_length=config.max_seq_length,
    )
    pooled = config.pooling != "none"
    task = feature_extraction.ExtractionTask(
        feature_extraction.parse_layers(
            config.layers or ("-1" if pooled else "-1,-2,-3,-4"), start.config
        ),
        pooling=config.pooling,
        normalize=config.normalize,
    )
    blocks = feature_extraction.read_blocks(
        config.input_file,
        start.tokenizer,
        max_seq_length=config.max_seq_length,
        block_size=feature_extraction.block_size(
            task,
            batch_size=config.batch_size,
            max_seq_length=config.max_seq_length,
            hidden_size=start.config.hidden_size,
        ),
    )
    predict = open_model(config, start, task)
    started = time.monotonic()
    with feature_files.open_writer(
        config.output_file, config.output_format, pooled=pooled
    ) as writer:
        count = feature_extraction.write(
            blocks,
            writer,
            task=task,
            tokens=start.tokenizer.vocabulary.tokens,
            predict=predict,
        )
        if not count:
            raise errors.InputError(f"{config.input_file}: has no lines")
    seconds = time.monotonic() - started
    logging.info(
        "%s: %d lines in %.1f seconds", config.output_file, count, seconds
    )


def open_model(
    config: ExtractConfig,
    start: finetuning.Start,
    task: feature_extraction.ExtractionTask,
) -> Predict:
    """Returns what maps features to batches of their layers."""
    strategy = assembly.make_strategy(config, output_dir=None)
    feed.check_batch_size("batch_size", config.batch_size, strategy)
    with strategy.scope():
        model = feature_extraction.make_encoder(
            start.config,
            attention=start.attention,
            dtype=assembly.dtype_policy(config),
        )
    model_files.warm_start(
        model,
        start.init_checkpoint,
        do_lower_case=start.tokenizer.settings["do_lower_case"],
    )
    predictor = prediction.Predictor(
        task,
        model,
        strategy=strategy,
        jit_compile=assembly.uses_xla(config),
    )
    lengths = length_groups.permitted_lengths(
        config.max_seq_length, training.length_step(config, strategy)
    )

    def predict(features: Features) -> Iterator[dict[str, np.ndarray]]:
        return predictor.batches(
            batches.predict(
                features, batch_size=config.batch_size, lengths=lengths
            )
        )

    return predict


if __name__ == "__main__":
    config_flags.run(ExtractConfig, main)
