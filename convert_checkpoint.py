r"""Converts, lists and compares BERT checkpoints of any origin.

    python convert_checkpoint.py --output=bert-base \
        --input=uncased_L-12_H-768_A-12/bert_model.ckpt

    python convert_checkpoint.py --input=bert-base \
        --output=released --output_format=tf1

    python convert_checkpoint.py --input=released --check=bert-base
    python convert_checkpoint.py --input=released/bert_model.ckpt --list

The input is a TensorFlow prefix, a Hugging Face directory or cache folder, a
Model Garden checkpoint or a model directory. The output has all heads and the
files of the task; optimizer slots only with --slim=false --output_format=tf1.
--check exits with code 0 if both checkpoints are equal, and with 1 if not.

To add words to the vocabulary, and positions for longer texts:

    python convert_checkpoint.py --input=bert-base --output=bert-med \
        --new_words_file=drugs.txt --max_position_embeddings=1024
"""

import dataclasses
from typing import Literal

from foundation import config_flags, file_system

field = config_flags.field


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConversionConfig:
    """The flags of convert_checkpoint.py."""

    input: str = field("The checkpoint: a prefix, a file or a directory.")
    output: str | None = field("Directory to write to.", None)
    output_format: Literal["model_directory", "tf1"] = field(
        "What to write: model_directory, which transformers loads, or tf1, "
        "which google-research/bert loads.",
        "model_directory",
        needs="output",
    )
    list: bool = field("Whether to list names, shapes and sizes.", False)
    check: str | None = field("Another checkpoint to compare with.", None)
    tolerance: float = field(
        "Largest absolute difference of weights that --check accepts.",
        0.0,
        at_least=0,
        needs="check",
    )
    bert_config_file: str | None = field(
        "The hyperparameters, if there is no config beside the input.",
        None,
        needs="output",
    )
    do_lower_case: bool | None = field(
        "Whether the tokenizer lower-cases; by default as in the files beside "
        "the input.",
        None,
        needs="output",
    )
    drop_heads: bool = field(
        "Whether to write the encoder and the pooler only.",
        False,
        needs="output",
    )
    slim: bool = field(
        "Whether to leave out optimizer slots; only tf1 can keep them.",
        True,
        needs="output output_format=tf1",
    )
    new_words_file: str | None = field(
        "Words to add to the vocabulary, one a line, also .gz, .bz2, .zst.",
        None,
        needs="output slim",
    )
    new_words_at: Literal["unused", "end"] = field(
        "Where to add them: unused replaces [unusedN] first, end appends.",
        "unused",
        needs="new_words_file",
    )
    max_position_embeddings: int | None = field(
        "New, larger number of positions; their embeddings are interpolated.",
        None,
        needs="output slim",
    )

    def __post_init__(self):
        """Refuses a command that does nothing."""
        if self.output is None and self.check is None and not self.list:
            raise ValueError("--output, --check or --list must be given")


def main(config: ConversionConfig) -> int:
    """Lists, compares and converts the input; returns the exit code."""
    import foundation.tensorflow_setup  # noqa: F401
    from data import text_files
    from weights import checkpoint_sources, conversion, pretrained

    file_system.refuse_remote(
        config.output or "", "output", "copy the model from there"
    )
    file_system.check_output_folder(config.output or ".", "output")
    source = checkpoint_sources.read(config.input)
    if config.list:
        for line in checkpoint_sources.contents(source):
            print(line)
    code = 0
    if config.check is not None:
        other = checkpoint_sources.read(config.check)
        lines, is_equal = checkpoint_sources.compare(
            source, other, config.tolerance
        )
        print("\n".join(lines))
        code = 0 if is_equal else 1
    if config.output is not None:
        bert_config = None
        if config.bert_config_file:
            bert_config = pretrained.read_config(config.bert_config_file)
        checkpoint = conversion.load(
            source,
            config=bert_config,
            do_lower_case=config.do_lower_case,
            drop_heads=config.drop_heads,
            keep_training_state=not config.slim,
        )
        if config.new_words_file is not None:
            path = file_system.find(config.new_words_file)
            words = [line for _, line in text_files.lines(path)]
            checkpoint = conversion.add_words(
                checkpoint, words, path, config.new_words_at
            )
        if config.max_position_embeddings is not None:
            checkpoint = conversion.extend_positions(
                checkpoint, config.max_position_embeddings
            )
        written = conversion.write(
            checkpoint, config.output, config.output_format
        )
        left_out = [x for x in source.others if x not in checkpoint.others]
        left = ", ".join(left_out + checkpoint.left_out) or "nothing"
        files = "".join(f", {name}" for name in checkpoint.task_files)
        count = len(checkpoint.values) + len(checkpoint.others)
        print(
            f"{written}: {count} variables "
            f"({checkpoint.settings.architecture}){files}; left over: {left}"
        )
    return code


if __name__ == "__main__":
    config_flags.run(ConversionConfig, main)
