r"""Ranks the tokens for each [MASK] in a text by their probability.

    python fill_mask.py --model_dir=pretrained \
        --text='The man went to the [MASK] .'

    python fill_mask.py --model_dir=pretrained --input_file=lines.txt

Without --text and --input_file, lines are read from the keyboard or a pipe. A
line that cannot be filled, because it has no [MASK] or too many tokens, then
gets a message on standard error, and the next line is read. After such a line,
a pipe ends with exit code 2, the keyboard with 0. A --text or a line of
--input_file that cannot be filled ends the program with exit code 2.
"""

import dataclasses
import io
import sys

from foundation import config_flags, errors, file_system

field = config_flags.field


@dataclasses.dataclass(frozen=True, kw_only=True)
class FillMaskConfig:
    """Everything fill_mask.py needs to know."""

    model_dir: str = field("Model directory of run_pretraining.py.")
    text: str | None = field("Text with [MASK] in it.", None)
    input_file: str | None = field(
        "File of such texts, one per line; also .gz, .bz2.", None
    )
    top_k: int = field("Number of tokens to show for each mask.", 5)

    def __post_init__(self):
        """Refuses two sources of text at once."""
        if self.text is not None and self.input_file is not None:
            raise ValueError("--text and --input_file exclude each other")
        if self.top_k < 1:
            raise ValueError(f"--top_k={self.top_k}: must be at least 1")


config_flags.parse_early(FillMaskConfig, __name__)

import foundation.tensorflow_setup  # noqa: F401
from jobs import typed
from tasks.fill_mask import masked_words
from weights import pretrained


def main(config: FillMaskConfig) -> int:
    """Prints the most probable tokens of every mask; returns the exit code."""
    model, tokenizer = pretrained.load_masked_lm(config.model_dir)
    filler = masked_words.MaskFiller(
        model, tokenizer, left_to_right=model.bert.attention == "left_to_right"
    )
    is_interactive = config.text is None and config.input_file is None
    if config.text is not None:
        texts = iter([("--text", config.text)])
    elif config.input_file is not None:
        path = file_system.find(config.input_file)
        lines = io.BytesIO(file_system.read(path))
        texts = masked_words.read_texts(path, lines)
    else:
        if sys.stdin.isatty():
            print(
                "Type texts with [MASK] in them; Ctrl-D ends.", file=sys.stderr
            )
        lines = typed.lines(sys.stdin, sys.stdout)
        texts = masked_words.read_texts("standard input", lines)
    code = 0
    for name, text in texts:
        try:
            print(filler.describe(text, top_k=config.top_k), flush=True)
        except errors.InputError as error:
            if not is_interactive:
                raise errors.InputError(f"{name}: {error}") from error
            print(f"{name}: {error}", file=sys.stderr, flush=True)
            code = 0 if sys.stdin.isatty() else 2
    return code


if __name__ == "__main__":
    config_flags.run(FillMaskConfig, main)
