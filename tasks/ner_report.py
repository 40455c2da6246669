"""What report.html shows of a tagging run on its development set."""

import dataclasses
import html
import os
from collections import Counter
from collections.abc import Sequence

import numpy as np

from data import conll, conll_tags
from tasks import entities, report

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
class Judged:
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
        return [conll_tags.split(tag)[1] or _NONE for tag in tags]


def sections(judged: Judged) -> list[report.Section]:
    """Returns scores by type and length, confusions, the worst sentences."""
    shown = []
    if not judged.is_plain:
        shown.append(report.Section("By type", _by_type(judged)))
    shown.append(report.Section("Confusions of words", _confusions(judged)))
    if not judged.is_plain:
        shown.append(report.Section("By length", _by_length(judged)))
    shown.append(report.Section("Worst sentences", _worst(judged)))
    return shown


def _by_type(judged: Judged) -> str:
    scores = _score(judged, range(len(judged.sentences)))
    rows = [
        [kind, s.true, s.found, s.correct, s.precision, s.recall, s.f1]
        for kind, s in [*scores.by_type.items(), ("all", scores.total)]
    ]
    header = ["type", "true", "found", "correct", "precision", "recall", "F1"]
    return report.table(header, rows)


def _by_length(judged: Judged) -> str:
    """Scores groups of equal size, from the shortest sentences on."""
    lengths = np.diff(judged.sentences.row_splits)
    order = np.argsort(lengths, kind="stable")
    rows = []
    for part in np.array_split(order, min(_GROUPS, len(order))):
        scores = _score(judged, part.tolist())
        span = f"{lengths[part].min()} - {lengths[part].max()}"
        rows.append([span, len(part), scores.accuracy, scores.total.f1])
    return report.table(["words", "sentences", "accuracy", "F1"], rows)


def _score(judged: Judged, numbers) -> entities.Scores:
    sides = [
        list(judged.sentences.split(side))
        for side in (judged.sentences.tags, judged.predicted)
    ]
    return entities.score(*([side[i] for i in numbers] for side in sides))


def _confusions(judged: Judged) -> str:
    true = judged.types(judged.sentences.tags)
    found = judged.types(judged.predicted)
    counts = Counter(zip(true, found, strict=True))
    kinds = sorted({*true, *found})
    names = ["none" if kind == _NONE else kind for kind in kinds]
    header = ["true type", *(f"called {name}" for name in names)]
    rows = [
        [name, *(counts[a, b] for b in kinds)]
        for name, a in zip(names, kinds, strict=True)
    ]
    return report.table(header, rows)


def _worst(judged: Judged) -> str:
    """Shows the sentences of the greatest loss that have a wrong tag."""
    sentences = judged.sentences
    starts = sentences.row_splits[:-1]
    losses = np.add.reduceat(judged.losses, starts)
    wrong = np.add.reduceat(
        np.array(sentences.tags) != np.array(judged.predicted), starts
    )
    order = np.argsort(-losses, kind="stable")
    worst = order[wrong[order] > 0][:_WORST]
    if not len(worst):
        return "<p>None.</p>"
    hues = _hues(judged)
    parts = ["<dl>"]
    for i in worst.tolist():
        words = slice(*sentences.row_splits[i : i + 2])
        where = os.path.basename(sentences.where(words.start))
        parts.append(
            f"<dt>{html.escape(where)}, loss {losses[i]:.3g}</dt>"
            f"<dd>true: {_colored(judged, sentences.tags, words, hues)}<br>"
            f"found: {_colored(judged, judged.predicted, words, hues)}</dd>"
        )
    return "".join([*parts, "</dl>"])


def _hues(judged: Judged) -> dict[str, int]:
    kinds = {
        *judged.types(judged.sentences.tags),
        *judged.types(judged.predicted),
    }
    kinds = sorted(kinds - {_NONE})
    return {kind: i * 360 // len(kinds) for i, kind in enumerate(kinds)}


def _colored(judged: Judged, tags, words: slice, hues) -> str:
    text, tags = judged.sentences.words[words], tags[words]
    if judged.is_plain:
        found = [conll_tags.Span(i, i + 1, t) for i, t in enumerate(tags)]
    else:
        found = conll_tags.spans(tags)
    parts = [html.escape(word) for word in text]
    for span in reversed(found):
        inside = " ".join(parts[span.start : span.end])
        inside += _TYPE.format(html.escape(span.type))
        parts[span.start : span.end] = [_SPAN.format(hues[span.type], inside)]
    return " ".join(parts)
