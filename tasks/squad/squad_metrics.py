"""SQuAD's scores, digit for digit those of the official scripts.

    python -m tasks.squad.squad_metrics dev.json predictions.json \
        [null_odds.json [threshold]]

prints them as one JSON object with the official names. Which script is meant,
that of 1.1 or of 2.0, is told by the file: only questions of 2.0 say
is_impossible. With null_odds.json, whatever is predicted counts as no answer
where the odds exceed the threshold, 1 unless it is given, as the official
--na-prob-thresh is; and the best thresholds are found, as if none were
applied. It starts without TensorFlow.
"""

import json
import math
import re
import string
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from absl import logging

from foundation import errors, file_system
from tasks.squad import dataset

_ARTICLES = re.compile(r"\b(a|an|the)\b", re.UNICODE)
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)
_USAGE = "DATA.json PREDICTIONS.json [NULL_ODDS.json [THRESHOLD]]"
_THRESHOLD = 1.0  # The official script's.


class Scores(NamedTuple):
    """How good one prediction is: 0 to 1 each."""

    exact: float
    f1: float


class Threshold(NamedTuple):
    """The odds of no answer above which none is given, and what that scores.

    The score is in percent.
    """

    score: float
    threshold: float


def normalize(answer: str) -> str:
    """Drops what answers may differ in: case, marks, articles, spacing."""
    text = answer.lower().translate(_WITHOUT_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def f1(prediction: str, answer: str, *, empty_matches: bool) -> float:
    """Returns the harmonic mean of the words' precision and recall.

    Args:
      prediction: what was answered.
      answer: what is right.
      empty_matches: whether nothing equals nothing once both are normalized,
        as in the official script of 2.0; in that of 1.1 they share no word,
        so that a predicted "." scores 0 where the answer is ".".
    """
    found, right = normalize(prediction).split(), normalize(answer).split()
    if not found or not right:
        return float(empty_matches and found == right)
    same = sum((Counter(found) & Counter(right)).values())
    if not same:
        return 0.0
    precision, recall = same / len(found), same / len(right)
    return 2 * precision * recall / (precision + recall)


def score(
    prediction: str, answers: Sequence[str], *, empty_matches: bool
) -> Scores:
    """Compares a prediction with the answer that it fits best; see `f1`."""
    normalized = normalize(prediction)
    return Scores(
        exact=max(float(normalized == normalize(a)) for a in answers),
        f1=max(f1(prediction, a, empty_matches=empty_matches) for a in answers),
    )


def truth(found: dataset.Questions, question: dataset.Question) -> list[str]:
    """Returns what counts as right; in 2.0 "" where there is no answer."""
    texts = [answer.text for answer in question.answers]
    if found.has_impossible:
        return [text for text in texts if normalize(text)] or [""]
    return texts


def score_all(
    found: dataset.Questions, predictions: Mapping[str, str]
) -> list[Scores]:
    """Scores every question, 0 where nothing is predicted.

    Raises:
      InputError: a question of 1.1 has no answer to compare with.
    """
    result, missing = [], []
    for question in found.questions:
        answers = truth(found, question)
        if not answers:
            raise errors.InputError(
                f"{found.path}: question {question.id!r} has no answer to "
                "compare with"
            )
        if question.id not in predictions:
            missing.append(question.id)
            result.append(Scores(0.0, 0.0))
        else:
            scored = score(
                predictions[question.id],
                answers,
                empty_matches=found.has_impossible,
            )
            result.append(scored)
    if missing:
        logging.warning(
            "%d questions have no prediction and score 0, e.g. %s",
            len(missing),
            missing[0],
        )
    return result


def evaluate(
    found: dataset.Questions,
    predictions: Mapping[str, str],
    *,
    null_odds: Mapping[str, float] | None = None,
    threshold: float = _THRESHOLD,
) -> dict[str, float]:
    """Returns the scores under the official names, in percent.

    Args:
      found: questions with answers.
      predictions: what is answered.
      null_odds: where `predictions` are what is answered below a threshold,
        in 2.0; without them they are what is answered in the end.
      threshold: of these odds.
    """
    scores = score_all(found, predictions)
    if not found.has_impossible:
        return _means(scores, "exact_match", "f1")
    has_answer = [bool(q.answers) for q in found.questions]
    for place, question in enumerate(found.questions):
        odds = (null_odds or {}).get(question.id, threshold)
        if odds > threshold and question.id in predictions:
            right = float(not has_answer[place])
            scores[place] = Scores(right, right)
    result = {**_means(scores, "exact", "f1"), "total": len(scores)}
    for name, kind in (("HasAns", True), ("NoAns", False)):
        part = [
            s for s, has in zip(scores, has_answer, strict=True) if has is kind
        ]
        if part:
            means = _means(part, f"{name}_exact", f"{name}_f1")
            result |= {**means, f"{name}_total": len(part)}
    return result


def best_thresholds(
    found: dataset.Questions,
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float],
) -> dict[str, Threshold]:
    """Returns the threshold that is best for "exact" and that for "f1".

    Args:
      found: questions with answers, of 2.0.
      predictions: what is answered below the threshold.
      null_odds: above the threshold nothing is answered. Of equal ones the
        order decides, as in the official script.
    """
    scores = score_all(found, predictions)
    known = {
        question.id: (bool(question.answers), scored)
        for question, scored in zip(found.questions, scores, strict=True)
    }
    rows = [
        (odds, *known[number], number)
        for number, odds in null_odds.items()
        if number in known
    ]
    rows.sort(key=lambda row: row[0])
    unanswerable = sum(not q.answers for q in found.questions)
    result = {}
    for name in Scores._fields:
        current = best = float(unanswerable)
        threshold = 0.0
        for odds, has_answer, scored, number in rows:
            if has_answer:
                current += getattr(scored, name)
            elif predictions.get(number):
                current -= 1
            if current > best:
                best, threshold = current, odds
        result[name] = Threshold(100.0 * best / len(found), threshold)
    return result


