"""The tables of sentence tasks: a new released task is one entry of TASKS.

    "boolq": Table(form="jsonl", text="question", pair="passage",
                   label=("label", "answer"), labels=("false", "true"), ...)

    row of a file --read--> Sentence(where, id, text, others, label)

Columns are found by their names. Several names are alternatives: the first that
the file has is read.
"""

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from data import text_files
from finetuning import task as tasks
from foundation import errors, file_system
from tasks.classification import label_kinds

TRAIN, DEV, TEST = "train", "dev", "test"
OWN_FORMS = ("csv", "tsv", "jsonl", "parquet")
_RAW_TSV = "raw"  # Tab-separated; quotation marks are text, as in GLUE.
_BINARY = ("0", "1")
_NLI = ("contradiction", "entailment", "neutral")
_TWO_WAY = ("entailment", "not_entailment")
_WHOLE = re.compile(r"^(-?[0-9]+)\.0+$")  # 1.0 is the label 1.
_TRUTHS = {"1": True, "true": True, "0": False, "false": False}
Names = str | Sequence[str]


class Sentence(NamedTuple):
    """One example.

    where: file and line.
    id: its name, for predictions.
    text: its text, or the first of a pair; of multiple choice, the beginning.
    others: nothing, the second text of a pair, or the K endings.
    label: the label as written; several of them; None without one.
    """

    where: str
    id: str
    text: str
    others: Sequence[str] = ()
    label: str | tuple[str, ...] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """The files of a sentence task, and their columns.

    Attributes:
      files: split -> its file in --data_dir; several names are alternatives.
      folders: subdirectories of --data_dir that may contain the files.
      form: one of text_files.FORMATS, or _RAW_TSV.
      header: names of the columns of files without a header, if any.
      text, pair, label, id: names of columns; rows without id are numbered.
      flags: columns of 0 or 1, one for each label, instead of `label`.
      prefix: column of a text that is put before the first text.
      endings: makes the texts, of which one is right, of a row.
      only: column -> the value of the rows that are read, if it is there.
      labels: names of the classes; () for a regression; None if the training
        set has them.
      aliases: spelling of a label in the files -> label.
      kind: what a label is.
      metrics: names of metrics, by default those of the kind.
      selected_by: the metrics whose mean is the score; by default all.
      has_cut_rows: whether rows of another width are skipped and counted: the
        file was released with truncated rows.
      submission: name of the file for GLUE's server, if there is one.
      hub: the Hub's name of the files.
    """

    files: Mapping[str, Names] = dataclasses.field(default_factory=dict)
    folders: Sequence[str] = ()
    form: str = _RAW_TSV
    header: Sequence[str] = ()
    text: Names = "sentence"
    pair: Names | None = None
    label: Names = "label"
    id: str | None = "index"
    flags: Sequence[str] = ()
    prefix: str | None = None
    endings: Callable[[text_files.Row], Sequence[str]] | None = None
    only: Mapping[str, str] = dataclasses.field(default_factory=dict)
    labels: Sequence[str] | None = _BINARY
    aliases: Mapping[str, str] = dataclasses.field(default_factory=dict)
    kind: type[label_kinds.OneLabel] = label_kinds.OneLabel
    metrics: Sequence[str] | None = ("accuracy",)
    selected_by: Sequence[str] | None = None
    has_cut_rows: bool = False
    submission: str | None = None
    hub: str = ""

    @property
    def has_pairs(self) -> bool:
        """Whether examples have a second text."""
        return self.pair is not None or self.endings is not None

    def names(self, split: str, language: str) -> list[str]:
        """Returns the names that the file of a set may have."""
        names = self.files[split]
        names = [names] if isinstance(names, str) else names
        return [name.format(language=language) for name in names]

    def read(self, paths: Sequence[str], split: str) -> Iterator[Sentence]:
        """Yields the examples of a set.

        Raises:
          InputError: a column or a label is missing, or a cell is no text;
            names file and line.
        """
        is_labeled = not split.startswith(TEST)
        for number, row in enumerate(self._rows(paths)):
            if any(row.cells.get(k, x) != x for k, x in self.only.items()):
                continue
            text, others = row.text(_find(row, self.text)), tuple[str, ...]()
            if self.prefix is not None:
                text = f"{row.text(self.prefix)}: {text}"
            if self.endings is not None:
                others = tuple(self.endings(row))
            elif self.pair is not None:
                others = (row.text(_find(row, self.pair)),)
            name = str(row.cells.get(self.id, number))
            label = self._label(row, is_needed=is_labeled)
            yield Sentence(row.where, name, text, others, label)

    def _label(
        self, row: text_files.Row, *, is_needed: bool
    ) -> str | tuple[str, ...] | None:
        """Returns the label of a row; see Sentence."""
        name = _find(row, self.flags[:1] or self.label)
        if name not in row.cells and not is_needed:
            return None
        if self.flags:
            return tuple(x for x in self.flags if _is_true(row, x))
        words = [_WHOLE.sub(r"\1", x.strip()) for x in row.texts(name)]
        if self.kind is label_kinds.AnyLabels:
            if not isinstance(row.cells[name], list):
                words = [x.strip() for x in ",".join(words).split(",")]
            return tuple(filter(None, words))
        if len(words) > 1:
            return tuple(words)
        return self.aliases.get(words[0], words[0]) if words else None

    def _rows(self, paths: Sequence[str]) -> Iterator[text_files.Row]:
        if self.form != _RAW_TSV:
            yield from text_files.read_named(paths, self.form)
            return
        for path in paths:
            yield from self._raw_rows(path)

    def _raw_rows(self, path: str) -> Iterator[text_files.Row]:
        header, num_cut = list(self.header), 0
        for row in text_files.read_tsv(path):
            if not row.cells:
                continue
            if not header or (row.line == 1 and self.text in row.cells):
                header = row.cells
            elif len(row.cells) == len(header):
                cells = dict(zip(header, row.cells, strict=True))
                yield row._replace(cells=cells)
            elif self.has_cut_rows:
                num_cut += 1
            else:
                raise errors.InputError(
                    f"{row.where}: {len(row.cells)} columns, but the header "
                    f"has {len(header)}"
                )
        if num_cut:
            errors.warn_once(f"{path}: {num_cut} truncated row(s) are skipped")


