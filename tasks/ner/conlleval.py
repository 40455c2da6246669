"""Scores of tags as printed by conlleval, the script of the CoNLL shared tasks.

    processed 51578 tokens with 5942 phrases; found: 6755 phrases; correct: ...
    accuracy:  98.21%; precision:  85.63%; recall:  97.34%; FB1:  91.11
                  LOC: precision:  88.23%; recall:  97.93%; FB1:  92.83  2039

A phrase is correct if its first word, its last word and its type are. Where
phrases begin and end follows conlleval's rules for B-, I- and E-, also for tags
that no scheme allows.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import sklearn.metrics

_OUTSIDE = ("O", "")
# Prefixes of two neighboring words between which a phrase ends.
_BOUNDARIES = (("B", "B"), ("I", "B"), ("E", "E"), ("E", "I"))


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
      total: of all types.
      by_type: of each type that is true or predicted, sorted by name.
    """

    tokens: int
    right: int
    total: Score
    by_type: dict[str, Score]

    @property
    def accuracy(self) -> float:
        """The fraction of words with the correct tag."""
        return self.right / self.tokens if self.tokens else 0.0

    def values(self, types: Iterable[str] = ()) -> dict[str, float]:
        """Returns the metrics of eval_results.txt.

        Args:
          types: types to report even if they are neither true nor predicted.
        """
        values = {"accuracy": self.accuracy, **_values(self.total)}
        for kind in sorted({*self.by_type, *types}):
            score = self.by_type.get(kind, Score(0, 0, 0))
            values |= {
                f"{name}_{kind}": x for name, x in _values(score).items()
            }
        return values

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
) -> Scores:
    """Compares the tags of sentences.

    Args:
      true: the tags of each sentence.
      predicted: the predicted tags of each sentence.
      boundaries: number of -DOCSTART- lines, which conlleval counts as words
        with the correct tag.
    """
    tokens = right = boundaries
    counts: dict[str, Counter] = {"true": Counter(), "found": Counter()}
    correct: Counter = Counter()
    for gold, guess in zip(true, predicted, strict=True):
        if len(gold) != len(guess):
            raise ValueError(f"{len(gold)} tags against {len(guess)}")
        tokens += len(gold)
        right += sum(a == b for a, b in zip(gold, guess, strict=True))
        theirs, ours = phrases(gold), phrases(guess)
        counts["true"].update(kind for *_, kind in theirs)
        counts["found"].update(kind for *_, kind in ours)
        correct.update(kind for *_, kind in theirs & ours)
    kinds = sorted({*counts["true"], *counts["found"]})
    by_type = {
        kind: Score(counts["true"][kind], counts["found"][kind], correct[kind])
        for kind in kinds
    }
    columns = zip(*by_type.values(), strict=True) if by_type else ([],) * 3
    total = Score(*map(sum, columns))
    return Scores(tokens=tokens, right=right, total=total, by_type=by_type)


def phrases(tags: Sequence[str]) -> set[tuple[int, int, str]]:
    """Returns (first word, word after the last, type) of each phrase."""
    found = set()
    begin, before = None, _OUTSIDE
    for i, tag in enumerate([*tags, "O"]):
        prefix, hyphen, kind = tag.partition("-")
        now = (prefix, kind) if hyphen else (tag, "")
        if begin is not None and _ends(before, now):
            found.add((begin, i, before[1]))
            begin = None
        if _starts(before, now):
            begin = i
        before = now
    return found


def plain(
    true: Iterable[Sequence[str]], predicted: Iterable[Sequence[str]]
) -> dict[str, float]:
    """Returns the metrics of plain tags, such as NNP."""
    gold = [tag for tags in true for tag in tags]
    guess = [tag for tags in predicted for tag in tags]
    f1 = sklearn.metrics.f1_score(gold, guess, average="macro", zero_division=0)
    return {
        "accuracy": float(sklearn.metrics.accuracy_score(gold, guess)),
        "f1_macro": float(f1),
    }


def _starts(before: tuple[str, str], now: tuple[str, str]) -> bool:
    prefix, kind = now
    starts = (*_BOUNDARIES, ("O", "B"), ("O", "I"), ("O", "E"))
    if (before[0], prefix) in starts:
        return True
    return prefix not in ("O", ".") and kind != before[1]


def _ends(before: tuple[str, str], now: tuple[str, str]) -> bool:
    prefix, kind = before
    if (prefix, now[0]) in (*_BOUNDARIES, ("B", "O"), ("I", "O"), ("E", "O")):
        return True
    return prefix not in ("O", ".") and kind != now[1]


def _values(score: Score) -> dict[str, float]:
    return {
        "precision": score.precision,
        "recall": score.recall,
        "f1": score.f1,
    }


def _line(score: Score) -> str:
    return (
        f"precision: {100 * score.precision:6.2f}%; "
        f"recall: {100 * score.recall:6.2f}%; FB1: {100 * score.f1:6.2f}"
    )
