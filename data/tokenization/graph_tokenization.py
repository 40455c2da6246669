"""WordPiece tokenization as TensorFlow operations.

    texts [N] -> code points -> substitutes -> FastWordpieceTokenizer -> ids

TensorFlow Text's FastWordpieceTokenizer splits words by its own rules: the
Unicode version and the Chinese blocks compiled into it, which are not the
released tokenizer's. On most characters both agree. Every other character is
replaced by a substitute: a rare Chinese character if it must be a word by
itself, a private-use one if not. All characters that no token contains have the
same two substitutes. The tokens of the vocabulary are rewritten in the same
way, so the ids are those of the original characters.

    "\u20ac" (a symbol, which is no word by itself)  ->  "\U000f0001"

Most texts need none of this: printable ASCII only has to be lower-cased, and
texts of characters that normalization leaves unchanged need nothing. Regular
expressions find both kinds. In all other texts, rare cases (a character that
becomes several, a capital sigma, marks out of order, very long words) are
behind tf.cond, so they cost nothing where they do not occur.
"""

import itertools
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from data.tokenization import normalization as normalization_lib
from data.tokenization import vocabulary as vocabulary_lib
from data.tokenization.normalization import MAX_CHARACTERS_PER_WORD
from foundation import errors

try:
    import tensorflow_text as tf_text
except (ImportError, tf.errors.NotFoundError) as error:
    raise errors.InputError(
        f"tensorflow-text cannot be imported beside tensorflow {tf.__version__}"
        ": both must have the same minor version, as tensorflow 2.21.0 and "
        f"tensorflow-text 2.21.1 have ({errors.reason(error)})"
    ) from error

_PRIVATE_USE = ((0xF0000, 0xFFFFD), (0x100000, 0x10FFFD))
# TensorFlow Text makes each character of these blocks a word.
_SEPARATOR_BLOCKS = ((0x2F800, 0x2FA1F), (0x2B820, 0x2CEAF))
_UNKNOWN_LETTER = _PRIVATE_USE[0][0]
_UNKNOWN_SEPARATOR = _SEPARATOR_BLOCKS[0][0]

# Characters that end a word, and texts of words of at most 200 characters.
_ENDS_WORD = r"\t\n\r -/:-@\[-`{-~"
_SHORT_ASCII_WORDS = (
    rf"(?:[0-9A-Za-z]{{0,200}}[{_ENDS_WORD}])*[0-9A-Za-z]{{0,200}}"
)
_ENDS_CHINESE_WORD = _ENDS_WORD + r"\x{3001}\x{3002}\x{4e00}-\x{9fff}\x{ff0c}"
_SHORT_WORDS = r"(?:[^%s]{0,200}[%s])*[^%s]{0,200}"
# In bytes; GraphNormalizer handles long words.
_NO_LIMIT = 2**30

_PAGE = 256
_WIDTH = 3  # No character becomes more than three.
_TRANSPARENT = 255
_OTHER, _SKIPPED, _CASED = 0, 1, 2  # Of a character near a sigma.