def _find(row: text_files.Row, names: Names) -> str:
    """Returns the first of alternative names that a row has."""
    names = [names] if isinstance(names, str) else names
    return next((name for name in names if name in row.cells), names[0])


def _is_true(row: text_files.Row, name: str) -> bool:
    """Returns whether a row has the label of a column of 0 or 1."""
    words = [_WHOLE.sub(r"\1", x.strip().lower()) for x in row.texts(name)]
    if len(words) != 1 or words[0] not in _TRUTHS:
        raise errors.InputError(
            f"{row.where}: {name!r} is {row.cells[name]!r:.40}, but must be 0 "
            "or 1, as a column of --label_column"
        )
    return _TRUTHS[words[0]]


def _swag_endings(row: text_files.Row) -> list[str]:
    """Returns the endings of SWAG's rows: sent2 "He", ending0 "ran."."""
    begin = row.text("sent2")
    return [f"{begin} {row.text(f'ending{i}')}".strip() for i in range(4)]


def _copa_endings(row: text_files.Row) -> list[str]:
    """Returns the choices of COPA: "because ..." for a cause, "so ..."."""
    words = {"cause": "because", "effect": "so"}
    word = words.get(question := row.text("question"))
    if word is None:
        raise errors.InputError(
            f"{row.where}: the question is {question!r}, not cause or effect"
        )
    return [f"{word} {row.text(name)}" for name in ("choice1", "choice2")]


def _glue(folder: str, **fields: Any) -> Table:
    """Returns a task of GLUE in its usual files."""
    return Table(
        **{
            "files": {x: f"{x}.tsv" for x in (TRAIN, DEV, TEST)},
            "folders": (folder,),
            "submission": f"{folder}.tsv",
            "hub": "nyu-mll/glue",
            **fields,
        }
    )


def _super_glue(folder: str, **fields: Any) -> Table:
    """Returns a task of SuperGLUE in its usual files."""
    files = {TRAIN: "train.jsonl", DEV: "val.jsonl", TEST: "test.jsonl"}
    return Table(
        **{
            "files": files,
            "folders": (folder,),
            "form": "jsonl",
            "id": "idx",
            "hub": "aps/super_glue",
            **fields,
        }
    )


