"""GLUE's files (and XNLI's) as they are released: a row of a table each.

    COLUMNS of MNLI:  index ... sentence1 (8)  sentence2 (9) ... gold_label (-1)

Columns are counted from 0, from the end where negative. Nothing is quoted; the
files come with byte-order marks, with a header or without. All rows of a file
are equally wide; one that is not is an InputError, for its last column would
be another. MRPC can also be read from Microsoft's own msr_paraphrase files, of
which dev_ids.tsv takes the development set.
"""

import dataclasses
import os

import tensorflow as tf
from absl import logging

import errors
from data import examples, text_tables
from data.examples import Examples
from data.text_tables import Row

TRAIN, DEV, TEST = "train", "dev", "test"
_BINARY = ("0", "1")
_NLI = ("contradiction", "entailment", "neutral")
_TWO_WAY = ("entailment", "not_entailment")
_NAMED_ROWS = 3  # Of those that are left out, so many are named.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Columns:
    """Where the files of one split have what."""

    first: int
    second: int | None = None
    label: int | None = None
    guid: int | None = None  # None numbers the examples.
    has_header: bool = True
    # Rows are kept whose column, the first number, holds this text.
    only: tuple[int, str] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class GlueTask:
    """One task: its files, columns, labels, metrics and GLUE's name for it."""

    folder: str
    labels: tuple[str, ...] = _BINARY
    kind: str = examples.CLASSIFICATION
    metrics: tuple[str, ...] = ("accuracy",)
    files: dict[str, str] = dataclasses.field(
        default_factory=lambda: {s: f"{s}.tsv" for s in (TRAIN, DEV, TEST)}
    )
    columns: dict[str, Columns] = dataclasses.field(default_factory=dict)
    submission: str | None = None
    # Other spellings of a label in the files.
    aliases: dict[str, str] = dataclasses.field(default_factory=dict)
    # The training set was released with rows that are cut: they are named and
    # left out. Development and test sets must be whole.
    has_cut_rows: bool = False


def _columns(train: Columns, test: Columns) -> dict[str, Columns]:
    return {TRAIN: train, DEV: train, TEST: test}


def _sentence_pairs(labels: tuple[str, ...], name: str) -> GlueTask:
    """A task whose files are: index, sentence1, sentence2, label."""
    pair = Columns(first=1, second=2, guid=0)
    return GlueTask(
        folder=name,
        labels=labels,
        columns=_columns(dataclasses.replace(pair, label=3), pair),
        submission=f"{name}.tsv",
    )


_MRPC = Columns(first=3, second=4)
_MNLI = Columns(first=8, second=9, guid=0)
_MNLI_LABELED = dataclasses.replace(_MNLI, label=-1)
_STSB = Columns(first=7, second=8, guid=0)

TASKS = {
    "cola": GlueTask(
        folder="CoLA",
        metrics=("matthews_correlation", "accuracy"),
        columns=_columns(
            Columns(first=3, label=1, has_header=False),
            Columns(first=1, guid=0),
        ),
        submission="CoLA.tsv",
    ),
    "sst-2": GlueTask(
        folder="SST-2",
        columns=_columns(Columns(first=0, label=1), Columns(first=1, guid=0)),
        submission="SST-2.tsv",
    ),
    "mrpc": GlueTask(
        folder="MRPC",
        metrics=("f1", "accuracy"),
        columns=_columns(
            dataclasses.replace(_MRPC, label=0),
            dataclasses.replace(_MRPC, guid=0),
        ),
        submission="MRPC.tsv",
    ),
    "sts-b": GlueTask(
        folder="STS-B",
        labels=(),
        kind=examples.REGRESSION,
        metrics=("pearson", "spearman"),
        columns=_columns(dataclasses.replace(_STSB, label=9), _STSB),
        submission="STS-B.tsv",
    ),
    "qqp": GlueTask(
        folder="QQP",
        metrics=("f1", "accuracy"),
        columns=_columns(
            Columns(first=3, second=4, label=5, guid=0),
            Columns(first=1, second=2, guid=0),
        ),
        submission="QQP.tsv",
        has_cut_rows=True,
    ),
    "mnli": GlueTask(
        folder="MNLI",
        labels=_NLI,
        files={
            TRAIN: "train.tsv",
            DEV: "dev_matched.tsv",
            "dev_mismatched": "dev_mismatched.tsv",
            TEST: "test_matched.tsv",
            "test_mismatched": "test_mismatched.tsv",
        },
        columns=_columns(_MNLI_LABELED, _MNLI)
        | {"dev_mismatched": _MNLI_LABELED, "test_mismatched": _MNLI},
        submission="MNLI-m.tsv",
    ),
    "qnli": _sentence_pairs(_TWO_WAY, "QNLI"),
    "rte": _sentence_pairs(_TWO_WAY, "RTE"),
    "wnli": _sentence_pairs(_BINARY, "WNLI"),
    "ax": GlueTask(
        folder="diagnostic",
        labels=_NLI,
        files={TEST: "diagnostic.tsv"},
        columns={TEST: Columns(first=1, second=2, guid=0)},
        submission="AX.tsv",
    ),
    "xnli": GlueTask(
        folder="XNLI",
        labels=_NLI,
        files={
            TRAIN: os.path.join("multinli", "multinli.train.{language}.tsv"),
            DEV: "xnli.dev.tsv",
            TEST: "xnli.test.tsv",
        },
        columns={
            TRAIN: Columns(first=0, second=1, label=2),
            DEV: Columns(first=6, second=7, label=1, only=(0, "{language}")),
            TEST: Columns(first=6, second=7, label=1, only=(0, "{language}")),
        },
        aliases={"contradictory": "contradiction"},
    ),
}
# What else people call them.
_OTHER_NAMES = {
    "sst2": "sst-2",
    "stsb": "sts-b",
    "sst": "sst-2",
    "sts": "sts-b",
}


