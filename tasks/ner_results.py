"""What remains of a tagging run: scores, predictions, model, report."""

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from data import conll
from modeling import crf
from tasks import (
    entities,
    file_system,
    ner_data,
    ner_report,
    run_files,
    tagging,
    tagging_crf,
)
from tasks import results as eval_results

SCORES = "scores_{}.txt"
PREDICTIONS = "predictions_{}.txt"
Decode = Callable[[conll.Sentences, np.ndarray], list[str]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Judgment:
    """What a model makes of a set with tags.

    Attributes:
      values: metrics, "score" among them, by which runs are compared.
      judged: the same in detail.
      text: what conlleval prints; of plain tags, their accuracy.
    """

    values: dict[str, float]
    judged: ner_report.Judged
    text: str


def predicted_tags(
    data: ner_data.NerData, split: str, tags: Sequence[str]
) -> list[str]:
    """Returns a model's tags of a set as they are written."""
    return conll.convert(data.read(split), tags, data.written_scheme(split))


def judge(
    data: ner_data.NerData,
    split: str,
    logits: np.ndarray,
    tags: Sequence[str],
) -> Judgment:
    """Compares a model's tags with those of the file.

    Args:
      data: has the set.
      split: which one; it has tags.
      logits: float [W, C].
      tags: W of the model's labels.
    """
    sentences = data.written(split)
    guessed = predicted_tags(data, split, tags)
    losses = tagging.word_losses(logits, data.label_ids(split))
    values, text = _compare(sentences, guessed, data.is_plain)
    values["loss"] = float(losses.mean())
    judged = ner_report.Judged(
        sentences=sentences,
        predicted=guessed,
        losses=losses,
        is_plain=data.is_plain,
    )
    return Judgment(values=values, judged=judged, text=text)


def _compare(
    sentences: conll.Sentences, guessed: Sequence[str], is_plain: bool
) -> tuple[dict[str, float], str]:
    """Returns the metrics, and what is printed."""
    sides = [list(sentences.split(t)) for t in (sentences.tags, guessed)]
    if is_plain:
        values = entities.plain(*sides)
        text = "".join(f"{k}: {100 * v:.2f}%\n" for k, v in values.items())
        return values | {"score": values["accuracy"]}, text
    scores = entities.score(
        *sides, boundaries=conll.count_boundaries(sentences)
    )
    return scores.values() | {"score": scores.total.f1}, scores.text()


class Record:
    """Writes all files that remain of a job."""

    def __init__(self, files: run_files.RunFiles, data: ner_data.NerData):
        """Writes nothing yet."""
        self._files = files
        self._data = data
        self._has_card = False

    def save_model(self, model: Any) -> None:
        """Writes the model directory into output_dir, and begins its card."""
        labels = list(self._data.labels)
        is_crf = isinstance(model, crf.CrfTaggingModel)
        if self._files.is_chief:
            tagging_crf.remove(self._files.output_dir)
            if is_crf:
                tagging_crf.save(model, labels, self._files.output_dir)
        if is_crf:
            model = model.tagger
        weights = self._files.save_model(model, labels=labels)
        self._has_card = True
        if weights is None:
            return
        self._begin_card(weights)
        done = self._files.results.best
        if done["values"]:  # Of a grid, whose runs were all evaluated.
            self._judge_card(
                ner_data.DEV, eval_results.named(done["values"], done["step"])
            )

    def evaluation(self, found: Judgment, step: int) -> None:
        """Writes the scores, predictions and report of the development set."""
        if not self._files.is_chief:
            return
        values = eval_results.named(found.values, step)
        eval_results.write_eval_results(self._files.output_dir, values)
        self._scores(ner_data.DEV, found, values)
        self._files.report(
            "Tagging",
            values=values,
            panels=ner_report.PANELS,
            sections=ner_report.sections(found.judged),
        )

    def test(self, found: Judgment) -> None:
        """Writes the scores and predictions of a test set with tags."""
        if self._files.is_chief:
            values = {f"test_{name}": x for name, x in found.values.items()}
            self._scores(ner_data.TEST, found, values)

    def predictions(self, split: str, predicted: Sequence[str]) -> None:
        """Writes a set with its tags, if it has any, and the predicted ones."""
        if not self._files.is_chief:
            return
        sentences = self._data.written(split)
        columns = [predicted]
        if sentences.tags is not None:
            columns.insert(0, sentences.tags)
        path = os.path.join(self._files.output_dir, PREDICTIONS.format(split))
        file_system.write_text(path, "".join(conll.write(sentences, columns)))
        logging.info("%s: %d words", path, len(predicted))

    def _scores(self, split, found: Judgment, values) -> None:
        self.predictions(split, found.judged.predicted)
        path = os.path.join(self._files.output_dir, SCORES.format(split))
        file_system.write_text(path, found.text)
        logging.info("%s:\n%s", path, found.text.rstrip())
        if self._files.is_trained and not self._has_card:
            self._begin_card(None)  # Of a tagger that is no model directory.
            self._has_card = True
        self._judge_card(split, values)

    def _begin_card(self, weights: str | None) -> None:
        self._files.begin_card(
            "BERT that tags words",
            data={ner_data.TRAIN: self._describe(ner_data.TRAIN)},
            labels=self._data.labels,
            weights=weights,
        )

    def _judge_card(self, split: str, values: Mapping[str, float]) -> None:
        data = {split: self._describe(split)}
        self._files.judge_card(split, data=data, metrics=values)

    def _describe(self, split: str) -> str:
        sentences = self._data.read(split)
        name = os.path.basename(sentences.path)
        return (
            f"{len(sentences)} sentences, {len(sentences.words)} words of "
            f"{name}, SHA-256 {self._data.digest(split)}"
        )
