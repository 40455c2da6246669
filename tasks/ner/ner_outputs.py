"""What remains of a tagging run: scores, predictions, model, report."""

import dataclasses
import html
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from foundation import file_system
from jobs import report, run_files
from modeling import crf
from tasks.ner import conll, conlleval, ner_data, tagging

# ----------------------------------------------------------------------
# What report.html shows of a tagging run on its development set.

PANELS = (
    report.Panel("Loss", ("train/loss", "eval/loss")),
    report.Panel("Score", ("train/accuracy", "eval/score")),
    report.Panel("Learning rate", ("train/learning_rate",)),
)
_WORST = 25
_GROUPS = 5
_NONE = "\n"  # Stands in no file.
_SPAN = '<span style="background:hsl({},70%,85%);padding:0 .2em">{}</span>'
_TYPE = "<sub>{}</sub>"


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class EvaluatedSet:
    """A set with its tags and what a model made of it.

    Attributes:
      sentences: with W tags, in the scheme that they are written in.
      predicted: W tags, likewise.
      losses: float [W].
      is_plain: whether tags mean no spans.
    """

    sentences: conll.Sentences
    predicted: Sequence[str]
    losses: np.ndarray
    is_plain: bool

    def types(self, tags: Sequence[str]) -> list[str]:
        """Returns the type of every word, _NONE outside."""
        if self.is_plain:
            return list(tags)
        return [conll.split(tag)[1] or _NONE for tag in tags]


def sections(evaluated: EvaluatedSet) -> list[report.Section]:
    """Returns scores by type and length, confusions, the worst sentences."""
    shown = []
    if not evaluated.is_plain:
        shown.append(report.Section("By type", _by_type(evaluated)))
    shown.append(report.Section("Confusions of words", _confusions(evaluated)))
    if not evaluated.is_plain:
        shown.append(report.Section("By length", _by_length(evaluated)))
    shown.append(report.Section("Worst sentences", _worst(evaluated)))
    return shown


def _by_type(evaluated: EvaluatedSet) -> str:
    scores = _score(evaluated, range(len(evaluated.sentences)))
    rows = [
        [kind, s.true, s.found, s.correct, s.precision, s.recall, s.f1]
        for kind, s in [*scores.by_type.items(), ("all", scores.total)]
    ]
    header = ["type", "true", "found", "correct", "precision", "recall", "F1"]
    return report.table(header, rows)


def _by_length(evaluated: EvaluatedSet) -> str:
    """Scores groups of equal size, from the shortest sentences on."""
    lengths = np.diff(evaluated.sentences.row_splits)
    order = np.argsort(lengths, kind="stable")
    rows = []
    for part in np.array_split(order, min(_GROUPS, len(order))):
        scores = _score(evaluated, part.tolist())
        span = f"{lengths[part].min()} - {lengths[part].max()}"
        rows.append([span, len(part), scores.accuracy, scores.total.f1])
    return report.table(["words", "sentences", "accuracy", "F1"], rows)


def _score(evaluated: EvaluatedSet, numbers) -> conlleval.Scores:
    sides = [
        list(evaluated.sentences.split(side))
        for side in (evaluated.sentences.tags, evaluated.predicted)
    ]
    return conlleval.score(*([side[i] for i in numbers] for side in sides))


def _confusions(evaluated: EvaluatedSet) -> str:
    true = evaluated.types(evaluated.sentences.tags)
    found = evaluated.types(evaluated.predicted)
    counts = Counter(zip(true, found, strict=True))
    kinds = sorted({*true, *found})
    names = ["none" if kind == _NONE else kind for kind in kinds]
    header = ["true type", *(f"called {name}" for name in names)]
    rows = [
        [name, *(counts[a, b] for b in kinds)]
        for name, a in zip(names, kinds, strict=True)
    ]
    return report.table(header, rows)


def _worst(evaluated: EvaluatedSet) -> str:
    """Shows the sentences of the greatest loss that have a wrong tag."""
    sentences = evaluated.sentences
    starts = sentences.row_splits[:-1]
    losses = np.add.reduceat(evaluated.losses, starts)
    wrong = np.add.reduceat(
        np.array(sentences.tags) != np.array(evaluated.predicted), starts
    )
    order = np.argsort(-losses, kind="stable")
    worst = order[wrong[order] > 0][:_WORST]
    if not len(worst):
        return "<p>None.</p>"
    hues = _hues(evaluated)
    parts = ["<dl>"]
    for i in worst.tolist():
        words = slice(*sentences.row_splits[i : i + 2])
        where = os.path.basename(sentences.where(words.start))
        parts.append(
            f"<dt>{html.escape(where)}, loss {losses[i]:.3g}</dt>"
            f"<dd>true: {_colored(evaluated, sentences.tags, words, hues)}<br>"
            "found: "
            f"{_colored(evaluated, evaluated.predicted, words, hues)}</dd>"
        )
    return "".join([*parts, "</dl>"])


