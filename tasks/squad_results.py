"""What remains of a question answering run: model, answers, scores, report."""

from collections.abc import Mapping
from typing import Any

from absl import logging

from data import squad
from tasks import (
    file_system,
    model_files,
    run_files,
    squad_predictions,
    squad_report,
    squad_sets,
    squad_settings,
    tokenizer_files,
)
from tasks import results as eval_results
from tasks.squad_predictions import Judgment

_TITLE = "BERT that answers questions from a paragraph"
# What tells of the answers beside it how good they are.
_SCORES = (eval_results.TEXT, eval_results.JSON, "report.html")


class Record:
    """Writes all files that remain of a job."""

    def __init__(
        self,
        files: run_files.RunFiles,
        *,
        trained_on: squad.Questions | None = None,
        with_negative: bool,
        threshold: float | None,
    ):
        """Writes nothing yet.

        Args:
          files: where everything goes.
          trained_on: the questions that were learned, if any.
          with_negative: whether there may be no answer.
          threshold: above which there is none, as far as it is known.
        """
        self._files = files
        self._trained_on = trained_on
        self._with_negative = with_negative
        self._threshold = threshold

    def save_model(self, model: Any) -> None:
        """Writes the model directory into output_dir.

        Where a finished run is started again the weights remain, and so does
        what was found out about them: the threshold, and the card's scores.
        """
        if not self._files.is_chief:
            return
        weights = self._files.save_model(model)
        is_told = squad_settings.read(self._files.output_dir) is not None
        if weights is None and is_told:
            logging.info(
                "%s: the model is as it was, and so is its threshold",
                self._files.output_dir,
            )
            return
        self._store(self._threshold)
        if weights is not None:
            self._begin_card(weights)

    def threshold(self, made: Judgment) -> None:
        """Stores a threshold with the model, if one was found for it.

        A model that was trained to answer always remains one, although it was
        judged once as if there might be no answer.
        """
        if not self._files.is_chief or not made.threshold_found:
            return
        stored = squad_settings.read(self._files.output_dir)
        if stored is not None and stored.version_2_with_negative:
            self._store(made.threshold)

    def predictions(self, made: Judgment, step: int | None = None) -> None:
        """Writes the answers and, if they can be scored, all about that."""
        if not self._files.is_chief:
            return
        output_dir = self._files.output_dir
        if not made.values:
            squad_predictions.discard(output_dir, *_SCORES)
        squad_predictions.write(output_dir, made)
        if model_files.is_here(output_dir):
            self.threshold(made)
        else:
            self._describe(made)
        if not made.values:
            return
        values = write_scores(output_dir, made, step)
        self._judge_card(values, made.found)
        self._files.report(
            _TITLE,
            values=values,
            panels=squad_report.PANELS,
            sections=squad_report.sections(made),
        )

    def _describe(self, made: Judgment) -> None:
        """Writes beside answers without a model what ensembles need to know."""
        self._store(made.threshold if made.threshold_found else self._threshold)
        tokenizer = self._files.tokenizer
        if tokenizer is not None:
            tokenizer_files.save(
                tokenizer,
                self._files.output_dir,
                max_length=self._files.settings["max_seq_length"],
            )

    def _store(self, threshold: float | None) -> None:
        settings = squad_settings.Settings(
            version_2_with_negative=self._with_negative,
            null_score_diff_threshold=threshold,
        )
        squad_settings.write(self._files.output_dir, settings)

    def _begin_card(self, weights: str) -> None:
        data = {"train": squad_sets.describe(self._trained_on)}
        self._files.begin_card(_TITLE, data=data, weights=weights)
        done = self._files.results.best
        if done["values"]:  # Of a grid, whose runs were all evaluated.
            values = _named(done["values"]) | {"global_step": done["step"]}
            self._judge_card(values, None)

    def _judge_card(
        self, values: Mapping[str, float], found: squad.Questions | None
    ) -> None:
        data = {} if found is None else {"dev": squad_sets.describe(found)}
        self._files.judge_card("dev", data=data, metrics=values)


def _named(values: Mapping[str, float]) -> dict[str, float]:
    named = {f"eval_{name}": value for name, value in values.items()}
    named.pop("eval_score")
    return named


def write_scores(
    output_dir: str, made: Judgment, step: int | None
) -> dict[str, float]:
    """Writes eval_results.txt and returns what it holds."""
    values = _named(made.values)
    if made.threshold is not None:
        values["null_score_diff_threshold"] = made.threshold
    if step is not None:
        values["global_step"] = step
    file_system.make_folder(output_dir)
    eval_results.write_eval_results(output_dir, values)
    return values
