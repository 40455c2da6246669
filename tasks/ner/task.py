"""Tagging of words: named entities, parts of speech.

predictions_<split>.txt   CoNLL's columns, as conlleval reads them (with
                          tabs, if the file has them: conlleval -d '\\t')
scores_<split>.txt        the output of conlleval
entities.jsonl            the entities of raw text, an object for each line
"""

import collections
import dataclasses
import functools
import itertools
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from data import schema, text_files
from finetuning import given_model, typed
from finetuning import task as tasks
from foundation import errors, file_system
from tasks.ner import raw_text, tag_spans, tagging, windowing, word_files
from tasks.ner.settings import NerFlags
from tasks.ner.word_files import Tags, Text
from weights import task_files

TEXT = "test_text"  # The set of --text_file.
_MOST_WORDS_SHOWN = 20
# A value of --features -> the layers of an encoder whose last is L.
_LAYERS: Mapping[str, Callable[[int], Sequence[int]]] = {
    "embeddings": lambda last: [0],
    "second_to_last": lambda last: [last - 1],
    "last": lambda last: [last],
    "weighted_sum_last_four": lambda last: range(last - 3, last + 1),
    "concat_last_four": lambda last: range(last - 3, last + 1),
    "weighted_sum_all": lambda last: range(1, last + 1),
}


def layers_of(features: str, last: int) -> Sequence[int]:
    """Returns the layers that --features reads; 0 is the embeddings.

    Args:
      features: value of the flag.
      last: the last layer of the encoder.

    Raises:
      InputError: the encoder has too few layers.
    """
    layers = _LAYERS[features](last)
    if layers[0] < min(len(layers) - 1, 1):
        raise errors.InputError(
            f"--features={features}: the model has only {last} layer(s)"
        )
    return layers


