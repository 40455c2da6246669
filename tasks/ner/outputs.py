"""Output files of tagging: model, scores, predictions, report.

predictions_<split>.txt   CoNLL's columns, as conlleval reads them (with
                          tabs, if the file has them: conlleval -d '\\t')
scores_<split>.txt        the output of conlleval
entities.jsonl            the entities of raw text
eval_results.txt, .json and report.html for the development set

Files of another set that are already there are kept: predictions_test.txt of
news.txt becomes predictions_test_news.txt.
"""

import dataclasses
import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging
from markupsafe import Markup

from data import text_files
from foundation import file_system
from jobs import report, run_directory, streaming
from modeling import crf
from tasks.ner import ner_data, tag_spans, tagging, word_files
from weights import model_directory

SCORES = "scores_{}.txt"
PREDICTIONS = "predictions_{}.txt"
ENTITIES = "entities.jsonl"
_PANELS = (
    report.Panel("Loss", ("train/loss", "eval/loss")),
    report.Panel("F1 of entities", ("train/f1", "eval/f1")),
    report.Panel("Accuracy of words", ("train/accuracy", "eval/accuracy")),
    report.Panel("Learning rate", ("train/learning_rate",)),
)
_NUM_WORST = 25  # Sentences.
_NUM_GROUPS = 5  # Of sentences by their length.
_MAX_TYPES = 30  # In the table of confusions.
# The types of words outside of entities, and of those that the table of
# confusions does not list: no file contains them.
_OUTSIDE, _OTHER = "\n", "\r"


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Evaluation:
    """The tags and the metrics of a model on a set with tags.

    Attributes:
      values: metrics, among them "score", by which runs are compared.
      text: the output of conlleval; of plain tags, the metrics.
      sentences: W words and tags, in the scheme in which they are written.
      predicted: W tags in the same scheme.
      losses: float [W].
      is_plain: whether tags do not mark spans.
    """

    values: dict[str, float]
    text: str
    sentences: word_files.Sentences
    predicted: Sequence[str]
    losses: np.ndarray
    is_plain: bool

    def types(self, tags: Sequence[str]) -> list[str]:
        """Returns the type of each word, _OUTSIDE if it has none."""
        if self.is_plain:
            return list(tags)
        return [tag_spans.split_tag(tag)[1] or _OUTSIDE for tag in tags]


def evaluate(
    data: ner_data.NerData, name: str, logits: np.ndarray, tags: Sequence[str]
) -> Evaluation:
    """Compares predicted tags with those of a set.

    Args:
      data: the sets.
      name: of the split.
      logits: float [W, C].
      tags: W labels of the model.
    """
    split = data.split(name)
    predicted = split.convert(tags)
    scores = _score(split, predicted, data.is_plain)
    losses = tagging.word_losses(logits, split.label_ids)
    values, text = _results(data, scores, float(losses.mean()))
    return Evaluation(
        values=values,
        text=text,
        sentences=split.written,
        predicted=predicted,
        losses=losses,
        is_plain=data.is_plain,
    )


def _score(
    split: ner_data.TaggedSet, predicted: Sequence[str], is_plain: bool
) -> tag_spans.Scores:
    sentences = split.written
    return tag_spans.score(
        sentences.split(sentences.tags),
        sentences.split(predicted),
        boundaries=0 if is_plain else sentences.num_boundaries,
        is_plain=is_plain,
    )


def _results(
    data: ner_data.NerData, scores: tag_spans.Scores, loss: float
) -> tuple[dict[str, float], str]:
    """Returns the metrics, and the text of the scores."""
    if data.is_plain:
        values = scores.plain_values()
        text = "".join(f"{k}: {100 * v:.2f}%\n" for k, v in values.items())
        values["score"] = values["accuracy"]
    else:
        # All types of the model, so that all runs have the same metrics.
        values, text = scores.values(data.types), scores.text()
        values["score"] = scores.total.f1
    return values | {"loss": loss}, text


