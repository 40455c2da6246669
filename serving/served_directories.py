"""Finds the directories that serve.py is given, before any engine is imported.

sentiment=exports/sst2      a name in addresses, and its directory
exports/sst2/3/             a numbered version, of which the highest counts
"""

import os
import re

from foundation import atomic, errors, file_system

_NAME = re.compile(r"[\w.-]+")
# Name of an engine -> the file that a directory must have.
FILES = {"tensorflow": "saved_model.pb", "onnxruntime": "model.onnx"}
_FORMATS = {
    "saved_model.pb": "",
    "model.onnx": " with --format=onnx, for --engine=onnxruntime",
}


def by_name(models: str) -> dict[str, str]:
    """Returns name -> directory of the models that a flag names.

    Args:
      models: comma-separated directories, each optionally with its name as in
        "sentiment=exports/sst2"; by default the name is that of the directory.

    Raises:
      InputError: a model has no name, or two have the same.
    """
    named: dict[str, str] = {}
    for item in file_system.split_names(models) or [""]:
        name, is_named, directory = item.partition("=")
        if not is_named:
            name, directory = os.path.basename(item.rstrip("/")), item
        if not _NAME.fullmatch(name):
            raise errors.InputError(
                f"--models={models}: {name!r} is no name of a model; write "
                "NAME=DIRECTORY with letters, digits, _, - and ."
            )
        if name in named:
            raise errors.InputError(
                f"--models={models}: two models are named {name}; write "
                "NAME=DIRECTORY"
            )
        named[name] = directory
    return named


def find_version(directory: str, file: str) -> tuple[int, str]:
    """Returns the version and the directory that has an engine's file.

    Raises:
      InputError: there is none.
    """
    # export_model.py may have been killed while it replaced one.
    atomic.restore_folders(os.path.dirname(directory.rstrip("/")) or ".")
    if file_system.is_file(os.path.join(directory, file)):
        return 1, directory
    if not file_system.is_folder(directory):
        is_there = file_system.exists(directory)
        problem = "is a file, not a" if is_there else "no such"
        raise errors.InputError(f"--models: {directory}: {problem} directory")
    atomic.restore_folders(directory)
    for version in sorted(versions(directory), reverse=True):
        path = os.path.join(directory, str(version))
        if file_system.is_file(os.path.join(path, file)):
            return version, path
    raise errors.InputError(
        f"--models: there is no {file} in {directory}; export_model.py writes "
        f"it{_FORMATS[file]}"
    )


def versions(directory: str) -> list[int]:
    """Returns the numbers that are names of entries of a directory."""
    if not file_system.is_folder(directory):
        return []
    names = file_system.entries(directory)
    return [int(name) for name in names if re.fullmatch(r"0|[1-9]\d*", name)]
