"""What report.html shows of a pre-training run."""

import os
from collections.abc import Mapping
from typing import Any

from jobs import report

_PANELS = (
    report.Panel("Loss", ("train/loss", "eval/loss")),
    report.Panel(
        "Masked-LM accuracy",
        ("train/masked_lm_accuracy", "eval/masked_lm_accuracy"),
    ),
    report.Panel(
        "Next-sentence accuracy",
        ("train/next_sentence_accuracy", "eval/next_sentence_accuracy"),
    ),
)


def write(output_dir: str, settings: Mapping[str, Any]) -> None:
    """Writes report.html from the metrics.jsonl of the run.

    Args:
      output_dir: of the run.
      settings: the flags, to be listed at the end.
    """
    lines = report.read_metrics(os.path.join(output_dir, "metrics.jsonl"))
    held_out = [line for line in lines if "eval/loss" in line]
    names = sorted({name for line in held_out for name in line} - {"step"})
    rows = [
        [line["step"], *(line.get(name, "") for name in names)]
        for line in held_out
    ]
    sections = [
        report.Section("Learning curves", report.curves(lines, _PANELS))
    ]
    if rows:
        header = ["step", *(name.removeprefix("eval/") for name in names)]
        sections.append(report.Section("Held out", report.table(header, rows)))
    given = [[name, value] for name, value in settings.items()]
    sections.append(
        report.Section("Flags", report.table(["flag", "value"], given))
    )
    report.write(
        os.path.join(output_dir, "report.html"), "Pre-training", sections
    )