class Alphabet:
    """The substitute of every character, for one vocabulary.

    Attributes:
      codes: int32 [code points]; the substitute of each normalized character.
      direct: bool [code points]; text of these alone needs no rewriting,
        because normalization leaves them unchanged and they need no
        substitutes. Includes the capital letters of ASCII, which only have to
        be lower-cased.
      separator: bool [code points]; substitutes that are words by themselves.
    """

    def __init__(
        self,
        tokens: Iterable[str],
        normalization: normalization_lib.Normalization,
    ):
        """Assigns substitutes to the characters of a vocabulary's tokens."""
        properties = normalization_lib.unicode_properties()
        separator = normalization.separator
        self._real_separator = separator
        reserved = np.zeros_like(separator)
        for first, last in _SEPARATOR_BLOCKS:
            reserved[first : last + 1] = True
        agreed = properties.settled & ~properties.cjk
        if normalization.tokenize_chinese_chars:
            agreed |= properties.cjk & ~reserved
        self.direct = agreed & normalization.unchanged
        self.direct[:0x80] = ~properties.removed[:0x80]
        codes = np.where(separator, _UNKNOWN_SEPARATOR, _UNKNOWN_LETTER)
        points = np.arange(normalization_lib.CODE_POINTS)
        self.codes = np.where(self.direct, points, codes).astype(np.int32)
        letters = _numbers(_PRIVATE_USE)
        separators = _numbers(_SEPARATOR_BLOCKS)
        next(letters), next(separators)  # Those for the unknown.
        for code_point in sorted(map(ord, set().union(*tokens))):
            if not self.direct[code_point]:
                is_separator = separator[code_point]
                substitutes = separators if is_separator else letters
                self.codes[code_point] = next(substitutes)
        self.separator = (separator & self.direct) | reserved
        self.separator[normalization_lib.SPACE] = True

    def rewrite(self, token: str) -> str | None:
        """Returns a token in substitutes, or None if no word can contain it."""
        prefix = ""
        if token.startswith(vocabulary_lib.CONTINUATION) and len(token) > 2:
            prefix, token = token[:2], token[2:]
        if token.isalnum() and token.isascii():
            return prefix + token
        points = list(map(ord, token))
        alone = len(points) == 1 and not prefix
        if not points or (self._real_separator[points].any() and not alone):
            return None
        if normalization_lib.unicode_properties().space[points].any():
            return None
        return prefix + "".join(map(chr, self.codes[points].tolist()))

    def direct_pattern(self) -> str:
        """Returns a regular expression for texts of direct characters alone."""
        edges = np.flatnonzero(
            np.diff(self.direct, prepend=False, append=False)
        )
        ranges = zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
        members = "".join(
            rf"\x{{{first:x}}}-\x{{{end - 1:x}}}" for first, end in ranges
        )
        return f"[{members}]*"


def _numbers(blocks):
    return itertools.chain.from_iterable(
        range(first, last + 1) for first, last in blocks
    )


class Normalized(NamedTuple):
    """A batch of normalized texts, flattened.

    Attributes:
      codes: int32 [M]; substitutes of the characters that remained.
      row_splits: int64 [N + 1]; where each text begins in `codes`.
      source: int64 [M]; the position in `decoded` that each code is from.
      decoded: int32 [C]; the code points of the original texts.
      decoded_splits: int64 [N + 1]; where each text begins in `decoded`.
    """

    codes: tf.Tensor
    row_splits: tf.Tensor
    source: tf.Tensor
    decoded: tf.Tensor
    decoded_splits: tf.Tensor


class TokensWithOffsets(NamedTuple):
    """The T tokens of a batch of N texts.

    Attributes:
      ids, row_splits, starts, ends: see wordpiece.EncodingWithOffsets.
      normalized: the texts.
    """

    ids: tf.Tensor
    row_splits: tf.Tensor
    starts: tf.Tensor
    ends: tf.Tensor
    normalized: Normalized


