"""The usual case of words, for sentences that are written in capitals.

    SOCCER - JAPAN GET LUCKY WIN  ->  soccer - Japan get lucky win

`learn` finds the most frequent form of each word in the training set, `save`
and `load` keep these forms in true_case.json beside a model, and `apply` writes
sentences in capitals with them.
"""

import dataclasses
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence

from foundation import file_system, metadata
from tasks.ner import word_files
from weights import task_files


def save(directory: str, forms: Mapping[str, str] | None) -> None:
    """Writes true_case.json beside a trained model; None removes an older one.

    Args:
      directory: of the model.
      forms: as returned by `learn`.
    """
    path = os.path.join(directory, task_files.TRUE_CASE)
    if forms is None:
        file_system.discard(path)
    else:
        file_system.write_text(path, json.dumps(forms) + "\n")


def load(directory: str) -> dict[str, str] | None:
    """Returns what `save` wrote; None if there is no file."""
    path = os.path.join(directory, task_files.TRUE_CASE)
    kind = dict[metadata.Text, metadata.Text]
    return metadata.read_if_present(path, kind)


def learn(sentences: word_files.Sentences) -> dict[str, str]:
    """Returns the most frequent form of each word by its lower-case form.

    Sentences in capitals are not counted. The first words of sentences are only
    counted for words that occur nowhere else.
    """
    inside: dict[str, Counter] = {}
    first: dict[str, Counter] = {}
    for words in sentences.split(sentences.words):
        if _is_capitals(words):
            continue
        for i, word in enumerate(words):
            table = inside if i else first
            table.setdefault(word.lower(), Counter())[word] += 1
    counts = {**first, **inside}
    return {
        key: min(counts[key], key=lambda word: (-counts[key][word], word))
        for key in sorted(counts)
    }


def apply(
    sentences: word_files.Sentences, forms: Mapping[str, str]
) -> word_files.Sentences:
    """Returns sentences of which those in capitals have their usual case.

    Headlines in capitals do not show which words are names, and cased models
    tag them badly. A word without a form is capitalized like a name.

    Args:
      sentences: the words.
      forms: as returned by `learn`.
    """
    words: list[str] = []
    for part in sentences.split(sentences.words):
        if _is_capitals(part):
            part = [forms.get(w.lower(), w.capitalize()) for w in part]
        words += part
    return dataclasses.replace(sentences, words=words)


def _is_capitals(words: Sequence[str]) -> bool:
    """Returns whether two or more words have letters, all in capitals."""
    lettered = [w for w in words if any(c.isalpha() for c in w)]
    return len(lettered) > 1 and all(w.isupper() for w in lettered)
