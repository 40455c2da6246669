"""The tokenizer: text to WordPiece tokens, exactly as google-research/bert.

    "Unaffable!"  ->  ["una", "##ffa", "##ble", "!"]  ->  ids

graph_tokenization.py has it in TensorFlow operations, for graphs (tf.data, a
SavedModel) and for batches of strings outside of graphs; plain_wordpiece.py in
Python, for single texts without TensorFlow, which is imported at the first use.
"""

import functools
import itertools
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from data.tokenization import normalization as normalization_lib
from data.tokenization import vocabulary as vocabulary_lib

if TYPE_CHECKING:
    import tensorflow as tf

    from data.tokenization import graph_tokenization

_SURROGATE = re.compile("[\ud800-\udfff]")


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
    """Splits text into the tokens of one vocabulary.

    Attributes:
      vocabulary: vocabulary of the model.
      settings: the switches, named as in tokenizer_config.json.
    """

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
          vocabulary: vocabulary of the model.
          do_lower_case: False for the cased models.
          strip_accents: None follows do_lower_case, as released.
          tokenize_chinese_chars: makes every Chinese character a word.
        """
        self.vocabulary = vocabulary
        self.settings: dict[str, Any] = {
            "do_lower_case": do_lower_case,
            "strip_accents": strip_accents,
            "tokenize_chinese_chars": tokenize_chinese_chars,
        }

    @property
    def strips_accents(self) -> bool:
        """Whether accents are stripped, also where no setting says so."""
        strips = self.settings["strip_accents"]
        return self.settings["do_lower_case"] if strips is None else strips

    def __reduce__(self):
        """Pickles the vocabulary and the switches, not TensorFlow's part."""
        build = functools.partial(type(self), **self.settings)
        return build, (self.vocabulary,)

    @functools.cached_property
    def normalization(self) -> normalization_lib.Normalization:
        """What the switches do to text; its tables take 30 ms."""
        return normalization_lib.Normalization(**self.settings)

    @functools.cached_property
    def graph(self) -> "graph_tokenization.GraphTokenizer":
        """Encodes texts inside a graph (tf.data, a SavedModel)."""
        from data.tokenization import graph_tokenization

        return graph_tokenization.GraphTokenizer(
            self.vocabulary, self.normalization
        )

    @functools.cached_property
    def _encode_batch(self) -> Callable:
        import tensorflow as tf

        return tf.function(
            self.graph,
            input_signature=[tf.TensorSpec([None], tf.string)],
            autograph=False,  # Nothing to convert, and that takes a second.
        )

    def encode(self, texts: Sequence[str | bytes]) -> Encoding:
        """Encodes texts outside of a graph."""
        encoded = self._encode_batch(_string_tensor(texts))
        return Encoding(encoded.values.numpy(), encoded.row_splits.numpy())

    def encode_with_offsets(self, texts: Sequence[str]) -> EncodingWithOffsets:
        """Encodes texts and finds each token's characters in its text.

        A token covers its characters and the accents that were stripped from
        the last of them; [UNK] covers its word.
        """
        encoded = self.graph.with_offsets(_string_tensor(texts))
        return EncodingWithOffsets(*(x.numpy() for x in encoded[:4]))

    def tokenize(self, texts: Sequence[str | bytes]) -> list[list[str]]:
        """Returns the tokens of each text."""
        encoding = self.encode(texts)
        tokens = self.vocabulary.tokens
        flat = [tokens[i] for i in encoding.ids.tolist()]
        splits = encoding.row_splits.tolist()
        return [flat[a:b] for a, b in itertools.pairwise(splits)]


def valid_text(text: str | bytes) -> str:
    """Returns text that can be written in UTF-8.

    Args:
      text: UTF-8 without its invalid bytes, or characters.
    """
    if isinstance(text, bytes):
        return text.decode("utf-8", "ignore")
    if text.isascii():
        return text
    # UTF-8 has no lone surrogates. The released tokenizer makes them [UNK], as
    # it does U+10FFFF.
    return _SURROGATE.sub("\U0010ffff", text)


def _string_tensor(texts: Sequence[str | bytes]) -> "tf.Tensor":
    import tensorflow as tf

    encoded = [
        text if isinstance(text, bytes) else _utf8(text) for text in texts
    ]
    with tf.device("CPU:0"):
        return tf.constant(encoded, tf.string, shape=[len(encoded)])


def _utf8(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return valid_text(text).encode("utf-8")
