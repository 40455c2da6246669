r"""Text to word pieces, exactly as google-research/bert does it.

    "Unaffable!"  ->  ["una", "##ffa", "##ble", "!"]  ->  ids

One implementation, in TensorFlow operations, serves a graph (tf.data, a
SavedModel) and a batch of strings outside of one: `graph_tokenization`.

    python -m data.tokenization --vocab_file=vocab.txt < text

prints the pieces of each line.
"""

import argparse
import functools
import os
import sys
from collections.abc import Iterable, Sequence
from concurrent import futures
from typing import BinaryIO, NamedTuple

import numpy as np
import tensorflow as tf

from data import workers
from data.tokenization import graph_tokenization, normalization
from data.tokenization import normalization as normalization_lib
from data.tokenization import vocabulary as vocabulary_lib
from foundation import errors

# ----------------------------------------------------------------------
# Where pieces stand in the original text.
#
#     "  Ïnaïve"   pieces "ina", "##ive"   characters 2-6 and 6-10
#
# The word-piece engine reports bytes of the text that was rewritten for it;
# tasks that answer with words of the original (SQuAD, NER) need its characters.


def source_characters(
    normalized: graph_tokenization.Normalized,
    row_splits: np.ndarray,
    starts: np.ndarray,
    ends: np.ndarray,
    *,
    strips_accents: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """Turns bytes of the rewritten texts into characters of the originals."""
    codes = normalized.codes
    sizes = 1 + sum((codes >= first) for first in (0x80, 0x800, 0x10000))
    bytes_before = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    rows = np.repeat(np.arange(len(row_splits) - 1), np.diff(row_splits))
    row_byte = bytes_before[normalized.row_splits[:-1]][rows]
    first = np.searchsorted(bytes_before, starts + row_byte)
    after = np.searchsorted(bytes_before, ends + row_byte)
    if not len(first):
        return starts, ends
    # Pieces are never empty, so [first, after) are ranges; every other range
    # that reduceat makes lies between pieces and is thrown away.
    bounds = np.stack([first, after], 1).reshape(-1)
    source = np.append(normalized.source, normalized.source[-1])
    starts = np.minimum.reduceat(source, bounds)[::2]
    ends = np.maximum.reduceat(source, bounds)[::2] + 1
    if strips_accents:
        decoded = normalized.decoded
        places = np.arange(len(decoded) + 1)
        is_mark = normalization.unicode_properties().nonspacing_mark[decoded]
        places[:-1][is_mark] = len(decoded)
        places[normalized.decoded_splits] = normalized.decoded_splits
        next_base = np.minimum.accumulate(places[::-1])[::-1]
        ends = next_base[ends]
    row_start = normalized.decoded_splits[:-1][rows]
    return starts - row_start, ends - row_start


_READ_SIZE = 1 << 20
_TEXTS_PER_THREAD = 512


class Encoding(NamedTuple):
    """The pieces of a batch of texts: ids int32 [T], row_splits int64 [N+1]."""

    ids: np.ndarray
    row_splits: np.ndarray


class EncodingWithOffsets(NamedTuple):
    """An Encoding and where each piece stands in its text.

    Attributes:
      ids: int32 [T].
      row_splits: int64 [N + 1]; where each text begins.
      starts: int64 [T]; the first character of each piece in its text.
      ends: int64 [T]; the character after its last, stripped accents included.
    """

    ids: np.ndarray
    row_splits: np.ndarray
    starts: np.ndarray
    ends: np.ndarray


class Tokenizer:
    """Splits text into the pieces of one vocabulary."""

    def __init__(
        self,
        vocabulary: vocabulary_lib.Vocabulary,
        *,
        do_lower_case: bool = True,
        strip_accents: bool | None = None,
        tokenize_chinese_chars: bool = True,
    ):
        """Sets the switches; TensorFlow's part is built on first use.

        Args:
          vocabulary: the pieces.
          do_lower_case: False for the cased models.
          strip_accents: None follows do_lower_case, as released.
          tokenize_chinese_chars: makes every Chinese character a word.
        """
        self.vocabulary = vocabulary
        self._switches = {
            "do_lower_case": do_lower_case,
            "strip_accents": strip_accents,
            "tokenize_chinese_chars": tokenize_chinese_chars,
        }

    @property
    def settings(self) -> dict[str, bool | None]:
        """The switches as tokenizer_config.json spells them."""
        return dict(self._switches)

    def __reduce__(self):
        """Pickles the vocabulary and the switches, not TensorFlow's part."""
        build = functools.partial(Tokenizer, **self._switches)
        return build, (self.vocabulary,)

    @functools.cached_property
    def _graph(self) -> graph_tokenization.GraphTokenizer:
        return graph_tokenization.GraphTokenizer(
            self.vocabulary, normalization_lib.Normalization(**self._switches)
        )

    @functools.cached_property
    def _encode_batch(self):
        return tf.function(
            self._graph,
            input_signature=[tf.TensorSpec([None], tf.string)],
            autograph=False,  # Nothing to convert, and that takes a second.
        )

    def encode_graph(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Encodes texts inside a graph (tf.data, a SavedModel).

        Args:
          texts: string [N], UTF-8; invalid bytes are ignored.

        Returns:
          int32 [N, None], the ids of each text's pieces.
        """
        return self._graph(texts)

    def encode(self, texts: Sequence[str | bytes]) -> Encoding:
        """Encodes texts outside of a graph."""
        encode = self._encode_batch
        tensor = _string_tensor(texts)
        threads = min(workers.cores(), len(texts) // _TEXTS_PER_THREAD)
        if threads < 2:
            encoded = encode(tensor)
            return Encoding(encoded.values.numpy(), encoded.row_splits.numpy())
        share = -(-len(texts) // threads)
        parts = [
            tensor[start : start + share]
            for start in range(0, len(texts), share)
        ]
        with futures.ThreadPoolExecutor(threads) as pool:
            parts = list(pool.map(encode, parts))
        lengths = np.concatenate([np.diff(part.row_splits) for part in parts])
        return Encoding(
            np.concatenate([part.values for part in parts]),
            np.concatenate([[0], np.cumsum(lengths)]),
        )

    def encode_with_offsets(self, texts: Sequence[str]) -> EncodingWithOffsets:
        """Encodes texts and finds each piece's characters in its text.

        A piece covers the characters that it came from and the accents
        stripped from the last of them; [UNK] covers its word.
        """
        normalized, ids, starts, ends = self._graph.with_offsets(
            _string_tensor(texts)
        )
        row_splits = ids.row_splits.numpy()
        starts, ends = source_characters(
            graph_tokenization.Normalized(*(x.numpy() for x in normalized)),
            row_splits,
            starts.values.numpy(),
            ends.values.numpy(),
            strips_accents=self._strips_accents,
        )
        return EncodingWithOffsets(ids.values.numpy(), row_splits, starts, ends)

    @property
    def _strips_accents(self) -> bool:
        strip_accents = self._switches["strip_accents"]
        if strip_accents is None:
            return self._switches["do_lower_case"]
        return strip_accents

    def tokenize(self, texts: Sequence[str | bytes]) -> list[list[str]]:
        """Gives the pieces of each text."""
        encoding = self.encode(texts)
        tokens = self.vocabulary.tokens
        pieces = [tokens[i] for i in encoding.ids.tolist()]
        splits = encoding.row_splits.tolist()
        return [
            pieces[start:end]
            for start, end in zip(splits, splits[1:], strict=False)
        ]

    def decode(self, ids: Iterable[int]) -> str:
        """Joins pieces for display: continuations to the piece before."""
        text = " ".join(self.vocabulary.tokens[int(i)] for i in ids)
        return text.replace(" " + vocabulary_lib.CONTINUATION, "")


def _string_tensor(texts: Sequence[str | bytes]) -> tf.Tensor:
    encoded = [
        text if isinstance(text, bytes) else _utf8(text) for text in texts
    ]
    with tf.device("CPU:0"):
        return tf.constant(encoded, tf.string, shape=[len(encoded)])


def _utf8(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        # UTF-8 has no lone surrogates. To the released tokenizer they are
        # characters that no vocabulary knows, and so is U+10FFFF.
        return "".join(
            "\U0010ffff" if "\ud800" <= char <= "\udfff" else char
            for char in text
        ).encode("utf-8")


def print_pieces(tokenizer: Tokenizer, text: BinaryIO, output: BinaryIO):
    """Writes the pieces of each line as soon as the line is there."""
    rest = b""
    while block := text.read1(_READ_SIZE):
        *lines, rest = (rest + block).split(b"\n")
        _print_lines(tokenizer, lines, output)
    if rest:
        _print_lines(tokenizer, [rest], output)


def _print_lines(tokenizer, lines, output):
    for pieces in tokenizer.tokenize(lines) if lines else ():
        output.write(" ".join(pieces).encode("utf-8") + b"\n")
    output.flush()


class _Parser(argparse.ArgumentParser):
    """Reports a wrong flag in one line."""

    def error(self, message):
        """Exits with code 2."""
        self.exit(2, f"{self.prog}: {message}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the pieces of each line of standard input."""
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
        print_pieces(tokenizer, sys.stdin.buffer, sys.stdout.buffer)
    except errors.InputError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except BrokenPipeError:
        # The reader has seen enough. Python would complain once more when it
        # flushes standard output at exit.
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