def name_of(task_name: str) -> str | None:
    """Returns the key in TASKS of whatever a user calls a task, or None."""
    name = task_name.lower().replace("_", "-")
    name = _OTHER_NAMES.get(name, name)
    return name if name in TASKS else None


def read(
    name: str,
    split: str,
    data_dir: str,
    *,
    file: str | None = None,
    language: str = "zh",
) -> Examples:
    """Reads one split.

    Args:
      name: a key of TASKS.
      split: a key of the task's files.
      data_dir: where the files lie, or the folder above.
      file: read instead of the released name.
      language: of XNLI.
    """
    task = TASKS[name]
    if split not in task.columns:
        raise errors.InputError(f"--task_name={name}: has no {split} set")
    columns = task.columns[split]
    if file is None:
        file = task.files[split].format(language=language)
        if name == "mrpc" and _place(task, data_dir, file) is None:
            return _paraphrases(task, split, data_dir)
        file = _require(task, data_dir, file)
    path = text_tables.find(file)
    cut_rows = task.has_cut_rows and split == TRAIN
    rows = _whole_rows(path, columns, leave_out=cut_rows)
    if columns.only:
        number, text = columns.only
        text = text.format(language=language)
        rows = [row for row in rows if row.cells[number] == text]
    return _take(path, rows, columns, task.aliases)


def has_split(name: str, split: str, data_dir: str) -> bool:
    """Tells whether a split's file is there."""
    file = TASKS[name].files.get(split)
    return file is not None and _place(TASKS[name], data_dir, file) is not None


def _place(task: GlueTask, data_dir: str, file: str) -> str | None:
    """Finds a file in the folder or in the task's folder below it."""
    for folder in (data_dir, os.path.join(data_dir, task.folder)):
        for suffix in ("", ".gz"):
            path = os.path.join(folder, file + suffix)
            if tf.io.gfile.exists(path):
                return path
    return None


def _require(task: GlueTask, data_dir: str, file: str) -> str:
    path = _place(task, data_dir, file)
    if path is None:
        raise errors.InputError(f"--data_dir={data_dir}: no {file} there")
    return path


def _paraphrases(task: GlueTask, split: str, data_dir: str) -> Examples:
    """Reads MRPC as Microsoft distributes it; dev is cut out of train."""
    file = f"msr_paraphrase_{TEST if split == TEST else TRAIN}.txt"
    path = _place(task, data_dir, file)
    if path is None:
        raise errors.InputError(
            f"--data_dir={data_dir}: neither {task.files[split]} nor "
            f"{file} there"
        )
    # Test rows are numbered, as they are in GLUE's file of them.
    columns = _MRPC if split == TEST else task.columns[split]
    rows = _whole_rows(path, columns)
    if split != TEST:
        ids = _require(task, data_dir, "dev_ids.tsv")
        held_out = {tuple(row.cells[:2]) for row in text_tables.read_tsv(ids)}
        wanted = split == DEV
        rows = [
            row for row in rows if (tuple(row.cells[1:3]) in held_out) == wanted
        ]
    return _take(path, rows, columns, task.aliases)


def _whole_rows(
    path: str, columns: Columns, *, leave_out: bool = False
) -> list[Row]:
    """Reads the rows below the header, all of the header's width.

    Args:
      path: the file.
      columns: what must be there; without a header, the first row is as wide
        as all must be.
      leave_out: names rows of another width in the log and goes on.
    """
    rows = [row for row in text_tables.read_tsv(path) if row.cells]
    if not rows:
        raise errors.InputError(f"{path}: is empty")
    width = len(rows[0].cells)
    needed = [columns.first, columns.second, columns.label, columns.guid]
    number = 1 + max(n for n in needed if n is not None)
    if width < number:
        raise errors.InputError(
            f"{path}:{rows[0].line}: {width} columns, but {number} are needed"
        )
    whole = [row for row in rows if len(row.cells) == width]
    cut = [row for row in rows if len(row.cells) != width]
    if cut and not leave_out:
        model = "the header" if columns.has_header else "the first row"
        raise errors.InputError(
            f"{path}:{cut[0].line}: {len(cut[0].cells)} columns, but {model} "
            f"has {width}"
        )
    if cut:
        shown = ", ".join(f"{path}:{row.line}" for row in cut[:_NAMED_ROWS])
        logging.warning("%d cut row(s) left out: %s", len(cut), shown)
    return whole[1:] if columns.has_header else whole


def _take(
    path: str, rows: list[Row], columns: Columns, aliases: dict[str, str]
) -> Examples:
    """Takes the columns out of rows that have them."""
    if not rows:
        raise errors.InputError(f"{path}: has no examples")

    def column(place: int | None) -> list[str] | None:
        return None if place is None else [row.cells[place] for row in rows]

    labels = column(columns.label)
    return Examples(
        path=path,
        lines=[row.line for row in rows],
        guids=column(columns.guid) or [str(i) for i in range(len(rows))],
        first=[row.cells[columns.first] for row in rows],
        second=column(columns.second),
        labels=labels and [aliases.get(label, label) for label in labels],
    )
