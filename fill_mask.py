"""Ranks the words that fit a [MASK], with a pre-trained model directory.

    python fill_mask.py --model_dir=pretrained \
        --text='The man went to the [MASK] .'

    python fill_mask.py --model_dir=pretrained --input_file=lines.txt

Without --text and --input_file, lines are read from the keyboard or a pipe.
"""

import dataclasses
import sys
from collections.abc import Iterable, Iterator

import errors
import tensorflow_setup  # noqa: F401
from tasks import masked_words, model_files
from training import config_flags

field = config_flags.field


@dataclasses.dataclass(frozen=True, kw_only=True)
class FillMaskConfig:
    """Everything fill_mask.py needs to know."""

    model_dir: str = field("Model directory of run_pretraining.py.")
    text: str | None = field("One text with [MASK] in it.", None)
    input_file: str | None = field("A file of such texts, one a line.", None)
    top_k: int = field("How many words to show for each mask.", 5)

    def __post_init__(self):
        """Refuses two sources of text at once."""
        if self.text is not None and self.input_file is not None:
            raise ValueError("--text and --input_file exclude each other")
        if self.top_k < 1:
            raise ValueError(f"--top_k={self.top_k}: must be at least 1")


def main(config: FillMaskConfig) -> None:
    """Fills the masks of every text and prints one line per mask."""
    model, tokenizer = model_files.load_pretrained(config.model_dir)
    left_to_right = model.bert.attention == "left_to_right"
    filler = masked_words.MaskFiller(
        model, tokenizer, left_to_right=left_to_right
    )
    for where, text in _texts(config):
        try:
            (masks,) = filler.fill([text], top_k=config.top_k)
        except errors.InputError as error:
            raise errors.InputError(f"{where}: {error}") from error
        print(text)
        for number, candidates in enumerate(masks, 1):
            label = f"  mask {number}:" if len(masks) > 1 else " "
            words = [f"{c.token} {c.probability:.3f}" for c in candidates]
            print(label, "  ".join(words), flush=True)


def _texts(config: FillMaskConfig) -> Iterator[tuple[str, str]]:
    """Yields each text and where it came from."""
    if config.text is not None:
        yield "--text", config.text
        return
    lines: Iterable[str] = sys.stdin
    name = config.input_file or "standard input"
    if config.input_file is not None:
        lines = open(config.input_file, encoding="utf-8")  # noqa: SIM115
    elif sys.stdin.isatty():
        print("Type texts with [MASK] in them; Ctrl-D ends.", file=sys.stderr)
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield f"{name}, line {number}", line.strip()


if __name__ == "__main__":
    config_flags.run(FillMaskConfig, main)
