"""README.md of a model directory: what the model is and how it was made."""

import json
import os
import platform
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tasks import file_system

NAME = "README.md"


def write(
    directory: str,
    title: str,
    *,
    data: Mapping[str, str],
    metrics: Mapping[str, float],
    settings: Mapping[str, Any],
    seconds: float | None = None,
    labels: list[str] | None = None,
) -> None:
    """Writes the card.

    Args:
      directory: of the model.
      title: what the model does.
      data: set -> what it holds, with its digest.
      metrics: on the development set.
      settings: the flags that differ from their defaults.
      seconds: that training took.
      labels: names of the classes.
    """
    lines = [f"# {title}", ""]
    if labels:
        shown = ", ".join(f"{i} = {name}" for i, name in enumerate(labels))
        lines += [f"Labels: {shown}.", ""]
    lines += ["## Data", "", *_table(("set", "content"), data)]
    if metrics:
        values = {name: f"{metrics[name]:.6g}" for name in sorted(metrics)}
        lines += ["", "## Results", "", *_table(("metric", "value"), values)]
    given = {name: json.dumps(value) for name, value in settings.items()}
    lines += ["", "## Flags", "", *_table(("flag", "value"), given)]
    versions = {
        "Python": platform.python_version(),
        "TensorFlow": tf.__version__,
        "Keras": keras.__version__,
        "NumPy": np.__version__,
    }
    lines += ["", "## Versions", "", *_table(("package", "version"), versions)]
    if seconds is not None:
        lines += ["", f"Training took {seconds:.0f} seconds."]
    file_system.write_text(
        os.path.join(directory, NAME), "\n".join(lines) + "\n"
    )


def _table(header: tuple[str, str], rows: Mapping[str, str]) -> list[str]:
    cells = [header, ("---", "---"), *rows.items()]
    return ["| " + " | ".join(map(_cell, row)) + " |" for row in cells]


def _cell(text: str) -> str:
    return str(text).replace("|", r"\|").replace("\n", " ")
