"""Sentence tasks: the label of each text or pair of texts.

    eval_results.txt    metrics of the development sets
    report.html         confusions, metrics by label, largest errors
    test_results.tsv    probabilities [N, C], tab-separated, no header
    predictions.tsv     id, predicted label, probability of each label, of own
                        tables the texts, with a header; cells with tabs or
                        line ends are quoted
    scores_test.txt     metrics of a test set that has labels
    swag_submission.csv number of the predicted ending

Files of a second set end in its name, as in predictions_mismatched.tsv.
"""

import csv
import dataclasses
import functools
import io
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from data import schema, text_files
from finetuning import given_model
from finetuning import task as tasks
from foundation import errors
from tasks.classification import label_kinds, labels, submission, tables
from tasks.classification.settings import ClassifierFlags
from tasks.classification.tables import DEV, TEST, TRAIN, Sentence
from weights import task_files


class Classification(labels.LabelTask):
    """The label of each text or pair: a class, several, a value, a choice.

    Attributes:
      table: the columns of the files.
    """

    Flags = ClassifierFlags

    def __init__(self, flags: ClassifierFlags, model: given_model.GivenModel):
        """See Task."""
        self.table, start = flags.table(), model.start
        names = flags.label_names
        self._known = task_files.ModelClasses(
            labels=model.labels,
            problem_type=start.settings.problem_type,
            num_outputs=None if model.unfinished_dir else start.num_outputs,
        ).with_names(
            names and [name.strip() for name in names.split(",")],
            trains=flags.do_train,
        )
        if flags.is_own_table:
            self.table = dataclasses.replace(self.table, kind=self._kind(flags))
        self.label_kind = self.table.kind
        self.metrics = self.table.metrics
        self.selected_by = self.table.selected_by
        self.has_open_labels = self.table.labels is None
        if flags.glue_submission and not self.table.submission:
            raise errors.InputError(
                f"--glue_submission: GLUE has no --task_name={flags.task_name}"
            )
        trained = model.record.flags
        of_pairs = tables.has_pairs(trained)
        if flags.is_own_table and not flags.do_train and trained:
            if of_pairs != self.table.has_pairs:
                raise errors.InputError(
                    f"--text_pair_column={flags.text_pair_column}: the model "
                    f"in {model.record.directory} was trained on "
                    f"{'pairs of texts' if of_pairs else 'single texts'}"
                )
        if self.table.kind is label_kinds.Choice:
            self.sequences = "choices"
            if flags.windows:
                raise errors.InputError(
                    f"--long_texts={flags.long_texts}: not for multiple choice"
                )
        elif flags.windows:
            self.sequences, self.cuts = "windows", False
        super().__init__(flags, model)
        if flags.class_weights is not None:
            weights = zip(self.labels, self.class_weights(), strict=True)
            texts = (f"{label} {weight:.4g}" for label, weight in weights)
            logging.info("weights of the classes: %s", ", ".join(texts))

    def _kind(self, flags: ClassifierFlags) -> type[label_kinds.OneLabel]:
        """Returns the kind of own labels: as given, else as the model's."""
        known, several = self._known, bool(self.table.flags)
        given = self.table.kind.name if several else flags.problem_type
        if flags.do_train:
            name = given or known.kind or label_kinds.OneLabel.name
        else:
            name = task_files.kind(given, known)
        return label_kinds.OF_OWN_TABLES[name]

    # From files to numbers.

    def names(self, split: str) -> Sequence[str]:
        """See Task: the main set, and MNLI's mismatched one if it is there."""
        if not self.table.files:
            return [split]
        names = [x for x in self.table.files if x.partition("_")[0] == split]
        if not names:
            raise errors.InputError(
                f"--task_name={self.flags.task_name}: has no {split} set"
            )
        if self._given(split) or not self.flags.data_dir:
            return names[:1]
        return names[:1] + [x for x in names[1:] if self._released(x)]

    def _given(self, split: str) -> str | None:
        """Returns the file that a flag such as --train_file names."""
        return getattr(self.flags, f"{split}_file", None)

    def _released(self, split: str) -> str | None:
        """Returns the released file of a set in --data_dir, if it is there."""
        flags = self.flags
        if not (flags.data_dir and self.table.files):
            return None
        return tables.find_released(
            self.table, split, flags.data_dir, flags.language
        )

    def open(self, split: str) -> tasks.Examples:
        """See Task."""
        if self.flags.dev_fraction is None or split not in (TRAIN, DEV):
            return self._open(split)
        if split == DEV and self._given(DEV):
            return self._open(split)
        seed = self.flags.random_seed
        if not self.flags.do_train:  # Evaluate what its training held out.
            seed = self.model.record.flags.get("random_seed", seed)
        parts = tables.divide(self._open(TRAIN), self.flags.dev_fraction, seed)
        trained = self.model.record.made_from.get(TRAIN)
        if not self.flags.do_train and parts[0].summary.digest != trained:
            raise errors.InputError(
                f"{parts[0].path}: had other contents or was divided otherwise "
                "when the model was trained, perhaps on examples that are held "
                "out now; give --dev_file"
            )
        return parts[split == DEV]

    def _open(self, split: str) -> tasks.Examples:
        table, path = self.table, self._given(split)
        if path == tasks.STANDARD_INPUT:
            return tasks.Examples(path, self._read_lines)
        if not (path := path or self._released(split)):
            needed = f"--{split}_file is required"
            if table.files:
                names = " or ".join(table.names(split, self.flags.language))
                needed = f"--data_dir with {names} or {needed}"
            elif split == DEV:
                needed += ", or --dev_fraction=0.1: of --train_file"
            raise errors.InputError(needed)
        endings = ["tsv", "txt"] if table.files else [table.form]
        paths = text_files.find_all(path, endings)
        shown = paths[0] if len(paths) == 1 else path
        read = functools.partial(table.read, paths, split)
        unread: Sequence[str] = ()
        if self.flags.is_own_table:
            first = next(text_files.read_named(paths, table.form), None)
            used = (table.text, table.pair, table.label, table.id)
            cells = first.cells if first else ()
            unread = [x for x in cells if x not in (*used, *table.flags)]
        return tasks.Examples(shown, read, unread)

    def _read_lines(self) -> Iterator[Sentence]:
        """Yields the texts of standard input; a tab separates a pair."""
        has_pairs = self.table.has_pairs
        lines = text_files.lines(tasks.STANDARD_INPUT)
        for number, line in lines:
            texts = line.split("\t") if has_pairs else [line]
            where = f"standard input:{number}"
            if len(texts) != 1 + has_pairs:
                raise errors.InputError(
                    f"{where}: {len(texts) - 1} tabs, but one separates the "
                    "texts of a pair"
                )
            yield Sentence(where, str(number - 1), texts[0], tuple(texts[1:]))

    def find_labels(self) -> Sequence[str]:
        """See Task: the classes in the order of the model's outputs."""
        known, trains = self._known, self.flags.do_train
        if self.label_kind not in (label_kinds.OneLabel, label_kinds.AnyLabels):
            return self.table.labels or ()
        if not trains:
            known.check()
        match = functools.partial(known.ordered, trains=trains)
        if self.table.labels is not None:
            return match(self.table.labels)
        if not trains and known.names is not None:
            return known.names
        if trains or self.flags.train_file:
            train = self.sets.get(TRAIN) or self._open(TRAIN)
            written = train.summary.labels
            return match(
                label_kinds.find_labels(train.path, self.label_kind, written)
            )
        if known.labels is None:
            raise errors.InputError(
                "the model has no labels, so it is not a classifier; for a "
                "classifier without them (a TensorFlow checkpoint), give them "
                "with --label_names or --train_file"
            )
        return known.labels

    def encode(self, example: Sentence) -> Sequence[tasks.Tokens]:
        """See Task."""
        length = self.flags.max_seq_length
        first = tasks.token_ids(self.tokenizer, example.text)
        others = [tasks.token_ids(self.tokenizer, x) for x in example.others]
        if self.flags.windows:
            _, windows = self.flags.windows
            second = others[0] if others else ()
            return tasks.windows(
                self.tokenizer, first, second, length, **windows._asdict()
            )
        return [
            tasks.sequence(self.tokenizer, first, second, length)
            for second in others or [[]]
        ]

    def records(self, split: str) -> schema.Schema | None:
        """See Task; a record has the sequences of one window."""
        if self.sequences == "windows":
            return None
        if self.sequences == "choices":
            length = self.flags.max_seq_length
            return schema.multiple_choice(length, len(self.labels))
        return super().records(split)

    @property
    def settings(self) -> dict[str, Any]:
        """See Task."""
        name = tables.name_of(self.flags.task_name)
        _, windows = self.flags.windows or (None, None)
        return {
            **super().settings,
            "task_name": name,
            "problem_type": self.kind.name,
            "windows": windows,
        }

    # With TensorFlow.

    def head(self, long_texts: str | None = None) -> Any:
        """See Task; `long_texts` is how a teacher was trained."""
        from tasks.classification import heads

        pooling = long_texts or self.flags.long_texts
        weights = None
        if self.flags.class_weights is not None:
            weights = self.class_weights()
        return heads.head_of(
            self.kind,
            class_weights=weights,
            window_pooling=None if pooling == "cut" else pooling,
        )

    def teacher_head(self, teacher: given_model.GivenModel) -> Any:
        """See Task; a teacher of windows pools them as in its training."""
        trained = teacher.record.flags.get("long_texts", "cut")
        if trained != "cut" and self.flags.windows:
            return self.head(trained)
        if trained != "cut":
            logging.warning(
                "%s was trained with --long_texts=%s, but reads texts that are "
                "cut",
                teacher.weights,
                trained,
            )
        return self.head()

    def class_weights(self) -> list[float]:
        """Returns the weights of --class_weights.

        If it is "balanced", all classes count the same: N / (C * count); a
        class without examples gets the weight 1.
        """
        given = self.flags.class_weights
        if self.label_kind is not label_kinds.OneLabel:
            raise errors.InputError(
                f"--class_weights={given}: only for tasks with one of several "
                f"labels, not for {self.kind.title}"
            )
        if given == "balanced":
            written = self.sets[TRAIN].summary.labels
            counts = [written[label] for label in self.labels]
            mean = sum(counts) / np.count_nonzero(counts)
            return [float(mean / n) if n else 1.0 for n in counts]
        try:
            weights = [float(x) for x in given.split(",")]
        except ValueError:
            weights = []
        is_good = all(0 < x < math.inf for x in weights)
        if not is_good or len(weights) != len(self.labels):
            raise errors.InputError(
                f"--class_weights={given}: must be balanced, or a positive "
                f"number for each of the labels {', '.join(self.labels)}"
            )
        return weights

    # From outputs to results.

    def text_of(self, example: Sentence) -> str:
        """See LabelTask."""
        return " | ".join((example.text, *example.others))

    @functools.cached_property
    def title(self) -> str:  # type: ignore[override]
        """See Task: the kind of the task and its data."""
        if self._has_released_train and self.table.folders:
            data = self.table.folders[0]
        else:
            some = self.sets.get(TRAIN) or next(iter(self.sets.values()))
            path = self.model.record.flags.get("train_file") or some.path
            data = os.path.basename(path.rstrip("/"))
        return f"{self.kind.title}: {data}"

    @property
    def datasets(self) -> Sequence[str]:  # type: ignore[override]
        """See Task."""
        return [self.table.hub] if self._has_released_train else []

    @property
    def _has_released_train(self) -> bool:
        is_given = self._given(TRAIN) is not None
        return bool(self.table.files) and TRAIN in self.sets and not is_given

    def files(self, split: str) -> Mapping[str, tasks.Layout]:
        """See Task."""
        suffix = f"_{split}" if split.startswith(DEV) else split[len(TEST) :]
        name = tables.name_of(self.flags.task_name)
        if name in ("ax", "ax-g"):  # Beside the files of another task.
            suffix = f"_{name}"
        if self.sets[split].path == tasks.STANDARD_INPUT:
            return {"-": tasks.Layout("predictions", self._header([]))}
        files = {
            f"test_results{suffix}.tsv": tasks.Layout("results"),
            f"predictions{suffix}.tsv": tasks.Layout(
                "predictions", self._header(self._kept)
            ),
        }
        if name == "swag":
            files[f"swag_submission{suffix}.csv"] = tasks.Layout(
                "swag", b"id,pred\n"
            )
        return files

    @property
    def _kept(self) -> list[str]:
        """The columns of texts that predictions of own tables repeat."""
        if not self.flags.is_own_table or self._given(TEST) == "-":
            return []
        columns = (self.flags.text_column, self.flags.text_pair_column)
        return [name for name in columns if name]

    def _header(self, kept: Sequence[str]) -> bytes:
        names = ["id", "label", *self.labels]
        others = [f"{x} (given)" if x in names else x for x in kept]
        return _line([*names, *others])

    def decode(
        self, encoded: tasks.Encoded, outputs: Mapping[str, np.ndarray]
    ) -> dict[str, bytes]:
        """See Task."""
        logits, kept = outputs["logits"], bool(self._kept)
        texts = [self.kind.text(x) for x in self.kind.decide(logits)]
        probabilities = self.kind.probabilities(logits).tolist()
        predictions, results, swag = [], [], []
        for example, text, row in zip(
            encoded.examples, texts, probabilities, strict=True
        ):
            shown = [f"{x:.6f}" for x in row] if self.labels else []
            cells = [example.text, *example.others] if kept else []
            predictions.append(_line([example.id, text, *shown, *cells]))
            results.append("\t".join(map(repr, row)) + "\n")
            swag.append(f"{example.id},{text}\n")
        parts = {
            **super().decode(encoded, outputs),
            "predictions": b"".join(predictions),
            "results": "".join(results).encode(),
            "swag": "".join(swag).encode(),
        }
        if self.table.submission:
            lines = submission.lines(self, encoded.examples, texts)
            parts["submission"] = lines.encode()
        return parts

    def finish(
        self, examples: tasks.Examples, part: Callable[[str], bytes]
    ) -> tasks.Evaluation:
        """See Task; a test set may have no labels, or placeholders."""
        split = next(k for k, x in self.sets.items() if x is examples)
        if self.flags.glue_submission and self.table.submission:
            submission.write(self, split, part("submission"))
        return super().finish(examples, part)


def _line(cells: Sequence[str]) -> bytes:
    """Returns a line that csv reads back as the same cells."""
    end = "\r\n"  # Before Python 3.13, csv quotes "\r" only if the end has it.
    file = io.StringIO()
    csv.writer(file, delimiter="\t", lineterminator=end).writerow(cells)
    return (file.getvalue().removesuffix(end) + "\n").encode()
