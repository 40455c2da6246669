"""Checks of run_classifier.py's flags before TensorFlow is imported.

The first row of each table is read, so that wrong names of columns end a
command at once.
"""

from data import text_files
from foundation import errors, file_system
from jobs import early_checks
from tasks.classification import sentence_files
from tasks.classification.sentence_files import DEV, TEST, TRAIN
from tasks.classification.settings import ClassifierConfig


def check(config: ClassifierConfig) -> None:
    """Refuses paths, columns and missing flags; see jobs.early_checks.

    Raises:
      InputError: names the flag, and the file and the line of a column.
    """
    files = config.files
    used = [TRAIN] * (config.do_train or config.wnli_majority)
    if config.do_eval or config.predict_dev or config.needs_evaluation:
        used.append(DEV)
    used += [TEST] * config.do_predict
    for split in used:
        is_divided = split == DEV and files.dev_fraction is not None
        if files.of(split) is not None or is_divided:
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
        {
            "data_dir": files.data_dir,
            **{f"{split}_file": files.of(split) for split in used},
        }
    )
    if config.task_name is None or not config.is_own_table:
        return
    for split in used:
        # Columns that are not given may be those of the model's training.
        if config.do_train or split == TRAIN:
            _check_columns(config, split)


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
        have_released_names=False,
        data_dir="",
        language="",
        labels=(),
    )
    next(iter(table.read(described)), None)
