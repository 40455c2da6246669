"""Finds columns of CoNLL files that are not words or not tags.

Flags choose the columns. A wrong column seldom causes an error: a model can
also learn to tag the numbers 1, 2, 3, ... A column that is certainly wrong is
refused. A doubtful one gives a warning: one line with the file, the number of
the line and an example.
"""

import itertools
import re
from collections.abc import Sequence
from typing import NamedTuple

from foundation import errors

_NUMBER = re.compile(r"\d+(?:[-.]\d+)?")  # Also 3-4 and 8.1 of CoNLL-U.
_SPAN_TAG = re.compile(r"[BIESLUM]-.+")
_CHUNK_TYPES = frozenset(
    "NP VP PP ADJP ADVP SBAR PRT CONJP INTJ LST UCP".split()
)
_FEW_WORDS = 10  # Fewer words are not checked.
_MANY_TAGS = 20
_MOST = 0.9


class Row(NamedTuple):
    """A line that has the columns of a word.

    number: number of the line in the file, counted from 1.
    cells: cells of all columns.
    begins_sentence: whether an empty line is before it.
    """

    number: int
    cells: Sequence[str]
    begins_sentence: bool


def check(path: str, rows: Sequence[Row], word: int, tag: int | None) -> None:
    """Refuses columns that are certainly wrong; warns of doubtful ones.

    Args:
      path: the file, for messages.
      rows: the file's first lines, all with the same number of columns.
      word: the column of words, which may be counted from the end.
      tag: the column of tags, likewise; None if there is none. For -1, the
        default, a warning names a better column of tags.

    Raises:
      InputError: the words are their own numbers, or tags.
    """
    if not rows:
        return
    width = len(rows[0].cells)
    columns = [[row.cells[i].strip(" ") for row in rows] for i in range(width)]
    if tag is not None and width == 1:
        tag = None
    if any(i is not None and not -width <= i < width for i in (word, tag)):
        return  # The reader refuses them.
    is_default = tag == -1
    word, tag = word % width, None if tag is None else tag % width
    _check_words(path, rows, columns, word, tag)
    _check_sentences(path, rows)
    if tag is not None and tag != word:
        _check_comments(path, rows, columns[tag])
        _check_tags(path, rows, columns[tag], tag)
        if is_default:
            _check_other_columns(path, rows, columns, word, tag)


def _check_words(
    path: str,
    rows: Sequence[Row],
    columns: Sequence[Sequence[str]],
    word: int,
    tag: int | None,
) -> None:
    """Refuses words that are their numbers or tags; warns of doubtful words."""
    words, width = columns[word], len(columns)
    if width == 1:
        return
    where = f"{path}:{rows[0].number}"
    other_columns = [i for i in range(width) if i not in (word, tag)]
    best = max(other_columns, key=lambda i: len({*columns[i]}), default=None)
    hint = f"is --word_column={word} right?"
    if best is not None and len({*columns[best]}) > 1:
        hint = f"--word_column={best} reads {columns[best][0]!r}"
    numbers = sum(map(bool, map(_NUMBER.fullmatch, words)))
    if len(words) >= _FEW_WORDS and _are_numbered(rows, words):
        raise errors.InputError(
            f"{where}: column {word} has no words but their places, "
            f"{words[0]}, {words[1]}, ...; {hint}"
        )
    if len(words) >= _FEW_WORDS and numbers >= _MOST * len(words):
        errors.warn_once(
            f"{where}: {numbers} of {len(words)} words are numbers, such as "
            f"{words[0]!r}; {hint}"
        )
    elif len({*words}) == 1 < _FEW_WORDS <= len({*columns[best or 0]}):
        errors.warn_once(f"{where}: all words are {words[0]!r}; {hint}")
    elif all(x == "O" or _SPAN_TAG.fullmatch(x) for x in words):
        i = next((i for i, x in enumerate(words) if x != "O"), None)
        if i is not None and len(words) > 1:
            raise errors.InputError(
                f"{path}:{rows[i].number}: the word {words[i]!r} is a tag, as "
                f"all words are; is --word_column={word} right?"
            )
    elif tag is not None and len({*words}) > 1:
        tags = {*columns[tag]}
        if len(tags) >= max(_MANY_TAGS, 5 * len({*words})):
            errors.warn_once(
                f"{where}: {len(tags)} different tags, such as "
                f"{columns[tag][0]!r}, of {len({*words})} different words, "
                f"such as {words[0]!r}: are --word_column={word} and "
                f"--tag_column={tag} exchanged?"
            )


