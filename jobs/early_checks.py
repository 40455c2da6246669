"""Checks of flags before TensorFlow is imported, which takes seconds.

    config_flags.check_early(Config, __name__, early_checks.check)

They find what users mistype first: paths, and a model that is not named. What
needs a file's contents is checked later by the code that reads the file.
"""

import os
from collections.abc import Mapping

from foundation import errors, file_system, hub
from jobs import run_config
from weights import hub_names

_EXAMPLE = "google-bert/bert-base-uncased"


def check_model(config: run_config.FinetuningConfig) -> None:
    """Refuses a command without a model to start from or to use.

    Raises:
      InputError: --init_checkpoint names nothing, or no model is given.
    """
    output_dir, path = config.output_dir, config.init_checkpoint
    # A model in output_dir is used instead of --init_checkpoint.
    may_have_model = not config.do_train and (
        file_system.is_remote(output_dir)
        or (
            file_system.is_folder(output_dir)
            and bool(file_system.entries(output_dir))
        )
    )
    if may_have_model:
        return
    if path is not None:
        _check_checkpoint(path)
    elif config.pretrained.bert_config_file is not None:
        return
    elif config.do_train:
        command = hub_names.download_command(_EXAMPLE, "bert-base")
        raise errors.InputError(
            "neither --init_checkpoint nor --bert_config_file is given: a "
            f"training starts from a model, e.g. {command}, then "
            "--init_checkpoint=bert-base"
        )
    else:
        raise errors.InputError(
            f"there is no trained model in --output_dir={output_dir}, and "
            "neither --init_checkpoint nor --bert_config_file is given"
        )


def _check_checkpoint(path: str) -> None:
    """Refuses a path of which no file exists; others are read later."""
    if hub.is_name(path):
        hub.local(path)
        return
    folder, name = os.path.split(path.rstrip("/"))
    if file_system.is_remote(path) or file_system.exists(path):
        return
    is_there = file_system.is_folder(folder or ".")
    if is_there and any(
        entry.startswith(f"{name}.")
        for entry in file_system.entries(folder or ".")
    ):
        return  # The prefix of TensorFlow's files.
    raise errors.InputError(
        f"--init_checkpoint={path}: no such checkpoint or directory"
        f"{hub_names.hint(path)}"
    )


def check_folder(path: str, flag: str) -> None:
    """Refuses the name of a folder where there is none.

    Args:
      path: the folder.
      flag: that names it.

    Raises:
      InputError: names the flag.
    """
    if file_system.is_folder(path):
        return
    found = "is a file, not a" if file_system.exists(path) else "no such"
    raise errors.InputError(f"--{flag}={path}: {found} directory")


def check_paths(
    paths: Mapping[str, str | None], *, allows_folders: bool = True
) -> None:
    """Refuses names of files or folders where nothing is.

    Args:
      paths: flag -> name of a file, possibly without the ending of its
        compressed form, a folder, or a pattern; - is standard input. A flag
        whose name ends in _dir names a folder.
      allows_folders: whether the other flags may name folders.

    Raises:
      InputError: names the flag.
    """
    for flag, path in paths.items():
        if path in (None, "-") or file_system.is_remote(path):
            continue
        if flag.endswith("_dir"):
            check_folder(path, flag)
            continue
        if file_system.PATTERN.search(path):
            continue
        if allows_folders and file_system.is_folder(path):
            continue
        try:
            file_system.find(path)
        except errors.InputError as error:
            raise errors.InputError(f"--{flag}: {error}") from None
