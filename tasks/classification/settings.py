"""The flags of run_classifier.py."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from data import features
from finetuning import flags as flags_lib
from foundation import config_flags, errors
from tasks.classification import label_kinds, tables

field = config_flags.field
STANDARD_INPUT = "-"
MOST_WINDOWS = 16  # Of a text, which bounds memory; what is behind is cut.


def windows_of(
    trained: Mapping[str, Any], max_seq_length: int
) -> tuple[str, features.Windows] | None:
    """Returns the pooling and the windows of a training, None if it cut texts.

    `trained` are its flags, {} if they are unknown.
    """
    pooling = trained.get("long_texts") or "cut"
    if pooling == "cut":
        return None
    stride = trained.get("doc_stride") or max(max_seq_length // 2, 1)
    return pooling, features.Windows(stride, MOST_WINDOWS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassifierFlags(flags_lib.EvaluatedFlags):
    """Everything run_classifier.py needs to know."""

    FIRST_FLAGS: ClassVar[Sequence[str]] = (
        "task_name",
        "train_file",
        *flags_lib.FIRST_FLAGS,
    )

    task_name: str | None = field(
        "A task of GLUE or SuperGLUE such as MRPC or BoolQ, xnli or swag; or "
        "the format of your own tables: csv, tsv, jsonl or parquet. By default "
        "as the model was trained.",
        None,
        affects="records",
        remembered=True,
    )
    data_dir: str | None = field(
        "Directory of the task's released files.", None, remembered=True
    )
    train_file: str | None = field(
        "Training set, instead of the released file in --data_dir.",
        None,
        remembered=True,
    )
    dev_file: str | None = field(
        "Development set, instead of the released file in --data_dir. A "
        "training evaluates it after each epoch.",
        None,
        remembered=True,
    )
    dev_fraction: float | None = field(
        "Fraction of --train_file to hold out as the development set, e.g. "
        "0.1, instead of --dev_file; chosen at random by --random_seed, with "
        "equal texts on the same side.",
        None,
        affects="records",
        remembered=True,
        above=0,
        below=1,
        needs="train_file",
    )
    test_file: str | None = field(
        "Set to predict, instead of the released file in --data_dir: a file, a "
        "folder, or a pattern such as 'part-*.csv'. If it has labels, its "
        "metrics are written to scores_test.txt. - reads lines from standard "
        "input and writes to standard output; a tab separates a pair.",
        None,
    )
    language: str = field(
        "Language of the XNLI files.", "zh", affects="records", remembered=True
    )
    text_column: str = field(
        "Column of the text in your own tables.",
        "text",
        affects="records",
        remembered=True,
    )
    text_pair_column: str | None = field(
        "Column of the second text of a pair in your own tables.",
        None,
        affects="records",
        remembered=True,
    )
    label_column: str = field(
        "Column of the label in your own tables. Several columns of 0 or 1, as "
        "in rude,threat,insult, make a model of several labels.",
        "label",
        affects="records",
        remembered=True,
    )
    id_column: str | None = field(
        "Column of the ids in your own tables, which predictions.tsv repeats; "
        "by default examples are numbered.",
        None,
    )
    problem_type: (
        Literal["classification", "regression", "multi_label"] | None
    ) = field(
        "Kind of label in your own tables; by default that of the model in "
        "--init_checkpoint, else classification.",
        None,
        affects="records",
        remembered=True,
    )
    label_names: str | None = field(
        "Comma-separated labels in the order of the outputs of the model in "
        "--init_checkpoint, if its classes have no names. With --do_train, the "
        "labels of the new model, in this order; the training set may lack "
        "some.",
        None,
    )
    class_weights: str | None = field(
        "Weights of the classes in the training loss: balanced, so that rare "
        "classes count as much as frequent ones, or a number for each label, "
        "as in 1,2.5, in the order of the labels.",
        None,
        affects="result",
    )
    long_texts: Literal["cut", "mean", "max", "attention"] = field(
        "What becomes of a text that is longer than --max_seq_length: cut; or "
        "overlapping windows (of a pair, of the second text), whose logits "
        "become those of the text by their mean, their maximum, or a mean "
        "weighted by a learned attention.",
        "cut",
        affects="records",
        remembered=True,
    )
    doc_stride: int | None = field(
        "Tokens from the start of a window to that of the next; by default "
        "half of --max_seq_length.",
        None,
        affects="records",
        remembered=True,
        at_least=1,
    )
    glue_submission: str | None = field(
        "Directory for the predictions in the format of GLUE's server; for "
        "WNLI, the most frequent label, as the paper did.",
        None,
        needs="do_predict",
    )

    def __post_init__(self):
        """Refuses contradictory flags."""
        super().__post_init__()
        flags_lib.refuse(
            (
                self.do_train and self.task_name is None,
                "--task_name is required with --do_train: a GLUE task such as "
                "MRPC, or the format of your table: "
                f"{', '.join(tables.OWN_FORMS)}",
            ),
            (
                self.dev_fraction is not None and self.dev_file is not None,
                "--dev_fraction and --dev_file exclude each other",
            ),
            (
                self.doc_stride is not None and self.long_texts == "cut",
                "--doc_stride needs --long_texts=mean",
            ),
            (
                self.test_file == STANDARD_INPUT and self.glue_submission,
                "--glue_submission needs a --test_file with ids",
            ),
        )

    @property
    def evaluates_each_epoch(self) -> bool:
        """See FinetuningFlags."""
        has_own = self.dev_file is not None or self.dev_fraction is not None
        return self.do_train and has_own

    @property
    def is_own_table(self) -> bool:
        """Whether the files are a user's own tables."""
        return (self.task_name or "").lower() in tables.OWN_FORMS

    @property
    def windows(self) -> tuple[str, features.Windows] | None:
        """How logits of windows are pooled, and the windows; see windows_of."""
        return windows_of(vars(self), self.max_seq_length)

    def table(self) -> tables.Table:
        """Returns the columns of the files.

        Raises:
          InputError: there is no such task, or a column is named twice.
        """
        if self.task_name is None:
            raise errors.InputError(
                f"--task_name is required: {self.output_dir} does not say with "
                "which one a model was trained"
            )
        name = tables.name_of(self.task_name)
        if name in tables.TASKS:
            table = tables.TASKS[name]
            only = {"language": self.language} if name == "xnli" else {}
            return dataclasses.replace(table, only=only)
        if not self.is_own_table:
            raise errors.InputError(
                f"--task_name={self.task_name}: is none of "
                f"{', '.join((*tables.TASKS, *tables.OWN_FORMS))}"
            )
        labels = [x.strip() for x in self.label_column.split(",")]
        several = labels if len(labels) > 1 else []
        kind = self.problem_type or label_kinds.OneLabel.name
        return tables.Table(
            form=self.task_name.lower(),
            text=self.text_column,
            pair=self.text_pair_column,
            label=self.label_column,
            flags=several,
            id=self.id_column,
            labels=several or None,
            kind=label_kinds.OF_OWN_TABLES["multi_label" if several else kind],
            metrics=None,
        )
