"""Gives a model words of its own, and longer texts.

A released vocabulary cuts a domain's words into pieces. As a piece of its own,
a word starts as the mean of the pieces that it was cut into, in the embeddings
and in the masked-LM bias:

    [unused7]  ->  dexamethasone  =  mean(dex, ##ame, ##thas, ##one)

Longer texts need more positions: the table is stretched by interpolation.
"""

import dataclasses
import re

import numpy as np
from absl import logging

from data.tokenization import vocabulary, wordpiece
from foundation import errors
from weights.conversion import Checkpoint

UNUSED, END = "unused", "end"
_UNUSED = re.compile(r"\[unused\d+\]")
_WORDS = "bert/embeddings/word_embeddings"
_BIAS = "cls/predictions/output_bias"
_POSITIONS = "bert/embeddings/position_embeddings"


def add_words(
    checkpoint: Checkpoint, words: list[str], where: str, place: str = UNUSED
) -> Checkpoint:
    """Returns the model with these words in its vocabulary.

    Args:
      checkpoint: with a vocabulary.
      words: one word each, as the tokenizer leaves them: in lower case and
        without accents, if it makes them so.
      where: the words' file, for messages.
      place: UNUSED puts them in place of [unusedN] and, when these are used
        up, at the end; END always appends.

    Raises:
      InputError: the tokenizer would never find one of the words.
    """
    old = checkpoint.tokenizer
    if old is None:
        raise errors.InputError(f"{where}: the model has no vocabulary")
    words = _new_words(words, old.vocabulary, where)
    if not words:
        return checkpoint
    tokens = list(old.vocabulary.tokens)
    ids = [i for i, token in enumerate(tokens) if _UNUSED.fullmatch(token)]
    ids = ids[: len(words)] if place == UNUSED else []
    ids += range(len(tokens), len(tokens) + len(words) - len(ids))
    tokens += [""] * (ids[-1] + 1 - len(tokens))
    for index, word in zip(ids, words, strict=True):
        tokens[index] = word
    new = wordpiece.Tokenizer(
        vocabulary.Vocabulary.from_tokens(tokens), **old.settings
    )
    _check_reachable(new, words, ids, where)
    pieces = old.encode(words)
    values = dict(checkpoint.values)
    for path in (_WORDS, _BIAS):
        if path in values:
            values[path] = _with_means(values[path], pieces, ids)
    config = dataclasses.replace(
        checkpoint.config, vocab_size=len(values[_WORDS])
    )
    return dataclasses.replace(
        checkpoint, config=config, values=values, tokenizer=new
    )


def extend_positions(checkpoint: Checkpoint, count: int) -> Checkpoint:
    """Returns the model with a stretched table of positions.

    The first and the last position keep their embeddings; those between lie
    on straight lines between the old ones.
    """
    table = checkpoint.values[_POSITIONS]
    if count < len(table):
        raise errors.InputError(
            f"--max_position_embeddings={count}: the model has {len(table)} "
            "positions; they can only become more"
        )
    at = np.linspace(0, len(table) - 1, count)
    low = np.minimum(at.astype(int), len(table) - 2)
    share = (at - low)[:, None]
    stretched = table[low] * (1 - share) + table[low + 1] * share
    return dataclasses.replace(
        checkpoint,
        config=dataclasses.replace(
            checkpoint.config, max_position_embeddings=count
        ),
        values=checkpoint.values | {_POSITIONS: np.float32(stretched)},
    )


def _new_words(
    words: list[str], known: vocabulary.Vocabulary, where: str
) -> list[str]:
    """Leaves out empty lines, repetitions and what the vocabulary has."""
    found = dict.fromkeys(word.strip() for word in words)
    found.pop("", None)
    old = [word for word in found if word in known.ids]
    if old:
        logging.warning(
            "%s: the vocabulary has %d of the %d words already, e.g. %s",
            where,
            len(old),
            len(found),
            old[0],
        )
    return [word for word in found if word not in known.ids]


def _check_reachable(
    tokenizer: wordpiece.Tokenizer,
    words: list[str],
    ids: list[int],
    where: str,
) -> None:
    """Refuses words that no text would be cut into."""
    pieces = tokenizer.tokenize(words)
    for word, found, index in zip(words, pieces, ids, strict=True):
        if found != [tokenizer.vocabulary.tokens[index]]:
            raise errors.InputError(
                f"{where}: {word!r} would never be found, as the tokenizer "
                f"reads it as {' '.join(found) or 'nothing'}"
            )


def _with_means(
    table: np.ndarray, pieces: wordpiece.Encoding, ids: list[int]
) -> np.ndarray:
    """Puts the mean of each word's pieces into the word's row."""
    rows = max(len(table), ids[-1] + 1)
    grown = np.zeros((rows, *table.shape[1:]), np.float32)
    grown[: len(table)] = table
    for word, index in enumerate(ids):
        begin, end = pieces.row_splits[word : word + 2]
        grown[index] = table[pieces.ids[begin:end]].mean(0, dtype=np.float64)
    return grown
