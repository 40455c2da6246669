"""Checks of run_embeddings.py's flags before TensorFlow is imported.

The first row of each table is read, so that wrong names of columns end a
command at once.
"""

from foundation import file_system
from jobs import early_checks
from tasks.embeddings import text_groups
from tasks.embeddings.settings import EmbeddingsConfig
from weights import kinds


def check(config: EmbeddingsConfig) -> None:
    """Refuses paths, columns and missing flags; see jobs.early_checks.

    Raises:
      InputError: names the flag, or the file and its columns.
    """
    early_checks.check_model(config)
    if config.do_train:  # Any encoder can be evaluated.
        early_checks.check_head(config, [kinds.SENTENCE_EMBEDDING])
    config = early_checks.with_trained_flags(config)
    early_checks.check_positions(config)
    files = config.used_files
    early_checks.check_paths(config, files)
    for flag in ("train_file", "dev_file"):
        if flag in files and not file_system.is_remote(files[flag]):
            text_groups.open_groups(files[flag], f"--{flag}")
