"""The flags of extract_features.py."""

import dataclasses
from typing import Literal

from finetuning import flags
from foundation import config_flags
from training import settings

field, group = config_flags.field, config_flags.group


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExtractFlags(flags.ModelFlags):
    """Everything extract_features.py needs to know."""

    input_file: str = field(
        "One text, or pair `a ||| b`, per line: a file (also .gz, .bz2, .zst), "
        "a glob, a folder of .txt, or - for standard input."
    )
    output_file: str = field(
        "File for the activations; - writes jsonl to standard output."
    )
    init_checkpoint: str = field("Weights: a model directory or checkpoint.")
    layers: tuple[int, ...] | None = field(
        "Numbers of layers, separated by commas; -1 is the last. By default "
        "-1,-2,-3,-4, with --pooling -1.",
        None,
    )
    batch_size: int = field(
        "Texts per batch, over all replicas.", 32, at_least=1
    )
    output_format: Literal["jsonl", "npz"] = field(
        "jsonl is google-research/bert's; npz is smaller.", "jsonl"
    )
    max_seq_length: int | None = field(
        "Maximum number of tokens; longer texts are cut. By default 128, with "
        "--pooling as the files of sentence-transformers say.",
        None,
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
    use_one_hot_embeddings: bool = field(
        "google-research/bert's flag; it is accepted and has no effect.", False
    )
    # float32, because vectors are compared with those of other machines.
    devices: settings.Devices = group(settings.Devices, precision="float32")

    def __post_init__(self):
        """Refuses several machines, and binary data at a terminal."""
        if self.devices.strategy == "multi_worker_mirrored":
            raise ValueError(
                "--strategy=multi_worker_mirrored: this command runs on one "
                "machine"
            )
        if self.output_file == "-" and self.output_format != "jsonl":
            raise ValueError(
                f"--output_file=-: --output_format={self.output_format} cannot "
                "be written to standard output, only jsonl"
            )
