"""The files that every fine-tuning run leaves: model, card, report."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

from data import tokenization
from tasks import grid, model_card, model_files, report


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunFiles:
    """Where a run's files go, and what all of them mention.

    Attributes:
      output_dir: of the job.
      tokenizer: what text is read with; None where no model is written.
      settings: all flags.
      given: those that differ from their defaults.
      results: of the grid's runs.
      is_chief: whether this process writes; the others' calls do nothing.
    """

    output_dir: str
    tokenizer: tokenization.Tokenizer | None = None
    settings: Mapping[str, Any]
    given: Mapping[str, Any]
    results: grid.Results
    is_chief: bool = True

    def save_model(
        self,
        model: Any,
        *,
        labels: list[str] | None = None,
        problem_type: str | None = None,
    ) -> None:
        """Writes the model directory; see model_files.save."""
        if self.is_chief:
            model_files.save(
                model,
                self.tokenizer,
                self.output_dir,
                labels=labels,
                problem_type=problem_type,
            )

    def card(
        self,
        title: str,
        *,
        data: Mapping[str, str],
        metrics: Mapping[str, float],
        labels: list[str] | None = None,
    ) -> None:
        """Writes the model card, if a model was trained; see model_card."""
        seconds = self.results.seconds
        if self.is_chief and seconds is not None:
            model_card.write(
                self.output_dir,
                title,
                data=data,
                metrics=metrics,
                settings=self.given,
                seconds=seconds,
                labels=labels,
            )

    def report(
        self,
        title: str,
        *,
        values: Mapping[str, float],
        panels: Sequence[report.Panel],
        sections: Sequence[report.Section],
    ) -> None:
        """Writes report.html.

        Args:
          title: of the page.
          values: of eval_results.txt.
          panels: the learning curves to draw, of the run that was kept.
          sections: what the task shows besides.
        """
        if not self.is_chief:
            return
        path = os.path.join(self.results.metrics_dir, "metrics.jsonl")
        rows = [[name, values[name]] for name in sorted(values)]
        shown = [
            report.Section("Results", report.table(["metric", "value"], rows))
        ]
        runs = self.results.table()
        if runs is not None:
            shown.append(report.Section("All runs", report.table(*runs)))
        curves = report.curves(report.read_metrics(path), panels)
        shown.append(report.Section("Learning curves", curves))
        shown += sections
        flags = [[name, str(value)] for name, value in self.settings.items()]
        table = report.table(["flag", "value"], flags)
        shown.append(report.Section("Flags", table))
        path = os.path.join(self.output_dir, "report.html")
        report.write(path, title, shown)
