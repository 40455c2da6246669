r"""Ranks the words that fit a [MASK], with a pre-trained model directory.

    python fill_mask.py --model_dir=pretrained \
        --text='The man went to the [MASK] .'

    python fill_mask.py --model_dir=pretrained --input_file=lines.txt

Without --text and --input_file, lines are read from the keyboard or a pipe. One
that cannot be filled, as it has no [MASK] or too many pieces, then gets a
message on standard error, and the next line is read; after such a line a pipe
ends with exit code 2, though all others are answered, and the keyboard with 0.
A --text or a line of --input_file that cannot be filled ends the program, with
exit code 2.
"""

import dataclasses
import io
import sys
from collections.abc import Iterator

from foundation import config_flags, errors, file_system

field = config_flags.field


@dataclasses.dataclass(frozen=True, kw_only=True)
class FillMaskConfig:
    """Everything fill_mask.py needs to know."""

    model_dir: str = field("Model directory of run_pretraining.py.")
    text: str | None = field("One text with [MASK] in it.", None)
    input_file: str | None = field(
        "A file of such texts, one a line, also .gz, .bz2.", None
    )
    top_k: int = field("How many words to show for each mask.", 5)

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
    """Fills the masks of every text and prints one line per mask.

    Returns:
      The exit code: 2 if a line of a pipe could not be filled, else 0.

    Raises:
      InputError: --text or a line of --input_file cannot be filled.
    """
    model, tokenizer = pretrained.load_masked_lm(config.model_dir)
    left_to_right = model.bert.attention == "left_to_right"
    filler = masked_words.MaskFiller(
        model, tokenizer, left_to_right=left_to_right
    )
    goes_on = config.text is None and config.input_file is None
    code = 0
    for where, text in _texts(config):
        try:
            _require_utf8(text)
            (masks,) = filler.fill([text], top_k=config.top_k)
        except errors.InputError as error:
            if not goes_on:
                raise errors.InputError(f"{where}: {error}") from error
            print(f"{where}: {error}", file=sys.stderr, flush=True)
            code = 0 if sys.stdin.isatty() else 2
            continue
        print(text)
        for number, candidates in enumerate(masks, 1):
            label = f"  mask {number}:" if len(masks) > 1 else " "
            words = [f"{c.token} {c.probability:.3f}" for c in candidates]
            print(label, "  ".join(words), flush=True)
    return code


def _texts(config: FillMaskConfig) -> Iterator[tuple[str, str]]:
    """Yields each text and where it came from.

    Bytes that are not UTF-8 become halves of surrogate pairs, as Python does
    with those of the command line.
    """
    if config.text is not None:
        yield "--text", config.text
        return
    if config.input_file is not None:
        name = file_system.find(config.input_file)
        lines = io.BytesIO(file_system.read(name))
    else:
        name = "standard input"
        lines = typed.lines(sys.stdin, sys.stdout)
        if sys.stdin.isatty():
            print(
                "Type texts with [MASK] in them; Ctrl-D ends.", file=sys.stderr
            )
    for number, line in enumerate(lines, 1):
        text = line.decode("utf-8-sig", "surrogateescape").strip()
        if text:
            yield f"{name}:{number}", text


def _require_utf8(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise errors.InputError("not UTF-8 text") from None


if __name__ == "__main__":
    config_flags.run(FillMaskConfig, main)
