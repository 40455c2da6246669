"""The results of tagging: metrics, the lines of files, and the report."""

import dataclasses
import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from markupsafe import Markup

from jobs import report
from tasks.ner import ner_data, tag_spans, tagging, word_files

SCORES = "scores_{}.txt"
PREDICTIONS = "predictions_{}.txt"
ENTITIES = "entities.jsonl"
PANELS = (
    report.Panel("Loss", ("train/loss", "eval/loss")),
    report.Panel("F1 of entities", ("train/f1", "eval/f1")),
    report.Panel("Accuracy of words", ("train/accuracy", "eval/accuracy")),
    report.Panel("Learning rate", ("train/learning_rate",)),
)
_NUM_WORST = 25  # Number of sentences in the report.
_NUM_GROUPS = 5  # Number of groups of sentences of similar length.
_MAX_TYPES = 30  # Rows of the table of confusions.
# The type of words outside of entities, and the common type of words that the
# table of confusions does not list. No file has these two types.
_OUTSIDE, _OTHER = "\n", "\r"


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Evaluation:
    """The tags and the metrics of a model on a set with tags.

    Attributes:
      values: metrics, among them "score", by which runs are compared.
      text: the output of conlleval; for plain tags, the metrics.
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

    @property
    def tags(self) -> Sequence[str]:
        """The W tags of the file."""
        assert self.sentences.tags is not None
        return self.sentences.tags

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
      name: name of the split.
      logits: float [W, C].
      tags: W labels of the model.
    """
    split = data.split(name)
    predicted = split.convert(tags)
    scores = _score(split, predicted, data.is_plain)
    assert split.label_ids is not None
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
    assert sentences.tags is not None
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
    """Returns the parts of a block of the test set; see `test_results`.

    Args:
      data: the sets.
      block: W words.
      logits: float [W, C].
      tags: W labels of the model.
    """
    predicted = block.convert(tags)
    parts = {PREDICTIONS: columns(block, predicted).encode("utf-8")}
    if block.label_ids is not None:
        scores = _score(block, predicted, data.is_plain)
        losses = tagging.word_losses(logits, block.label_ids)
        record = dataclasses.asdict(scores) | {"loss": float(losses.sum())}
        parts[SCORES] = json.dumps(record).encode("utf-8")
    return parts


def columns(split: ner_data.TaggedSet, predicted: Sequence[str]) -> str:
    """Returns the lines of words with their tags, if any, and predicted."""
    columns = [predicted]
    if split.written.tags is not None:
        columns.insert(0, split.written.tags)
    return "".join(word_files.write(split.written, columns))


def test_results(
    data: ner_data.NerData, scores: Iterable[bytes]
) -> tuple[str, dict[str, float]]:
    """Returns the output of conlleval and the metrics of the test set.

    `scores` are the parts SCORES of `test_parts`.
    """
    total, loss = tag_spans.Scores(), 0.0
    for part in map(json.loads, scores):
        loss += part.pop("loss") / data.test.num_words
        total += tag_spans.Scores.from_counts(**part)
    values, text = _results(data, total, loss)
    return text, values


def sections(evaluation: Evaluation) -> list[report.Section]:
    """Returns the task's sections of report.html."""
    result = [report.Section("Confusions of words", _confusions(evaluation))]
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
        result.insert(0, report.Section("By type", by_type))
        result.append(report.Section("By length", _by_length(evaluation)))
    return [*result, report.Section("Worst sentences", _worst(evaluation))]


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
        for side in (evaluation.tags, evaluation.predicted)
    ]
    return tag_spans.score(*([side[i] for i in numbers] for side in sides))


def _confusions(evaluation: Evaluation) -> Markup:
    """Returns the counts of words by true and predicted type.

    If there are many types, only those with the most words have a row.
    """
    true = evaluation.types(evaluation.tags)
    predicted = evaluation.types(evaluation.predicted)
    counts = Counter(zip(true, predicted, strict=True))
    words = Counter([*true, *predicted])
    kinds = sorted(kind for kind, _ in words.most_common(_MAX_TYPES))
    names = ["none" if kind == _OUTSIDE else kind for kind in kinds]
    if len(words) > len(kinds):
        names.append(f"{len(words) - len(kinds)} other types")
        listed = {*kinds}
        kinds.append(_OTHER)
        merged: Counter = Counter()
        for pair, count in counts.items():
            row, column = (x if x in listed else _OTHER for x in pair)
            merged[row, column] += count
        counts = merged
    rows = [[counts[a, b] for b in kinds] for a in kinds]
    return report.heat_map("true", names, rows)


def _worst(evaluation: Evaluation) -> Markup:
    """Returns the sentences with the highest loss and a wrong tag."""
    sentences = evaluation.sentences
    starts = sentences.row_splits[:-1]
    losses = np.add.reduceat(evaluation.losses, starts)
    is_wrong = np.array(evaluation.tags) != np.array(evaluation.predicted)
    wrong = np.add.reduceat(is_wrong, starts)
    order = np.argsort(-losses, kind="stable")
    worst = order[wrong[order] > 0][:_NUM_WORST]
    true, predicted = evaluation.tags, evaluation.predicted
    kinds = {*evaluation.types(true), *evaluation.types(predicted)} - {_OUTSIDE}
    hues = {k: i * 360 // len(kinds) for i, k in enumerate(sorted(kinds))}
    items = []
    for i in worst.tolist():
        words = slice(*sentences.row_splits[i : i + 2])
        where = os.path.basename(sentences.where(words.start))
        items.append(
            [
                _colored("True: ", evaluation, true, words, hues),
                _colored("Predicted: ", evaluation, predicted, words, hues),
                Markup('<span class="soft">{}, loss {:.3g}</span>').format(
                    where, losses[i]
                ),
            ]
        )
    return report.items(items)


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