def _are_numbered(rows: Sequence[Row], words: Sequence[str]) -> bool:
    """Returns whether words are their numbers in the sentence or the file."""
    if not all(map(str.isdecimal, words)) or int(words[0]) not in (0, 1):
        return False
    first = int(words[0])
    follows = [int(b) == int(a) + 1 for a, b in itertools.pairwise(words)]
    if all(follows):
        return True
    return all(
        int(word) == first if row.begins_sentence else follow
        for row, word, follow in zip(rows[1:], words[1:], follows, strict=True)
    )


def _check_sentences(path: str, rows: Sequence[Row]) -> None:
    """Warns if all sentences have a single word."""
    if len(rows) >= _MANY_TAGS and all(row.begins_sentence for row in rows):
        errors.warn_once(
            f"{path}:{rows[1].number}: all sentences have one word, as "
            f"{rows[1].cells[0]!r} here: are there empty lines between words?"
        )


def _check_comments(path: str, rows: Sequence[Row], tags: list[str]) -> None:
    """Warns of comments that have as many columns as words.

    The pound sign, "# #" in the Penn Treebank, is not a comment.
    """
    is_hash = [row.cells[0] == "#" for row in rows]
    known_tags = {t for t, x in zip(tags, is_hash, strict=True) if not x}
    known_tags |= {"O", "#"}
    for row, tag, begins in zip(rows, tags, is_hash, strict=True):
        if begins and tag not in known_tags and not _SPAN_TAG.fullmatch(tag):
            errors.warn_once(
                f"{path}:{row.number}: a comment? {' '.join(row.cells)!r} is "
                f"read as a word with the tag {tag!r}"
            )
            return


def _check_tags(
    path: str, rows: Sequence[Row], tags: Sequence[str], tag: int
) -> None:
    """Warns of tags with spaces, which are possible in files with tabs."""
    spaced = next((i for i, x in enumerate(tags) if len(x.split()) > 1), None)
    if spaced is not None:
        errors.warn_once(
            f"{path}:{rows[spaced].number}: the tag {tags[spaced]!r} has a "
            f"space; is --tag_column={tag} right?"
        )


def _check_other_columns(
    path: str,
    rows: Sequence[Row],
    columns: Sequence[Sequence[str]],
    word: int,
    tag: int,
) -> None:
    """Warns if another column has entities, or most of them.

    Else, the tags are parts of speech or chunks, or the entities within the
    entities of the other column, as in GermEval's files.
    """
    tags = columns[tag]
    types = _types(tags)
    has_entities = types is not None and not types <= _CHUNK_TYPES
    tagged = len(tags) - tags.count("O")
    for i, column in enumerate(columns):
        other_types = _types(column) if i not in (word, tag) else None
        if has_entities and len(column) - column.count("O") <= 2 * tagged:
            continue
        if other_types and not other_types <= _CHUNK_TYPES:
            k = next(
                k
                for k, x in enumerate(column)
                if x != "O" and (not has_entities or tags[k] == "O")
            )
            errors.warn_once(
                f"{path}:{rows[k].number}: column {tag} has the tag "
                f"{columns[tag][k]!r}, but column {i} {column[k]!r}; "
                f"--tag_column={i} reads that"
            )
            return


def _types(tags: Sequence[str]) -> set[str] | None:
    """Returns the types of tags of spans; None if they do not mark spans."""
    kinds = {*tags} - {"O"}
    if not all(map(_SPAN_TAG.fullmatch, kinds)):
        return None
    return {kind[2:] for kind in kinds}
