"""The flags of run_classifier.py."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from foundation import config_flags
from jobs import run_config

field, group = config_flags.field, config_flags.group
affects_result = config_flags.affects_result
# Values of --task_name for a user's own tables: text_files.FORMATS.
OWN_TABLES = ("csv", "tsv", "jsonl", "parquet")
MULTIPLE_CHOICE = ("swag", "copa")  # The tasks of this kind.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Files:
    """The files of a sentence task."""

    data_dir: str | None = field(
        "Directory of the task's released files.", None
    )
    train_file: str | None = field(
        "Training set, instead of the released file in --data_dir.",
        None,
        affects="records",
    )
    dev_file: str | None = field(
        "Development set, instead of the released file in --data_dir.",
        None,
        affects="evaluation",
    )
    test_file: str | None = field(
        "Set to predict, instead of the released file in --data_dir: a file, a "
        "folder, or a pattern such as 'part-*.csv'. If it has labels, its "
        "metrics are written to scores_test.txt. - reads lines from standard "
        "input and writes to standard output; a tab separates a pair.",
        None,
    )
    dev_fraction: float | None = field(
        "Fraction of --train_file to hold out as the development set, e.g. "
        "0.1, instead of --dev_file; chosen at random by --random_seed, with "
        "equal texts on the same side.",
        None,
        affects="records",
        above=0,
        below=1,
    )
    language: str = field("Language of the XNLI files.", "zh")

    def __post_init__(self):
        """Refuses a division of nothing, and two development sets."""
        if self.dev_fraction is None:
            return
        if self.dev_file is not None:
            raise ValueError("--dev_fraction and --dev_file exclude each other")
        if self.train_file is None:
            raise ValueError("--dev_fraction needs --train_file")

    def of(self, split: str) -> str | None:
        """Returns the file that a flag such as --train_file names."""
        return getattr(self, f"{split}_file", None)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Columns:
    """The columns of a table of your own."""

    text_column: str | None = field(
        "Column of the text in your own tables; by default as the model was "
        'trained, else "text".',
        None,
    )
    text_pair_column: str | None = field(
        "Column of the second text of a pair in your own tables; by default as "
        "the model was trained.",
        None,
    )
    label_column: str | None = field(
        "Column of the label in your own tables; by default as the model was "
        'trained, else "label".',
        None,
    )
    label_columns: str | None = field(
        "Columns of 0 or 1 in your own tables, one for each label, as in "
        "rude,threat,insult: makes a model of several labels. By default as "
        "the model was trained.",
        None,
    )
    id_column: str | None = field(
        "Column of the ids in your own tables, which predictions.tsv repeats; "
        "by default examples are numbered.",
        None,
    )

    keep_columns: str | None = field(
        "Columns of your own tables that predictions.tsv repeats, as in "
        "text,date; by default the text; none for none.",
        None,
    )

    def __post_init__(self):
        """Refuses two forms of labels."""
        if self.label_columns and self.label_column:
            raise ValueError(
                "--label_columns and --label_column exclude each other"
            )

    @property
    def of_labels(self) -> list[str]:
        """The columns in --label_columns; [] if a column has the labels."""
        if self.label_column is not None or self.label_columns is None:
            return []
        return [name.strip() for name in self.label_columns.split(",")]

    @property
    def kept(self) -> list[str]:
        """The columns that predictions repeat."""
        if self.keep_columns is None:
            names = [self.text_column or "text", self.text_pair_column]
            return [name for name in names if name]
        if self.keep_columns.strip().lower() in ("", "none"):
            return []
        return [name.strip() for name in self.keep_columns.split(",")]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LongTexts:
    """How texts that are longer than --max_seq_length are read."""

    long_texts: Literal["cut", "windows"] | None = field(
        "What becomes of a text that is longer than --max_seq_length: cut; or "
        "windows, which divides it into overlapping windows and pools their "
        "logits (of a pair, the second text). By default as the model was "
        "trained, else cut.",
        None,
        affects="records",
    )
    doc_stride: int | None = field(
        "Tokens from the start of a window to that of the next; by default as "
        "the model was trained, else half of --max_seq_length.",
        None,
        affects="records",
        at_least=1,
    )
    max_windows: int | None = field(
        "The largest number of windows of a text, which bounds memory; what is "
        "behind them is cut. By default as the model was trained, else 16.",
        None,
        affects="records",
        at_least=1,
    )
    window_pooling: Literal["mean", "max", "attention"] | None = affects_result(
        "How the logits of windows become those of the text: their mean, their "
        "maximum, or a mean weighted by a learned attention over the windows. "
        "By default as the model was trained, else mean.",
        None,
    )

    def __post_init__(self):
        """Refuses flags without effect."""
        if self.has_windows:
            return
        for name in ("doc_stride", "max_windows", "window_pooling"):
            if getattr(self, name) is not None:
                raise ValueError(f"--{name} needs --long_texts=windows")

    @classmethod
    def of_training(cls, trained: Mapping[str, Any]) -> "LongTexts":
        """Returns the values among the flags of a training."""
        names = [x.name for x in dataclasses.fields(cls)]
        return config_flags.build(cls, **{k: trained.get(k) for k in names})

    @property
    def has_windows(self) -> bool:
        """Whether texts are divided."""
        return self.long_texts == "windows"

    def sizes(self, max_seq_length: int) -> tuple[int, int] | None:
        """The values of data.features.Windows, None if texts are cut."""
        if not self.has_windows:
            return None
        stride = self.doc_stride or max(max_seq_length // 2, 1)
        return stride, self.max_windows or 16

    @property
    def pooling(self) -> str | None:
        """How logits are pooled; None if texts are cut."""
        return (self.window_pooling or "mean") if self.has_windows else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassifierConfig(run_config.FinetuningConfig):
    """Everything run_classifier.py needs to know."""

    FIRST_FLAGS: ClassVar[Sequence[str]] = (
        "task_name",
        "train_file",
        *run_config.FIRST_FLAGS,
    )

    files: Files = group(Files)
    columns: Columns = group(Columns)
    long: LongTexts = group(LongTexts)
    # Room for [CLS], a token, [SEP].
    max_seq_length: int = field(
        "Maximum number of tokens; longer texts are cut. Without --do_train, "
        "by default as the model was trained.",
        128,
        affects="records",
        at_least=3,
    )
    task_name: str | None = field(
        "A task of GLUE or SuperGLUE such as MRPC or BoolQ, xnli or swag; or "
        "the format of your own tables: csv, tsv, jsonl or parquet. By default "
        "as the model was trained.",
        None,
        affects="records",
    )
    problem_type: (
        Literal["classification", "regression", "multi_label"] | None
    ) = field(
        "Kind of label in your own tables; by default that of the model in "
        "--init_checkpoint, else classification.",
        None,
        affects="records",
    )
    label_names: str | None = field(
        "Comma-separated labels in the order of the outputs of the model in "
        "--init_checkpoint, if its classes have no names. With --do_train, the "
        "labels of the new model, in this order; the training set may lack "
        "some.",
        None,
        affects="records",
    )
    class_weights: str | None = affects_result(
        "Weights of the classes in the training loss: balanced, so that rare "
        "classes count as much as frequent ones, or a number for each label, "
        "as in 1,2.5, in the order of the labels.",
        None,
    )
    do_eval: bool = field("Whether to evaluate on the development set.", False)
    predict_dev: bool = field(
        "Whether --do_predict also writes predictions of the development set, "
        "to predictions_dev.tsv.",
        False,
    )
    eval_batch_size: int = field(
        "Examples per evaluation batch, over all replicas.", 8, at_least=1
    )
    glue_submission: str | None = field(
        "Directory for the predictions in the format of GLUE's server.", None
    )
    wnli_majority: bool = field(
        "Submit WNLI's most frequent label for every example, as the paper "
        "did.",
        False,
    )

    def __post_init__(self):
        """Refuses contradictory flags."""
        super().__post_init__()
        if self.do_train and self.task_name is None:
            raise ValueError(
                "--task_name is required with --do_train: a GLUE task such as "
                f"MRPC, or the format of your table: {', '.join(OWN_TABLES)}"
            )
        if not (self.do_train or self.do_eval or self.do_predict):
            raise ValueError(
                "at least one of --do_train, --do_eval and --do_predict must "
                "be given"
            )
        if self.columns.keep_columns is not None and not self.do_predict:
            raise ValueError("--keep_columns needs --do_predict")
        names = self.columns.of_labels
        if not all(names) or len({*names}) < len(names):
            raise ValueError(
                f"--label_columns={self.columns.label_columns}: a name is "
                "empty or occurs twice"
            )
        if names and self.problem_type not in (None, "multi_label"):
            raise ValueError(
                f"--label_columns makes a model of several labels, not "
                f"--problem_type={self.problem_type}"
            )
        if self.class_weights is not None and not self.do_train:
            raise ValueError("--class_weights needs --do_train")
        _ = self.given_class_weights
        for name in ("glue_submission", "predict_dev"):
            if getattr(self, name) and not self.do_predict:
                raise ValueError(f"--{name} needs --do_predict")
        if self.files.test_file == "-" and self.glue_submission:
            raise ValueError("--glue_submission needs a --test_file with ids")
        for name in ("id_column", "text_column", "keep_columns"):
            if self.files.test_file == "-" and name in config_flags.given(self):
                raise ValueError(
                    f"--{name}: --test_file=- reads lines without columns"
                )

    @property
    def remembered(self) -> Sequence[str]:
        """See FinetuningConfig.

        Released tasks have no flags of columns. --id_column is not remembered:
        a model does not depend on it, and other tables may lack the column. The
        development set is remembered, not the set to predict.
        """
        windows = (x.name for x in dataclasses.fields(LongTexts))
        names = ["max_seq_length", *windows]
        if self.is_own_table:
            names += ["task_name", "text_column", "text_pair_column"]
            names += ["label_column", "label_columns"]
        development = {"dev_file", "dev_fraction", "data_dir"}
        needs_development = self.do_eval or self.predict_dev
        if needs_development and not development & config_flags.chosen(self):
            names += [*sorted(development), "train_file", "language"]
        return names

    @property
    def used_splits(self) -> list[str]:
        """The sets that the command reads, of train, dev and test."""
        used = ["train"] if self.do_train or self.wnli_majority else []
        if self.do_eval or self.predict_dev or self.needs_evaluation:
            used.append("dev")
        return [*used, "test"] if self.do_predict else used

    @property
    def given_class_weights(self) -> list[float] | None:
        """The numbers in --class_weights, None without it or if balanced."""
        if self.class_weights in (None, "balanced"):
            return None
        try:
            weights = [float(x) for x in self.class_weights.split(",")]
        except ValueError:
            weights = []
        if not weights or not all(0 < x < math.inf for x in weights):
            raise ValueError(
                f"--class_weights={self.class_weights}: must be balanced, or "
                "positive numbers separated by commas"
            )
        return weights

    @property
    def is_own_table(self) -> bool:
        """Whether the files are a user's own tables, or may be."""
        return self.task_name is None or self.task_name.lower() in OWN_TABLES

    @property
    def is_multiple_choice(self) -> bool:
        """Whether the task is known to be one of multiple choice."""
        return (self.task_name or "").lower() in MULTIPLE_CHOICE

    @property
    def evaluates_every_epoch(self) -> bool:
        """See FinetuningConfig; by default if there is a development set.

        GLUE and other released sets keep google-research/bert's default.
        """
        files, chosen = self.files, self.selection.eval_every_epoch
        if chosen is None:
            has_dev = files.dev_file or files.dev_fraction is not None
            return bool(self.is_own_table and has_dev)
        return chosen

    @property
    def batch_sizes(self) -> dict[str, int]:
        """See FinetuningConfig."""
        sizes = super().batch_sizes
        if self.do_eval or self.needs_evaluation:
            sizes["eval_batch_size"] = self.eval_batch_size
        return sizes

    @property
    def standard_input_flag(self) -> str | None:
        """See FinetuningConfig."""
        reads = self.do_predict and self.files.test_file == "-"
        return "test_file" if reads else None

    @property
    def names_of_labels(self) -> list[str] | None:
        """The labels in --label_names."""
        if self.label_names is None:
            return None
        return [name.strip() for name in self.label_names.split(",")]
