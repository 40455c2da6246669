"""The files of a tagging command, their tags, and the labels of its model."""

import dataclasses
import functools
import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from absl import logging

from data import features, schema, text_files
from data.features import Features
from data.tokenization.wordpiece import Tokenizer
from foundation import errors, file_system
from tasks.ner import settings, tag_spans, windowing, word_files
from weights import task_files

TRAIN, DEV, TEST = "train", "dev", "test"
_CONLL_2003 = {TRAIN: "eng.train", DEV: "eng.testa", TEST: "eng.testb"}
# Other common names of files, and their endings.
_STEMS = {
    TRAIN: ("train",),
    DEV: ("dev", "valid", "validation"),
    TEST: ("test",),
}
_ENDINGS = (".txt", ".conll", *word_files.TABLE_FORMS)
# Several tags for one word, as in B-PER|I-ORG.
_SEVERAL = re.compile(r".[|/,;+ ][BIESLUM]-.")
_SHOWN = 20  # Types in a remark.
_CHECKED_AT_ONCE = 1024  # Sentences.
_RECORDS = {TRAIN: "train", DEV: "eval", TEST: "predict"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Files:
    """The files of the splits, which flags name."""

    flags: settings.Files
    _read: dict[str, word_files.Sentences] = dataclasses.field(
        default_factory=dict, init=False
    )

    def find(self, split: str) -> str | None:
        """Returns the file of a split; None if there is none."""
        path = getattr(self.flags, f"{split}_file")
        if path is not None:
            return path
        if self.flags.data_dir is None:
            return None
        names = [_CONLL_2003[split]]
        names += [x + ending for ending in _ENDINGS for x in _STEMS[split]]
        paths = [
            os.path.join(self.flags.data_dir, name + compressed)
            for name in names
            for compressed in ("", *file_system.COMPRESSED)
        ]
        found = list(filter(file_system.exists, paths))
        if len(found) > 1:
            errors.warn_once(
                f"{found[0]} is the {split} set, not "
                f"{errors.listed(found[1:])}; --{split}_file chooses another"
            )
        return found[0] if found else None

    def read(self, split: str) -> word_files.Sentences:
        """Reads the file of a split, once."""
        if split not in self._read:
            (sentences,) = self._read_file(split, self._require(split), None)
            self._read[split] = sentences
        return self._read[split]

    def read_blocks(
        self, split: str, block_sentences: int
    ) -> Iterator[word_files.Sentences]:
        """Reads the files of a split in blocks, as read_column_blocks does."""
        endings = [ending[1:] for ending in _ENDINGS]
        for path in text_files.find_all(self._require(split), endings):
            yield from self._read_file(split, path, block_sentences)

    def _require(self, split: str) -> str:
        path = self.find(split)
        if path is not None:
            return path
        if self.flags.data_dir is None:
            raise errors.InputError(f"--{split}_file is required")
        stems = " or ".join(_STEMS[split])
        folder = self.flags.data_dir
        raise errors.InputError(
            f"{folder} has no {_CONLL_2003[split]}, and no {stems} "
            f"ending in {', '.join(_ENDINGS)}; name the file with "
            f"--{split}_file"
        )

    def _read_file(
        self, split: str, path: str, block_sentences: int | None
    ) -> Iterator[word_files.Sentences]:
        flags = self.flags
        has_tags = split != TEST or flags.test_has_tags
        names = flags.tag_names and word_files.read_tag_names(flags.tag_names)
        if word_files.table_form(path) is None:
            tag_column = -1 if flags.tag_column is None else flags.tag_column
            return word_files.read_column_blocks(
                path,
                word_column=flags.word_column or 0,
                tag_column=tag_column if has_tags else None,
                tag_names=names,
                block_sentences=block_sentences,
            )
        fields = word_files.Fields(
            tokens=flags.tokens_field or "tokens",
            tags=(flags.tags_field or "ner_tags") if has_tags else None,
            is_optional=split == TEST,
            tag_names=names,
        )
        return word_files.read_table_blocks(
            path, fields, block_sentences=block_sentences
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Summary:
    """The properties of a set, without its words.

    Attributes:
      path: the file.
      digest: the SHA-256 of its words and tags as CoNLL's columns.
      num_sentences: number of sentences.
      num_words: number of words.
      scheme: the scheme of the tags.
      has_tags: whether it has tags.
      has_documents: whether it has -DOCSTART- lines.
    """

    path: str
    digest: str
    num_sentences: int
    num_words: int
    scheme: str
    has_tags: bool
    has_documents: bool


@dataclasses.dataclass(frozen=True, eq=False)
class TaggedSet:
    """The sentences of a file, with tags unless the file has none.

    Attributes:
      sentences: the sentences as they are in the file.
      labels: the model's labels.
      scheme: the scheme of the file's tags.
    """

    sentences: word_files.Sentences
    labels: Sequence[str]
    scheme: str

    @functools.cached_property
    def label_ids(self) -> np.ndarray | None:
        """The tags as int64 [W]; None if there are none."""
        if self.sentences.tags is None:
            return None
        return word_files.encode_tags(self.sentences, self.scheme, self.labels)

    @property
    def written_scheme(self) -> str:
        """The scheme in which tags are compared and written.

        BIO2 for IOBES, because conlleval ignores S-; else the scheme of the
        file.
        """
        return tag_spans.BIO2 if self.scheme == tag_spans.IOBES else self.scheme

    @functools.cached_property
    def written(self) -> word_files.Sentences:
        """The sentences with their tags in written_scheme.

        Predictions have only tags of that scheme, so a stray I- or BILOU's L-
        would count as an error.
        """
        if self.sentences.tags is None:
            return self.sentences
        tags = self.convert(self.sentences.tags)
        return dataclasses.replace(self.sentences, tags=tags)

    def convert(self, tags: Sequence[str]) -> list[str]:
        """Returns W tags in written_scheme."""
        return word_files.convert(self.sentences, tags, self.written_scheme)

    @functools.cached_property
    def digest(self) -> str:
        """The SHA-256 of words, tags, sentences and documents in the file."""
        columns = [
            list(self.sentences.words),
            self.sentences.tags,
            self.sentences.row_splits.tolist(),
            self.sentences.documents.tolist(),
        ]
        text = json.dumps(columns, ensure_ascii=True)
        return hashlib.sha256(text.encode("ascii")).hexdigest()

    @property
    def summary(self) -> Summary:
        """The set without its words."""
        sentences = self.sentences
        return Summary(
            path=sentences.path,
            digest=self.digest,
            num_sentences=len(sentences),
            num_words=len(sentences.words),
            scheme=self.scheme,
            has_tags=sentences.tags is not None,
            has_documents=sentences.has_documents,
        )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class NerData:
    """The sets of a command.

    Attributes:
      files: where the sets are.
      labels: the model's labels, in the order of its outputs.
      scheme: the scheme of the files' tags; None recognizes it.
      text: raw text to find entities in, if any.
    """

    files: Files
    labels: Sequence[str]
    scheme: str | None
    text: text_files.Lines | None = None
    _sets: dict[str, TaggedSet] = dataclasses.field(
        default_factory=dict, init=False
    )

    def has(self, split: str) -> bool:
        """Returns whether there is a file of a split."""
        return self.files.find(split) is not None

    @functools.cached_property
    def is_plain(self) -> bool:
        """Whether tags do not mark spans."""
        return tag_spans.PLAIN in (
            self.scheme,
            tag_spans.scheme_of(self.labels),
        )

    @property
    def types(self) -> list[str]:
        """The types of entities; for plain tags, the labels."""
        if self.is_plain:
            return list(self.labels)
        kinds = {tag_spans.split_tag(label)[1] for label in self.labels}
        return sorted(kinds - {""})

    def split(self, name: str) -> TaggedSet:
        """Returns a set by the name of its split."""
        if name not in self._sets:
            sentences = self.files.read(name)
            scheme = tag_spans.PLAIN if self.is_plain else self.scheme
            if scheme is None:
                scheme = tag_spans.BIO2
                if sentences.tags is not None:
                    scheme = word_files.scheme(sentences)
            self._sets[name] = TaggedSet(sentences, self.labels, scheme)
        return self._sets[name]

    def summary(self, name: str) -> Summary:
        """Returns the properties of a set by the name of its split."""
        return self.test if name == TEST else self.split(name).summary

    def blocks(self, block_sentences: int) -> Iterator[TaggedSet]:
        """Yields the test set in blocks; see Files.read_blocks."""
        scheme = self.test.scheme
        for sentences in self.files.read_blocks(TEST, block_sentences):
            yield TaggedSet(sentences, self.labels, scheme)

    @functools.cached_property
    def test(self) -> Summary:
        """The properties of the test set; checks all of its tags."""
        tags, digest = tag_spans.TagStatistics(), hashlib.sha256()
        num_sentences = num_words = 0
        kinds = set()
        scheme_of_all = tag_spans.PLAIN if self.is_plain else self.scheme
        for sentences in self.files.read_blocks(TEST, _CHECKED_AT_ONCE):
            columns = []
            kinds.add((sentences.tags is not None, sentences.has_documents))
            if len(kinds) > 1:
                raise errors.InputError(
                    f"{sentences.path}: has tags or {word_files.DOCUMENT} "
                    "lines unlike the file before"
                )
            if sentences.tags is not None:
                tags.add(sentences.split(sentences.tags))
                # Whether tags are known does not depend on the scheme, except
                # for plain tags.
                scheme = scheme_of_all or tag_spans.BIO2
                word_files.encode_tags(sentences, scheme, self.labels)
                columns.append(sentences.tags)
            for line in word_files.write(sentences, columns):
                digest.update(line.encode("utf-8"))
            num_sentences += len(sentences)
            num_words += len(sentences.words)
        path = self.files.find(TEST)
        assert path is not None
        return Summary(
            path=path,
            digest=digest.hexdigest(),
            num_sentences=num_sentences,
            num_words=num_words,
            scheme=scheme_of_all or tags.scheme,
            has_tags=sentences.tags is not None,
            has_documents=sentences.has_documents,
        )


def open_data(
    flags: settings.Files,
    *,
    tag_scheme: str,
    model_scheme: str,
    types: Sequence[str] = (),
    text_file: str | None = None,
    known_labels: Sequence[str] | None,
    num_outputs: int | None = None,
    trains: bool,
) -> NerData:
    """Opens the sets of a command.

    Args:
      flags: the files.
      tag_scheme: the scheme of the files' tags, or "auto".
      model_scheme: the scheme of a new model's labels: bio2 or iobes.
      types: types of entities; by default those of the training set.
      text_file: raw text to find entities in, if any.
      known_labels: the labels of the trained model, or of the model that
        training starts from; None if they are unknown.
      num_outputs: number of outputs of that model's head; None if it is
        unknown.
      trains: whether a new model is trained. If it has the same labels as the
        model to start from, it keeps their order.

    Raises:
      InputError: the labels of a trained model are unknown, or do not fit its
        head.
    """
    files = Files(flags=flags)
    scheme = None if tag_scheme == "auto" else tag_scheme
    classes = task_files.ModelClasses(
        labels=known_labels, problem_type=None, num_outputs=num_outputs
    )
    if not trains:
        classes.check(can_be_named=False)
    if trains:
        labels_of_set = _find_labels(
            files.read(TRAIN), scheme, model_scheme, types
        )
        labels = classes.in_model_order_if_same(labels_of_set)
    elif classes.names is not None:
        labels = classes.names
    elif files.find(TRAIN) is not None:
        labels = _find_labels(files.read(TRAIN), scheme, model_scheme, types)
        logging.warning(
            "the model does not name its labels. Assumed, as of a model that "
            "was trained here: %s. Other projects use other orders: correct "
            '"id2label" in its config.json',
            ", ".join(f"{i} is {label}" for i, label in enumerate(labels)),
        )
    elif classes.labels is not None:
        labels = classes.labels
    else:
        raise errors.InputError(
            'the model does not name its labels: add "id2label" to its '
            "config.json, or give the --train_file of its training"
        )
    data = NerData(
        files=files,
        labels=list(labels),
        scheme=scheme,
        text=text_files.open_lines(text_file) if text_file else None,
    )
    if types and set(types) != set(data.types):
        raise errors.InputError(
            f"--entity_types={','.join(types)}: the model has "
            f"{', '.join(data.types)}; the flag applies to training"
        )
    return data


def _find_labels(
    sentences: word_files.Sentences,
    scheme: str | None,
    model_scheme: str,
    types: Sequence[str],
) -> list[str]:
    """Returns the labels of a new model from its training set."""
    tag_scheme = scheme or word_files.scheme(sentences)
    kinds = word_files.types(sentences, tag_scheme)
    if tag_scheme == tag_spans.PLAIN:
        model_scheme = tag_spans.PLAIN
    missing = sorted(set(kinds) - set(types)) if types else []
    if missing:
        raise errors.InputError(
            f"--entity_types={','.join(types)}: {sentences.path} also has "
            f"{', '.join(missing)}"
        )
    if not kinds:
        raise errors.InputError(f"{sentences.path}: all tags are O")
    logging.info("%s: %s, %s", sentences.path, tag_scheme, ", ".join(kinds))
    if tag_scheme != tag_spans.PLAIN:
        if several := next(filter(_SEVERAL.search, kinds), None):
            logging.warning(
                "%s: %r is taken for one type of entities; a word has one tag",
                sentences.path,
                several,
            )
    if scheme != tag_spans.PLAIN:
        _remark_on_outside(sentences, tag_scheme)
    return tag_spans.labels(types or kinds, model_scheme)


def _remark_on_outside(sentences: word_files.Sentences, scheme: str) -> None:
    """Logs one line if words outside of entities are probably not tagged O."""
    tags = Counter(sentences.tags)
    if tag_spans.OUTSIDE in tags:
        if scheme == tag_spans.PLAIN:
            logging.warning(
                "%s: no tag has a prefix as in B-PER, so every tag is a class, "
                "O too, and there are no spans; --tag_scheme=plain if that is "
                "right",
                sentences.path,
            )
        return
    words: Counter[str] = Counter()
    for tag, count in tags.items():
        words[tag_spans.type_of(tag, scheme) or tag] += count
    if {*words} == {tag_spans.UNTYPED}:
        return
    shares = [
        f"{kind} {100 * count / words.total():.0f} %"
        for kind, count in words.most_common()
    ]
    if len(shares) > _SHOWN:
        shares[_SHOWN:] = ["..."]
    first = max(words, key=words.__getitem__)
    names = "; --tag_names=NAME,... names integers"
    logging.warning(
        "%s: no word has the tag O. The most frequent type, %r, is probably "
        "that of words outside of entities: write O there%s; "
        "--tag_scheme=plain if every tag is a class. The types: %s",
        sentences.path,
        first,
        names if first.isdecimal() else "",
        ", ".join(shares),
    )


def check(
    data: NerData, splits: Sequence[str], windows: settings.WindowSettings
) -> None:
    """Raises InputError if a set lacks tags or documents that it needs.

    Args:
      data: the sets.
      splits: the splits that are read; TEST needs no tags.
      windows: how words are arranged in windows.
    """
    for name in splits:
        split = data.split(name)
        path = split.sentences.path
        if split.label_ids is None and name != TEST:
            raise errors.InputError(f"{path}: has no column of tags")
        if windows.has_context:
            windowing.check_documents(path, split.sentences.has_documents)


def note_lost_capitals(
    sentences: word_files.Sentences, tokenizer: Tokenizer
) -> None:
    """Logs that a lower-casing tokenizer drops the capitals of most names."""
    if not tokenizer.settings["do_lower_case"] or sentences.tags is None:
        return
    pairs = zip(sentences.words, sentences.tags, strict=True)
    names = [word for word, tag in pairs if tag != "O"]
    if sum(word[0].isupper() for word in names) > len(names) / 2:
        logging.info(
            "the model lower-cases all text; a cased one, such as "
            "google-bert/bert-base-cased, recognizes names by their capitals"
        )


def prepare(
    split: TaggedSet,
    name: str,
    tokenizer: Tokenizer,
    windows: settings.WindowSettings,
    *,
    records_dir: str | None,
) -> Features:
    """Returns the features of a set, from its records if they are current.

    Args:
      split: the set.
      name: name of the split.
      tokenizer: the model's tokenizer.
      windows: how words are arranged in windows.
      records_dir: the directory of the records; None for no records.
    """
    cache = features.FeatureCache(
        records_dir,
        _RECORDS[name],
        schema.tagging(windows.max_seq_length),
        tokenizer,
        {
            "task": "tagging",
            "words": split.digest,
            "labels": list(split.labels),
            "context": windows.values,
        },
    )
    encoded = cache.read()
    if encoded is None:
        with cache.notice():
            encoded = windowing.encode(
                tokenizer, split.sentences, split.label_ids, windows
            )
        cache.write(encoded)
    return encoded
