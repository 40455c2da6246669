"""GLUE's files (and XNLI's) as they are released: a row of a table each.

    COLUMNS of MNLI:  index ... sentence1 (8)  sentence2 (9) ... gold_label (-1)

Columns are counted from 0, from the end where negative. Nothing is quoted; the
files come with byte-order marks, with a header or without. All rows of a file
are equally wide; one that is not is an InputError, for its last column would
be another. A labeled file can be predicted like a test set. MRPC can also be
read from Microsoft's own msr_paraphrase files, of which dev_ids.tsv takes the
development set.
"""

import dataclasses
import os

import tensorflow as tf
from absl import logging

import errors
from data import examples, glue_layouts, input_files, text_tables
from data.examples import Examples
from data.glue_layouts import Columns
from data.text_tables import Row

TRAIN, DEV, TEST = "train", "dev", "test"
_BINARY = ("0", "1")
_NLI = ("contradiction", "entailment", "neutral")
_TWO_WAY = ("entailment", "not_entailment")
_PARAPHRASES = "msr_paraphrase"
_NAMED_ROWS = 3  # Of those that are left out, so many are named.


@dataclasses.dataclass(frozen=True, kw_only=True)
class GlueTask:
    """One task: its files, columns, labels, metrics and GLUE's name for it."""

    folder: str
    # Those that the task's archives unpack to.
    archives: tuple[str, ...] = ()
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
    # Training and development sets were released with rows that are cut: they
    # are named and left out, as by everybody. Test sets must be whole.
    has_cut_rows: bool = False


def _columns(labeled: Columns, test: Columns) -> dict[str, Columns]:
    return {TRAIN: labeled, DEV: labeled, TEST: test}


def _sentence_pairs(
    name: str, labels: tuple[str, ...], first: str, second: str
) -> GlueTask:
    return GlueTask(
        folder=name,
        labels=labels,
        columns=_columns(*glue_layouts.sentence_pairs(first, second)),
        submission=f"{name}.tsv",
    )


