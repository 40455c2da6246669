"""Checks of run_ner.py's flags before TensorFlow is imported."""

import os

from foundation import errors, file_system
from jobs import early_checks
from tasks.ner import settings
from tasks.ner.settings import NerConfig
from weights import kinds


def check(config: NerConfig) -> None:
    """Refuses paths and missing flags; see jobs.early_checks.

    Raises:
      InputError: names the flag.
    """
    if config.has_frozen_encoder:
        # One of them is --init_checkpoint.
        config = early_checks.with_trained_flags(config)
        early_checks.check_model(config)
    else:
        _refuse_taggers(config)
        early_checks.check_model(config)
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


def _refuse_taggers(config: NerConfig) -> None:
    """Refuses to take taggers of --features for a fine-tuned model."""
    if config.do_train or config.init_checkpoint is not None:
        return
    if file_system.is_remote(config.output_dir):
        return
    folder = os.path.join(config.output_dir, settings.TAGGERS)
    has_taggers = file_system.is_folder(folder)
    if has_taggers and not early_checks.has_model(config.output_dir):
        names = ", ".join(
            name
            for name in sorted(file_system.entries(folder))
            if file_system.is_folder(os.path.join(folder, name))
        )
        raise errors.InputError(
            f"--output_dir={config.output_dir}: has taggers of --features "
            f"({names}): name one of them, or all"
        )
