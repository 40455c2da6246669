"""Defines the sentence tasks: a new one is one entry of TASKS.

    "boolq": TaskSpec(
        files={TRAIN: ("train.jsonl",), ...},    names in --data_dir
        format=NamedColumns(form="jsonl", text="question", ...),
        labels=("false", "true"),
    )

A task's life: `open_task` finds its files, labels and metrics, `check` reads
what a command needs, `tokenize` makes the features of a split.
"""

import contextlib
import dataclasses
import functools
import itertools
import os
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import Any

import numpy as np
from absl import logging

from data import examples, features, schema, text_files
from data.examples import Example, Examples
from data.features import Features
from data.tokenization import wordpiece
from foundation import errors, file_system
from jobs import run_directory
from tasks.classification import objective, sentence_files, settings
from tasks.classification.sentence_files import (
    DEV,
    PARAPHRASE_CORPUS,
    TEST,
    TRAIN,
    Alternatives,
    Endings,
    Layout,
    NamedColumns,
    NumberedColumns,
)
from weights import task_files

_METRICS = {
    examples.CLASSIFICATION: ("accuracy", "f1_macro"),
    examples.REGRESSION: ("pearson", "spearman", "mean_squared_error"),
    examples.MULTI_LABEL: ("f1_micro", "f1_macro", "accuracy"),
    examples.MULTIPLE_CHOICE: ("accuracy",),
}
_EXAMPLES_AT_ONCE = 1 << 14
# A warning tells if the training set has this fraction of a development set, or
# more. That of CoLA is 0.015.
_SHARED = 0.05
_BINARY = ("0", "1")
_NLI = ("contradiction", "entailment", "neutral")
_TWO_WAY = ("entailment", "not_entailment")
_TSV_FILES = {split: (f"{split}.tsv",) for split in (TRAIN, DEV, TEST)}
_OWN_TABLE_FLAGS = (
    "text_column",
    "text_pair_column",
    "label_column",
    "id_column",
    "problem_type",
    "dev_fraction",
    "label_columns",
    "keep_columns",
)
# Record files have google-research/bert's names.
_RECORDS = {TRAIN: "train", DEV: "eval"}
_DIVIDED = "train and dev"  # The table that --dev_fraction divides.


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskSpec:
    """One sentence task.

    Attributes:
      files: split -> names of its file in --data_dir, the preferred one first;
        empty for a user's own table. XNLI's contain "{language}".
      format: how the files are read; None for a user's own table, whose
        columns are named by flags.
      folders: subdirectories of --data_dir that may contain the files.
      labels: names of the classes in the files; () for a regression; None if
        the training set has the names.
      kind: one of data.examples, None if --problem_type decides.
      metrics: names of metrics of tasks.classification.metrics; by default the
        metrics of the kind.
      selected_by: the metrics whose mean is the score of a run; by default all.
      submission: name of the file for GLUE's server; None if GLUE has no such
        task.
      flags: flags of run_classifier.py that only such tasks have.
    """

    files: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    format: sentence_files.Format | None = None
    folders: Sequence[str] = ()
    labels: Sequence[str] | None = _BINARY
    kind: str | None = examples.CLASSIFICATION
    metrics: Sequence[str] | None = None
    selected_by: Sequence[str] | None = None
    submission: str | None = None
    flags: Sequence[str] = ()

    @property
    def own_flags(self) -> set[str]:
        """The flags that the task uses and some other task does not."""
        names = set(self.flags)
        if self.files:
            names.add("data_dir")
        if self.submission:
            names.add("glue_submission")
        return names


def _glue_task(
    folder: str,
    labeled: Layout,
    test: Layout,
    *,
    has_cut_rows: bool = False,
    **fields,
) -> TaskSpec:
    """Returns a task of GLUE in its usual files."""
    defaults: dict[str, Any] = {
        "files": _TSV_FILES,
        "folders": (folder,),
        "metrics": ("accuracy",),
        "submission": f"{folder}.tsv",
        "format": NumberedColumns(
            labeled=labeled, test=test, has_cut_rows=has_cut_rows
        ),
    }
    return TaskSpec(**(defaults | fields))


