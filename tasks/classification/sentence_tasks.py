"""Which files a sentence task has, what its labels are, how it is scored.

One object serves GLUE, XNLI, SWAG and a user's own table: the readers differ,
all that follows is the same.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from data import examples, features, schema, sequences, text_tables
from data.examples import Examples
from data.features import Features
from data.tokenization import wordpiece
from foundation import errors
from tasks.classification import glue
from weights import task_files

TRAIN, DEV, TEST = glue.TRAIN, glue.DEV, glue.TEST
_METRICS = {
    examples.CLASSIFICATION: ("accuracy", "f1_macro"),
    examples.REGRESSION: ("pearson", "spearman", "mean_squared_error"),
    examples.MULTI_LABEL: ("f1_micro", "f1_macro", "accuracy"),
    examples.MULTIPLE_CHOICE: ("accuracy",),
}
# By which runs are compared, where it is not by all of them.
_SELECTED_BY = {examples.REGRESSION: ("pearson", "spearman")}
# As google-research/bert names them.
_RECORDS = {TRAIN: "train", DEV: "eval", TEST: "predict"}
# Flags that other tasks have no use for.
_ONLY_FOR = {
    **dict.fromkeys(
        (
            "text_column",
            "text_pair_column",
            "label_column",
            "id_column",
            "problem_type",
        ),
        text_tables.FORMATS,
    ),
    "data_dir": (*glue.TASKS, "swag"),
    "language": ("xnli",),
    "glue_submission": [k for k, t in glue.TASKS.items() if t.submission],
    "wnli_majority": ("wnli",),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Columns:
    """Where a user's own table has what; see text_tables.read_examples."""

    text: str
    text_pair: str | None
    label: str
    id: str | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class SentenceTask:
    """A task whose sets can be read.

    Attributes:
      name: of --task_name.
      kind: of data.examples.
      metrics: of tasks.classification.objective.
      selected_by: those whose mean runs are compared by; None for all.
      labels: names of the classes, in the order of the model's outputs.
      read: returns the examples of a set.
      dev_splits: the sets to evaluate on, the most important first.
      test_splits: the sets to predict.
    """

    name: str
    kind: str
    metrics: Sequence[str]
    labels: Sequence[str]
    read: Callable[[str], Examples]
    dev_splits: Sequence[str] = (DEV,)
    test_splits: Sequence[str] = (TEST,)
    selected_by: Sequence[str] | None = None

    @property
    def num_classes(self) -> int:
        """The number of the model's outputs."""
        return len(self.labels) or 1

    @property
    def positive(self) -> int:
        """The class that F1 is of: label 1, wherever the model has it."""
        return 0 if list(self.labels) == ["1", "0"] else 1

    def label_ids(self, split: str) -> np.ndarray:
        """Returns the labels of a set as numbers."""
        return examples.encode_labels(self.read(split), self.kind, self.labels)

    @property
    def label_feature(self) -> schema.Feature:
        """What a record stores of a label."""
        if self.kind == examples.REGRESSION:
            return schema.VALUE
        if self.kind == examples.MULTI_LABEL:
            return schema.labels(len(self.labels))
        return schema.LABEL


def refuse_idle_flags(task_name: str, given: Iterable[str]) -> None:
    """Refuses flags that the task would do nothing with.

    Args:
      task_name: as in open_task, which refuses unknown ones.
      given: the flags that a user has set.
    """
    name = glue.name_of(task_name) or task_name.lower()
    if name not in (*glue.TASKS, "swag", *text_tables.FORMATS):
        return
    for flag in given:
        tasks = _ONLY_FOR.get(flag, (name,))
        if name not in tasks:
            raise errors.InputError(
                f"--{flag} is not for --task_name={task_name}, only for: "
                f"{', '.join(tasks)}"
            )


def open_task(
    task_name: str,
    *,
    data_dir: str | None,
    files: Mapping[str, str | None],
    columns: Columns,
    problem_type: str | None,
    language: str = "zh",
    known: task_files.Known | None = None,
) -> SentenceTask:
    """Opens a task by its name.

    Args:
      task_name: of GLUE, xnli, swag, csv, tsv or jsonl.
      data_dir: where released files lie.
      files: split -> file, in place of the released name.
      columns: of the user's own table.
      problem_type: classification, regression or multi_label, likewise; None
        for what the model is, else classification.
      language: of XNLI.
      known: of the model that is asked; None where one is trained.
    """
    name = glue.name_of(task_name)
    if name is not None:
        task = _glue_task(name, data_dir, files, language)
        if known is None:
            return task
        return dataclasses.replace(task, labels=known.in_order(task.labels))
    name = task_name.lower()
    if name == "swag":
        return _swag_task(data_dir, files)
    if name not in text_tables.FORMATS:
        names = ", ".join([*glue.TASKS, "swag", *text_tables.FORMATS])
        raise errors.InputError(f"--task_name={task_name}: none of: {names}")
    read = functools.cache(_own_reader(name, files, columns))
    kind = task_files.kind(problem_type, known)
    return SentenceTask(
        name=name,
        kind=kind,
        metrics=_METRICS[kind],
        selected_by=_SELECTED_BY.get(kind),
        labels=_own_labels(kind, known, read, has_train=bool(files.get(TRAIN))),
        read=read,
    )