class Ner(tasks.Task):
    """A tag for each word; see Task."""

    Flags = NerFlags
    cuts = False
    token_targets = ("label_ids",)
    score_note = (
        "The score is conlleval's F1 of all types, or the accuracy of tags "
        "that are no spans."
    )

    def __init__(self, flags: NerFlags, model: given_model.GivenModel):
        """See Task."""
        self.flags, self.model = flags, model
        if self.has_crf or flags.is_frozen:
            self.token_inputs = ("words",)
        if flags.is_frozen:
            layers_of(flags.features, model.config.num_hidden_layers)
        super().__init__(flags, model)

    @functools.cached_property
    def has_crf(self) -> bool:
        """Whether the model has a CRF."""
        folder = self.model.record.directory
        is_new = self.flags.do_train or self.model.unfinished_dir is not None
        if is_new or self.flags.crf <= tagging.has_crf(folder):
            return self.flags.crf if is_new else tagging.has_crf(folder)
        raise errors.InputError(
            f"--crf: no {task_files.CRF} in {folder}; the flag applies to "
            "training"
        )

    @property
    def title(self) -> str:  # type: ignore[override]
        """See Task: the kind of the tags and their data."""
        path = self.flags.data_dir or next(iter(self.sets.values())).path
        kind = "tags of words" if self.is_plain else "named entities"
        return f"{kind}: {os.path.basename(path.rstrip('/'))}"

    # From files to numbers.

    def names(self, split: str) -> Sequence[str]:
        """See Task: a test set, raw text, or both."""
        if split != "test":
            return [split]
        text = [TEXT] if self.flags.text_file else []
        names = ([split] if self.flags.find(split) else []) + text
        if not names:
            raise errors.InputError(
                "--do_predict needs --test_file or --text_file"
            )
        return names

    def open(self, split: str) -> tasks.Examples:
        """See Task."""
        flags = self.flags
        if split == TEXT:
            paths = text_files.find_all(flags.text_file, ["txt"])
            shown = paths[0] if len(paths) == 1 else flags.text_file
            return tasks.Examples(shown, lambda: _read_text(paths))
        name = flags.find(split)
        if name is None:
            raise errors.InputError(f"--{split}_file is required")
        endings = ("txt", "conll", *(x[1:] for x in word_files.TABLES))
        paths = text_files.find_all(name, endings)

        def read() -> Iterator[Text]:
            for path in paths:
                yield from word_files.read(path, flags.columns)

        scheme = flags.tag_scheme
        if scheme == "auto":
            scheme = tag_spans.recognize(
                y for x in read() for y in x.tags or ()
            )
        return tasks.Examples(
            paths[0] if len(paths) == 1 else name,
            functools.partial(self._texts, read, scheme),
        )

    def _texts(
        self, read: Callable[[], Iterator[Text]], scheme: str
    ) -> Iterator[Text]:
        """Yields sentences, or documents if windows are filled with them."""
        document: list[Text] = []
        for sentence in read():
            if self.flags.windows.has_context and not sentence.opens:
                if not document:
                    raise errors.InputError(
                        f"{sentence.where}: --document_context needs "
                        f"{word_files.DOCUMENT} lines where documents begin"
                    )
            elif document:
                yield _joined(document, scheme)
                document = []
            document.append(sentence)
        if document:
            yield _joined(document, scheme)

    @property
    def is_plain(self) -> bool:
        """Whether tags do not mark spans."""
        schemes = (self.flags.tag_scheme, tag_spans.scheme_of(self.labels))
        return tag_spans.PLAIN in schemes

    def find_labels(self) -> Sequence[str]:
        """See Task: all tags of the model's scheme for the types."""
        start, flags = self.model.start, self.flags
        known = task_files.ModelClasses(
            labels=self.model.labels,
            problem_type=None,
            num_outputs=None
            if self.model.unfinished_dir or flags.is_frozen
            else start.num_outputs,
        )
        if flags.do_train:
            labels = self._labels_of(self.sets["train"])
            return known.ordered(labels, trains=True)
        known.check(can_be_named=False)
        if known.names is None and flags.train_file is not None:
            labels = self._labels_of(self.open("train"))
            known.warn_of_order(labels)
            return labels
        if known.labels is None:
            raise errors.InputError(
                f"{self.model.weights}: the model does not name its labels: "
                'correct "id2label" in its config.json, or give the '
                "--train_file of its training"
            )
        return known.labels

    def _labels_of(self, train: tasks.Examples) -> list[str]:
        """Returns the labels of a model that is trained on a set."""
        scheme, found = train.summary.first.scheme, train.summary.labels
        if None in found:
            raise errors.InputError(f"{train.path}: has no column of tags")
        kinds: set[str] = set()
        for tag in found:
            try:
                kinds |= {tag_spans.type_of(tag, scheme) or ""} - {""}
            except errors.InputError as error:
                where = next(x.where for x in train if tag in x.label)
                raise errors.InputError(f"{where}: {error}") from error
        if not kinds:
            raise errors.InputError(f"{train.path}: all tags are O")
        types = {*(self.flags.entity_types or kinds)}
        if missing := sorted(kinds - types):
            raise errors.InputError(
                f"--entity_types={','.join(sorted(types))}: {train.path} also "
                f"has {', '.join(missing)}"
            )
        if scheme != tag_spans.PLAIN:
            scheme = self.flags.model_scheme
        return tag_spans.labels(types, scheme)

    def check(self, example: Text) -> None:
        """See Task."""
        if example.tags is None:
            raise errors.InputError(f"{example.where}: has no column of tags")
        self.target(example)

    def target(self, example: Text) -> list[int]:
        """Returns the number of the label of each word."""
        assert example.tags is not None and example.label is not None
        scheme = tag_spans.scheme_of(self.labels)
        if tag_spans.PLAIN in (example.scheme, self.flags.tag_scheme):
            scheme = tag_spans.PLAIN
        tags = [
            y for x in example.tags for y in tag_spans.convert_tags(x, scheme)
        ]
        numbers = {label: i for i, label in enumerate(self.labels)}
        words = itertools.chain.from_iterable(example.sentences)
        for word, tag, ours in zip(words, example.label, tags, strict=True):
            if ours not in numbers:
                raise errors.InputError(
                    f"{example.where}: tag {tag!r} of {word!r} is none of: "
                    f"{errors.listed(self.labels)}"
                )
        return [numbers[tag] for tag in tags]

    def encode(self, example: Text) -> list[windowing.Window]:
        """See Task."""
        return windowing.encode(
            self.tokenizer, example.sentences, self.flags.windows
        )

    def targets(
        self, example: Text, sequences: Sequence[windowing.Window]
    ) -> Sequence[Mapping[str, Any]]:
        """See Task; -1 where no word is predicted."""
        labels, rows = np.array(self.target(example)), []
        for window in sequences:
            row, positions = np.full(len(window.ids), -1), window.positions
            first = window.first
            row[positions] = labels[first : first + len(positions)]
            rows.append({"label_ids": row})
        return rows

    def size(self, example: Text) -> int:
        """See Task: the number of sentences."""
        return len(example.sentences)

    def records(self, split: str) -> schema.Schema:
        """See Task."""
        length = self.flags.max_seq_length
        inputs = [schema.Feature(x, (length,)) for x in self.token_inputs]
        records = schema.tagging(length)
        return dataclasses.replace(
            records, features=(*records.features, *inputs)
        )

    @property
    def settings(self) -> dict[str, Any]:
        """See Task."""
        windows = dataclasses.asdict(self.flags.windows)
        return {**super().settings, **windows, "crf": self.has_crf}

    # What was read, as it was understood.

    def show(self, split: str) -> None:
        """See Task; a test set with unknown tags is refused here."""
        if split == "test":
            examples = self.sets[split]
            for example in () if None in examples.summary.labels else examples:
                self.check(example)
        super().show(split)

    def shown(self, example: Text) -> str:
        """See Task: words with their tags."""
        words = list(itertools.chain(*example.sentences))
        tags = example.label or [""] * len(words)
        pairs = zip(words, tags, strict=True)
        shown = [f"{word} {tag}" if tag else word for word, tag in pairs]
        rest = len(shown) - _MOST_WORDS_SHOWN
        more = f", ... ({rest} more)" if rest > 0 else ""
        return ", ".join(shown[:_MOST_WORDS_SHOWN]) + more

    def shares(self, summary: tasks.Summary) -> str:
        """See Task: the types of the tags."""
        words = summary._replace(labels=self._words_of(summary))
        return f"{super().shares(words)} of {words.labels.total():,} words"

    def _words_of(self, summary: tasks.Summary) -> collections.Counter[str]:
        """Returns the number of words of each type, and of O."""
        counts: collections.Counter[str] = collections.Counter()
        for tag, count in summary.labels.items():
            kind = tag and tag_spans.type_of(tag, summary.first.scheme)
            counts[kind or tag] += count
        return counts

    def remarks(self, examples: tasks.Examples) -> Iterator[str]:
        """See Task; whatever is written instead of O would be a type."""
        yield from super().remarks(examples)
        summary = examples.summary
        is_plain = summary.first.scheme == tag_spans.PLAIN
        is_new = examples is self.sets.get("train")
        if not is_new or self.flags.tag_scheme == tag_spans.PLAIN:
            return
        counts = self._words_of(summary)
        if tag_spans.OUTSIDE in counts:
            if is_plain:
                yield (
                    "no tag has a prefix as in B-PER, so every tag is a class, "
                    "O too, and there are no spans; --tag_scheme=plain if that "
                    "is right"
                )
        elif {*counts} != {tag_spans.UNTYPED}:
            kind, _ = counts.most_common(1)[0]
            names = "; --tag_names=NAME,... names integers"
            yield (
                f"no word has the tag O. The most frequent type, {kind!r}, is "
                "probably that of words outside of entities: write O there"
                f"{names if kind.isdecimal() else ''}; --tag_scheme=plain if "
                f"every tag is a class. The types: {self.shares(summary)}"
            )

    # With TensorFlow.

    def head(self) -> Any:
        """See Task."""
        from tasks.ner import heads

        flags = self.flags
        if flags.is_frozen:
            folder = os.path.join(flags.output_dir, "activations")
            return heads.FrozenTags(
                self.labels,
                layers_of(flags.features, self.model.config.num_hidden_layers),
                None if flags.loop.dry_run else folder,
                is_mixed=flags.features.startswith("weighted_sum"),
                size=flags.lstm_size,
                rate=flags.lstm_dropout,
            )
        return heads.head_of(
            self.labels, has_crf=self.has_crf, is_plain=self.is_plain
        )

    def teacher_head(self, teacher: given_model.GivenModel) -> Any:
        """See Task; the logits of a CRF are no distributions of tags."""
        if tagging.has_crf(teacher.record.directory):
            raise errors.InputError(
                f"--teacher_dir={teacher.weights}: has a CRF, whose logits are "
                "no probabilities of tags"
            )
        return self.head()

    # From outputs to results.

    def files(self, split: str) -> Mapping[str, tasks.Layout]:
        """See Task."""
        if split == TEXT:
            return {"entities.jsonl": tasks.Layout("entities")}
        return {f"predictions_{split}.txt": tasks.Layout("lines")}

    def tag(
        self, encoded: tasks.Encoded, outputs: Mapping[str, np.ndarray]
    ) -> "Tagged":
        """Returns the tags of some examples from the outputs of the head."""
        logits = outputs.get("logits", np.zeros((0, len(self.labels))))
        if not self.flags.is_frozen:
            marks = [x.words for y in encoded.sequences for x in y]
            logits = logits[np.concatenate([np.zeros(0, int), *marks]) > 0]
        names = ("transitions", "start", "end")
        scores = {x: outputs[x] for x in names} if self.has_crf else None
        lengths = [len(x) for text in encoded.examples for x in text.sentences]
        tags = iter(tagging.best_tags(logits, lengths, self.labels, scores))
        return Tagged(
            encoded.examples,
            [
                list(itertools.islice(tags, len(text.sentences)))
                for text in encoded.examples
            ],
            logits,
        )

    def decode(
        self, encoded: tasks.Encoded, outputs: Mapping[str, np.ndarray]
    ) -> dict[str, bytes]:
        """See Task."""
        tagged = self.tag(encoded, outputs)
        if tagged.texts[0].line is not None:
            entities = zip(tagged.texts, self.entities(tagged), strict=True)
            lines = (
                json.dumps({"text": x.line, "entities": y}, ensure_ascii=False)
                for x, y in entities
            )
            return {"entities": "".join(f"{x}\n" for x in lines).encode()}
        parts = {"lines": "".join(map(self._lines, *tagged[:2])).encode()}
        if tagged.texts[0].tags is not None:
            record = [
                float(self.losses(tagged).sum()),
                *self.scores(*tagged[:2]),
            ]
            parts["scores"] = f"{json.dumps(record)}\n".encode()
        return parts

    def entities(self, tagged: "Tagged") -> list[list[dict[str, Any]]]:
        """Returns the entities of each line of raw text."""
        tags = list(itertools.chain.from_iterable(tagged.tags))
        return raw_text.find_entities(
            [text.line or "" for text in tagged.texts],
            [text.places for text in tagged.texts],
            tags,
            tagging.probabilities(tagged.logits, tags, self.labels),
            is_plain=self.is_plain,
        )

    def losses(self, tagged: "Tagged") -> np.ndarray:
        """Returns float64 [W], the cross entropy of each word."""
        targets = np.concatenate([self.target(x) for x in tagged.texts])
        return tagging.word_losses(tagged.logits, targets)

    def written(
        self, text: Text, tags: Sequence[Sequence[str]]
    ) -> list[list[str]]:
        """Returns tags in the scheme in which they are written and compared.

        It is BIO2 for IOBES, because conlleval ignores S-; else that of the
        file. A stray I- or BILOU's L- in the file is converted as well:
        predictions have none.
        """
        scheme = text.scheme
        if self.is_plain:
            scheme = tag_spans.PLAIN
        elif scheme == tag_spans.IOBES:
            scheme = tag_spans.BIO2
        return [tag_spans.convert_tags(x, scheme) for x in tags]

    def scores(
        self, texts: Sequence[Text], predicted: Sequence[Tags]
    ) -> tag_spans.Scores:
        """Returns the scores of the tags of texts that have tags."""
        pairs = list(zip(texts, predicted, strict=True))
        return tag_spans.score(
            [y for x, _ in pairs for y in self.written(x, x.tags or ())],
            [y for x, tags in pairs for y in self.written(x, tags)],
            boundaries=0 if self.is_plain else sum(x.opens for x in texts),
            is_plain=self.is_plain,
        )

    def _lines(self, text: Text, predicted: Tags) -> str:
        """Returns the lines of words, their tags and the predicted ones."""
        sides = [text.sentences]
        sides += [] if text.tags is None else [self.written(text, text.tags)]
        sides.append(self.written(text, predicted))
        return "".join(
            word_files.lines(
                columns, text.separator, opens=text.opens and number == 0
            )
            for number, columns in enumerate(zip(*sides, strict=True))
        )

    def finish(
        self, examples: tasks.Examples, part: Callable[[str], bytes]
    ) -> tasks.Evaluation:
        """See Task."""
        split = next(k for k, x in self.sets.items() if x is examples)
        if split == TEXT or None in examples.summary.labels:
            return tasks.Evaluation()
        scores, loss = tag_spans.Scores(), 0.0
        for block_loss, *counts in map(json.loads, part("scores").splitlines()):
            loss += block_loss / examples.summary.labels.total()
            scores = scores.plus(counts)
        if self.is_plain:
            values, score = scores.plain_values(), scores.accuracy
            text = "".join(f"{k}: {100 * x:.2f}%\n" for k, x in values.items())
        else:
            # All types of the model, so that all runs have the same metrics.
            types = {tag_spans.split_tag(x)[1] for x in self.labels} - {""}
            values, score = scores.values(types), scores.total.f1
            text = scores.text()
        return tasks.Evaluation(
            values={**values, "score": score, "loss": loss},
            files={f"scores_{split}.txt": text.encode()},
            by_label=[
                [kind, x.true, x.found, x.precision, x.recall, x.f1]
                for kind, x in scores.by_type.items()
            ],
        )

    def evaluate(
        self,
        examples: tasks.Examples,
        encoded: tasks.Encoded,
        outputs: Mapping[str, np.ndarray],
    ) -> tasks.Evaluation:
        """See Task; the predictions of the development set are a file, too."""
        parts = self.decode(encoded, outputs)
        evaluation = self.finish(examples, parts.__getitem__)
        files = {**evaluation.files, "predictions_dev.txt": parts["lines"]}

        def make_sections() -> list[Any]:
            from tasks.ner import sections

            return sections.make(self, self.tag(encoded, outputs), evaluation)

        return dataclasses.replace(
            evaluation, files=files, sections=make_sections
        )

    def end(self, network: Any) -> None:
        """See Task: shows the entities of each line of standard input."""
        if not self.flags.interactive:
            return
        if sys.stdin.isatty():
            sys.stderr.write("Type a text; Ctrl-D ends.\n")
        where = "standard input"
        lines = typed.lines(sys.stdin, sys.stdout)
        for number, line in enumerate(lines, 1):
            typed_text = file_system.decode(line, where, number).rstrip("\r\n")
            text = _of_line(f"{where}:{number}", typed_text)
            encoded = tasks.Encoded(self, [text])
            outputs = network.predict(
                encoded.features, self.flags.predict_batch_size, pads=False
            )
            (entities,) = self.entities(self.tag(encoded, outputs))
            sys.stdout.write(f"{raw_text.marked(typed_text, entities)}\n")
            sys.stdout.flush()


class Tagged(NamedTuple):
    """Some texts with predicted tags, and the logits float [W, C] of words."""

    texts: Sequence[Text]
    tags: Sequence[Tags]
    logits: np.ndarray


def _joined(document: Sequence[Text], scheme: str) -> Text:
    """Returns the sentences of a document as one text."""
    tags = tuple(y for x in document for y in x.tags or ())
    return document[0]._replace(
        sentences=tuple(y for x in document for y in x.sentences),
        tags=tags or None,
        scheme=scheme,
    )


def _read_text(paths: Sequence[str]) -> Iterator[Text]:
    """Yields the lines of raw text."""
    for path in paths:
        for number, line in text_files.lines(path):
            yield _of_line(f"{path}:{number}", line.rstrip("\r"))


def _of_line(where: str, line: str) -> Text:
    places = raw_text.split(line)
    words = raw_text.words(line, places)
    return Text(where, words, line=line, places=places)