def test_parts(
    data: ner_data.NerData,
    block: ner_data.TaggedSet,
    logits: np.ndarray,
    tags: Sequence[str],
) -> dict[str, bytes]:
    """Returns the parts of a block of the test set; see `write_test_blocks`.

    Args:
      data: the sets.
      block: W words.
      logits: float [W, C].
      tags: W labels of the model.
    """
    predicted = block.convert(tags)
    parts = {PREDICTIONS: _columns(block, predicted).encode("utf-8")}
    if block.sentences.tags is not None:
        scores = _score(block, predicted, data.is_plain)
        losses = tagging.word_losses(logits, block.label_ids)
        record = dataclasses.asdict(scores) | {"loss": float(losses.sum())}
        parts[SCORES] = json.dumps(record).encode("utf-8")
    return parts


def _columns(split: ner_data.TaggedSet, predicted: Sequence[str]) -> str:
    """Returns the lines of words with their tags, if any, and predicted."""
    columns = [predicted]
    if split.written.tags is not None:
        columns.insert(0, split.written.tags)
    return "".join(word_files.write(split.written, columns))


class OutputWriter:
    """Writes all output files of a job."""

    def __init__(self, files: run_directory.RunFiles, data: ner_data.NerData):
        """Writes nothing yet."""
        self._files = files
        self._data = data
        self._has_card = False

    def write_model(self, model: Any, directory: str) -> None:
        """Writes a model directory with the files of its task."""
        if not self._files.is_chief:
            return
        labels = list(self._data.labels)
        file_system.make_folder(directory)
        tagging.save_crf(model, labels, directory)
        tagging.discard_true_case(directory)
        if isinstance(model, crf.CrfTaggingModel):
            model = model.tagger
        model_directory.save(
            model, directory, self._files.tokenizer, labels=labels
        )

    def save_model(self, model: Any) -> None:
        """Writes the model into output_dir, and begins its card."""
        self.write_model(model, self._files.output_dir)
        weights = self._files.new_weights(model)
        self._has_card = True
        if weights is None:
            return
        self._begin_card(weights)
        done = self._files.results.best
        if done["values"]:  # The runs of a grid are evaluated before.
            values = run_directory.eval_results(done["values"], done["step"])
            self._add_scores(ner_data.DEV, values)

    def write_evaluation(self, evaluation: Evaluation, step: int) -> None:
        """Writes the scores, predictions and report of the development set."""
        if not self._files.is_chief:
            return
        values = run_directory.eval_results(evaluation.values, step)
        names = (
            run_directory.RESULTS_TEXT,
            run_directory.RESULTS_JSON,
            "report.html",
        )
        self._keep_other_sets(ner_data.DEV, *names)
        run_directory.write_eval_results(self._files.output_dir, values)
        self.write_predictions(ner_data.DEV, evaluation.predicted)
        self._write_scores(ner_data.DEV, evaluation.text, values)
        path = os.path.basename(self._data.summary(ner_data.DEV).path)
        # The report has a table of the types of entities.
        by_type = ("eval_precision_", "eval_recall_", "eval_f1_")
        self._files.report(
            self._title,
            values={
                name: value
                for name, value in values.items()
                if self._data.is_plain or not name.startswith(by_type)
            },
            panels=_PANELS,
            sections=sections(evaluation),
            facts={
                shown: values[f"eval_{name}"]
                for name, shown in (
                    ("f1", "F1 of entities"),
                    ("accuracy", "accuracy of words"),
                )
                if f"eval_{name}" in values
            }
            | {
                f"sentences of {path}": len(evaluation.sentences),
                "training steps": step,
            },
        )

    @property
    def _title(self) -> str:
        """The kind of the task and its data."""
        kind = "tags of words" if self._data.is_plain else "named entities"
        flags = self._files.trained_with or self._files.flags
        data = (
            flags.get("data_dir")
            or flags.get("train_file")
            or self._data.summary(ner_data.DEV).path
        )
        return f"{kind}: {os.path.basename(data.rstrip('/'))}"

    def write_test(self, evaluation: Evaluation) -> None:
        """Writes the scores and predictions of the test set."""
        if self._files.is_chief:
            self.write_predictions(ner_data.TEST, evaluation.predicted)
            self._write_test_scores(evaluation.text, evaluation.values)

    def write_predictions(self, name: str, predicted: Sequence[str]) -> None:
        """Writes a set with its tags, if it has any, and predicted ones.

        Args:
          name: of the split.
          predicted: W tags in the split's written_scheme.
        """
        if self._files.is_chief:
            (path,) = self._keep_other_sets(name, PREDICTIONS.format(name))
            text = _columns(self._data.split(name), predicted)
            file_system.write_text(path, text)

    def write_test_blocks(self, blocks: streaming.Blocks) -> None:
        """Writes what write_test does, of the blocks of `test_parts`."""
        name, test = ner_data.TEST, self._data.test
        (path,) = self._keep_other_sets(name, PREDICTIONS.format(name))
        blocks.write(PREDICTIONS, path)
        if not test.has_tags:
            return
        scores, loss = tag_spans.Scores(), 0.0
        for part in map(json.loads, blocks.parts(SCORES)):
            loss += part.pop("loss") / test.num_words
            scores += tag_spans.Scores.from_counts(**part)
        values, text = _results(self._data, scores, loss)
        self._write_test_scores(text, values)

    def write_entities(
        self, blocks: streaming.Blocks, lines: text_files.Lines
    ) -> None:
        """Writes the entities of each line of raw text."""
        run_directory.keep_other_sets(
            self._files.output_dir,
            [ENTITIES],
            name=run_directory.set_name([lines.name]),
            digest=lines.digest,
        )
        path = os.path.join(self._files.output_dir, ENTITIES)
        blocks.write(ENTITIES, path)

    def _write_test_scores(
        self, text: str, values: Mapping[str, float]
    ) -> None:
        values = {f"test_{name}": value for name, value in values.items()}
        self._write_scores(ner_data.TEST, text, values)

    def _write_scores(
        self, name: str, text: str, values: Mapping[str, float]
    ) -> None:
        (path,) = self._keep_other_sets(name, SCORES.format(name))
        file_system.write_text(path, text)
        logging.info("%s:\n%s", path, text.rstrip())
        if self._files.is_trained and not self._has_card:
            # A feature-based tagger, which has no model directory.
            self._begin_card(None)
            self._has_card = True
        self._add_scores(name, values)

    def _keep_other_sets(self, name: str, *files: str) -> list[str]:
        """Keeps files of other sets; returns the paths to write to."""
        summary = self._data.summary(name)
        run_directory.keep_other_sets(
            self._files.output_dir,
            files,
            name=run_directory.set_name([summary.path]),
            digest=summary.digest,
        )
        return [os.path.join(self._files.output_dir, name) for name in files]

    def _begin_card(self, weights: str | None) -> None:
        self._files.begin_card(
            f"BERT for {self._title}",
            data={ner_data.TRAIN: self._describe(ner_data.TRAIN)},
            pipeline_tag="token-classification",
            labels=self._data.labels,
            weights=weights,
        )

    def _add_scores(self, name: str, values: Mapping[str, float]) -> None:
        path = self._data.summary(name).path
        self._files.add_scores(
            name,
            data={name: self._describe(name)},
            metrics=values,
            set_name=run_directory.set_name([path]),
        )

    def _describe(self, name: str) -> str:
        found = self._data.summary(name)
        return (
            f"{found.num_sentences} sentences, {found.num_words} words of "
            f"{os.path.basename(found.path)}, SHA-256 {found.digest}"
        )


