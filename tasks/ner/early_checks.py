"""Checks of run_ner.py's flags before TensorFlow is imported."""

from jobs import early_checks
from tasks.ner.settings import NerConfig
from weights import kinds


def check(config: NerConfig) -> None:
    """Refuses paths and missing flags; see jobs.early_checks.

    Raises:
      InputError: names the flag.
    """
    early_checks.check_model(config)
    if not config.bilstm.is_used:
        early_checks.check_head(config, [kinds.TOKEN_CLASSIFICATION])
    config = early_checks.with_trained_flags(config)
    early_checks.check_positions(config)
    files = config.files
    early_checks.check_paths(
        config,
        {"train_file": files.train_file, "dev_file": files.dev_file},
        allows_folders=False,
    )
    early_checks.check_paths(
        config,
        {
            "data_dir": files.data_dir,
            "test_file": files.test_file,
            "text_file": config.text_file,
        },
    )