def _own_labels(kind, known, read, *, has_train: bool) -> Sequence[str]:
    if kind == examples.REGRESSION:
        return ()
    if known is not None and known.names is not None:
        return known.names
    if known is not None and known.labels is not None and not has_train:
        return known.labels
    return examples.find_labels(read(TRAIN), kind)


def _glue_task(name, data_dir, files, language) -> SentenceTask:
    task = glue.TASKS[name]

    def read(split: str) -> Examples:
        if data_dir is None and not files.get(split):
            raise errors.InputError(
                f"--data_dir is required, or --{split}_file"
            )
        return glue.read(
            name,
            split,
            data_dir or "",
            file=files.get(split),
            language=language,
        )

    def present(kind: str) -> list[str]:
        # The first is what was asked for; others only if they are there.
        found = [split for split in task.files if split.startswith(kind)]
        return found[:1] + [
            split
            for split in found[1:]
            if data_dir and glue.has_split(name, split, data_dir)
        ]

    return SentenceTask(
        name=name,
        kind=task.kind,
        metrics=task.metrics,
        # GLUE ranks CoLA by Matthews' coefficient alone.
        selected_by=task.metrics[:1] if name == "cola" else None,
        labels=task.labels,
        read=functools.cache(read),
        dev_splits=present(DEV),
        test_splits=present(TEST),
    )


def _swag_task(data_dir, files) -> SentenceTask:
    def read(split: str) -> Examples:
        return glue.read_swag(split, data_dir, files.get(split))

    return SentenceTask(
        name="swag",
        kind=examples.MULTIPLE_CHOICE,
        metrics=_METRICS[examples.MULTIPLE_CHOICE],
        labels=glue.SWAG_LABELS,
        read=functools.cache(read),
    )


def _own_reader(form, files, columns) -> Callable[[str], Examples]:
    def read(split: str) -> Examples:
        path = files.get(split)
        if path is None:
            raise errors.InputError(f"--{split}_file is required")
        # What is predicted need not be labeled, and nobody looks.
        label = columns.label if split != TEST else None
        return text_tables.read_examples(
            path,
            form,
            text_column=columns.text,
            text_pair_column=columns.text_pair,
            label_column=label,
            id_column=columns.id,
        )

    return read


def check(task: SentenceTask, *, train: bool, dev: bool, test: bool) -> None:
    """Reads what a run needs and compares its labels, before it starts."""
    if train:
        task.label_ids(TRAIN)
    for split in task.dev_splits if dev else ():
        task.label_ids(split)
    if dev and not task.dev_splits:
        raise errors.InputError(
            f"--task_name={task.name}: has no development set"
        )
    for split in task.test_splits if test else ():
        task.read(split)


def prepare(
    task: SentenceTask,
    split: str,
    tokenizer: wordpiece.Tokenizer,
    *,
    max_seq_length: int,
    records_dir: str | None,
) -> Features:
    """Returns the features of a set; test sets get a dummy label, as released.

    How many texts are cut is logged when records are made, not used again.

    Args:
      task: what the set is of.
      split: which set.
      tokenizer: of the model.
      max_seq_length: of the records.
      records_dir: where records are kept, or None for nowhere.
    """
    texts = task.read(split)
    choices = texts.num_choices if texts.num_choices > 1 else 0

    def make() -> Features:
        made = sequences.encode(
            tokenizer,
            texts.first,
            texts.second,
            max_seq_length=max_seq_length,
            num_choices=choices,
            name=f"{split} set",
        )
        return dataclasses.replace(
            made, dense={"label_ids": _label_ids(task, split)}
        )

    if records_dir is None:
        return make()
    job = {
        "task": task.name,
        "texts": texts.digest,
        "labels": list(task.labels),
        "tokenizer": features.tokenizer_job(tokenizer),
    }
    kind = schema.classification(max_seq_length, task.label_feature)
    if choices:
        kind = schema.multiple_choice(max_seq_length, choices)
    base, _, rest = split.partition("_")
    name = "_".join(filter(None, [_RECORDS[base], rest]))
    path = f"{records_dir}/{name}.tf_record"
    return features.prepare(path, kind, job, make)


def _label_ids(task: SentenceTask, split: str) -> np.ndarray:
    if not split.startswith(TEST):
        return task.label_ids(split)
    label = task.label_feature
    dtype = np.float32 if label.dtype == schema.FLOAT else np.int64
    return np.zeros((len(task.read(split)), *label.shape), dtype)


def fingerprint(task: SentenceTask) -> dict[str, str]:
    """Tells what a run trains on from anything else, by flag."""
    return {
        "task_name": task.name,
        "train_file": task.read(TRAIN).digest,
        "problem_type": task.kind,
    }


def dev_fingerprint(task: SentenceTask) -> dict[str, str]:
    """Tells what runs are judged on from anything else, by flag."""
    digests = [task.read(split).digest for split in task.dev_splits]
    return {"dev_file": " ".join(digests)}
