"""Writes sentences in capitals in the usual case of their words, in a graph.

See `tasks.ner.ner_data.apply_true_case`.
"""

import sys
import unicodedata
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from data.tokenization import graph_tokenization, normalization

_ALPHA, _UPPER, _OTHER_CASE = 1, 2, 4
# The only character whose lower case is several characters.
_DOTTED_I = "\u0130"


class UsualForms:
    """The usual form of each word, by its lower case.

    Attributes:
      table: lower case -> form.
    """

    def __init__(self, forms: Mapping[str, str]):
        """Makes the tables; `forms` is of ner_data.learn_true_case."""
        characters = list(map(chr, range(sys.maxunicode + 1)))
        lower = [x if x == _DOTTED_I else x.lower() for x in characters]
        title = [x.title() if len(x.title()) == 1 else x for x in characters]
        kinds = [
            _ALPHA * x.isalpha()
            + _UPPER * x.isupper()
            + _OTHER_CASE * (x.islower() or unicodedata.category(x) == "Lt")
            for x in characters
        ]
        with tf.init_scope(), tf.device("CPU:0"):
            self._lower, self._title, self._kinds = (
                graph_tokenization.PagedTable(np.array(values))
                for values in (
                    list(map(ord, lower)),
                    list(map(ord, title)),
                    kinds,
                )
            )
            self.table = tf.lookup.StaticHashTable(
                tf.lookup.KeyValueTensorInitializer(
                    tf.constant(list(forms), tf.string),
                    tf.constant(list(forms.values()), tf.string),
                ),
                default_value="",
            )

    def __call__(
        self, words: tf.Tensor, sentence_splits: tf.Tensor
    ) -> tf.Tensor:
        """Maps words string [W] in sentences to those that the model reads."""
        with tf.device("CPU:0"):
            return self._rewrite(words, sentence_splits)

    def _rewrite(self, words, sentence_splits):
        codes = tf.strings.unicode_decode(words, "UTF-8")
        kinds = codes.with_values(self._kinds(codes.values))

        def has(kind):
            found = tf.bitwise.bitwise_and(kinds.values, kind) > 0
            return tf.reduce_any(kinds.with_values(found), axis=1)

        has_letter = has(_ALPHA)
        is_upper = has(_UPPER) & ~has(_OTHER_CASE)
        sentence = graph_tokenization.row_ids(sentence_splits)
        counts = [
            tf.math.segment_sum(tf.cast(x, tf.int32), sentence)
            for x in (has_letter, has_letter & ~is_upper)
        ]
        is_capitals = (counts[0] > 1) & tf.equal(counts[1], 0)
        is_capitals = tf.gather(is_capitals, sentence)

        lower = self._lower(codes.values)
        ends = tf.cast(codes.row_splits[1:], tf.int64) - 1
        starts = tf.cast(codes.row_splits[:-1], tf.int64)
        # A sigma after a cased letter, at the end of the word.
        is_cased = tf.gather(kinds.values, tf.maximum(ends - 1, 0)) > _ALPHA
        is_final = tf.equal(
            tf.gather(codes.values, ends), normalization.CAPITAL_SIGMA
        )
        finals = tf.boolean_mask(ends, is_final & is_cased & (ends > starts))
        lower = tf.tensor_scatter_nd_update(
            lower,
            finals[:, None],
            tf.fill(tf.shape(finals), normalization.FINAL_SIGMA),
        )
        first = self._title(tf.gather(codes.values, starts))
        capitalized = tf.tensor_scatter_nd_update(lower, starts[:, None], first)
        lower, capitalized = (
            tf.strings.regex_replace(
                tf.strings.unicode_encode(codes.with_values(x), "UTF-8"),
                _DOTTED_I,
                "i\u0307",
            )
            for x in (lower, capitalized)
        )
        forms = self.table.lookup(lower)
        forms = tf.where(tf.equal(forms, ""), capitalized, forms)
        return tf.where(is_capitals, forms, words)
