"""Scores of tags as printed by conlleval, the script of the CoNLL shared tasks.

    processed 51578 tokens with 5942 phrases; found: 6755 phrases; correct: ...
    accuracy:  98.21%; precision:  85.63%; recall:  97.34%; FB1:  91.11
                  LOC: precision:  88.23%; recall:  97.93%; FB1:  92.83  2039

A phrase is correct if its first word, its last word and its type are. Where
phrases begin and end follows conlleval's rules for O, B- and I-, also for tags
that no scheme allows; see conll.spans.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tasks.ner import conll


class Score(NamedTuple):
    """Numbers of true, predicted and correct phrases, and their ratios."""

    true: int
    found: int
    correct: int

    @property
    def precision(self) -> float:
        """The fraction of the predicted phrases that are correct; 0 of none."""
        return self.correct / self.found if self.found else 0.0

    @property
    def recall(self) -> float:
        """The fraction of the true phrases that are predicted; 0 of none."""
        return self.correct / self.true if self.true else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall; 0 if both are 0."""
        both = self.precision + self.recall
        return 2 * self.precision * self.recall / both if both else 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scores:
    """The counts of conlleval.

    Attributes:
      tokens: number of words.
      right: number of words with the correct tag.
      by_type: of each type that is true or predicted, sorted by name.
    """

    tokens: int = 0
    right: int = 0
    by_type: dict[str, Score] = dataclasses.field(default_factory=dict)

    @classmethod
    def from_counts(
        cls, tokens: int, right: int, by_type: Mapping[str, Sequence[int]]
    ) -> "Scores":
        """Returns scores of the values of dataclasses.asdict, read as JSON."""
        scores = {kind: Score(*counts) for kind, counts in by_type.items()}
        return cls(tokens=tokens, right=right, by_type=scores)

    def __add__(self, other: "Scores") -> "Scores":
        """Returns the scores of both sets of sentences together."""
        none = Score(0, 0, 0)
        return Scores(
            tokens=self.tokens + other.tokens,
            right=self.right + other.right,
            by_type={
                kind: Score(
                    *np.add(
                        self.by_type.get(kind, none),
                        other.by_type.get(kind, none),
                    ).tolist()
                )
                for kind in sorted({*self.by_type, *other.by_type})
            },
        )

    @property
    def total(self) -> Score:
        """The score of all types."""
        counts = zip(*self.by_type.values(), strict=True)
        return Score(*map(sum, counts)) if self.by_type else Score(0, 0, 0)

    @property
    def accuracy(self) -> float:
        """The fraction of words with the correct tag."""
        return self.right / self.tokens if self.tokens else 0.0

    def values(self, types: Iterable[str] = ()) -> dict[str, float]:
        """Returns the metrics of eval_results.txt.

        Args:
          types: types to report even if they are neither true nor predicted.
        """
        values = {"accuracy": self.accuracy}
        scores = {"": self.total}
        for kind in sorted({*self.by_type, *types}):
            scores[f"_{kind}"] = self.by_type.get(kind, Score(0, 0, 0))
        for suffix, score in scores.items():
            for name in ("precision", "recall", "f1"):
                values[name + suffix] = getattr(score, name)
        return values

    def plain_values(self) -> dict[str, float]:
        """Returns the metrics of plain tags, such as NNP."""
        f1 = [2 * s.correct / (s.true + s.found) for s in self.by_type.values()]
        return {"accuracy": self.accuracy, "f1_macro": float(np.mean(f1))}

    def text(self) -> str:
        """Returns the output of conlleval."""
        total = self.total
        lines = [
            f"processed {self.tokens} tokens with {total.true} phrases; "
            f"found: {total.found} phrases; correct: {total.correct}.",
            f"accuracy: {100 * self.accuracy:6.2f}%; {_line(total)}",
        ]
        lines += [
            f"{kind:>17s}: {_line(score)}  {score.found}"
            for kind, score in self.by_type.items()
        ]
        return "\n".join(lines) + "\n"


def score(
    true: Iterable[Sequence[str]],
    predicted: Iterable[Sequence[str]],
    *,
    boundaries: int = 0,
    is_plain: bool = False,
) -> Scores:
    """Compares the tags of sentences.

    Args:
      true: the tags of each sentence.
      predicted: the predicted tags of each sentence.
      boundaries: number of -DOCSTART- lines, which conlleval counts as words
        with the correct tag.
      is_plain: whether each word is a phrase whose type is its tag.
    """
    tokens = right = boundaries
    counts: list[Counter] = [Counter(), Counter(), Counter()]
    for gold, guess in zip(true, predicted, strict=True):
        if len(gold) != len(guess):
            raise ValueError(f"{len(gold)} tags against {len(guess)}")
        tokens += len(gold)
        right += sum(a == b for a, b in zip(gold, guess, strict=True))
        theirs, ours = (
            set(conll.spans(tags, is_plain=is_plain)) for tags in (gold, guess)
        )
        parts = theirs, ours, theirs & ours
        for count, part in zip(counts, parts, strict=True):
            count.update(span.type for span in part)
    by_type = {
        kind: Score(*(count[kind] for count in counts))
        for kind in sorted({*counts[0], *counts[1]})
    }
    return Scores(tokens=tokens, right=right, by_type=by_type)


def _line(score: Score) -> str:
    return (
        f"precision: {100 * score.precision:6.2f}%; "
        f"recall: {100 * score.recall:6.2f}%; FB1: {100 * score.f1:6.2f}"
    )
