"""The released normalization as TensorFlow operations.

    texts [N] -> code points -> table look-up -> stand-ins of `alphabet`

Works on all characters of a batch at once. The rare cases (a character that
becomes several, a capital sigma, marks out of order, very long words) sit
behind tf.cond, so ordinary text does not pay for them.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from data import alphabet as alphabet_lib
from data import normalization as normalization_lib
from data import unicode_14

MAX_CHARACTERS_PER_WORD = 200
_PAGE = 256
_WIDTH = 3  # No character becomes more than three.
_TRANSPARENT = 255
_OTHER, _SKIPPED, _CASED = 0, 1, 2


class Normalized(NamedTuple):
    """A batch of normalized texts, flattened.

    Attributes:
      codes: int32 [M]; stand-ins of the characters that remained.
      row_splits: int64 [N + 1]; where each text begins in `codes`.
      source: int64 [M]; the place in `decoded` that each code came from.
      decoded: int32 [C]; the code points of the texts as they were.
      decoded_splits: int64 [N + 1]; where each text begins in `decoded`.
    """

    codes: tf.Tensor
    row_splits: tf.Tensor
    source: tf.Tensor
    decoded: tf.Tensor
    decoded_splits: tf.Tensor


class _PagedTable:
    """A table over all code points that stores equal pages once."""

    def __init__(self, values: np.ndarray):
        pages, numbers = {}, []
        for page in values.astype(np.int32).reshape(-1, _PAGE):
            numbers.append(pages.setdefault(page.tobytes(), len(pages)))
        self._starts = tf.constant(np.array(numbers, np.int32) * _PAGE)
        content = np.frombuffer(b"".join(pages), np.int32)
        self._content = tf.constant(content)

    def __call__(self, code_points: tf.Tensor) -> tf.Tensor:
        start = tf.gather(self._starts, code_points // _PAGE)
        return tf.gather(self._content, start + code_points % _PAGE)


class GraphNormalizer:
    """Normalizes texts, as stand-ins for one vocabulary's characters."""

    def __init__(
        self,
        normalization: normalization_lib.Normalization,
        alphabet: alphabet_lib.Alphabet,
    ):
        """Builds the tables that become constants of the graph."""
        codes = alphabet.codes
        single = normalization.single
        table = np.where(single >= 0, codes[single], single)
        expansions = np.full((len(normalization.several) + 1, _WIDTH), -1)
        for number, item in enumerate(normalization.several.items()):
            code_point, points = item
            table[code_point] = -2 - number
            expansions[number, : len(points)] = codes[list(points)]
        self._codes = _PagedTable(table)
        self._expansions = tf.constant(expansions, tf.int32)
        self._has_several = bool(normalization.several)
        self._final_sigma = int(codes[normalization_lib.FINAL_SIGMA])
        self._sigma_context = None
        if normalization.do_lower_case:
            self._sigma_context = _PagedTable(_sigma_context())
        self._marks = None
        if _order_matters(normalization, codes):
            self._build_mark_tables(normalization, codes)
        self._separator = _PagedTable(alphabet.separator)

    def __call__(self, texts: tf.Tensor) -> Normalized:
        """Normalizes a batch.

        Args:
          texts: string [N], UTF-8; invalid bytes are ignored.
        """
        ragged = tf.strings.unicode_decode(texts, "UTF-8", errors="ignore")
        decoded, splits = ragged.values, tf.cast(ragged.row_splits, tf.int64)
        codes = self._codes(decoded)
        if self._sigma_context is not None:
            is_sigma = tf.equal(decoded, normalization_lib.CAPITAL_SIGMA)
            codes = tf.cond(
                tf.reduce_any(is_sigma),
                lambda: self._place_final_sigmas(
                    codes, decoded, splits, is_sigma
                ),
                lambda: codes,
            )
        source = tf.range(tf.size(codes, tf.int64))
        row_splits = splits
        if self._has_several:
            needs_expanding = tf.reduce_any(codes < -1)
            if self._marks is not None:
                is_mark = self._marks(decoded) % _TRANSPARENT > 0
                needs_expanding |= tf.reduce_any(is_mark)
            codes, source, row_splits = tf.cond(
                needs_expanding,
                lambda: self._expand(codes, decoded, splits),
                lambda: (codes, source, splits),
            )
        kept = codes >= 0
        kept_before = tf.cumsum(tf.cast(kept, tf.int64))
        kept_before = tf.concat([[tf.constant(0, tf.int64)], kept_before], 0)
        row_splits = tf.gather(kept_before, row_splits)
        places = tf.where(kept)[:, 0]
        codes = tf.gather(codes, places)
        codes = tf.cond(
            tf.reduce_max(row_splits[1:] - row_splits[:-1])
            > MAX_CHARACTERS_PER_WORD,
            lambda: self._spoil_long_words(codes, row_splits),
            lambda: codes,
        )
        return Normalized(
            codes, row_splits, tf.gather(source, places), decoded, splits
        )

    def _place_final_sigmas(self, codes, decoded, splits, is_sigma):
        """Gives the final sigmas their own code.

        A sigma is final if the nearest character before it that is not to be
        skipped is cased and the nearest one after it is not.
        """
        context = self._sigma_context(decoded)
        places = tf.where(tf.not_equal(context, _SKIPPED))
        is_cased = tf.equal(tf.gather_nd(context, places), _CASED)
        rows = tf.ragged.row_splits_to_segment_ids(splits)
        rows = tf.gather_nd(rows, places)
        follows = is_cased[:-1] & tf.equal(rows[1:], rows[:-1])
        precedes = is_cased[1:] & tf.equal(rows[1:], rows[:-1])
        is_final = (
            tf.gather_nd(is_sigma, places)
            & tf.concat([[False], follows], 0)
            & tf.logical_not(tf.concat([precedes, [False]], 0))
        )
        places = tf.boolean_mask(places, is_final)
        updates = tf.fill([tf.shape(places)[0]], self._final_sigma)
        return tf.tensor_scatter_nd_update(codes, places, updates)

    def _expand(self, codes, decoded, splits):
        """Gives every character three slots, some of them empty."""
        several = codes < -1
        numbers = tf.where(several, -2 - codes, 0)
        empty = tf.fill(tf.shape(codes), -1)
        wide = tf.where(
            several[:, None],
            tf.gather(self._expansions, numbers),
            tf.stack([codes, empty, empty], 1),
        )
        wide = tf.reshape(wide, [-1])
        source = tf.range(tf.size(wide, tf.int64)) // _WIDTH
        if self._marks is not None:
            order = self._canonical_order(
                several, numbers, decoded, splits, source
            )
            wide, source = tf.gather(wide, order), tf.gather(source, order)
        return wide, source, splits * _WIDTH

    def _canonical_order(self, several, numbers, decoded, splits, source):
        """Sorts the marks between two starters by combining class."""
        empty = tf.fill(tf.shape(decoded), _TRANSPARENT)
        marks = tf.where(
            several[:, None],
            tf.gather(self._expansion_marks, numbers),
            tf.stack([self._marks(decoded), empty, empty], 1),
        )
        marks = tf.cast(tf.reshape(marks, [-1]), tf.int64)
        rows = tf.ragged.row_splits_to_segment_ids(splits)
        starters = tf.cumsum(tf.cast(tf.equal(marks, 0), tf.int64))
        run = starters + tf.gather(rows, source)
        return tf.argsort(run * (_TRANSPARENT + 1) + marks, stable=True)

    def _build_mark_tables(self, normalization, codes):
        """Gives each code point its class: 0 for starters, or transparent.

        A removed control character is transparent to the order, and so is a
        mark that is going to be stripped, unless it is a starter.
        """
        properties = unicode_14.properties()
        marks = properties.combining_class.astype(np.int32)
        stripped = properties.nonspacing_mark & (marks > 0)
        marks[stripped | properties.removed] = _TRANSPARENT
        shape = (len(normalization.several) + 1, _WIDTH)
        expansion_marks = np.full(shape, _TRANSPARENT, np.int32)
        for number, points in enumerate(normalization.several.values()):
            expansion_marks[number, : len(points)] = marks[list(points)]
        self._marks = _PagedTable(marks)
        self._expansion_marks = tf.constant(expansion_marks)

    def _spoil_long_words(self, codes, row_splits):
        """Puts an unknown letter at the start of words that are too long."""
        starts = tf.boolean_mask(
            row_splits[:-1], row_splits[:-1] < tf.size(codes, tf.int64)
        )
        is_separator = self._separator(codes) > 0
        is_break = tf.tensor_scatter_nd_update(
            is_separator, starts[:, None], tf.fill(tf.shape(starts), True)
        )
        breaks = tf.where(is_break)[:, 0]
        ends = tf.concat([breaks[1:], [tf.size(codes, tf.int64)]], 0)
        words = breaks + tf.cast(tf.gather(is_separator, breaks), tf.int64)
        is_long = ends - words > MAX_CHARACTERS_PER_WORD
        places = tf.boolean_mask(words, is_long)[:, None]
        updates = tf.fill([tf.shape(places)[0]], alphabet_lib.UNKNOWN_LETTER)
        return tf.tensor_scatter_nd_update(codes, places, updates)


def _sigma_context() -> np.ndarray:
    """Says what each code point means to a sigma near it."""
    properties = unicode_14.properties()
    context = np.where(properties.cased, _CASED, _OTHER)
    context[properties.case_ignorable | properties.removed] = _SKIPPED
    return context


def _order_matters(normalization, codes) -> bool:
    """Says whether the vocabulary knows marks that could be out of order.

    A word with a character that the vocabulary lacks is [UNK] in any order.
    """
    properties = unicode_14.properties()
    classes = set()
    for code_point in normalization.reordering:
        for point in normalization.several.get(code_point, (code_point,)):
            if codes[point] != alphabet_lib.UNKNOWN_LETTER:
                classes.add(int(properties.combining_class[point]))
    return len(classes - {0}) > 1