def _hues(evaluated: EvaluatedSet) -> dict[str, int]:
    kinds = {
        *evaluated.types(evaluated.sentences.tags),
        *evaluated.types(evaluated.predicted),
    }
    kinds = sorted(kinds - {_NONE})
    return {kind: i * 360 // len(kinds) for i, kind in enumerate(kinds)}


def _colored(evaluated: EvaluatedSet, tags, words: slice, hues) -> str:
    text, tags = evaluated.sentences.words[words], tags[words]
    if evaluated.is_plain:
        found = [conll.Span(i, i + 1, t) for i, t in enumerate(tags)]
    else:
        found = conll.spans(tags)
    parts = [html.escape(word) for word in text]
    for span in reversed(found):
        inside = " ".join(parts[span.start : span.end])
        inside += _TYPE.format(html.escape(span.type))
        parts[span.start : span.end] = [_SPAN.format(hues[span.type], inside)]
    return " ".join(parts)


SCORES = "scores_{}.txt"
PREDICTIONS = "predictions_{}.txt"
Decode = Callable[[conll.Sentences, np.ndarray], list[str]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What a model makes of a set with tags.

    Attributes:
      values: metrics, "score" among them, by which runs are compared.
      evaluated: the same in detail.
      text: what conlleval prints; of plain tags, their accuracy.
    """

    values: dict[str, float]
    evaluated: EvaluatedSet
    text: str


def predicted_tags(
    data: ner_data.NerData, split: str, tags: Sequence[str]
) -> list[str]:
    """Returns a model's tags of a set as they are written."""
    return conll.convert(data.read(split), tags, data.written_scheme(split))


def evaluate(
    data: ner_data.NerData,
    split: str,
    logits: np.ndarray,
    tags: Sequence[str],
) -> Evaluation:
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
    evaluated = EvaluatedSet(
        sentences=sentences,
        predicted=guessed,
        losses=losses,
        is_plain=data.is_plain,
    )
    return Evaluation(values=values, evaluated=evaluated, text=text)


def _compare(
    sentences: conll.Sentences, guessed: Sequence[str], is_plain: bool
) -> tuple[dict[str, float], str]:
    """Returns the metrics, and what is printed."""
    sides = [list(sentences.split(t)) for t in (sentences.tags, guessed)]
    if is_plain:
        values = conlleval.plain(*sides)
        text = "".join(f"{k}: {100 * v:.2f}%\n" for k, v in values.items())
        return values | {"score": values["accuracy"]}, text
    scores = conlleval.score(
        *sides, boundaries=conll.count_boundaries(sentences)
    )
    return scores.values() | {"score": scores.total.f1}, scores.text()


class OutputWriter:
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
            tagging.remove_crf(self._files.output_dir)
            if is_crf:
                tagging.save_crf(model, labels, self._files.output_dir)
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
                ner_data.DEV, run_files.named(done["values"], done["step"])
            )

    def evaluation(self, found: Evaluation, step: int) -> None:
        """Writes the scores, predictions and report of the development set."""
        if not self._files.is_chief:
            return
        values = run_files.named(found.values, step)
        run_files.write_eval_results(self._files.output_dir, values)
        self._scores(ner_data.DEV, found, values)
        self._files.report(
            "Tagging",
            values=values,
            panels=PANELS,
            sections=sections(found.evaluated),
        )

    def test(self, found: Evaluation) -> None:
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

    def _scores(self, split, found: Evaluation, values) -> None:
        self.predictions(split, found.evaluated.predicted)
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
        self._files.add_scores(split, data=data, metrics=values)

    def _describe(self, split: str) -> str:
        sentences = self._data.read(split)
        name = os.path.basename(sentences.path)
        return (
            f"{len(sentences)} sentences, {len(sentences.words)} words of "
            f"{name}, SHA-256 {self._data.digest(split)}"
        )
