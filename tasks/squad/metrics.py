"""SQuAD's metrics, equal to those of the official scripts in all digits.

    python -m tasks.squad.metrics dev.json predictions.json \
        [null_odds.json [threshold]]

prints them as one JSON object with the official names. Files whose questions
have the key is_impossible are scored as by the script of 2.0, others as by that
of 1.1. With null_odds.json, a prediction counts as "no answer" where the odds
exceed the threshold (default 1, as of the official --na-prob-thresh), and the
best thresholds are computed. The program does not import TensorFlow.
"""

import functools
import json
import math
import operator
import re
import string
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from absl import logging

from foundation import errors, file_system, metadata
from tasks.squad import dataset

_ARTICLES = re.compile(r"\b(a|an|the)\b", re.UNICODE)
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)
_USAGE = "DATA.json PREDICTIONS.json [NULL_ODDS.json [THRESHOLD]]"
_THRESHOLD = 1.0  # The official script's.


class Scores(NamedTuple):
    """The scores of one prediction, from 0 to 1."""

    exact: float
    f1: float


class Threshold(NamedTuple):
    """A threshold of the null odds, and the score in percent that it gives."""

    score: float
    threshold: float


def normalize(answer: str) -> str:
    """Removes case, punctuation, articles and extra white space."""
    text = answer.lower().translate(_WITHOUT_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def f1(prediction: str, answer: str, *, empty_matches: bool) -> float:
    """Returns the harmonic mean of the words' precision and recall.

    Args:
      prediction: the predicted text.
      answer: the correct text.
      empty_matches: whether two texts without a word after normalization match,
        as in the official script of 2.0. In the script of 1.1, the prediction
        "." scores 0 where the answer is ".".
    """
    predicted, correct = (
        normalize(prediction).split(),
        normalize(answer).split(),
    )
    if not predicted or not correct:
        return float(empty_matches and predicted == correct)
    num_common = sum((Counter(predicted) & Counter(correct)).values())
    if not num_common:
        return 0.0
    precision, recall = num_common / len(predicted), num_common / len(correct)
    return 2 * precision * recall / (precision + recall)


def score(
    prediction: str, answers: Sequence[str], *, empty_matches: bool
) -> Scores:
    """Returns the best scores over all answers; see `f1`."""
    normalized = normalize(prediction)
    return Scores(
        exact=max(float(normalized == normalize(a)) for a in answers),
        f1=max(f1(prediction, a, empty_matches=empty_matches) for a in answers),
    )


def correct_answers(
    question_set: dataset.QuestionSet, question: dataset.Question
) -> list[str]:
    """Returns the correct texts; in 2.0 [""] where there is no answer."""
    texts = [answer.text for answer in question.answers]
    if question_set.has_impossible:
        return [text for text in texts if normalize(text)] or [""]
    return texts


def score_all(
    question_set: dataset.QuestionSet, predictions: Mapping[str, str]
) -> list[Scores]:
    """Scores every question; 0 where there is no prediction.

    Raises:
      InputError: a question of 1.1 has no answer.
    """
    result, missing = [], []
    for question in question_set:
        answers = correct_answers(question_set, question)
        if not answers:
            raise errors.InputError(
                f"{question_set.path}: question {question.id!r} has no answer "
                "to compare with"
            )
        text = predictions.get(question.id)
        if text is None:
            missing.append(question.id)
            result.append(Scores(0.0, 0.0))
        else:
            matches = question_set.has_impossible
            result.append(score(text, answers, empty_matches=matches))
    if missing:
        logging.warning(
            "%d questions have no prediction and score 0, e.g. %s",
            len(missing),
            missing[0],
        )
    return result


def evaluate(
    question_set: dataset.QuestionSet,
    predictions: Mapping[str, str],
    *,
    null_odds: Mapping[str, float] | None = None,
    threshold: float = _THRESHOLD,
) -> dict[str, float]:
    """Returns the scores in percent under the official names.

    Args:
      question_set: questions with answers.
      predictions: the predicted texts; with null_odds, the texts to use below
        the threshold.
      null_odds: the odds of "no answer", for 2.0.
      threshold: null odds above which the prediction is "no answer".

    Raises:
      InputError: a predicted question has no null odds.
    """
    scores = score_all(question_set, predictions)
    if not question_set.has_impossible:
        return _means(scores, "exact_match", "f1")
    has_answer = [bool(q.answers) for q in question_set]
    for i, question in enumerate(question_set):
        if null_odds is None or question.id not in predictions:
            continue
        if question.id not in null_odds:  # As the official script stops.
            raise errors.InputError(f"no null odds of question {question.id!r}")
        if null_odds[question.id] > threshold:
            points = float(not has_answer[i])
            scores[i] = Scores(points, points)
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
    question_set: dataset.QuestionSet,
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float],
) -> dict[str, Threshold]:
    """Returns the best threshold for "exact" and that for "f1".

    Args:
      question_set: questions with answers, of 2.0.
      predictions: the texts below the threshold.
      null_odds: the odds of "no answer". Equal odds stay in this order, as in
        the official script.
    """
    scores = score_all(question_set, predictions)
    by_id = {
        question.id: (bool(question.answers), scored)
        for question, scored in zip(question_set, scores, strict=True)
    }
    rows = [
        (odds, *by_id[number], number)
        for number, odds in null_odds.items()
        if number in by_id
    ]
    rows.sort(key=lambda row: row[0])
    unanswerable = sum(not q.answers for q in question_set)
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
        result[name] = Threshold(100.0 * best / len(question_set), threshold)
    return result


