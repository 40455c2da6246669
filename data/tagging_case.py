"""Gives lines in capitals the case that words have elsewhere.

    SOCCER - JAPAN GET LUCKY WIN  ->  soccer - Japan get lucky win

Headlines in capitals tell nothing of which words are names; cased models lose
much on them. A word becomes the form that it most often has in the training
set, inside of sentences that are not in capitals; one that never occurs there
is taken for a name.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from data import conll


def learn(sentences: conll.Sentences) -> dict[str, str]:
    """Returns the most frequent form of every word, by its lower-case form."""
    inside: dict[str, Counter] = {}
    first: dict[str, Counter] = {}
    for words in sentences.split(sentences.words):
        if is_capitals(words):
            continue
        for i, word in enumerate(words):
            # Any word may have a capital at the beginning of a sentence.
            table = inside if i else first
            table.setdefault(word.lower(), Counter())[word] += 1
    found = {**first, **inside}
    return {key: _most_frequent(found[key]) for key in sorted(found)}


def apply(
    sentences: conll.Sentences, forms: Mapping[str, str]
) -> conll.Sentences:
    """Returns the sentences with as many words, those in capitals changed."""
    words: list[str] = []
    for part in sentences.split(sentences.words):
        words += _changed(part, forms) if is_capitals(part) else part
    return dataclasses.replace(sentences, words=words)


def is_capitals(words: Sequence[str]) -> bool:
    """Tells whether a line has two words with letters, all in capitals."""
    lettered = [w for w in words if any(c.isalpha() for c in w)]
    return len(lettered) > 1 and all(w.isupper() for w in lettered)


def _changed(words: Sequence[str], forms: Mapping[str, str]) -> Iterator[str]:
    for word in words:
        yield forms.get(word.lower(), word.capitalize())


def _most_frequent(counts: Counter) -> str:
    return min(counts, key=lambda word: (-counts[word], word))