_PAIR = {"text": "sentence1", "pair": "sentence2"}
_HYPOTHESIS = {"text": "premise", "pair": "hypothesis"}
TASKS: Mapping[str, Table] = {
    "cola": _glue(
        "CoLA",
        header=("source", "label", "mark", "sentence"),
        metrics=("matthews_correlation", "accuracy"),
        # GLUE ranks CoLA by this metric alone.
        selected_by=("matthews_correlation",),
    ),
    "sst-2": _glue("SST-2"),
    "mrpc": _glue(
        "MRPC",
        text="#1 String",
        pair="#2 String",
        label="Quality",
        metrics=("f1", "accuracy"),
    ),
    "sts-b": _glue(
        "STS-B",
        **_PAIR,
        label="score",
        labels=(),
        kind=label_kinds.Value,
        metrics=("pearson", "spearman"),
    ),
    "qqp": _glue(
        "QQP",
        text="question1",
        pair="question2",
        label="is_duplicate",
        id="id",
        metrics=("f1", "accuracy"),
        has_cut_rows=True,
    ),
    "mnli": _glue(
        "MNLI",
        **_PAIR,
        label="gold_label",
        labels=_NLI,
        files={
            TRAIN: "train.tsv",
            DEV: "dev_matched.tsv",
            "dev_mismatched": "dev_mismatched.tsv",
            TEST: "test_matched.tsv",
            "test_mismatched": "test_mismatched.tsv",
        },
        submission="MNLI-m.tsv",
    ),
    "qnli": _glue("QNLI", text="question", pair="sentence", labels=_TWO_WAY),
    "rte": _glue("RTE", **_PAIR, labels=_TWO_WAY),
    "wnli": _glue("WNLI", **_PAIR),
    "ax": _glue(
        "diagnostic",
        **_PAIR,
        files={TEST: "diagnostic.tsv"},
        labels=_NLI,
        submission="AX.tsv",
    ),
    "xnli": Table(
        files={
            TRAIN: os.path.join("multinli", "multinli.train.{language}.tsv"),
            DEV: "xnli.dev.tsv",
            TEST: "xnli.test.tsv",
        },
        folders=("XNLI", "XNLI-1.0", "XNLI-MT-1.0"),
        text=("sentence1", "premise"),
        pair=("sentence2", "hypo"),
        label=("gold_label", "label"),
        aliases={"contradictory": "contradiction"},
        labels=_NLI,
        hub="facebook/xnli",
    ),
    "swag": Table(
        files={TRAIN: "train.csv", DEV: "val.csv", TEST: "test.csv"},
        form="csv",
        text="sent1",
        endings=_swag_endings,
        id="",  # The column of the row numbers has an empty name.
        labels=("0", "1", "2", "3"),
        kind=label_kinds.Choice,
        hub="allenai/swag",
    ),
    "boolq": Table(
        files={
            TRAIN: "train.jsonl",
            DEV: ("val.jsonl", "dev.jsonl"),
            TEST: "test.jsonl",
        },
        folders=("BoolQ",),
        form="jsonl",
        text="question",
        pair="passage",
        # SuperGLUE has "label" and "idx", the original release "answer".
        label=("label", "answer"),
        id="idx",
        labels=("false", "true"),
        hub="google/boolq",
    ),
    "cb": _super_glue(
        "CB", **_HYPOTHESIS, labels=_NLI, metrics=("accuracy", "f1_macro")
    ),
    "copa": _super_glue(
        "COPA", text="premise", endings=_copa_endings, kind=label_kinds.Choice
    ),
    "wic": _super_glue("WiC", **_PAIR, prefix="word", labels=("false", "true")),
    "ax-g": _super_glue(  # Predicted with RTE's model.
        "AX-g", **_HYPOTHESIS, labels=_TWO_WAY, files={TEST: "AX-g.jsonl"}
    ),
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


def has_pairs(flags: Mapping[str, Any]) -> bool:
    """Returns whether a training with these flags was of pairs of texts."""
    if flags.get("text_pair_column"):
        return True
    table = TASKS.get(name_of(flags.get("task_name") or ""))
    return table is not None and table.has_pairs


def find_released(
    table: Table, split: str, data_dir: str, language: str
) -> str | None:
    """Returns the path of a released file, compressed or not, or None."""
    for name in table.names(split, language):
        for folder in ("", *table.folders):
            for suffix in ("", *file_system.COMPRESSED):
                path = os.path.join(data_dir, folder, name + suffix)
                if file_system.exists(path):
                    return path
    return None


def divide(
    examples: tasks.Examples, fraction: float, seed: int
) -> tuple[tasks.Examples, tasks.Examples]:
    """Divides a set in two at random; equal texts are in the same part.

    Texts that differ only in case and white space are equal, so that a model is
    not evaluated on texts that it was trained on.

    Args:
      examples: the set.
      fraction: the fraction of the examples that the second part gets, at
        least.
      seed: seed of the division.

    Returns:
      The two parts, in the order of the set.

    Raises:
      InputError: one of them would be empty.
    """
    counts: dict[bytes, int] = {}
    for example in examples:
        group = _group(example, seed)
        counts[group] = counts.get(group, 0) + 1
    missing, last = fraction * sum(counts.values()), b""
    for group in sorted(counts):
        if missing <= 0:
            break
        missing, last = missing - counts[group], group
    if not counts or last == max(counts):
        raise errors.InputError(
            f"{examples.path}: {len(counts)} different text(s) are too few to "
            f"hold out {fraction:g} of them"
        )

    def part(is_held_out: bool) -> tasks.Examples:
        return dataclasses.replace(
            examples,
            read=lambda: (
                example
                for example in examples
                if (_group(example, seed) <= last) == is_held_out
            ),
        )

    return part(False), part(True)


def _group(example: Sentence, seed: int) -> bytes:
    """Returns a random number of a text, the same for equal texts."""
    texts = (example.text, *example.others)
    words = tuple(" ".join(text.split()).casefold() for text in texts)
    return hashlib.sha256(json.dumps([seed, words]).encode("ascii")).digest()