def threshold_values(best: Mapping[str, Threshold]) -> dict[str, float]:
    """Returns thresholds and their scores under the official names."""
    result: dict[str, float] = {}
    for name, (value, threshold) in best.items():
        result |= {f"best_{name}": value, f"best_{name}_thresh": threshold}
    return result


def _means(scores: Sequence[Scores], exact: str, f1: str) -> dict[str, float]:
    # Both scripts multiply before they divide, which shows in the digits.
    count = len(scores)
    return {
        exact: 100.0 * _sum(s.exact for s in scores) / count,
        f1: 100.0 * _sum(s.f1 for s in scores) / count,
    }


def _sum(values: Iterable[float]) -> float:
    """Adds from left to right, as sum() did until Python 3.12."""
    return functools.reduce(operator.add, values, 0.0)


def main(arguments: Sequence[str]) -> int:
    """Prints the scores of a file of predictions."""
    if not 2 <= len(arguments) <= 4:
        sys.stderr.write(f"python -m tasks.squad.metrics {_USAGE}\n")
        return 2
    try:
        print(json.dumps(_scores(*arguments)))
    except (errors.InputError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


def _scores(
    data: str,
    predicted: str,
    null_odds: str | None = None,
    threshold: str = str(_THRESHOLD),
) -> dict[str, float]:
    """Returns the scores of the files and the threshold of `main`."""
    try:
        number = float(threshold)
    except ValueError:
        number = math.nan
    if math.isnan(number):
        raise errors.InputError(f"THRESHOLD: {threshold!r} is no number")
    question_set = dataset.read(data)
    path = file_system.find(predicted)
    predictions = metadata.read(path, dict[str, str])
    if null_odds is None:
        return evaluate(question_set, predictions)
    if not question_set.has_impossible:
        raise errors.InputError(
            f"NULL_ODDS is for SQuAD 2.0, but {data} has no is_impossible"
        )
    odds = metadata.read(file_system.find(null_odds), dict[str, int | float])
    values = evaluate(
        question_set, predictions, null_odds=odds, threshold=number
    )
    best = best_thresholds(question_set, predictions, odds)
    return values | threshold_values(best)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