def _super_glue_task(
    folder: str, table: sentence_files.Format, **fields: Any
) -> TaskSpec:
    """Returns a task of SuperGLUE in its usual files."""
    defaults: dict[str, Any] = {
        "files": {
            TRAIN: ("train.jsonl",),
            DEV: ("val.jsonl",),
            TEST: ("test.jsonl",),
        },
        "folders": (folder,),
        "format": table,
        "metrics": ("accuracy",),
    }
    return TaskSpec(**(defaults | fields))


def _pair_layouts(first: str, second: str) -> tuple[Layout, Layout]:
    """Returns the layouts of numbered pairs: labeled, test set."""
    names = f"index,{first},{second}"
    test = Layout(names, first=1, second=2, guid=0)
    labeled = Layout(f"{names},label", first=1, second=2, label=3, guid=0)
    return labeled, test


# The JSON lines of BoolQ and SuperGLUE; some releases have no ids.
_json_columns = functools.partial(
    NamedColumns, form="jsonl", id="idx", optional_id=True
)
_MRPC = "#1 ID,#2 ID,#1 String,#2 String"
_STSB = (
    "index,genre,filename,year,old_index,source1,source2,sentence1,sentence2"
)
_MNLI = (
    "index,promptID,pairID,genre,sentence1_binary_parse,"
    "sentence2_binary_parse,sentence1_parse,sentence2_parse,sentence1,sentence2"
)
_XNLI = Layout(
    "language,gold_label,sentence1_binary_parse,sentence2_binary_parse,"
    "sentence1_parse,sentence2_parse,sentence1,sentence2",
    first=6,
    second=7,
    label=1,
    language=0,
)

