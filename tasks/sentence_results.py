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
    results,
    sentence_predictions,
    sentence_report,
    sentence_tasks,
)

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
    """Collects the runs of a grid and writes all files of a job."""

    def __init__(
        self,
        *,
        output_dir: str,
        task: sentence_tasks.SentenceTask,
        start: finetuning.Start,
        config: Any,
        is_chief: bool,
    ):
        """Writes nothing yet; `config` is the dataclass of the flags."""
        self._output_dir = output_dir
        self._task = task
        self._start = start
        self._settings = dataclasses.asdict(config)
        defaults = {f.name: f.default for f in dataclasses.fields(config)}
        self._given = {
            name: value
            for name, value in self._settings.items()
            if value != defaults[name]
        }
        self._is_chief = is_chief
        self._runs: dict[grid.Run, dict[str, Any]] = {}

    @property
    def _values(self) -> dict[grid.Run, Mapping[str, float]]:
        return {run: done["values"] for run, done in self._runs.items()}

    def add(self, run: grid.Run, done: dict[str, Any]) -> bool:
        """Notes what a run ended with; says whether it is the best so far."""
        self._runs[run] = done
        return grid.best(self._values) == run

    @property
    def best(self) -> dict[str, Any]:
        """What the best run ended with."""
        return self._runs[grid.best(self._values)]

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

    def grid(self) -> str:
        """Writes the table of all runs; returns it as text."""
        if not self._is_chief:
            return grid.text(*grid.table(self._values))
        return grid.write(self._output_dir, self._values)

    def evaluation(self, found: Judgment, step: int) -> None:
        """Writes eval_results.txt, report.html and the model card."""
        if not self._is_chief:
            return
        values = {f"eval_{name}": x for name, x in found.values.items()}
        values |= {"global_step": step, "loss": found.values["loss"]}
        results.write_eval_results(self._output_dir, values)
        self.card(values)
        metrics_dir, table = self._output_dir, None
        if len(self._runs) > 1:
            metrics_dir = grid.best(self._values).directory
            table = grid.table(self._values)
        sentence_report.write(
            self._output_dir,
            f"Task {self._task.name}",
            metrics_dir=metrics_dir,
            judged=found.judged,
            values=values,
            grid_table=table,
            settings=self._settings,
        )

    def card(self, values: Mapping[str, float]) -> None:
        """Writes the model card, where there is a model."""
        seconds = [done["seconds"] for done in self._runs.values()]
        if not seconds:
            return
        sets = [sentence_tasks.TRAIN]
        sets += self._task.dev_splits if values else ()
        model_card.write(
            self._output_dir,
            f"BERT for the task {self._task.name}",
            data={split: self._describe(split) for split in sets},
            metrics=values,
            settings=self._given,
            seconds=sum(seconds),
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


def remove_checkpoints(directory: str) -> None:
    """Removes a finished run's checkpoints, which the model replaces."""
    for name in os.listdir(directory):
        if name == "checkpoint" or name.startswith("model.ckpt-"):
            os.remove(os.path.join(directory, name))
    best = os.path.join(directory, "best")
    if os.path.isdir(best):
        remove_checkpoints(best)


def _stored_labels(task: sentence_tasks.SentenceTask) -> list[str] | None:
    if task.kind in (examples.MULTIPLE_CHOICE, examples.REGRESSION):
        return None
    return list(task.labels)
