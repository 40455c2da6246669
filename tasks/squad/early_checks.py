"""Checks of run_squad.py's flags before TensorFlow is imported."""

from foundation import file_system
from jobs import early_checks
from tasks.squad.settings import SquadConfig
from weights import kinds


def check(config: SquadConfig) -> None:
    """Refuses paths and missing flags; see jobs.early_checks.

    Raises:
      InputError: names the flag.
    """
    if not config.ensemble_dirs:
        early_checks.check_model(config)
        early_checks.check_head(config, [kinds.QUESTION_ANSWERING])
        early_checks.check_positions(early_checks.with_trained_flags(config))
    for flag in ("train_file", "predict_file"):
        names = getattr(config, flag) or ""
        for name in file_system.split_names(names, file_system.exists):
            early_checks.check_paths(config, {flag: name}, allows_folders=False)
