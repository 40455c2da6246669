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
from collections.abc import Collection, Sequence

import tensorflow as tf
from absl import logging

from data import examples, text_tables
from data.examples import Examples
from data.text_tables import Row
from foundation import errors, file_system

# ----------------------------------------------------------------------
# The layouts of GLUE's files, and which a file has, as its header tells.
#
#     SST-2, labeled:   sentence  label
#     SST-2, test set:  index     sentence
#
# Columns are taken by number, so that a file of another layout would give its
# labels for texts. Only the names of the columns that are taken are compared:
# files differ in the rest, as MNLI's do in the number of their votes.

_SHOWN = 12
_LONGEST = 24  # Of a cell in a message, in characters.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Columns:
    """Where the files of one split have what; negative is from the end."""

    names: str  # Of all columns, between commas, whether in a header or not.
    first: int
    second: int | None = None
    label: int | None = None
    guid: int | None = None  # None numbers the examples.
    has_header: bool = True
    # Rows are kept whose column, the first number, holds this text.
    only: tuple[int, str] | None = None

    @property
    def taken(self) -> list[int]:
        """The numbers of the columns that are read."""
        only = self.only[0] if self.only else None
        places = (self.first, self.second, self.label, self.guid, only)
        return [place for place in places if place is not None]

    @property
    def least_width(self) -> int:
        """So many columns a file has at least."""
        return 1 + max(self.taken)

    def fit(self, cells: Sequence[str], labels: Collection[str]) -> bool:
        """Tells whether a file that begins with these cells is laid out so."""
        if len(cells) < self.least_width:
            return False
        if not self.has_header:
            return cells[self.label] in labels
        names = self.names.split(",")
        return all(_same(cells[i], names[i]) for i in self.taken)

    def __str__(self) -> str:
        """Says how such a file begins."""
        names = ", ".join(self.names.split(","))
        return names if self.has_header else f"(no header) {names}"


def sentence_pairs(first: str, second: str) -> tuple[Columns, Columns]:
    """Returns the layouts of a task whose files number their pairs."""
    names = f"index,{first},{second}"
    test = Columns(names=names, first=1, second=2, guid=0)
    labeled = Columns(
        names=f"{names},label", first=1, second=2, label=3, guid=0
    )
    return labeled, test


_PARAPHRASES_LAYOUTS = "#1 ID,#2 ID,#1 String,#2 String"
_MNLI = (
    "index,promptID,pairID,genre,sentence1_binary_parse,"
    "sentence2_binary_parse,sentence1_parse,sentence2_parse,sentence1,sentence2"
)
_STSB = (
    "index,genre,filename,year,old_index,source1,source2,sentence1,sentence2"
)
# Of a task: labeled, test set.
COLA = (
    Columns(
        names="source,label,mark,sentence", first=3, label=1, has_header=False
    ),
    Columns(names="index,sentence", first=1, guid=0),
)
SST2 = (
    Columns(names="sentence,label", first=0, label=1),
    Columns(names="index,sentence", first=1, guid=0),
)
MRPC = (
    Columns(
        names=f"Quality,{_PARAPHRASES_LAYOUTS}", first=3, second=4, label=0
    ),
    Columns(names=f"index,{_PARAPHRASES_LAYOUTS}", first=3, second=4, guid=0),
)
STSB = (
    Columns(names=f"{_STSB},score", first=7, second=8, label=9, guid=0),
    Columns(names=_STSB, first=7, second=8, guid=0),
)
QQP = (
    Columns(
        names="id,qid1,qid2,question1,question2,is_duplicate",
        first=3,
        second=4,
        label=5,
        guid=0,
    ),
    Columns(names="id,question1,question2", first=1, second=2, guid=0),
)
MNLI = (
    Columns(
        names=f"{_MNLI},label1,gold_label", first=8, second=9, label=-1, guid=0
    ),
    Columns(names=_MNLI, first=8, second=9, guid=0),
)
_, DIAGNOSTIC = sentence_pairs("sentence1", "sentence2")
XNLI_TRAIN = Columns(names="premise,hypo,label", first=0, second=1, label=2)
XNLI = Columns(
    names="language,gold_label,sentence1_binary_parse,sentence2_binary_parse,"
    "sentence1_parse,sentence2_parse,sentence1,sentence2",
    first=6,
    second=7,
    label=1,
    only=(0, "{language}"),
)


def find(
    path: str,
    cells: Sequence[str],
    layouts: Sequence[Columns],
    *,
    labels: Collection[str],
    is_released: bool,
) -> Columns:
    """Returns the layout of a file.

    Args:
      path: for the messages.
      cells: its first row.
      layouts: of the task, that of the wanted split before the others.
      labels: of the task, as its files spell them; by them rows are told
        where there is no header.
      is_released: it has the released name. Such a file is read as released,
        by number, if its header is unknown: people put their own there. That
        is said in the log.

    Raises:
      InputError: labels are wanted, but it is a test set; or it is none of
        the task's files; or it has the released name, but no header or what
        is wanted at other places.
    """
    wanted = layouts[0]
    found = [layout for layout in layouts if layout.fit(cells, labels)]
    begins = f"it begins with: {_shown(cells)}"
    if not found:
        if is_released:
            _check_released(path, cells, wanted, labels, begins)
            return wanted
        known = " or ".join(dict.fromkeys(map(str, layouts)))
        raise errors.InputError(
            f"{path}: none of the task's files, which begin with: {known}; "
            f"{begins} (--task_name=tsv reads any table)"
        )
    layout = found[0]
    if wanted.label is None:
        # What is predicted may be labeled, but nobody looks.
        return dataclasses.replace(layout, label=None)
    if layout.label is None:
        raise errors.InputError(
            f"{path}: a test set, which has no labels; wanted: {wanted}; "
            f"{begins}"
        )
    return layout