def threshold_keys(best: Mapping[str, Threshold]) -> dict[str, float]:
    """Names thresholds as the official script does."""
    result = {}
    for name, (value, threshold) in best.items():
        result |= {f"best_{name}": value, f"best_{name}_thresh": threshold}
    return result


def read_json(path: str, kind: Any) -> dict[str, Any]:
    """Reads what is said about each question's id.

    Args:
      path: of a JSON object.
      kind: of its values: str, list, or (int, float).

    Raises:
      InputError: it is none.
    """
    values = file_system.read_json(file_system.find(path))
    if not isinstance(values, dict):
        raise errors.InputError(f"{path}: must hold one JSON object")
    what = {str: "text", list: "a list"}.get(kind, "a number")
    for name, value in values.items():
        if not isinstance(value, kind):
            raise errors.InputError(
                f"{path}: what is said of {name!r} must be {what}"
            )
    return values


def _means(scores: Sequence[Scores], exact: str, f1: str) -> dict[str, float]:
    # 1.1 and 2.0 alike multiply before they divide, which the digits show.
    count = len(scores)
    return {
        exact: 100.0 * _sum(s.exact for s in scores) / count,
        f1: 100.0 * _sum(s.f1 for s in scores) / count,
    }


def _sum(values: Iterable[float]) -> float:
    """Adds one after the other, as sum() did until Python 3.12."""
    total = 0.0
    for value in values:
        total += value
    return total


def main(arguments: Sequence[str]) -> int:
    """Prints the scores of a file of predictions."""
    if not 2 <= len(arguments) <= 4:
        sys.stderr.write(f"python -m tasks.squad.squad_metrics {_USAGE}\n")
        return 2
    try:
        threshold = _threshold(arguments[3]) if arguments[3:] else _THRESHOLD
        found = dataset.read(arguments[0])
        predictions = read_json(arguments[1], str)
        odds = None
        if found.has_impossible and arguments[2:]:
            odds = read_json(arguments[2], (int, float))
        values = evaluate(
            found, predictions, null_odds=odds, threshold=threshold
        )
        if odds is not None:
            best = best_thresholds(found, predictions, odds)
            values |= threshold_keys(best)
    except (errors.InputError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    print(json.dumps(values))
    return 0


def _threshold(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if math.isnan(value):
        raise errors.InputError(f"THRESHOLD: {text!r} is no number")
    return value


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
