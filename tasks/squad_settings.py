"""What is stored with a model about how it must be asked.

    model/question_answering.json
        {"version_2_with_negative": true, "null_score_diff_threshold": -1.25}

It belongs to the weights beside it: training writes it, predicting adds a
threshold that was found to those of 2.0, and no flag of a later run changes
it.
"""

import dataclasses
import json
import math
import os

from absl import logging

import errors
from data import input_files
from tasks import file_system, model_files, run_files

FILE = "question_answering.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """What a model must be asked with, by the flags' names.

    Attributes:
      version_2_with_negative: whether there may be no answer.
      null_score_diff_threshold: None in 1.1, and where none was found.
    """

    version_2_with_negative: bool = False
    null_score_diff_threshold: float | None = None


def write(directory: str, settings: Settings) -> None:
    """Stores settings with a model."""
    text = json.dumps(dataclasses.asdict(settings), indent=2) + "\n"
    file_system.write_text(os.path.join(directory, FILE), text)


def read(directory: str) -> Settings | None:
    """Reads what is stored in a directory, None where nothing is.

    Raises:
      InputError: the file holds something else.
    """
    path = os.path.join(directory, FILE)
    if not file_system.is_file(path):
        return None
    values = input_files.read_json(path)
    try:
        settings = Settings(**values)
    except TypeError:
        settings = Settings(version_2_with_negative=None)
    threshold = settings.null_score_diff_threshold
    if not isinstance(settings.version_2_with_negative, bool) or not (
        threshold is None
        or (isinstance(threshold, (int, float)) and math.isfinite(threshold))
    ):
        raise errors.InputError(
            f"{path}: not the settings of a question answering model"
        )
    return settings


def of_model(output_dir: str) -> Settings | None:
    """Reads what is stored with the model in a directory, if one is there."""
    return read(output_dir) if model_files.is_here(output_dir) else None


def find(output_dir: str, init_checkpoint: str | None) -> Settings | None:
    """Reads what is stored with the model that a run starts from or asks.

    Args:
      output_dir: its model comes first, as its weights do. What an earlier
        prediction without a model has left there comes last, if it asked the
        same model.
      init_checkpoint: a model directory, or a file or checkpoint in one.
    """
    found = of_model(output_dir)
    if found is None and init_checkpoint is not None:
        found = read(file_system.folder_of(init_checkpoint))
    return found or _left(output_dir, init_checkpoint)


def _left(output_dir: str, init_checkpoint: str | None) -> Settings | None:
    """Reads what the last prediction in a folder found out about a model."""
    found = read(output_dir)
    asked = run_files.flags(output_dir).get("init_checkpoint")
    if found is None or None in (asked, init_checkpoint):
        return None
    if file_system.real(asked) != file_system.real(init_checkpoint):
        return None
    logging.info("%s: as the last prediction there found out: %s", FILE, found)
    return found
