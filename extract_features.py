r"""Writes the activations of an encoder's layers, or one vector per text.

The command of google-research/bert's README, for one text (or pair "a ||| b")
per line:

    python extract_features.py --input_file=input.txt --output_file=out.jsonl \
        --vocab_file=$BERT/vocab.txt --bert_config_file=$BERT/bert_config.json \
        --init_checkpoint=$BERT/bert_model.ckpt --layers=-1,-2,-3,-4 \
        --max_seq_length=128 --batch_size=8

The sentence embeddings of sentence-transformers:

    python extract_features.py --input_file=input.txt --output_file=out.npz \
        --output_format=npz --init_checkpoint=all-MiniLM-L6-v2 --pooling=auto

Lines are written in the order of the input. Memory does not grow with their
number. A command that was stopped continues where it was.
"""

import dataclasses
import os
from typing import Literal

from foundation import config_flags
from jobs import run_config
from training import settings

field, group = config_flags.field, config_flags.group


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExtractConfig:
    """Everything extract_features.py needs to know."""

    pretrained: run_config.Pretrained = group(run_config.Pretrained)
    # float32, because vectors are compared with those of other machines.
    devices: settings.Devices = group(settings.Devices, precision="float32")

    input_file: str = field(
        "One text, or pair `a ||| b`, per line: a file (also .gz, .bz2, .zst), "
        "a glob, a folder of .txt, or - for standard input."
    )
    output_file: str = field(
        "File for the activations; - writes jsonl to standard output."
    )
    init_checkpoint: str = field("Weights: a model directory or checkpoint.")
    layers: str | None = field(
        "Numbers of layers, separated by commas; -1 is the last. By default "
        "-1,-2,-3,-4, with --pooling -1.",
        None,
    )
    batch_size: int = field(
        "Texts per batch, over all replicas.", 32, at_least=1
    )
    output_format: Literal["jsonl", "npz", "tfrecord", "parquet"] = field(
        "jsonl is google-research/bert's; the others are smaller.", "jsonl"
    )
    max_seq_length: int | None = field(
        "Maximum number of tokens; longer texts are cut. By default 128, with "
        "--pooling as the files of sentence-transformers say.",
        None,
        affects="records",
        at_least=3,
    )
    pooling: Literal[
        "none",
        "auto",
        "cls",
        "mean",
        "max",
        "mean_sqrt_len_tokens",
        "weightedmean",
        "lasttoken",
    ] = field(
        "Write one vector per text instead of one per token. auto: as the "
        "files of sentence-transformers say, mean without them.",
        "none",
    )
    normalize: bool | None = field(
        "Scale every vector to length 1. By default, with --pooling, as the "
        "files of sentence-transformers say.",
        None,
    )
    group_by_length: bool = field(
        "Put texts of similar length into a batch, to save padding.", True
    )
    use_one_hot_embeddings: bool = field(
        "google-research/bert's flag; it is accepted and has no effect.", False
    )

    def __post_init__(self):
        """Refuses several machines."""
        if self.devices.strategy == "multi_worker_mirrored":
            raise ValueError(
                "--strategy=multi_worker_mirrored: this command runs on one "
                "machine"
            )


config_flags.parse_early(ExtractConfig, __name__)

import foundation.tensorflow_setup  # noqa: F401
from data import text_files
from jobs import assembly, run_directory, source
from tasks.features import feature_extraction
from training import feed
from weights import sentence_modules

_USUAL_LENGTH = 128


def main(config: ExtractConfig) -> None:
    """Writes the layers of every line."""
    output = feature_extraction.FeatureFile(
        path=config.output_file,
        form=config.output_format,
        pooled=config.pooling != "none",
    )
    output.check()
    model = source.given(
        config.init_checkpoint,
        pretrained_flags=config.pretrained,
        max_seq_length=config.max_seq_length,
    )
    start = model.start
    assert model.folder is not None  # The weights have been found.
    layers = config.layers or ("-1" if output.pooled else "-1,-2,-3,-4")
    modules = sentence_modules.open_modules(
        model.folder,
        pooling=None if config.pooling == "auto" else config.pooling,
        normalize=config.normalize,
        max_seq_length=config.max_seq_length,
    )
    max_seq_length = min(
        modules.max_seq_length or _USUAL_LENGTH,
        start.config.max_position_embeddings,
    )
    task = feature_extraction.ExtractionObjective(
        feature_extraction.parse_layers(
            layers,
            start.config,
            name="--layers" if config.layers else "the default --layers",
        ),
        modules,
        start.config,
    )
    _ = task.vector_size  # Refuses modules that differ.
    strategy = assembly.make_strategy(config.devices, output_dir=None)
    feed.check_batch_size("batch_size", config.batch_size, strategy)
    lines = text_files.open_lines(config.input_file)
    extractor = feature_extraction.Extractor(
        task,
        start,
        strategy,
        dtype=assembly.dtype_policy(config.devices),
        jit_compile=assembly.uses_xla(config.devices),
        batch_size=config.batch_size,
        max_seq_length=max_seq_length,
        lengths=assembly.batch_lengths(
            config.devices,
            strategy,
            max_seq_length,
            group_by_length=config.group_by_length,
        ),
    )
    feature_extraction.extract(lines, output, extractor)
    folder, name = os.path.split(config.output_file)
    what = "text" if output.pooled else "token"
    run_directory.announce(folder, {name: f"a vector for each {what}"})


if __name__ == "__main__":
    config_flags.run(ExtractConfig, main)
