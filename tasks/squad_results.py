"""What remains of a question answering run: model, answers, scores, report."""

import os
from collections.abc import Mapping
from typing import Any

from data import squad
from tasks import (
    finetuning,
    grid,
    model_card,
    model_files,
    squad_predictions,
    squad_report,
    squad_sets,
)
from tasks import results as eval_results
from tasks.squad_predictions import Judgment, Settings

_TITLE = "BERT that answers questions from a paragraph"


class Record:
    """Writes all files that remain of a job."""

    def __init__(
        self,
        *,
        output_dir: str,
        trained_on: squad.Questions | None,
        start: finetuning.Start,
        with_negative: bool,
        threshold: float | None,
        settings: Mapping[str, Any],
        given: Mapping[str, Any],
        results: grid.Results,
        is_chief: bool,
    ):
        """Writes nothing yet.

        Args:
          output_dir: of the job.
          trained_on: the questions that were learned, if any.
          start: what the runs began with.
          with_negative: whether there may be no answer.
          threshold: above which there is none, as far as it is known.
          settings: all flags.
          given: those that differ from their defaults.
          results: of the runs.
          is_chief: whether this process writes.
        """
        self._output_dir = output_dir
        self._trained_on = trained_on
        self._start = start
        self._with_negative = with_negative
        self._threshold = threshold
        self._settings = settings
        self._given = given
        self._results = results
        self._is_chief = is_chief

    def save_model(self, model: Any) -> None:
        """Writes the model directory into output_dir."""
        if not self._is_chief:
            return
        model_files.save(model, self._start.tokenizer, self._output_dir)
        self._store(self._threshold)
        self._card({}, None)

    def predictions(self, made: Judgment, step: int) -> None:
        """Writes the answers and, if they can be scored, all about that."""
        if not self._is_chief:
            return
        squad_predictions.write(self._output_dir, made)
        if model_files.is_here(self._output_dir):
            self._store(made.threshold)
        if not made.values:
            return
        values = write_scores(self._output_dir, made, step)
        self._card(values, made.found)
        squad_report.write(
            self._output_dir,
            _TITLE,
            metrics_dir=self._results.metrics_dir,
            judged=made,
            values=values,
            grid_table=self._results.table(),
            settings=self._settings,
        )

    def _store(self, threshold: float | None) -> None:
        settings = Settings(
            version_2_with_negative=self._with_negative,
            null_score_diff_threshold=threshold,
        )
        squad_predictions.write_settings(self._output_dir, settings)

    def _card(
        self, values: Mapping[str, float], judged: squad.Questions | None
    ) -> None:
        """Writes the model card, where there is a model."""
        seconds = self._results.seconds
        if seconds is None:
            return
        sets = {"train": self._trained_on, "dev": judged}
        model_card.write(
            self._output_dir,
            _TITLE,
            data={
                name: squad_sets.describe(found)
                for name, found in sets.items()
                if found is not None
            },
            metrics=values,
            settings=self._given,
            seconds=seconds,
        )


def write_scores(
    output_dir: str, made: Judgment, step: int | None
) -> dict[str, float]:
    """Writes eval_results.txt and returns what it holds."""
    values = {
        f"eval_{name}": value
        for name, value in made.values.items()
        if name != "score"
    }
    if made.threshold is not None:
        values["null_score_diff_threshold"] = made.threshold
    if step is not None:
        values["global_step"] = step
    os.makedirs(output_dir, exist_ok=True)
    eval_results.write_eval_results(output_dir, values)
    return values
