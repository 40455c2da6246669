"""The sections of a tagger in report.html."""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from finetuning import pages, report
from finetuning import task as tasks
from tasks.ner import tag_spans

_NUM_WORST = 25  # Number of sentences.
_MAX_TYPES = 30  # Rows of the table of confusions.
_NONE = tag_spans.OUTSIDE  # The type of words outside of entities.


def make(
    task: Any, tagged: Any, evaluation: tasks.Evaluation
) -> list[report.Section]:
    """Returns the sections on a development set.

    Args:
      task: a task.Ner.
      tagged: the set; see task.Tagged.
      evaluation: its metrics.
    """
    true, predicted = (
        [
            tags
            for text, side in zip(tagged.texts, sides, strict=True)
            for tags in task.written(text, side)
        ]
        for sides in ([x.tags for x in tagged.texts], tagged.tags)
    )
    sections = [
        report.Section(
            "Confusions of words", _confusions(task, true, predicted)
        )
    ]
    if not task.is_plain:
        by_type = report.table(
            pages.BY_LABEL, evaluation.by_label, minor=["predicted"]
        )
        sections.insert(0, report.Section("By type", by_type))
    worst = _worst(task, tagged, true, predicted)
    return [*sections, report.Section("Worst sentences", worst)]


def _confusions(
    task: Any, true: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> Markup:
    """Returns the counts of words by true and predicted type.

    If there are many types, only those with the most words have a row.
    """

    def types(side: Sequence[Sequence[str]]) -> list[str]:
        tags = itertools.chain(*side)
        if task.is_plain:
            return list(tags)
        return [tag_spans.split_tag(tag)[1] or _NONE for tag in tags]

    sides = types(true), types(predicted)
    pairs = Counter(zip(*sides, strict=True))
    words = Counter(sides[0]) + Counter(sides[1])
    kinds = sorted(kind for kind, _ in words.most_common(_MAX_TYPES))
    rows = [[pairs[a, b] for b in kinds] for a in kinds]
    return report.heat_map("true", kinds, rows)


def _worst(
    task: Any,
    tagged: Any,
    true: Sequence[Sequence[str]],
    predicted: Sequence[Sequence[str]],
) -> Markup:
    """Returns the sentences with the highest loss and a wrong tag."""
    sentences = [x for text in tagged.texts for x in text.sentences]
    wheres = [text.where for text in tagged.texts for _ in text.sentences]
    starts = np.cumsum([0, *map(len, sentences)])[:-1]
    losses = np.add.reduceat(task.losses(tagged), starts)
    order = np.argsort(-losses, kind="stable").tolist()
    worst = [i for i in order if true[i] != predicted[i]][:_NUM_WORST]
    spans = {
        (i, name): tag_spans.spans(side[i], is_plain=task.is_plain)
        for i in worst
        for name, side in (("True: ", true), ("Predicted: ", predicted))
    }
    kinds = sorted({x.type for found in spans.values() for x in found})
    hues = {kind: i * 360 // len(kinds) for i, kind in enumerate(kinds)}
    return report.items(
        [
            *(
                _colored(name, sentences[i], spans[i, name], hues)
                for name in ("True: ", "Predicted: ")
            ),
            Markup('<span class="soft">{}, loss {:.3g}</span>').format(
                wheres[i].rpartition("/")[2], losses[i]
            ),
        ]
        for i in worst
    )


def _colored(
    title: str,
    words: Sequence[str],
    spans: Sequence[tag_spans.Span],
    hues: Mapping[str, int],
) -> Markup:
    """Returns the words of a sentence, with the spans of their tags marked."""
    starts = np.cumsum([0, *(len(word) + 1 for word in words)]).tolist()
    marked = [
        report.Span(starts[x.start], starts[x.end] - 1, hues[x.type], x.type)
        for x in spans
    ]
    return Markup(title) + report.highlight(" ".join(words), marked)