TASKS = {
    "cola": _glue_task(
        "CoLA",
        Layout(
            "source,label,mark,sentence", first=3, label=1, has_header=False
        ),
        Layout("index,sentence", first=1, guid=0),
        metrics=("matthews_correlation", "accuracy"),
        # GLUE ranks CoLA by this metric alone.
        selected_by=("matthews_correlation",),
    ),
    "sst-2": _glue_task(
        "SST-2",
        Layout("sentence,label", first=0, label=1),
        Layout("index,sentence", first=1, guid=0),
    ),
    "mrpc": _glue_task(
        "MRPC",
        Layout(f"Quality,{_MRPC}", first=3, second=4, label=0),
        Layout(f"index,{_MRPC}", first=3, second=4, guid=0),
        files={
            TRAIN: ("train.tsv", f"{PARAPHRASE_CORPUS}_train.txt"),
            DEV: ("dev.tsv", f"{PARAPHRASE_CORPUS}_train.txt"),
            TEST: ("test.tsv", f"{PARAPHRASE_CORPUS}_test.txt"),
        },
        metrics=("f1", "accuracy"),
    ),
    "sts-b": _glue_task(
        "STS-B",
        Layout(f"{_STSB},score", first=7, second=8, label=9, guid=0),
        Layout(_STSB, first=7, second=8, guid=0),
        labels=(),
        kind=examples.REGRESSION,
        metrics=("pearson", "spearman"),
    ),
    "qqp": _glue_task(
        "QQP",
        Layout(
            "id,qid1,qid2,question1,question2,is_duplicate",
            first=3,
            second=4,
            label=5,
            guid=0,
        ),
        Layout("id,question1,question2", first=1, second=2, guid=0),
        metrics=("f1", "accuracy"),
        has_cut_rows=True,
    ),
    "mnli": _glue_task(
        "MNLI",
        Layout(
            f"{_MNLI},label1,gold_label", first=8, second=9, label=-1, guid=0
        ),
        Layout(_MNLI, first=8, second=9, guid=0),
        labels=_NLI,
        files={
            TRAIN: ("train.tsv",),
            DEV: ("dev_matched.tsv",),
            "dev_mismatched": ("dev_mismatched.tsv",),
            TEST: ("test_matched.tsv",),
            "test_mismatched": ("test_mismatched.tsv",),
        },
        submission="MNLI-m.tsv",
    ),
    "qnli": _glue_task(
        "QNLI", *_pair_layouts("question", "sentence"), labels=_TWO_WAY
    ),
    "rte": _glue_task(
        "RTE", *_pair_layouts("sentence1", "sentence2"), labels=_TWO_WAY
    ),
    "wnli": _glue_task(
        "WNLI",
        *_pair_layouts("sentence1", "sentence2"),
        flags=("wnli_majority",),
    ),
    "ax": TaskSpec(
        files={TEST: ("diagnostic.tsv",)},
        folders=("diagnostic",),
        format=NumberedColumns(test=_pair_layouts("sentence1", "sentence2")[1]),
        labels=_NLI,
        submission="AX.tsv",
    ),
    "xnli": TaskSpec(
        files={
            TRAIN: (os.path.join("multinli", "multinli.train.{language}.tsv"),),
            DEV: ("xnli.dev.tsv",),
            TEST: ("xnli.test.tsv",),
        },
        folders=("XNLI", "XNLI-1.0", "XNLI-MT-1.0"),
        format=NumberedColumns(
            train=Layout("premise,hypo,label", first=0, second=1, label=2),
            labeled=_XNLI,
            test=_XNLI,
            aliases={"contradictory": "contradiction"},
        ),
        labels=_NLI,
        metrics=("accuracy",),
        flags=("language",),
    ),
    "swag": TaskSpec(
        files={TRAIN: ("train.csv",), DEV: ("val.csv",), TEST: ("test.csv",)},
        format=Endings(num_texts=4),
        labels=("0", "1", "2", "3"),
        kind=examples.MULTIPLE_CHOICE,
    ),
    "boolq": TaskSpec(
        files={
            TRAIN: ("train.jsonl",),
            DEV: ("val.jsonl", "dev.jsonl"),
            TEST: ("test.jsonl",),
        },
        folders=("BoolQ",),
        # SuperGLUE has "label" and "idx", the original release "answer".
        format=_json_columns(
            text="question", text_pair="passage", label=("label", "answer")
        ),
        labels=("false", "true"),
        metrics=("accuracy",),
    ),
    "cb": _super_glue_task(
        "CB",
        _json_columns(text="premise", text_pair="hypothesis"),
        labels=_NLI,
        metrics=("accuracy", "f1_macro"),
    ),
    "copa": _super_glue_task(
        "COPA", Alternatives(), labels=_BINARY, kind=examples.MULTIPLE_CHOICE
    ),
    "wic": _super_glue_task(
        "WiC",
        _json_columns(text="sentence1", text_pair="sentence2", prefix="word"),
        labels=("false", "true"),
    ),
    "ax-g": _super_glue_task(  # Predicted with RTE's model.
        "AX-g",
        _json_columns(text="premise", text_pair="hypothesis"),
        labels=_TWO_WAY,
        files={TEST: ("AX-g.jsonl",)},
    ),
    **{
        form: TaskSpec(labels=None, kind=None, flags=_OWN_TABLE_FLAGS)
        for form in text_files.FORMATS
    },
}
_OTHER_NAMES = {
    "sst2": "sst-2",
    "stsb": "sts-b",
    "sst": "sst-2",
    "axg": "ax-g",
    "sts": "sts-b",
}


def name_of(task_name: str) -> str:
    """Returns the key in TASKS of a task, however users spell its name."""
    name = task_name.lower().replace("_", "-")
    return _OTHER_NAMES.get(name, name)


def check_flags(task_name: str | None, given_flags: Collection[str]) -> None:
    """Refuses flags that the task would ignore.

    Args:
      task_name: name of any task; `open_task` refuses unknown names. None is
        the task of the model, which is not known yet.
      given_flags: the flags that differ from their defaults.
    """
    name = name_of(task_name or "")
    if name not in TASKS:
        return
    for flag in given_flags:
        users = [key for key, x in TASKS.items() if flag in x.own_flags]
        if users and name not in users:
            raise errors.InputError(
                f"--{flag} is not for --task_name={task_name}, only for: "
                f"{', '.join(users)}"
            )
    if "wnli_majority" in given_flags and "glue_submission" not in given_flags:
        raise errors.InputError("--wnli_majority needs --glue_submission")


