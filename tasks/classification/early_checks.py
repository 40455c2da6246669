"""Checks of run_classifier.py's flags before TensorFlow is imported.

The first row of each table is read, so that wrong names of columns end a
command at once.
"""

from collections.abc import Sequence

from data import examples, text_files
from foundation import errors, file_system
from jobs import early_checks
from tasks.classification import sentence_files
from tasks.classification.sentence_files import DEV, TEST, TRAIN
from tasks.classification.settings import ClassifierConfig
from weights import kinds


def check(config: ClassifierConfig) -> None:
    """Refuses paths, columns and missing flags; see jobs.early_checks.

    Raises:
      InputError: names the flag, and the file and the line of a column.
    """
    given, config = config, early_checks.with_trained_flags(config)
    early_checks.check_head(given, _wanted(config))
    early_checks.check_positions(
        config,
        ""
        if config.long.has_windows
        else "; --long_texts=windows reads longer texts in windows",
    )
    files, used = config.files, config.used_splits
    is_divided = files.dev_fraction is not None
    reads_train = TRAIN in used or (DEV in used and is_divided)
    for split in used:
        if files.of(split) is not None or (split == DEV and is_divided):
            continue
        if config.task_name is not None and config.is_own_table:
            raise errors.InputError(
                f"--task_name={config.task_name}: "
                f"{sentence_files.required(split)}"
            )
        if files.data_dir is None:
            other = "" if config.task_name is None else "--data_dir or "
            raise errors.InputError(f"{other}{sentence_files.required(split)}")
    early_checks.check_model(config)
    early_checks.check_paths(
        config,
        {
            "data_dir": files.data_dir,
            **{f"{split}_file": files.of(split) for split in used},
            "train_file": files.train_file if reads_train else None,
        },
    )
    if config.task_name is None or not config.is_own_table:
        return
    for split in used:
        # The columns of a model's training may be unknown here.
        if config.do_train or config.columns.text_column is not None:
            _check_columns(config, split)


def _wanted(config: ClassifierConfig) -> Sequence[str]:
    """Returns the kinds of models that may have been trained for the task."""
    if config.is_multiple_choice:
        return [examples.MULTIPLE_CHOICE]
    if config.task_name is None:  # The code that opens the task says so.
        return [*kinds.SENTENCE_KINDS, examples.MULTIPLE_CHOICE]
    return kinds.SENTENCE_KINDS


def _check_columns(config: ClassifierConfig, split: str) -> None:
    """Reads the first row of a table."""
    path = config.files.of(split)
    if path is None or path == text_files.STANDARD_INPUT:
        return
    if file_system.is_remote(path):
        return
    assert config.task_name is not None
    table = sentence_files.own_table(config.task_name.lower(), config.columns)
    described = sentence_files.DataFiles(
        paths=text_files.find_all(path, table.endings)[:1],
        split=split,
        is_labeled=split != TEST,
    )
    next(iter(table.read(described)), None)
