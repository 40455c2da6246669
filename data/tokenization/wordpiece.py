"""The tokenizer: text to WordPiece tokens, exactly as google-research/bert.

    "Unaffable!"  ->  ["una", "##ffa", "##ble", "!"]  ->  ids

One implementation in TensorFlow operations, graph_tokenization.py, serves
graphs (tf.data, a SavedModel) and batches of strings outside of graphs.

    python -m data.tokenization --vocab_file=vocab.txt < text

prints the tokens of each line.
"""

import functools
import itertools
from collections.abc import Iterable, Sequence
from concurrent import futures
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from data import workers
from data.tokenization import graph_tokenization
from data.tokenization import normalization as normalization_lib
from data.tokenization import vocabulary as vocabulary_lib

_TEXTS_PER_THREAD = 512


class Encoding(NamedTuple):
    """The tokens of a batch of texts: ids int32 [T], row_splits int64 [N+1]."""

    ids: np.ndarray
    row_splits: np.ndarray


class EncodingWithOffsets(NamedTuple):
    """An Encoding and the characters of each token in its text.

    Attributes:
      ids: int32 [T].
      row_splits: int64 [N + 1]; where each text begins.
      starts: int64 [T]; the first character of each token in its text.
      ends: int64 [T]; the character after its last, stripped accents included.
    """

    ids: np.ndarray
    row_splits: np.ndarray
    starts: np.ndarray
    ends: np.ndarray


class Tokenizer:
    """Splits text into the tokens of one vocabulary."""

    def __init__(
        self,
        vocabulary: vocabulary_lib.Vocabulary,
        *,
        do_lower_case: bool = True,
        strip_accents: bool | None = None,
        tokenize_chinese_chars: bool = True,
    ):
        """Sets the switches; TensorFlow's part is built at the first use.

        Args:
          vocabulary: of the model.
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
        """The switches, named as in tokenizer_config.json."""
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
          int32 [N, None], the ids of each text's tokens.
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
        size = -(-len(texts) // threads)
        chunks = [tensor[i : i + size] for i in range(0, len(texts), size)]
        with futures.ThreadPoolExecutor(threads) as pool:
            encoded = list(pool.map(encode, chunks))
        lengths = np.concatenate([np.diff(x.row_splits) for x in encoded])
        return Encoding(
            np.concatenate([x.values for x in encoded]),
            np.concatenate([[0], np.cumsum(lengths)]),
        )

    def encode_with_offsets(self, texts: Sequence[str]) -> EncodingWithOffsets:
        """Encodes texts and finds each token's characters in its text.

        A token covers its characters and the accents that were stripped from
        the last of them; [UNK] covers its word.
        """
        normalized, ids, starts, ends = self._graph.with_offsets(
            _string_tensor(texts)
        )
        row_splits = ids.row_splits.numpy()
        starts, ends = _source_characters(
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
        """Returns the tokens of each text."""
        encoding = self.encode(texts)
        tokens = self.vocabulary.tokens
        flat = [tokens[i] for i in encoding.ids.tolist()]
        splits = encoding.row_splits.tolist()
        return [flat[a:b] for a, b in itertools.pairwise(splits)]

    def decode(self, ids: Iterable[int]) -> str:
        """Joins tokens for display, continuations to the token before."""
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
        # UTF-8 has no lone surrogates. The released tokenizer makes them [UNK],
        # as it does U+10FFFF.
        return "".join(
            "\U0010ffff" if "\ud800" <= char <= "\udfff" else char
            for char in text
        ).encode("utf-8")


def _source_characters(
    normalized: graph_tokenization.Normalized,
    row_splits: np.ndarray,
    starts: np.ndarray,
    ends: np.ndarray,
    *,
    strips_accents: bool,
) -> tuple[np.ndarray, np.ndarray]:
    r"""Maps bytes of the rewritten texts to characters of the original ones.

    "  \u00cfna\u00efve"   tokens "ina", "##ive"   characters 2-6 and 6-10
    """
    codes = normalized.codes
    sizes = 1 + sum((codes >= first) for first in (0x80, 0x800, 0x10000))
    bytes_before = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    rows = np.repeat(np.arange(len(row_splits) - 1), np.diff(row_splits))
    row_byte = bytes_before[normalized.row_splits[:-1]][rows]
    first = np.searchsorted(bytes_before, starts + row_byte)
    after = np.searchsorted(bytes_before, ends + row_byte)
    if not len(first):
        return starts, ends
    # Tokens are never empty, so [first, after) are ranges; every other range of
    # reduceat is between tokens and is dropped.
    bounds = np.stack([first, after], 1).reshape(-1)
    source = np.append(normalized.source, normalized.source[-1])
    starts = np.minimum.reduceat(source, bounds)[::2]
    ends = np.maximum.reduceat(source, bounds)[::2] + 1
    if strips_accents:
        decoded = normalized.decoded
        positions = np.arange(len(decoded) + 1)
        is_mark = normalization_lib.unicode_properties().nonspacing_mark[
            decoded
        ]
        positions[:-1][is_mark] = len(decoded)
        positions[normalized.decoded_splits] = normalized.decoded_splits
        next_base = np.minimum.accumulate(positions[::-1])[::-1]
        ends = next_base[ends]
    row_start = normalized.decoded_splits[:-1][rows]
    return starts - row_start, ends - row_start
