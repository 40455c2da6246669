"""Checks of run_ner.py's flags before TensorFlow is imported."""

from jobs import early_checks
from tasks.ner.settings import NerConfig


def check(config: NerConfig) -> None:
    """Refuses paths and missing flags; see jobs.early_checks.

    Raises:
      InputError: names the flag.
    """
    early_checks.check_model(config)
    files = config.files
    early_checks.check_paths(
        {"train_file": files.train_file, "dev_file": files.dev_file},
        allows_folders=False,
    )
    early_checks.check_paths(
        {
            "data_dir": files.data_dir,
            "test_file": files.test_file,
            "text_file": config.text_file,
        }
    )
