r"""Ranks the tokens for each [MASK] in a text by their probability.

    python fill_mask.py --model_dir=pretrained \
        --text='The man went to the [MASK] .'

    python fill_mask.py --model_dir=pretrained --input_file=lines.txt \
        --output_file=filled.jsonl

Without --text and --input_file, or with --input_file=-, lines are read from the
keyboard or a pipe. A line that cannot be filled, because it has no [MASK] or
too many tokens, then gets a message on standard error, and the next line is
read. At the end of the input, the command then exits with code 2 for a pipe, 0
for the keyboard. If --text or a line of a file cannot be filled, nothing is
filled, and the exit code is 2.
"""

import dataclasses
import sys

from data import text_files
from foundation import config_flags, file_system
from serving import settings

field = config_flags.field


@dataclasses.dataclass(frozen=True, kw_only=True)
class FillMaskFlags:
    """Everything fill_mask.py needs to know."""

    model_dir: str = field("Model directory of run_pretraining.py.")
    text: str | None = field("Text with [MASK] in it.", None)
    input_file: str | None = field(
        "Such texts, one per line: a file (also .gz, .bz2, .zst), a glob or a "
        "folder of .txt; - reads standard input, as without the flag.",
        None,
    )
    output_file: str | None = field(
        "File for the tokens of --input_file as JSON lines; by default they "
        "are printed.",
        None,
    )
    top_k: int = field("Number of tokens to show for each mask.", 5, at_least=1)

    def __post_init__(self):
        """Refuses two sources of text at once."""
        if self.text is not None and self.input_file is not None:
            raise ValueError("--text and --input_file exclude each other")
        if self.output_file is not None and self.input_file in (None, "-"):
            raise ValueError("--output_file needs a file in --input_file")


def main(flags: FillMaskFlags) -> int:
    """Prints the most probable tokens of every mask; returns the exit code."""
    lines = None
    if flags.output_file is not None:
        file_system.check_output(flags.output_file, "output_file")
    if flags.input_file not in (None, text_files.STANDARD_INPUT):
        lines = text_files.open_lines(flags.input_file)
    options = config_flags.build(settings.ModelOptions, task="fill_mask")

    import foundation.tensorflow_setup  # noqa: F401
    from serving import opened_model
    from tasks.fill_mask import masked_words

    opened = opened_model.OpenedModel(flags.model_dir, options)
    filler = masked_words.MaskFiller(
        opened.model,
        opened.setup.tokenizer,
        left_to_right=opened.setup.left_to_right,
    )
    if lines is not None:
        masked_words.fill_file(
            filler, lines, top_k=flags.top_k, output_file=flags.output_file
        )
        return 0
    if flags.text is not None:
        print(masked_words.fill_text(filler, flags.text, top_k=flags.top_k))
        return 0
    return masked_words.fill_stream(filler, sys.stdin, top_k=flags.top_k)


if __name__ == "__main__":
    config_flags.run(FillMaskFlags, main)