def sections(evaluation: Evaluation) -> list[report.Section]:
    """Returns the task's sections of report.html."""
    found = [report.Section("Confusions of words", _confusions(evaluation))]
    if not evaluation.is_plain:
        header = "type true predicted correct precision recall F1".split()
        scores = _score_some(evaluation, range(len(evaluation.sentences)))
        rows = [
            [
                kind,
                *(s.true, s.found, s.correct),
                *(report.heat(x, x) for x in (s.precision, s.recall, s.f1)),
            ]
            for kind, s in [*scores.by_type.items(), ("all", scores.total)]
        ]
        by_type = report.table(header, rows, minor=["predicted", "correct"])
        found.insert(0, report.Section("By type", by_type))
        found.append(report.Section("By length", _by_length(evaluation)))
    return [*found, report.Section("Worst sentences", _worst(evaluation))]


def _by_length(evaluation: Evaluation) -> Markup:
    """Returns the scores of groups of sentences of similar length."""
    lengths = np.diff(evaluation.sentences.row_splits)
    rows = []
    for span, part in report.length_groups(lengths, _NUM_GROUPS):
        scores = _score_some(evaluation, part.tolist())
        rows.append([span, len(part), scores.accuracy, scores.total.f1])
    return report.table(["words", "sentences", "accuracy", "F1"], rows)