def _check_released(
    path: str,
    cells: Sequence[str],
    wanted: Columns,
    labels: Collection[str],
    begins: str,
) -> None:
    """Refuses a first row that cannot be a header of these columns."""
    if not wanted.has_header:
        return  # It is an example, whose label will be looked at.
    if len(cells) < wanted.least_width:
        return  # Its width will be.
    names = wanted.names.split(",")
    said = f"wanted: {wanted}; {begins}"
    has_label = wanted.label is not None and cells[wanted.label] in labels
    has_number = wanted.guid is not None and cells[wanted.guid].isdigit()
    if has_label or has_number:
        raise errors.InputError(
            f"{path}: has no header, but an example in its first line; {said}"
        )
    for i in (wanted.first, wanted.second, wanted.label):
        if i is None or _same(cells[i], names[i]):
            continue
        if any(_same(x, names[i]) for x in cells):
            raise errors.InputError(
                f"{path}: has {names[i]!r} at another place; {said} "
                "(--task_name=tsv takes columns by name)"
            )
    logging.warning(
        "%s: an unknown header; columns are taken by number; %s", path, said
    )


def _same(cell: str, name: str) -> bool:
    return cell.strip("\ufeff ").lower() == name.lower()


def _shown(cells: Sequence[str]) -> str:
    shown = [
        cell if len(cell) <= _LONGEST else f"{cell[:_LONGEST]}..."
        for cell in cells[:_SHOWN]
    ]
    return ", ".join(shown) + (", ..." if len(cells) > _SHOWN else "")


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
        columns=_columns(*sentence_pairs(first, second)),
        submission=f"{name}.tsv",
    )


TASKS = {
    "cola": GlueTask(
        folder="CoLA",
        metrics=("matthews_correlation", "accuracy"),
        columns=_columns(*COLA),
        submission="CoLA.tsv",
    ),
    "sst-2": GlueTask(
        folder="SST-2",
        columns=_columns(*SST2),
        submission="SST-2.tsv",
    ),
    "mrpc": GlueTask(
        folder="MRPC",
        metrics=("f1", "accuracy"),
        columns=_columns(*MRPC),
        submission="MRPC.tsv",
    ),
    "sts-b": GlueTask(
        folder="STS-B",
        labels=(),
        kind=examples.REGRESSION,
        metrics=("pearson", "spearman"),
        columns=_columns(*STSB),
        submission="STS-B.tsv",
    ),
    "qqp": GlueTask(
        folder="QQP",
        metrics=("f1", "accuracy"),
        columns=_columns(*QQP),
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
        columns=_columns(*MNLI)
        | {
            "dev_mismatched": MNLI[0],
            "test_mismatched": MNLI[1],
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
        columns={TEST: DIAGNOSTIC},
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
            TRAIN: XNLI_TRAIN,
            DEV: XNLI,
            TEST: XNLI,
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
    columns = find(
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
        for suffix in ("", *file_system.COMPRESSED):
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


# ----------------------------------------------------------------------
# SWAG's CSV files, and others in its columns, such as CODAH's.
#
#     sent1 "A drum line ...", sent2 "Members of it", ending0 ... ending3, label
#         -> 4 pairs: (sent1, sent2 + ending)
#
# The test file has no label column.

FILES = {"train": "train.csv", "dev": "val.csv", "test": "test.csv"}
NUM_CHOICES = 4
SWAG_LABELS = tuple(str(i) for i in range(NUM_CHOICES))


def read_swag(
    split: str, data_dir: str | None, file: str | None = None
) -> Examples:
    """Reads one split: the released name in data_dir, or another file."""
    if file is None:
        if data_dir is None:
            raise errors.InputError("--data_dir is required")
        file = os.path.join(data_dir, FILES[split])
    path = text_tables.find(file)
    rows = list(text_tables.read_named(path, "csv"))
    if not rows:
        raise errors.InputError(f"{path}: has no examples")
    first, second = [], []
    for row in rows:
        begins = text_tables.require(path, row, "sent2")
        for i in range(NUM_CHOICES):
            ending = text_tables.require(path, row, f"ending{i}")
            first.append(text_tables.require(path, row, "sent1"))
            second.append(f"{begins} {ending}".strip())
    labels = [row.cells.get("label", "") for row in rows]
    return Examples(
        path=path,
        lines=[row.line for row in rows],
        # The first column has no name: it numbers the rows.
        guids=[row.cells.get("", str(i)) for i, row in enumerate(rows)],
        first=first,
        second=second,
        labels=labels if any(labels) else None,
        num_choices=NUM_CHOICES,
    )
