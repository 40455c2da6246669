"""What remains of a sentence task's run: scores, predictions, model, report."""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from data import examples, glue
from tasks import (
    classification,
    finetuning,
    grid,
    model_card,
    model_files,
    sentence_predictions,
    sentence_report,
    sentence_tasks,
)
from tasks import results as eval_results

_PROBLEM_TYPES = {
    examples.CLASSIFICATION: "single_label_classification",
    examples.REGRESSION: "regression",
    examples.MULTI_LABEL: "multi_label_classification",
    examples.MULTIPLE_CHOICE: None,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Judgment:
    """Scores on all development sets, and the first of them in detail.

    Attributes:
      values: metrics, their mean "score" and the "loss"; those of a second
        set begin with its name, as in "mismatched_accuracy".
      judged: the first set.
    """

    values: dict[str, float]
    judged: sentence_report.Judged


def judge(
    task: sentence_tasks.SentenceTask,
    logits: Mapping[str, np.ndarray],
    lengths: np.ndarray,
) -> Judgment:
    """Compares logits with labels.

    Args:
      task: of the sets.
      logits: split -> float [N, C], the most important first.
      lengths: pieces of the first set's examples.
    """
    values: dict[str, float] = {}
    first, *_ = logits
    for split, found in logits.items():
        scores = classification.evaluate(
            task.kind, task.metrics, found, task.label_ids(split)
        )
        if split != first:
            scores.pop("score")
            prefix = split.partition("_")[2]
            scores = {f"{prefix}_{name}": x for name, x in scores.items()}
        values |= scores
    judged = sentence_report.Judged(
        kind=task.kind,
        metrics=task.metrics,
        labels=task.labels,
        texts=task.read(first),
        label_ids=task.label_ids(first),
        logits=logits[first],
        lengths=lengths,
    )
    return Judgment(values=values, judged=judged)


class Record:
    """Writes all files that remain of a job."""

    def __init__(
        self,
        *,
        output_dir: str,
        task: sentence_tasks.SentenceTask,
        start: finetuning.Start,
        settings: Mapping[str, Any],
        given: Mapping[str, Any],
        results: grid.Results,
        is_chief: bool,
    ):
        """Writes nothing yet.

        Args:
          output_dir: of the job.
          task: what was learned.
          start: what the runs began with.
          settings: all flags.
          given: those that differ from their defaults.
          results: of the runs.
          is_chief: whether this process writes.
        """
        self._output_dir = output_dir
        self._task = task
        self._start = start
        self._settings = settings
        self._given = given
        self._results = results
        self._is_chief = is_chief

    def save_model(self, model: Any) -> None:
        """Writes the model directory into output_dir."""
        if not self._is_chief:
            return
        task = self._task
        model_files.save(
            model,
            self._start.tokenizer,
            self._output_dir,
            labels=_stored_labels(task),
            problem_type=_PROBLEM_TYPES[task.kind],
        )
        self.card({})

    def evaluation(self, found: Judgment, step: int) -> None:
        """Writes eval_results.txt, report.html and the model card."""
        if not self._is_chief:
            return
        values = {f"eval_{name}": x for name, x in found.values.items()}
        values |= {"global_step": step, "loss": found.values["loss"]}
        eval_results.write_eval_results(self._output_dir, values)
        self.card(values)
        sentence_report.write(
            self._output_dir,
            f"Task {self._task.name}",
            metrics_dir=self._results.metrics_dir,
            judged=found.judged,
            values=values,
            grid_table=self._results.table(),
            settings=self._settings,
        )

    def card(self, values: Mapping[str, float]) -> None:
        """Writes the model card, where there is a model."""
        seconds = self._results.seconds
        if seconds is None:
            return
        sets = [sentence_tasks.TRAIN]
        sets += self._task.dev_splits if values else ()
        model_card.write(
            self._output_dir,
            f"BERT for the task {self._task.name}",
            data={split: self._describe(split) for split in sets},
            metrics=values,
            settings=self._given,
            seconds=seconds,
            labels=_stored_labels(self._task),
        )

    def predictions(
        self,
        split: str,
        logits: np.ndarray,
        *,
        glue_submission: str | None = None,
        wnli_majority: bool = False,
    ) -> None:
        """Writes all that is predicted of a test set."""
        if not self._is_chief:
            return
        task, texts = self._task, self._task.read(split)
        rest = split.partition("_")[2]
        sentence_predictions.write(
            self._output_dir,
            f"_{rest}" if rest else "",
            kind=task.kind,
            texts=texts,
            labels=task.labels,
            logits=logits,
        )
        if task.kind == examples.MULTIPLE_CHOICE:
            sentence_predictions.write_swag(
                self._output_dir, texts=texts, logits=logits
            )
        if glue_submission and task.name in glue.TASKS:
            majority = None
            if wnli_majority and task.name == "wnli":
                majority = sentence_predictions.majority_label(
                    task.read(sentence_tasks.TRAIN)
                )
            sentence_predictions.write_glue(
                glue_submission,
                task.name,
                split,
                texts=texts,
                logits=logits,
                majority=majority,
            )

    def _describe(self, split: str) -> str:
        texts = self._task.read(split)
        name = os.path.basename(texts.path)
        digest = sentence_tasks.digest(texts)
        return f"{len(texts)} examples of {name}, SHA-256 {digest}"


def _stored_labels(task: sentence_tasks.SentenceTask) -> list[str] | None:
    if task.kind in (examples.MULTIPLE_CHOICE, examples.REGRESSION):
        return None
    return list(task.labels)
