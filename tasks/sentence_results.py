"""What remains of a sentence task's run: scores, predictions, model, report."""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from data import example_records, examples, glue
from tasks import (
    classification,
    model_labels,
    run_files,
    sentence_predictions,
    sentence_report,
    sentence_tasks,
)
from tasks import results as eval_results


@dataclasses.dataclass(frozen=True, kw_only=True)
class Judgment:
    """Scores on all development sets, and the first of them in detail.

    Attributes:
      values: metrics, the "score" and the "loss"; those of a second
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
            task.kind,
            task.metrics,
            found,
            task.label_ids(split),
            selected_by=task.selected_by,
            positive=task.positive,
        )
        if split != first:
            scores.pop("score")
            prefix = split.partition("_")[2]
            scores = {f"{prefix}_{name}": x for name, x in scores.items()}
        values |= scores
    judged = sentence_report.Judged(
        kind=task.kind,
        metrics=task.metrics,
        positive=task.positive,
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
        self, files: run_files.RunFiles, task: sentence_tasks.SentenceTask
    ):
        """Writes nothing yet."""
        self._files = files
        self._task = task

    def save_model(self, model: Any) -> None:
        """Writes the model directory into output_dir, and begins its card."""
        labels = _stored_labels(self._task)
        weights = self._files.save_model(
            model,
            labels=labels,
            problem_type=model_labels.PROBLEM_TYPES[self._task.kind],
        )
        if weights is None:
            return
        self._files.begin_card(
            f"BERT for the task {self._task.name}",
            data={sentence_tasks.TRAIN: self._describe(sentence_tasks.TRAIN)},
            labels=labels,
            weights=weights,
        )
        done = self._files.results.best
        if done["values"]:  # Of a grid, whose runs were all evaluated.
            self._judge_card(eval_results.named(done["values"], done["step"]))

    def evaluation(self, found: Judgment, step: int) -> None:
        """Writes eval_results.txt, report.html and the model card."""
        if not self._files.is_chief:
            return
        values = eval_results.named(found.values, step)
        eval_results.write_eval_results(self._files.output_dir, values)
        self._judge_card(values)
        self._files.report(
            f"Task {self._task.name}",
            values=values,
            panels=sentence_report.PANELS,
            sections=sentence_report.sections(found.judged),
        )

    def _judge_card(self, values: Mapping[str, float]) -> None:
        data = {split: self._describe(split) for split in self._task.dev_splits}
        self._files.judge_card(sentence_tasks.DEV, data=data, metrics=values)

    def predictions(
        self,
        split: str,
        logits: np.ndarray,
        *,
        glue_submission: str | None = None,
        wnli_majority: bool = False,
    ) -> None:
        """Writes all that is predicted of a test set."""
        if not self._files.is_chief:
            return
        output_dir = self._files.output_dir
        task, texts = self._task, self._task.read(split)
        rest = split.partition("_")[2]
        if task.name == "ax":  # In the folder of MNLI's model, mostly.
            rest = task.name
        sentence_predictions.write(
            output_dir,
            f"_{rest}" if rest else "",
            kind=task.kind,
            texts=texts,
            labels=task.labels,
            logits=logits,
        )
        if task.kind == examples.MULTIPLE_CHOICE:
            sentence_predictions.write_swag(
                output_dir, texts=texts, logits=logits
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
                labels=task.labels,
                logits=logits,
                majority=majority,
            )

    def _describe(self, split: str) -> str:
        texts = self._task.read(split)
        name = os.path.basename(texts.path)
        digest = example_records.digest(texts.path)
        return f"{len(texts)} examples of {name}, SHA-256 {digest}"


def _stored_labels(task: sentence_tasks.SentenceTask) -> list[str] | None:
    if task.kind in (examples.MULTIPLE_CHOICE, examples.REGRESSION):
        return None
    return list(task.labels)