def has_pairs(flags: Mapping[str, Any]) -> bool:
    """Returns whether the flags of a run are for pairs of texts."""
    if flags.get("text_pair_column"):
        return True
    spec = TASKS.get(name_of(flags.get("task_name", "")))
    return bool(spec and spec.format and spec.format.num_texts > 1)


def check_pairs(
    task_name: str,
    text_pair_column: str | None,
    folder: str,
    trained: Mapping[str, Any],
) -> None:
    """Refuses pairs of texts for a model of single texts, and the reverse.

    Only tables of the user's own are checked.

    Args:
      task_name: a key of TASKS.
      text_pair_column: None for single texts.
      folder: folder of the trained model.
      trained: the flags of its training; without a task_name, its texts are
        not known.

    Raises:
      InputError: names the flag.
    """
    if TASKS[task_name].files or "task_name" not in trained:
        return
    is_of_pairs = has_pairs(trained)
    if is_of_pairs != bool(text_pair_column):
        trained_texts = "pairs of texts" if is_of_pairs else "single texts"
        value = f"={text_pair_column}" if text_pair_column else " is not given"
        raise errors.InputError(
            f"--text_pair_column{value}: the model in {folder} was trained on "
            f"{trained_texts}"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SentenceTask:
    """The files, labels and metrics of a task of TASKS; made by `open_task`.

    task.ClassificationTask, which the runner uses, has it as `sets`.

    Attributes:
      name: key in TASKS.
      kind: one of data.examples.
      metrics: names of metrics of tasks.classification.metrics.
      selected_by: the metrics whose mean is the score of a run; None for all.
      division: how one table was divided into training and development set, in
        words; "" if they are two files.
      kept: names of the columns that predictions repeat.
      labels: names of the classes, in the order of the model's outputs.
      read: function; read(split) returns the examples after checking that they
        can be read, with labels except in test sets. read(split,
        is_labeled=True) requires labels, and checks nothing before the examples
        are iterated.
      dev_splits: the splits to evaluate, the most important first.
      test_splits: the splits to predict.
    """

    name: str
    kind: str
    metrics: Sequence[str]
    labels: Sequence[str]
    read: Callable[..., Examples]
    dev_splits: Sequence[str] = (DEV,)
    test_splits: Sequence[str] = (TEST,)
    selected_by: Sequence[str] | None = None
    division: str = ""
    kept: Sequence[str] = ()
    _label_ids: dict[str, np.ndarray] = dataclasses.field(
        default_factory=dict, init=False, repr=False
    )

    @property
    def positive(self) -> int:
        """The class whose F1 is reported: that of the label "1"."""
        return 0 if list(self.labels) == ["1", "0"] else 1

    def label_ids(self, split: str) -> np.ndarray:
        """Returns the labels of a split; see data.examples.encode_labels."""
        if split not in self._label_ids:
            self._label_ids[split] = examples.encode_labels(
                self.read(split), self.kind, self.labels
            )
        return self._label_ids[split]

    def metrics_of(
        self, logits: np.ndarray, label_ids: np.ndarray
    ) -> dict[str, float]:
        """Returns the metrics of predictions; see objective.evaluate."""
        return objective.evaluate(
            self.kind,
            self.metrics,
            logits,
            label_ids,
            selected_by=self.selected_by,
            positive=self.positive,
        )

    @property
    def divided(self) -> dict[str, str]:
        """The digest of the table that was divided; {} if none was.

        The key is the name of a setting, beside train_file, whose value is the
        digest of the part to train on.
        """
        if not self.division:
            return {}
        return {"train_file contents": self.read(_DIVIDED).digest}

    def describe(self, split: str) -> str:
        """Returns the description of a split for a model card."""
        texts = self.read(split)
        digest = f"texts and labels with the SHA-256 {texts.digest}"
        if file_system.is_file(texts.path):
            digest = f"SHA-256 {file_system.sha256(texts.path)}"
        name = os.path.basename(texts.path.rstrip("/"))
        part = f" ({self.division})" if self._is_part(split) else ""
        return f"{texts.count} examples of {name}{part}, {digest}"

    def set_name(self, split: str) -> str:
        """Returns a short name of a split for names of files: "new"."""
        name = run_directory.set_name([self.read(split).path])
        return f"{name}_{split}" if self._is_part(split) else name

    def _is_part(self, split: str) -> bool:
        return bool(self.division) and split in (TRAIN, DEV)


def open_task(
    task_name: str,
    files: settings.Files,
    columns: settings.Columns | None = None,
    *,
    problem_type: str | None = None,
    known: task_files.ModelClasses | None = None,
    trains: bool = False,
    seed: int = 0,
) -> SentenceTask:
    """Opens a task by its name.

    Args:
      task_name: a key of TASKS, in any usual spelling.
      files: the flags of files.
      columns: the flags of columns of a user's own table.
      problem_type: classification, regression or multi_label of a user's own
        table; None for the model's, else classification.
      known: labels and problem type of the model to start from or to use.
      trains: whether the model is trained. A training set may have other
        labels than the model that training starts from; a model that only
        predicts must know the task's labels.
      seed: seed of the division by files.dev_fraction.

    Raises:
      InputError: there is no such task, or the model has other labels.
    """
    name = name_of(task_name)
    if name not in TASKS:
        raise errors.InputError(
            f"--task_name={task_name}: is none of {', '.join(TASKS)}"
        )
    spec = TASKS[name]
    known = known or task_files.ModelClasses(labels=None, problem_type=None)
    columns = columns or settings.Columns()
    sets = _Sets(name, spec, files, columns, seed)
    kind = spec.kind
    if columns.of_labels and not problem_type:
        problem_type = examples.MULTI_LABEL
    if kind is None and trains:
        kind = task_files.kind(problem_type or known.kind, None)
    elif kind is None:
        kind = task_files.kind(problem_type, known)
    has_names = kind not in (examples.REGRESSION, examples.MULTIPLE_CHOICE)
    if has_names and not trains:
        known.check()
    if spec.labels is None:
        labels = sets.labels_of_table(kind, known, trains=trains)
    else:
        match = known.in_model_order_if_same if trains else known.in_order
        labels = match(spec.labels)
    return SentenceTask(
        name=name,
        kind=kind,
        metrics=spec.metrics or _METRICS[kind],
        selected_by=spec.selected_by
        # Larger scores are better, so an error is not a score.
        or (("pearson", "spearman") if kind == examples.REGRESSION else None),
        labels=labels,
        read=sets.read,
        kept=() if spec.files else columns.kept,
        division=""
        if files.dev_fraction is None
        else f"divided by --dev_fraction={files.dev_fraction:g}, seed {seed}",
        dev_splits=sets.existing_splits(DEV),
        test_splits=sets.existing_splits(TEST),
    )


@dataclasses.dataclass(frozen=True)
class _Sets:
    """The sets of a task, in files that flags name or of --data_dir."""

    name: str
    spec: TaskSpec
    files: settings.Files
    columns: settings.Columns
    seed: int
    _opened: dict[tuple[str, bool], Examples] = dataclasses.field(
        default_factory=dict, init=False
    )

    def read(self, split: str, is_labeled: bool = False) -> Examples:
        """See SentenceTask."""
        if (texts := self._opened.get((split, is_labeled))) is not None:
            return texts
        if self.files.dev_fraction is not None and split in (TRAIN, DEV):
            table = self.read(_DIVIDED, is_labeled=True)
            parts = examples.divide(table, self.files.dev_fraction, self.seed)
            texts = parts[split == DEV]
        else:
            texts = self._open(split, is_labeled=is_labeled)
        if not is_labeled and texts.path != text_files.STANDARD_INPUT:
            texts.check()
        self._opened[split, is_labeled] = texts
        return texts

    def _open(self, split: str, *, is_labeled: bool) -> Examples:
        """Finds the files of a split, and reads nothing yet."""
        spec, files = self.spec, self.files
        if spec.files and split not in spec.files:
            raise errors.InputError(
                f"--task_name={self.name}: has no {split} set"
            )
        table = spec.format or sentence_files.own_table(self.name, self.columns)
        path = files.of(TRAIN if split == _DIVIDED else split)
        if path == text_files.STANDARD_INPUT:
            if split != TEST or spec.kind == examples.MULTIPLE_CHOICE:
                raise errors.InputError(
                    f"--{split}_file=-: only a test set of texts or pairs can "
                    "be read from standard input"
                )
            read = functools.partial(
                sentence_files.read_lines,
                table.num_texts,
                of_jsonl="jsonl" in table.endings,
            )
            return Examples(read, path)
        if not path and not spec.files:
            raise errors.InputError(
                f"--task_name={self.name}: {sentence_files.required(split)}"
            )
        is_released = not path
        if not path:
            if files.data_dir is None:
                raise errors.InputError(
                    f"--data_dir is required, or --{split}_file"
                )
            path = self._released_file(split, files.data_dir)
        paths = text_files.find_all(path, table.endings)
        described = sentence_files.DataFiles(
            paths=paths,
            split=split,
            is_labeled=is_labeled or not split.startswith(TEST),
            have_released_names=is_released,
            data_dir=files.data_dir or "",
            language=files.language,
            labels=spec.labels or (),
        )
        read = functools.partial(table.read, described)
        return Examples(read, paths[0] if len(paths) == 1 else path)

    def _released_file(self, split: str, data_dir: str) -> str:
        language, folders = self.files.language, self.spec.folders
        names = [x.format(language=language) for x in self.spec.files[split]]
        path = sentence_files.find_released(names, data_dir, folders)
        if path is None:
            none = "neither" if len(names) > 1 else "no"
            raise errors.InputError(
                f"--data_dir={data_dir}: {none} {' nor '.join(names)} there"
            )
        return path

    def existing_splits(self, set_name: str) -> list[str]:
        """Returns the main split of a set, and the others whose files exist."""
        splits = self.spec.files or [set_name]
        splits = [x for x in splits if x.startswith(set_name)]
        existing = splits[:1]
        if not self.files.data_dir:
            return existing
        for split in splits[1:]:
            with contextlib.suppress(errors.InputError):
                self._released_file(split, self.files.data_dir)
                existing.append(split)
        return existing

    def labels_of_table(
        self, kind: str, known: task_files.ModelClasses, *, trains: bool
    ) -> Sequence[str]:
        """Returns the labels of a user's own table.

        Training finds them in the training set, unless --label_columns names
        them. A trained model stores its labels; if its classes have no names,
        the labels are those of the training set.
        """
        if kind == examples.REGRESSION:
            return ()
        table = TRAIN if self.files.dev_fraction is None else _DIVIDED
        if trains:
            labels = self.columns.of_labels or examples.find_labels(
                self.read(table), kind
            )
            return known.in_model_order_if_same(labels)
        if known.names is not None:
            return known.names
        if self.files.train_file:
            labels = examples.find_labels(self.read(table), kind)
            return known.in_order(labels)
        if known.labels is None:
            raise errors.InputError(
                "the model has no labels, so it is not a classifier; for a "
                "classifier without them (a TensorFlow checkpoint), give them "
                "with --label_names or --train_file"
            )
        return known.labels


def check(task: SentenceTask, used: Collection[str]) -> None:
    """Reads the sets that a command uses, and checks their labels."""
    if DEV in used and not task.dev_splits:
        raise errors.InputError(
            f"--task_name={task.name}: has no development set"
        )
    if TRAIN in used:
        _warn_of_unseen_labels(task)
    if DEV in used:
        for split in task.dev_splits:
            task.label_ids(split)
            if TRAIN in used:
                _warn_of_shared_texts(task, split)
    if TEST in used:
        for split in task.test_splits:
            task.read(split)


def _warn_of_unseen_labels(task: SentenceTask) -> None:
    """Warns of labels that no example of the training set has."""
    label_ids = task.label_ids(TRAIN)
    if task.kind == examples.CLASSIFICATION:
        counts = np.bincount(label_ids[:, 0], minlength=len(task.labels))
    elif task.kind == examples.MULTI_LABEL:
        counts = label_ids.sum(axis=0)
    else:
        return
    pairs = zip(task.labels, counts.tolist(), strict=True)
    if unseen := [label for label, count in pairs if not count]:
        logging.warning(
            "%s: no example has the label %s, so the model cannot learn it",
            task.read(TRAIN).path,
            errors.listed(map(repr, unseen)),
        )


def _warn_of_shared_texts(task: SentenceTask, split: str) -> None:
    """Warns of a development set that was not held out from training."""
    train, dev = task.read(TRAIN), task.read(split)
    if file_system.real(train.path) == file_system.real(dev.path):
        return  # jobs.early_checks warns of it, or it is divided.
    count = dev.count_shared(train)
    if count >= _SHARED * dev.count:
        logging.warning(
            "%s: %d of %d examples have the texts of examples in %s; scores "
            "of these do not tell how good the model is with new texts",
            dev.path,
            count,
            dev.count,
            train.path,
        )


def encode(
    texts: Iterable[Example],
    tokenizer: wordpiece.Tokenizer,
    *,
    max_seq_length: int,
    windows: features.Windows | None = None,
    statistics: features.TokenizationStatistics,
) -> Features:
    """Returns the features of examples without their labels.

    Args:
      texts: the examples, read as a stream; all have the same number of texts.
      tokenizer: tokenizer of the model.
      max_seq_length: length of the model's inputs, in tokens; longer texts are
        truncated.
      windows: how longer texts are divided instead.
      statistics: counters of the text that truncation loses.
    """
    texts = iter(texts)
    head = next(texts)
    choices = len(head.second) if len(head.second) > 1 else 0

    def blocks() -> Iterator[tuple[list[str], list[str] | None]]:
        rest = itertools.chain([head], texts)
        while block := list(itertools.islice(rest, _EXAMPLES_AT_ONCE)):
            repeats = choices or 1
            first = [x.first for x in block for _ in range(repeats)]
            second = [text for x in block for text in x.second]
            yield first, second if head.second else None

    return features.encode_blocks(
        tokenizer,
        blocks(),
        max_seq_length=max_seq_length,
        num_choices=choices,
        windows=windows,
        statistics=statistics,
    )


def tokenize(
    task: SentenceTask,
    split: str,
    tokenizer: wordpiece.Tokenizer,
    *,
    max_seq_length: int,
    windows: features.Windows | None = None,
    records_dir: str | None,
) -> Features:
    """Returns the features of a split in memory.

    If the records of an earlier run are reused, nothing is logged about
    truncated texts.

    Args:
      task: the task of the split.
      split: a training or development set.
      tokenizer: tokenizer of the model.
      max_seq_length: length of the model's inputs, in tokens; longer texts are
        truncated.
      windows: how longer texts are divided instead; such features have no
        records.
      records_dir: directory where records are kept for later runs, if any.
    """
    texts = task.read(split)
    label = {
        examples.REGRESSION: schema.VALUE,
        examples.MULTI_LABEL: schema.labels(len(task.labels)),
    }.get(task.kind, schema.LABEL)
    kind = schema.classification(max_seq_length, label)
    if texts.num_choices > 1:
        kind = schema.multiple_choice(max_seq_length, texts.num_choices)
    set_name, _, suffix = split.partition("_")
    name = "_".join(filter(None, [_RECORDS[set_name], suffix]))
    made_from = {
        "task": task.name,
        "texts": texts.digest,
        "labels": list(task.labels),
    }
    cache = features.FeatureCache(records_dir, name, kind, tokenizer, made_from)
    if (stored := cache.read()) is not None:
        return stored
    statistics = features.TokenizationStatistics()
    with cache.notice():
        encoded = encode(
            texts,
            tokenizer,
            max_seq_length=max_seq_length,
            windows=windows,
            statistics=statistics,
        )
    statistics.warn(f"{split} set", max_seq_length)
    label_ids = task.label_ids(split)
    encoded = dataclasses.replace(encoded, dense={"label_ids": label_ids})
    cache.write(encoded)
    return encoded
