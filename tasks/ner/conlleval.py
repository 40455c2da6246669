"""Scores of tags as conlleval prints them, of the CoNLL shared tasks.

    processed 51578 tokens with 5942 phrases; found: 6755 phrases; correct: ...
    accuracy:  98.21%; precision:  85.63%; recall:  97.34%; FB1:  91.11
                  LOC: precision:  88.23%; recall:  97.93%; FB1:  92.83  2039

A phrase is right if its first word, its last and its type are. Where phrases
begin and end follows conlleval's own rules for B-, I- and E-, also for tags
that no scheme allows.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import sklearn.metrics

_OUTSIDE = ("O", "")
_PLAIN = (("B", "B"), ("I", "B"), ("E", "E"), ("E", "I"))


class Score(NamedTuple):
    """Counts of phrases, and what follows from them, from 0 to 1."""

    true: int
    found: int
    correct: int

    @property
    def precision(self) -> float:
        """The share of the found ones that are right; 0 of none."""
        return self.correct / self.found if self.found else 0.0

    @property
    def recall(self) -> float:
        """The share of the true ones that were found; 0 of none."""
        return self.correct / self.true if self.true else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of both; 0 if both are."""
        both = self.precision + self.recall
        return 2 * self.precision * self.recall / both if both else 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scores:
    """All that conlleval counts.

    Attributes:
      tokens: how many words there are.
      right: how many have the right tag.
      total: of all types.
      by_type: of each, sorted by name.
    """

    tokens: int
    right: int
    total: Score
    by_type: dict[str, Score]

    @property
    def accuracy(self) -> float:
        """The share of words with the right tag."""
        return self.right / self.tokens if self.tokens else 0.0

    def values(self) -> dict[str, float]:
        """Returns the metrics of eval_results.txt."""
        values = {"accuracy": self.accuracy, **_values(self.total)}
        for kind, score in self.by_type.items():
            named = _values(score).items()
            values |= {f"{name}_{kind}": x for name, x in named}
        return values

    def text(self) -> str:
        """Returns what conlleval prints."""
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
      true: one sequence of tags for each sentence.
      predicted: likewise.
      boundaries: of documents; conlleval counts a -DOCSTART- as a right word.
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
        now = _split(tag)
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
    """Returns the metrics of tags that mean no phrases, such as NNP."""
    gold = [tag for tags in true for tag in tags]
    guess = [tag for tags in predicted for tag in tags]
    return {
        "accuracy": float(sklearn.metrics.accuracy_score(gold, guess)),
        "f1_macro": float(
            sklearn.metrics.f1_score(
                gold, guess, average="macro", zero_division=0
            )
        ),
    }


def _split(tag: str) -> tuple[str, str]:
    prefix, hyphen, kind = tag.partition("-")
    return (prefix, kind) if hyphen else (tag, "")


def _starts(before, now) -> bool:
    prefix, kind = now
    if (before[0], prefix) in (*_PLAIN, ("O", "B"), ("O", "I"), ("O", "E")):
        return True
    return prefix not in ("O", ".") and kind != before[1]


def _ends(before, now) -> bool:
    prefix, kind = before
    if (prefix, now[0]) in (*_PLAIN, ("B", "O"), ("I", "O"), ("E", "O")):
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
