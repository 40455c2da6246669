"""Writes eval_results.txt as google-research/bert does, and as JSON."""

import json
import os
from collections.abc import Mapping

from absl import logging

from tasks import file_system

TEXT = "eval_results.txt"
JSON = "eval_results.json"


def named(values: Mapping[str, float], step: int) -> dict[str, float]:
    """Returns metrics by the names that google-research/bert gives them."""
    found = {f"eval_{name}": value for name, value in values.items()}
    return found | {"global_step": step, "loss": values["loss"]}


def write_eval_results(output_dir: str, values: Mapping[str, float]) -> None:
    """Writes one `name = value` line each, sorted, and the same as JSON."""
    file_system.make_folder(output_dir)
    lines = [f"{name} = {values[name]}" for name in sorted(values)]
    for line in lines:
        logging.info("  %s", line)
    file_system.write_text(
        os.path.join(output_dir, TEXT), "\n".join(lines) + "\n"
    )
    text = json.dumps(dict(values), indent=2, sort_keys=True) + "\n"
    file_system.write_text(os.path.join(output_dir, JSON), text)
