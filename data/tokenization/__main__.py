"""Prints the tokens of each line of standard input.

python -m data.tokenization --vocab_file=vocab.txt < text
"""

import dataclasses
import io
import os
import sys
import typing

from foundation import config_flags

_READ_SIZE = 1 << 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenizationConfig:
    """The flags of python -m data.tokenization."""

    vocab_file: str = config_flags.field("The vocabulary, one token a line.")
    do_lower_case: bool = config_flags.field("False for cased models.", True)
    strip_accents: bool | None = config_flags.field(
        "Default: as --do_lower_case.", None
    )
    tokenize_chinese_chars: bool = config_flags.field(
        "Make each Chinese character a word.", True
    )


def main(config: TokenizationConfig) -> None:
    """Prints the tokens of each line as soon as the line is there."""
    import foundation.tensorflow_setup  # noqa: F401
    from data.tokenization import vocabulary, wordpiece

    switches = dataclasses.asdict(config)
    words = vocabulary.Vocabulary.from_file(switches.pop("vocab_file"))
    tokenizer = wordpiece.Tokenizer(words, **switches)
    rest = b""
    try:
        stream = typing.cast(io.BufferedReader, sys.stdin.buffer)
        while block := stream.read1(_READ_SIZE):
            *lines, rest = (rest + block).split(b"\n")
            _print_tokens(tokenizer, lines)
        _print_tokens(tokenizer, [rest] if rest else [])
    except BrokenPipeError:
        # The reader has ended. Otherwise Python would report the same error
        # again when it flushes standard output at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_tokens(tokenizer, lines) -> None:
    for tokens in tokenizer.tokenize(lines) if lines else ():
        sys.stdout.buffer.write(" ".join(tokens).encode("utf-8") + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    config_flags.run(TokenizationConfig, main)
