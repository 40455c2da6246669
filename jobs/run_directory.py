"""The directory of a run: reserved for one training, with its flags.

.training.lock      locked while a process trains there
run_config.json     the flags of its training, else of the last command
"""

import copy
import fcntl
import os
import socket
import sys
import time
from collections.abc import Collection, Mapping
from typing import Any, TextIO

from absl import logging

from foundation import config_flags, errors, file_system

RUN_CONFIG = "run_config.json"
LOCK = ".training.lock"
_LOCKS: dict[str, TextIO] = {}  # The files that this process has locked.


def flags(output_dir: str) -> dict[str, Any]:
    """Returns the flags in a directory's run_config.json, {} without one.

    Raises:
      InputError: the file is not JSON.
    """
    return file_system.read_object(os.path.join(output_dir, RUN_CONFIG))


def training_flags(output_dir: str) -> dict[str, Any] | None:
    """Returns the flags of the training in a directory, None without one."""
    found = flags(output_dir)
    return found if found.get("do_train") else None


def flags_of_model(
    output_dir: str, init_checkpoint: str | None
) -> dict[str, Any]:
    """Returns the flags of the training of a command's model, {} if unknown.

    Args:
      output_dir: its model comes first.
      init_checkpoint: a model directory, or a file or checkpoint in one.
    """
    folders = [output_dir]
    if init_checkpoint is not None:
        folders.append(file_system.folder_of(init_checkpoint))
    return next(filter(None, map(training_flags, folders)), {})


def warn_of_other_flags(
    values: Mapping[str, Any], output_dir: str, init_checkpoint: str | None
) -> None:
    """Warns if a model was trained with other values of flags.

    Args:
      values: of this command, which does not train.
      output_dir: see flags_of_model.
      init_checkpoint: see flags_of_model.
    """
    trained = flags_of_model(output_dir, init_checkpoint)
    for name, value in values.items():
        before = trained.get(name, value)
        if before != value:
            logging.warning(
                "the model was trained with --%s=%s, but %s is used now",
                name,
                before,
                value,
            )


def as_trained(config: Any, names: Collection[str]) -> Any:
    """Returns a config whose missing flags are those of the model's training.

    Args:
      config: a FinetuningConfig; if it trains, it is returned as it is.
      names: flags that are None if they are not given.
    """
    if config.do_train:
        return config
    trained = flags_of_model(config.output_dir, config.init_checkpoint)
    found = {
        name: trained[name]
        for name in names
        if getattr(config, name) is None and trained.get(name) is not None
    }
    if found:
        shown = " ".join(f"--{name}={value}" for name, value in found.items())
        logging.info("as the model was trained: %s", shown)
    config = copy.copy(config)
    for name, value in found.items():
        object.__setattr__(config, name, value)
    return config


def begin(config: Any, *, is_chief: bool) -> None:
    """Reserves --output_dir for a training; writes the flags of other commands.

    A training writes its flags when all checks have passed. A command that only
    predicts must not replace those of a training. A dry run writes nothing.

    Args:
      config: a RunConfig with do_train.
      is_chief: whether this process writes the files of the run.

    Raises:
      InputError: another process is training there.
    """
    if config.dry_run or not is_chief:
        return
    if config.do_train:
        lock(config.output_dir)
    elif training_flags(config.output_dir) is None:
        config_flags.write_run_config(config, config.output_dir)


def lock(output_dir: str) -> None:
    """Reserves a directory for the training of this process, until it ends.

    The system releases the lock when the process ends, however it ends. A
    bucket, and a disk without locks, are not reserved.

    Raises:
      InputError: another process is training there.
    """
    path = os.path.join(output_dir, LOCK)
    if file_system.is_remote(path) or os.path.realpath(path) in _LOCKS:
        return
    file_system.make_folder(output_dir)
    # Not flock: a worker process would keep the lock of its killed parent.
    file = open(path, "a+", encoding="utf-8")  # noqa: SIM115
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        file.seek(0)
        owner = file.read().strip() or "another process"
        file.close()
        raise errors.InputError(
            f"--output_dir={output_dir}: {owner} is training there; wait for "
            "its end, stop it, or choose another --output_dir"
        ) from None
    except OSError as error:
        logging.info("%s: not reserved for this run: %s", output_dir, error)
    _LOCKS[os.path.realpath(path)] = file
    program = os.path.basename(sys.argv[0])
    begun = time.strftime("%Y-%m-%d %H:%M:%S")
    file.truncate(0)
    file.write(
        f"{program} (process {os.getpid()} on {socket.gethostname()}, since "
        f"{begun})\n"
    )
    file.flush()
