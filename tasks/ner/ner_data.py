"""Which files a tagging run has, and what the labels of its model are."""

import dataclasses
import functools
import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from absl import logging

from data import features, schema
from data.features import Features
from data.tokenization.wordpiece import Tokenizer
from foundation import errors, file_system
from tasks.ner import conll, ner_windows, raw_text
from weights import task_files

TRAIN, DEV, TEST = "train", "dev", "test"
# CoNLL-2003's names, and those that many others use.
_NAMES = {
    TRAIN: ("eng.train", "train.txt", "train.conll"),
    DEV: ("eng.testa", "dev.txt", "valid.txt", "dev.conll"),
    TEST: ("eng.testb", "test.txt", "test.conll"),
}
_RECORDS = {TRAIN: "train", DEV: "eval", TEST: "predict"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Context:
    """How words are laid out in windows; see tasks.ner.ner_windows.encode."""

    max_seq_length: int
    document_context: bool
    doc_stride: int


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class NerData:
    """Sets of tagged sentences.

    Attributes:
      read: returns a set.
      has: tells whether there is a file of a set.
      labels: of the model, in the order of its outputs.
      scheme: that the files' tags are in, or None to recognize it.
      text: lines to find entities in, or None.
      words: returns what the model reads in place of what the file has.
    """

    read: Callable[[str], conll.Sentences]
    has: Callable[[str], bool]
    labels: Sequence[str]
    scheme: str | None
    text: Sequence[str] | None = None
    words: Callable[[conll.Sentences], conll.Sentences] = lambda found: found

    def __post_init__(self):
        """Keeps what is asked for often."""
        for method in (
            self.scheme_of,
            self.label_ids,
            self.written,
            self.digest,
            self.digest_of_words,
        ):
            cached = functools.cache(method)
            object.__setattr__(self, method.__name__, cached)

    @functools.cached_property
    def is_plain(self) -> bool:
        """Whether tags mean no spans."""
        known = (self.scheme, conll.scheme_of(self.labels))
        return conll.PLAIN in known

    def scheme_of(self, split: str) -> str:
        """Returns the scheme of a set; without tags, what conlleval reads."""
        if self.is_plain:
            return conll.PLAIN
        if self.scheme is not None:
            return self.scheme
        sentences = self.read(split)
        if sentences.tags is None:
            return conll.BIO2
        return conll.scheme(sentences)

    def label_ids(self, split: str) -> np.ndarray | None:
        """Returns the tags of a set as numbers, None where it has none."""
        sentences = self.read(split)
        if sentences.tags is None:
            return None
        return conll.encode_tags(sentences, self.scheme_of(split), self.labels)

    def written_scheme(self, split: str) -> str:
        """Returns the scheme that a set is compared and written in.

        It is that of the file, but for IOBES: conlleval knows no S-.
        """
        scheme = self.scheme_of(split)
        return conll.BIO2 if scheme == conll.IOBES else scheme

    def written(self, split: str) -> conll.Sentences:
        """Returns a set with its tags, if it has any, in that scheme.

        As predictions are in none but such tags, a stray I- or BILOU's L- would
        otherwise never be found.
        """
        sentences = self.read(split)
        if sentences.tags is None:
            return sentences
        tags = conll.convert(
            sentences, sentences.tags, self.written_scheme(split)
        )
        return dataclasses.replace(sentences, tags=tags)

    def digest(self, split: str) -> str:
        """Returns the digest of what a set's file has."""
        return digest(self.read(split))

    def digest_of_words(self, split: str) -> str:
        """Returns the digest of what the model reads of a set."""
        return digest(self.words(self.read(split)))


def open_data(
    *,
    data_dir: str | None,
    files: Mapping[str, str | None],
    columns: Mapping[str, int],
    tag_scheme: str,
    model_scheme: str,
    types: Sequence[str] = (),
    known_labels: Sequence[str] | None,
    former_labels: Sequence[str] | None = None,
    untagged: Sequence[str] = (),
    text_file: str | None = None,
) -> NerData:
    """Opens the sets of a run.

    Args:
      data_dir: where files of the usual names lie.
      files: split -> file, instead.
      columns: word_column and tag_column; see tasks.ner.conll.read.
      tag_scheme: of the files, or "auto".
      model_scheme: what the model is to learn: bio2 or iobes.
      types: of entities; those of the training set if none are given.
      known_labels: of a model that is trained already; None if it is to be.
      former_labels: of one that is trained on: if they are the same, they keep
        their places.
      untagged: the sets whose files have no column of tags.
      text_file: raw text, if there is any.
    """

    @functools.cache
    def read(split: str) -> conll.Sentences:
        given = dict(columns)
        if split in untagged:
            given["tag_column"] = None
        path = _find(split, data_dir, files)
        if path is None:
            raise errors.InputError(f"--{split}_file is required")
        return conll.read(path, **given)

    def has(split: str) -> bool:
        return _find(split, data_dir, files) is not None

    scheme = None if tag_scheme == "auto" else tag_scheme
    labels = known_labels or _find_labels(
        read(TRAIN), scheme, model_scheme, types
    )
    former = task_files.Known(labels=former_labels, problem_type=None)
    labels = list(former.in_order_if_its_own(labels))
    text = None if text_file is None else raw_text.read_lines(text_file)
    return NerData(read=read, has=has, labels=labels, scheme=scheme, text=text)


def check(
    data: NerData,
    *,
    tagged: Sequence[str],
    used: Sequence[str],
    context: Context,
) -> None:
    """Refuses before anything takes time what sets lack.

    Args:
      data: the sets.
      tagged: those that must have tags.
      used: those that are read at all.
      context: lays out the windows.
    """
    for split in used:
        sentences = data.read(split)
        if data.label_ids(split) is None and split in tagged:
            raise errors.InputError(f"{sentences.path}: has no column of tags")
        if context.document_context:
            ner_windows.check_documents(sentences)


def _find(
    split: str, data_dir: str | None, files: Mapping[str, str | None]
) -> str | None:
    """Returns the file of a set, None if there is none."""
    if files.get(split) is not None:
        return files[split]
    if data_dir is None:
        return None
    endings = ("", *file_system.COMPRESSED)
    names = [name + end for name in _NAMES[split] for end in endings]
    paths = [os.path.join(data_dir, name) for name in names]
    return next((path for path in paths if file_system.exists(path)), None)


def _find_labels(sentences, scheme, model_scheme, types) -> list[str]:
    found = scheme or conll.scheme(sentences)
    kinds = conll.types(sentences, found)
    if found == conll.PLAIN:
        model_scheme = conll.PLAIN
    missing = sorted(set(kinds) - set(types)) if types else []
    if missing:
        raise errors.InputError(
            f"--entity_types={','.join(types)}: {sentences.path} also has "
            f"{', '.join(missing)}"
        )
    if not kinds:
        raise errors.InputError(f"{sentences.path}: no word has a tag but O")
    logging.info("%s: %s, %s", sentences.path, found, ", ".join(kinds))
    if found == conll.PLAIN and len(kinds) == 1:
        logging.warning("%s: all words are %s", sentences.path, kinds[0])
    return conll.labels(types or kinds, model_scheme)


def prepare(
    data: NerData,
    split: str,
    tokenizer: Tokenizer,
    context: Context,
    *,
    records_dir: str | None,
) -> Features:
    """Returns the features of a set, from its records if they are current.

    Args:
      data: has the set.
      split: which one.
      tokenizer: of the model.
      context: lays out the windows.
      records_dir: where records are kept, or None for nowhere.
    """
    sentences = data.words(data.read(split))
    label_ids = data.label_ids(split)

    def make() -> Features:
        return ner_windows.encode(
            tokenizer, sentences, label_ids, **dataclasses.asdict(context)
        )

    if records_dir is None:
        return make()
    job = {
        "task": "tagging",
        "words": data.digest_of_words(split),
        "labels": list(data.labels),
        "tokenizer": features.tokenizer_job(tokenizer),
        "context": dataclasses.asdict(context),
    }
    kind = schema.tagging(context.max_seq_length)
    path = f"{records_dir}/{_RECORDS[split]}.tf_record"
    return features.prepare(path, kind, job, make)


def digest(sentences: conll.Sentences) -> str:
    """Returns the SHA-256 of what a set says, wherever it was read from."""
    columns = [
        list(sentences.words),
        sentences.tags,
        sentences.row_splits.tolist(),
        sentences.documents.tolist(),
    ]
    text = json.dumps(columns, ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


# ----------------------------------------------------------------------
# Gives lines in capitals the case that words have elsewhere.
#
#     SOCCER - JAPAN GET LUCKY WIN  ->  soccer - Japan get lucky win
#
# Headlines in capitals tell nothing of which words are names; cased models lose
# much on them. A word becomes the form that it most often has in the training
# set, inside of sentences that are not in capitals; one that never occurs there
# is taken for a name.


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
