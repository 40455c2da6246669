"""Text to word pieces as TensorFlow operations.

Texts of printable ASCII, which is most of English, only need lower-casing,
and texts of characters that the normalization leaves alone need nothing: both
are told by a regular expression. All others are rewritten by
`graph_normalization`. TensorFlow Text's FastWordpieceTokenizer then finds the
pieces.
"""

import tensorflow as tf
import tensorflow_text as tf_text

from data import alphabet as alphabet_lib
from data import graph_normalization
from data import normalization as normalization_lib
from data import vocabulary as vocabulary_lib

# Printable ASCII in words of at most 200 characters needs no table, nor do
# other texts of characters that normalization leaves alone, if they have no
# longer words; in which Chinese characters and full stops may end a word too.
_ENDS_WORD = r"\t\n\r -/:-@\[-`{-~"
_SHORT_ASCII_WORDS = (
    rf"(?:[0-9A-Za-z]{{0,200}}[{_ENDS_WORD}])*[0-9A-Za-z]{{0,200}}"
)
_ENDS_CHINESE_WORD = _ENDS_WORD + r"\x{3001}\x{3002}\x{4e00}-\x{9fff}\x{ff0c}"
_SHORT_WORDS = r"(?:[^%s]{0,200}[%s])*[^%s]{0,200}"
# More bytes than any word has: `graph_normalization` sees to long words.
_NO_LIMIT = 2**30


class GraphTokenizer:
    """Holds the constants of a graph that tokenizes; cannot be pickled."""

    def __init__(
        self,
        vocabulary: vocabulary_lib.Vocabulary,
        normalization: normalization_lib.Normalization,
    ):
        """Builds the tables and the engine, about half a second's work."""
        tokens = vocabulary.ids
        alphabet = alphabet_lib.Alphabet(tokens, normalization)
        pieces, ids = [vocabulary_lib.UNK], [vocabulary.unk_id]
        for token, token_id in tokens.items():
            piece = alphabet.rewrite(token)
            if piece is not None:
                pieces.append(piece)
                ids.append(token_id)
        self._lowers = normalization.do_lower_case
        ends = _ENDS_WORD
        if normalization.tokenize_chinese_chars:
            ends = _ENDS_CHINESE_WORD
        self._short_words = _SHORT_WORDS.replace("%s", ends)
        self._direct = alphabet.direct_pattern()
        # init_scope: a constant made while some graph is traced would belong
        # to that graph and could not be used in the next.
        with tf.init_scope(), tf.device("CPU:0"):
            self._normalize = graph_normalization.GraphNormalizer(
                normalization, alphabet
            )
            self._word_pieces = tf_text.FastWordpieceTokenizer(
                pieces,
                max_bytes_per_word=_NO_LIMIT,
                token_out_type=tf.int32,
            )
            self._ids = tf.constant(ids, tf.int32)

    def __call__(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Gives the ids of each text's pieces.

        Args:
          texts: string [N], UTF-8; invalid bytes are ignored.

        Returns:
          int32 [N, None], the ids of each text's pieces.
        """
        with tf.device("CPU:0"):
            prepared = texts
            if self._lowers:
                prepared = tf.strings.lower(texts)
            is_ascii = tf.strings.regex_full_match(texts, _SHORT_ASCII_WORDS)
            others = tf.where(tf.logical_not(is_ascii))
            prepared = tf.cond(
                tf.size(others) > 0,
                lambda: self._rewrite_others(texts, prepared, others),
                lambda: prepared,
            )
            pieces = self._word_pieces.tokenize(prepared)
            return pieces.with_values(tf.gather(self._ids, pieces.values))

    def _rewrite_others(self, texts, prepared, others):
        """Rewrites those of the texts that are not ready as they are."""
        texts = tf.gather_nd(texts, others)
        is_direct = tf.strings.regex_full_match(
            texts, self._direct
        ) & tf.strings.regex_full_match(texts, self._short_words)
        texts = tf.boolean_mask(texts, ~is_direct)
        others = tf.boolean_mask(others, ~is_direct)
        return tf.cond(
            tf.size(others) > 0,
            lambda: tf.tensor_scatter_nd_update(
                prepared, others, self._rewrite(texts)
            ),
            lambda: prepared,
        )

    def _rewrite(self, texts: tf.Tensor) -> tf.Tensor:
        return _strings(self._normalize(texts))

    def with_offsets(self, texts: tf.Tensor):
        """Finds the pieces, and where they stand in the rewritten texts.

        Returns:
          The Normalized texts; int32 [N, None], ids; int64 [N, None] twice,
          first bytes and the bytes after the last.
        """
        with tf.device("CPU:0"):
            normalized = self._normalize(texts)
            pieces, starts, ends = self._word_pieces.tokenize_with_offsets(
                _strings(normalized)
            )
            ids = pieces.with_values(tf.gather(self._ids, pieces.values))
            return normalized, ids, starts, ends


def _strings(normalized: graph_normalization.Normalized) -> tf.Tensor:
    codes = tf.RaggedTensor.from_row_splits(
        normalized.codes, normalized.row_splits, validate=False
    )
    return tf.strings.unicode_encode(codes, "UTF-8")