class PagedTable:
    """A look-up table of all code points that stores equal pages once."""

    def __init__(self, values: np.ndarray):
        """Takes the value of each code point, int [CODE_POINTS]."""
        pages: dict[bytes, int] = {}
        numbers = []
        for page in values.astype(np.int32).reshape(-1, _PAGE):
            numbers.append(pages.setdefault(page.tobytes(), len(pages)))
        self._starts = tf.constant(np.array(numbers, np.int32) * _PAGE)
        content = np.frombuffer(b"".join(pages), np.int32)
        self._content = tf.constant(content)

    def __call__(self, code_points: tf.Tensor) -> tf.Tensor:
        """Maps code points int32 [...] to their values, int32 [...]."""
        start = tf.gather(self._starts, code_points // _PAGE)
        return tf.gather(self._content, start + code_points % _PAGE)


class GraphNormalizer:
    """Normalizes texts, as substitutes for one vocabulary's characters."""

    def __init__(
        self, normalization: normalization_lib.Normalization, alphabet: Alphabet
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
        self._codes = PagedTable(table)
        self._expansions = tf.constant(expansions, tf.int32)
        self._has_several = bool(normalization.several)
        self._final_sigma = int(codes[normalization_lib.FINAL_SIGMA])
        self._sigma_context: PagedTable | None = None
        if normalization.do_lower_case:
            self._sigma_context = PagedTable(_sigma_context())
        self._marks: PagedTable | None = None
        if _order_matters(normalization, codes):
            self._build_mark_tables(normalization, codes)
        self._separator = PagedTable(alphabet.separator)

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
                lambda: self._replace_final_sigmas(
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
        positions = tf.where(kept)[:, 0]
        codes = tf.gather(codes, positions)
        codes = tf.cond(
            tf.reduce_max(row_splits[1:] - row_splits[:-1])
            > MAX_CHARACTERS_PER_WORD,
            lambda: self._mark_long_words(codes, row_splits),
            lambda: codes,
        )
        return Normalized(
            codes, row_splits, tf.gather(source, positions), decoded, splits
        )

    def _replace_final_sigmas(self, codes, decoded, splits, is_sigma):
        """Replaces the codes of final sigmas.

        A sigma is final if the nearest character before it is cased and the
        nearest one after it is not; case-ignorable characters are skipped.
        """
        assert self._sigma_context is not None
        context = self._sigma_context(decoded)
        positions = tf.where(tf.not_equal(context, _SKIPPED))
        is_cased = tf.equal(tf.gather_nd(context, positions), _CASED)
        rows = row_ids(splits)
        rows = tf.gather_nd(rows, positions)
        follows = is_cased[:-1] & tf.equal(rows[1:], rows[:-1])
        precedes = is_cased[1:] & tf.equal(rows[1:], rows[:-1])
        is_final = (
            tf.gather_nd(is_sigma, positions)
            & tf.concat([[False], follows], 0)
            & tf.logical_not(tf.concat([precedes, [False]], 0))
        )
        positions = select(positions, is_final)
        updates = tf.fill([tf.shape(positions)[0]], self._final_sigma)
        return tf.tensor_scatter_nd_update(codes, positions, updates)

    def _expand(self, codes, decoded, splits):
        """Replaces each character by three slots, some of them empty."""
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
        assert self._marks is not None
        empty = tf.fill(tf.shape(decoded), _TRANSPARENT)
        marks = tf.where(
            several[:, None],
            tf.gather(self._expansion_marks, numbers),
            tf.stack([self._marks(decoded), empty, empty], 1),
        )
        marks = tf.cast(tf.reshape(marks, [-1]), tf.int64)
        rows = row_ids(splits)
        starters = tf.cumsum(tf.cast(tf.equal(marks, 0), tf.int64))
        run = starters + tf.gather(rows, source)
        return tf.argsort(run * (_TRANSPARENT + 1) + marks, stable=True)

    def _build_mark_tables(self, normalization, codes):
        """Maps each code point to its class: 0 for starters, or transparent.

        A removed control character is transparent to the order, and so is a
        mark that is stripped, unless it is a starter.
        """
        properties = normalization_lib.unicode_properties()
        marks = properties.combining_class.astype(np.int32)
        stripped = properties.nonspacing_mark & (marks > 0)
        marks[stripped | properties.removed] = _TRANSPARENT
        shape = (len(normalization.several) + 1, _WIDTH)
        expansion_marks = np.full(shape, _TRANSPARENT, np.int32)
        for number, points in enumerate(normalization.several.values()):
            expansion_marks[number, : len(points)] = marks[list(points)]
        self._marks = PagedTable(marks)
        self._expansion_marks = tf.constant(expansion_marks)

    def _mark_long_words(self, codes, row_splits):
        """Puts an unknown letter at the start of words that are too long."""
        starts = row_splits[:-1]
        starts = select(starts, starts < tf.size(codes, tf.int64))
        is_separator = self._separator(codes) > 0
        is_break = tf.tensor_scatter_nd_update(
            is_separator, starts[:, None], tf.fill(tf.shape(starts), True)
        )
        breaks = tf.where(is_break)[:, 0]
        ends = tf.concat([breaks[1:], [tf.size(codes, tf.int64)]], 0)
        words = breaks + tf.cast(tf.gather(is_separator, breaks), tf.int64)
        is_long = ends - words > MAX_CHARACTERS_PER_WORD
        positions = select(words, is_long)[:, None]
        updates = tf.fill([tf.shape(positions)[0]], _UNKNOWN_LETTER)
        return tf.tensor_scatter_nd_update(codes, positions, updates)


def _sigma_context() -> np.ndarray:
    """Returns the effect of each code point on a sigma near it."""
    properties = normalization_lib.unicode_properties()
    context = np.where(properties.cased, _CASED, _OTHER)
    context[properties.case_ignorable | properties.removed] = _SKIPPED
    return context


def _order_matters(normalization, codes) -> bool:
    """Returns whether the vocabulary has marks that could be out of order.

    A word with a character that the vocabulary lacks is [UNK] in any order.
    """
    properties = normalization_lib.unicode_properties()
    classes = set()
    for code_point in normalization.reordering:
        for point in normalization.several.get(code_point, (code_point,)):
            if codes[point] != _UNKNOWN_LETTER:
                classes.add(int(properties.combining_class[point]))
    return len(classes - {0}) > 1


class GraphTokenizer:
    """Tokenizes texts with one vocabulary in a graph; cannot be pickled."""

    def __init__(
        self,
        vocabulary: vocabulary_lib.Vocabulary,
        normalization: normalization_lib.Normalization,
    ):
        """Builds the tables and the tokenizer, in about half a second."""
        tokens = vocabulary.ids
        alphabet = Alphabet(tokens, normalization)
        rewritten, ids = [vocabulary_lib.UNK], [vocabulary.unk_id]
        for token, token_id in tokens.items():
            substitutes = alphabet.rewrite(token)
            if substitutes is not None:
                rewritten.append(substitutes)
                ids.append(token_id)
        self._lowers = normalization.do_lower_case
        self._added = vocabulary.added_pattern(lowers=self._lowers)
        ends = _ENDS_WORD
        if normalization.tokenize_chinese_chars:
            ends = _ENDS_CHINESE_WORD
        self._short_words = _SHORT_WORDS.replace("%s", ends)
        self._direct = alphabet.direct_pattern()
        # init_scope: a constant made while some graph is traced would belong
        # to that graph and could not be used in the next.
        with tf.init_scope(), tf.device("CPU:0"):
            self._normalize = GraphNormalizer(normalization, alphabet)
            self._wordpiece = tf_text.FastWordpieceTokenizer(
                rewritten, max_bytes_per_word=_NO_LIMIT, token_out_type=tf.int32
            )
            self._ids = tf.constant(ids, tf.int32)
            self._added_tokens = tf.constant(vocabulary.added, tf.string)
            self._added_ids = tf.constant(
                [tokens[token] for token in vocabulary.added], tf.int32
            )
            self._is_mark = None
            if normalization.strip_accents:
                marks = normalization_lib.unicode_properties().nonspacing_mark
                self._is_mark = PagedTable(marks)

    def __call__(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of each text's tokens: int32 [N, None].

        Args:
          texts: string [N], UTF-8; invalid bytes are ignored.
        """
        if self._added:
            found = self.with_offsets(texts)
            return ragged(found.ids, found.row_splits)
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
            tokens = self._wordpiece.tokenize(prepared)
            return tokens.with_values(tf.gather(self._ids, tokens.values))

    def _cut(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """Cuts texts before and after added tokens.

        Returns:
          The parts of each text, string [N, None], and for each of the M parts
          the id of the added token that it is, or -1: int32 [M].
        """
        # regex_split ends texts at U+0000; both are removed.
        texts = tf.strings.regex_replace(texts, r"\x00", "\x01")
        parts = tf_text.regex_split(texts, self._added, self._added)
        is_token = tf.equal(parts.values[:, None], self._added_tokens)
        if self._lowers:
            lowered = tf.strings.lower(parts.values)
            is_token |= tf.equal(lowered[:, None], self._added_tokens)
        ids = tf.where(is_token, self._added_ids, -1)
        return parts, tf.reduce_max(ids, axis=1)

    def _rewrite_others(self, texts, prepared, others):
        """Rewrites those of the texts that are not direct."""
        texts = tf.gather_nd(texts, others)
        is_direct = tf.strings.regex_full_match(
            texts, self._direct
        ) & tf.strings.regex_full_match(texts, self._short_words)
        texts, others = select(texts, ~is_direct), select(others, ~is_direct)
        return tf.cond(
            tf.size(others) > 0,
            lambda: tf.tensor_scatter_nd_update(
                prepared, others, _strings(self._normalize(texts))
            ),
            lambda: prepared,
        )

    def with_offsets(self, texts: tf.Tensor) -> TokensWithOffsets:
        """Returns the tokens of each text and their characters.

        A token covers its characters and the accents that were stripped from
        the last of them; [UNK] covers its word.

        Args:
          texts: string [N], UTF-8; invalid bytes are ignored.
        """
        if not self._added:
            return self._offsets_without_added(texts)
        with tf.device("CPU:0"):
            parts, added = self._cut(texts)
            found = self._offsets_without_added(parts.values)
            normalized, owners = found.normalized, row_ids(found.row_splits)
            added = tf.gather(added, owners)
            is_added = added >= 0
            ids = tf.where(is_added, added, found.ids)
            # Of an added token, the first token is kept. It has all characters
            # of its part.
            is_kept = ~is_added | tf.equal(
                tf.range(found.row_splits[-1]),
                tf.gather(found.row_splits, owners),
            )
            kept_before = tf.pad(
                tf.cumsum(tf.cast(is_kept, tf.int64)), [[1, 0]]
            )
            splits = tf.gather(found.row_splits, parts.row_splits)
            splits = tf.gather(kept_before, splits)
            begins = normalized.decoded_splits
            ends = tf.where(
                is_added,
                tf.gather(begins[1:] - begins[:-1], owners),
                found.ends,
            )
            text_begins = tf.gather(begins, parts.row_splits)
            texts_of_tokens = tf.gather(row_ids(parts.row_splits), owners)
            before = tf.gather(begins, owners) - tf.gather(
                text_begins, texts_of_tokens
            )
            starts = tf.where(is_added, before, found.starts + before)
            ids, starts, ends = (
                select(x, is_kept) for x in (ids, starts, ends + before)
            )
            normalized = normalized._replace(
                row_splits=tf.gather(normalized.row_splits, parts.row_splits),
                decoded_splits=text_begins,
            )
            return TokensWithOffsets(ids, splits, starts, ends, normalized)

    def _offsets_without_added(self, texts: tf.Tensor) -> TokensWithOffsets:
        with tf.device("CPU:0"):
            normalized = self._normalize(texts)
            tokens, starts, ends = self._wordpiece.tokenize_with_offsets(
                _strings(normalized)
            )
            rows = row_ids(tokens.row_splits)
            # From bytes of a rewritten text to codes of all texts.
            sizes = tf.ones_like(normalized.codes, tf.int64)
            for first in (0x80, 0x800, 0x10000):
                sizes += tf.cast(normalized.codes >= first, tf.int64)
            bytes_before = tf.pad(tf.cumsum(sizes), [[1, 0]])
            row_byte = tf.gather(bytes_before, normalized.row_splits)
            row_byte = tf.gather(row_byte, rows)
            first = _search(bytes_before, starts.values + row_byte)
            after = _search(bytes_before, ends.values + row_byte)
            # From codes to characters. Marks may have been reordered.
            covered = tf.ragged.range(first, after)
            source = tf.gather(normalized.source, covered.values)
            owners = row_ids(covered.row_splits)
            starts = tf.math.segment_min(source, owners)
            ends = tf.math.segment_max(source, owners) + 1
            if self._is_mark is not None:
                is_stop = tf.equal(self._is_mark(normalized.decoded), 0)
                stops = tf.concat(
                    [tf.where(is_stop)[:, 0], normalized.decoded_splits], 0
                )
                stops = tf.sort(stops)
                ends = tf.gather(stops, _search(stops, ends))
            row_start = tf.gather(normalized.decoded_splits, rows)
            return TokensWithOffsets(
                tf.gather(self._ids, tokens.values),
                tokens.row_splits,
                starts - row_start,
                ends - row_start,
                normalized,
            )


def row_ids(row_splits: tf.Tensor) -> tf.Tensor:
    """Returns the row of each of T values: int64 [T].

    TensorFlow's own function takes the memory of [rows, longest row]: 13 GB for
    160,000 tokens of which one has 10,000 letters.

    Args:
      row_splits: int64 [rows + 1].
    """
    return _search(row_splits, tf.range(row_splits[-1]) + 1) - 1


def _search(values: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
    """Returns for each wanted value how many of `values`, sorted, are smaller.

    tf.searchsorted does the same on any number of axes, in 20 operations.
    """
    return tf.raw_ops.LowerBound(
        sorted_inputs=values[None], values=wanted[None], out_type=tf.int64
    )[0]


def select(values: tf.Tensor, is_selected: tf.Tensor) -> tf.Tensor:
    """Returns the selected rows: tf.boolean_mask, which makes 25 operations."""
    return tf.gather_nd(values, tf.where(is_selected))


def ragged(values: tf.Tensor, row_splits: tf.Tensor) -> tf.RaggedTensor:
    """Returns rows, without the hundred operations that check the splits."""
    return tf.RaggedTensor.from_row_splits(values, row_splits, validate=False)


def _strings(normalized: Normalized) -> tf.Tensor:
    codes = ragged(normalized.codes, normalized.row_splits)
    return tf.strings.unicode_encode(codes, "UTF-8")