def _score_some(
    evaluation: Evaluation, numbers: Iterable[int]
) -> tag_spans.Scores:
    """Returns the scores of the sentences with these numbers."""
    sides = [
        list(evaluation.sentences.split(side))
        for side in (evaluation.sentences.tags, evaluation.predicted)
    ]
    return tag_spans.score(*([side[i] for i in numbers] for side in sides))


def _confusions(evaluation: Evaluation) -> Markup:
    """Returns the counts of words by true and predicted type.

    Of many types, those with the most words have a row of their own.
    """
    true = evaluation.types(evaluation.sentences.tags)
    found = evaluation.types(evaluation.predicted)
    counts = Counter(zip(true, found, strict=True))
    words = Counter([*true, *found])
    kinds = sorted(kind for kind, _ in words.most_common(_MAX_TYPES))
    names = ["none" if kind == _OUTSIDE else kind for kind in kinds]
    if len(words) > len(kinds):
        names.append(f"{len(words) - len(kinds)} other types")
        kept = {*kinds}
        kinds.append(_OTHER)
        merged: Counter = Counter()
        for pair, count in counts.items():
            row, column = (x if x in kept else _OTHER for x in pair)
            merged[row, column] += count
        counts = merged
    rows = [[counts[a, b] for b in kinds] for a in kinds]
    return report.heat_map("true", names, rows)


def _worst(evaluation: Evaluation) -> Markup:
    """Returns the sentences with the highest loss and a wrong tag."""
    sentences = evaluation.sentences
    starts = sentences.row_splits[:-1]
    losses = np.add.reduceat(evaluation.losses, starts)
    is_wrong = np.array(sentences.tags) != np.array(evaluation.predicted)
    wrong = np.add.reduceat(is_wrong, starts)
    order = np.argsort(-losses, kind="stable")
    worst = order[wrong[order] > 0][:_NUM_WORST]
    true, found = sentences.tags, evaluation.predicted
    kinds = {*evaluation.types(true), *evaluation.types(found)} - {_OUTSIDE}
    hues = {k: i * 360 // len(kinds) for i, k in enumerate(sorted(kinds))}
    shown = []
    for i in worst.tolist():
        words = slice(*sentences.row_splits[i : i + 2])
        where = os.path.basename(sentences.where(words.start))
        shown.append(
            [
                _colored("True: ", evaluation, true, words, hues),
                _colored("Predicted: ", evaluation, found, words, hues),
                Markup('<span class="soft">{}, loss {:.3g}</span>').format(
                    where, losses[i]
                ),
            ]
        )
    return report.items(shown)


def _colored(
    title: str, evaluation: Evaluation, tags, words: slice, hues
) -> Markup:
    """Returns the words of a sentence, with the spans of their tags marked."""
    text = evaluation.sentences.words[words]
    starts = np.cumsum([0, *(len(word) + 1 for word in text)])
    spans = [
        report.Span(
            int(starts[x.start]), int(starts[x.end]) - 1, hues[x.type], x.type
        )
        for x in tag_spans.spans(tags[words], is_plain=evaluation.is_plain)
    ]
    return Markup(title) + report.highlight(" ".join(text), spans)
