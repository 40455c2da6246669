"""Prints the tokens of each line of standard input.

python -m data.tokenization --vocab_file=vocab.txt < text
"""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import BinaryIO

from data.tokenization import vocabulary as vocabulary_lib
from data.tokenization.wordpiece import Tokenizer
from foundation import errors

_READ_SIZE = 1 << 20


def print_tokens(tokenizer: Tokenizer, text: BinaryIO, output: BinaryIO):
    """Writes the tokens of each line as soon as the line is there."""
    rest = b""
    while block := text.read1(_READ_SIZE):
        *lines, rest = (rest + block).split(b"\n")
        _print_lines(tokenizer, lines, output)
    if rest:
        _print_lines(tokenizer, [rest], output)


def _print_lines(tokenizer, lines, output):
    for tokens in tokenizer.tokenize(lines) if lines else ():
        output.write(" ".join(tokens).encode("utf-8") + b"\n")
    output.flush()


class _Parser(argparse.ArgumentParser):
    """Reports a wrong flag in one line."""

    def error(self, message):
        """Exits with code 2."""
        self.exit(2, f"{self.prog}: {message}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the tokens of each line of standard input."""
    parser = _Parser(prog="python -m data.tokenization", allow_abbrev=False)
    parser.add_argument("--vocab_file", required=True, help="vocab.txt")
    for name, default in [
        ("do_lower_case", True),
        ("strip_accents", None),
        ("tokenize_chinese_chars", True),
    ]:
        parser.add_argument(
            f"--{name}", type=_boolean, nargs="?", const=True, default=default
        )
        parser.add_argument(
            f"--no{name}", dest=name, action="store_const", const=False
        )
    options = vars(parser.parse_args(arguments))
    try:
        vocabulary = vocabulary_lib.Vocabulary.from_file(
            options.pop("vocab_file")
        )
        tokenizer = Tokenizer(vocabulary, **options)
        print_tokens(tokenizer, sys.stdin.buffer, sys.stdout.buffer)
    except errors.InputError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except BrokenPipeError:
        # The reader has ended. Otherwise Python would report the same error
        # again when it flushes standard output at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        return 130
    return 0


def _boolean(text: str) -> bool:
    values = {"true": True, "1": True, "false": False, "0": False}
    if text.lower() not in values:
        raise argparse.ArgumentTypeError(f"{text!r} is not True or False")
    return values[text.lower()]


if __name__ == "__main__":
    sys.exit(main())