TASKS = {
    "cola": GlueTask(
        folder="CoLA",
        metrics=("matthews_correlation", "accuracy"),
        columns=_columns(*glue_layouts.COLA),
        submission="CoLA.tsv",
    ),
    "sst-2": GlueTask(
        folder="SST-2",
        columns=_columns(*glue_layouts.SST2),
        submission="SST-2.tsv",
    ),
    "mrpc": GlueTask(
        folder="MRPC",
        metrics=("f1", "accuracy"),
        columns=_columns(*glue_layouts.MRPC),
        submission="MRPC.tsv",
    ),
    "sts-b": GlueTask(
        folder="STS-B",
        labels=(),
        kind=examples.REGRESSION,
        metrics=("pearson", "spearman"),
        columns=_columns(*glue_layouts.STSB),
        submission="STS-B.tsv",
    ),
    "qqp": GlueTask(
        folder="QQP",
        metrics=("f1", "accuracy"),
        columns=_columns(*glue_layouts.QQP),
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
        columns=_columns(*glue_layouts.MNLI)
        | {
            "dev_mismatched": glue_layouts.MNLI[0],
            "test_mismatched": glue_layouts.MNLI[1],
        },
        submission="MNLI-m.tsv",
    ),
    "qnli": _sentence_pairs("QNLI", _TWO_WAY, "question", "sentence"),
    "rte": _sentence_pairs("RTE", _TWO_WAY, "sentence1", "sentence2"),
    "wnli": _sentence_pairs("WNLI", _BINARY, "sentence1", "sentence2"),
    "ax": GlueTask(
        folder="diagnostic",
        labels=_NLI,
        files={TEST: "diagnostic.tsv"},
        columns={TEST: glue_layouts.DIAGNOSTIC},
        submission="AX.tsv",
    ),
    "xnli": GlueTask(
        folder="XNLI",
        archives=("XNLI-1.0", "XNLI-MT-1.0"),
        labels=_NLI,
        files={
            TRAIN: os.path.join("multinli", "multinli.train.{language}.tsv"),
            DEV: "xnli.dev.tsv",
            TEST: "xnli.test.tsv",
        },
        columns={
            TRAIN: glue_layouts.XNLI_TRAIN,
            DEV: glue_layouts.XNLI,
            TEST: glue_layouts.XNLI,
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
    is_released = file is None
    if is_released:
        file = _released(name, split, data_dir, language)
    path = text_tables.find(file)
    rows = [row for row in text_tables.read_tsv(path) if row.cells]
    if not rows:
        raise errors.InputError(f"{path}: is empty")
    columns = glue_layouts.find(
        path,
        rows[0].cells,
        list(dict.fromkeys([task.columns[split], *task.columns.values()])),
        labels=[*task.labels, *task.aliases],
        is_released=is_released,
    )
    cut_rows = task.has_cut_rows and split != TEST
    rows = _whole_rows(path, rows, columns, leave_out=cut_rows)
    if columns.only:
        number, text = columns.only
        text = text.format(language=language)
        found = {row.cells[number] for row in rows}
        rows = [row for row in rows if row.cells[number] == text]
        if not rows:
            raise errors.InputError(
                f"--language={language}: {path} has none of it, only: "
                f"{', '.join(sorted(found))}"
            )
    is_corpus = os.path.basename(path).startswith(f"{_PARAPHRASES}_{TRAIN}")
    if name == "mrpc" and is_corpus and split != TEST:
        rows = _part_of_corpus(path, rows, split, data_dir)
    return _take(path, rows, columns, task.aliases)


def has_split(name: str, split: str, data_dir: str) -> bool:
    """Tells whether a split's file is there."""
    file = TASKS[name].files.get(split)
    return file is not None and _place(TASKS[name], data_dir, file) is not None


def _place(task: GlueTask, data_dir: str, file: str) -> str | None:
    """Finds a file in the folder or in one of the task's below it."""
    for folder in ("", task.folder, *task.archives):
        for suffix in ("", *input_files.COMPRESSED):
            path = os.path.join(data_dir, folder, file + suffix)
            if tf.io.gfile.exists(path):
                return path
    return None


def _released(name: str, split: str, data_dir: str, language: str) -> str:
    task = TASKS[name]
    names = [task.files[split].format(language=language)]
    if name == "mrpc":  # Microsoft's name; dev is cut out of train.
        names.append(f"{_PARAPHRASES}_{TEST if split == TEST else TRAIN}.txt")
    for file in names:
        path = _place(task, data_dir, file)
        if path is not None:
            return path
    none = "neither" if len(names) > 1 else "no"
    raise errors.InputError(
        f"--data_dir={data_dir}: {none} {' nor '.join(names)} there"
    )


def _part_of_corpus(
    path: str, rows: list[Row], split: str, data_dir: str
) -> list[Row]:
    """Returns the rows of MRPC's train or dev set, which dev_ids.tsv names."""
    for folder in filter(None, (os.path.dirname(path), data_dir)):
        ids = _place(TASKS["mrpc"], folder, "dev_ids.tsv")
        if ids is not None:
            break
    else:
        raise errors.InputError(
            f"{path}: no dev_ids.tsv beside it, which tells the development "
            "set from the training set"
        )
    held_out = {tuple(row.cells[:2]) for row in text_tables.read_tsv(ids)}
    wanted = split == DEV
    return [
        row for row in rows if (tuple(row.cells[1:3]) in held_out) == wanted
    ]


def _whole_rows(
    path: str, rows: list[Row], columns: Columns, *, leave_out: bool
) -> list[Row]:
    """Returns the rows below the header, all of the header's width.

    Args:
      path: the file.
      rows: all that it has.
      columns: what must be there; without a header, the first row is as wide
        as all must be.
      leave_out: names rows of another width in the log and goes on.
    """
    width = len(rows[0].cells)
    if width < columns.least_width:
        raise errors.InputError(
            f"{path}:{rows[0].line}: {width} columns, but "
            f"{columns.least_width} are needed"
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
