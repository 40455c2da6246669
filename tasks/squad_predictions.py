"""Answers to a set: scored, and written to the released files.

predictions.json         id -> text, "" for no answer
nbest_predictions.json   id -> texts with probability and both logits
null_odds.json           id -> odds of no answer; SQuAD 2.0 only
predict_logits.npz       all logits and the windows' sizes, for ensembles

None of an earlier set's is left beside them.
"""

import contextlib
import dataclasses
import hashlib
import json
import math
import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from absl import logging

import errors
from data import squad
from data.squad_windows import Windows
from tasks import file_system, squad_metrics, squad_sets
from tasks.question_answering import SpanLogits
from tasks.squad_decoding import Answers, Entry

PREDICTIONS = "predictions.json"
N_BEST = "nbest_predictions.json"
NULL_ODDS = "null_odds.json"
LOGITS = "predict_logits.npz"
# Raised by what is no such file, a part of one, or none of arrays.
_DAMAGED = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    EOFError,
    zipfile.BadZipFile,
)


class Source(NamedTuple):
    """What answers were read from.

    Attributes:
      windows: of the questions.
      sizes: of the windows.
      logits: of the windows.
    """

    windows: Windows
    sizes: squad_sets.Sizes
    logits: SpanLogits


@dataclasses.dataclass(frozen=True, kw_only=True)
class Judgment:
    """The answers to a set, and how good they are.

    Attributes:
      values: scores in percent under the official names, and "score", by
        which runs are compared; none where no answers are known.
      found: the questions.
      answers: of them.
      threshold: null odds above which nothing is answered; None in 1.1.
      threshold_found: whether it is the best one for these questions.
      source: what the answers were read from, if it was not lists.
    """

    values: Mapping[str, float]
    found: squad.Questions
    answers: Sequence[Answers]
    threshold: float | None
    threshold_found: bool = False
    source: Source | None = None

    @property
    def predictions(self) -> dict[str, str]:
        """What is answered, by the questions' ids."""
        return {
            question.id: answers.text(self.threshold)
            for question, answers in zip(
                self.found.questions, self.answers, strict=True
            )
        }


def judge(
    found: squad.Questions,
    answers: Sequence[Answers],
    *,
    with_negative: bool,
    threshold: float | None = None,
    otherwise: float = 0.0,
    source: Source | None = None,
) -> Judgment:
    """Scores answers, if it is known what is right.

    Args:
      found: the questions.
      answers: of them.
      with_negative: whether there may be no answer, as in SQuAD 2.0.
      threshold: above which there is none; None finds the best.
      otherwise: the threshold where none can be found.
      source: kept.
    """
    best: dict[str, squad_metrics.Threshold] = {}
    if with_negative and found.has_impossible:
        best = _best_thresholds(found, answers)
    finds = with_negative and threshold is None and can_tell(found)
    if finds:
        threshold = _to_apply(best["f1"], found, answers)
    elif with_negative and threshold is None:
        threshold = otherwise
        _warn_of_one_kind(found, threshold)
    made = Judgment(
        values={},
        found=found,
        answers=answers,
        threshold=threshold if with_negative else None,
        threshold_found=finds,
        source=source,
    )
    if not found.has_answers:
        if any(question.answers for question in found.questions):
            _warn_of_unanswered(found, "not scored")
        return made
    _warn_of_unanswered(found, "judged as if there were none")
    values = squad_metrics.evaluate(found, made.predictions)
    values |= {**squad_metrics.threshold_keys(best), "score": values["f1"]}
    return dataclasses.replace(made, values=values)


def _warn_of_unanswered(found: squad.Questions, what: str) -> None:
    """Names questions that should have answers in the file, and have none."""
    bare = [
        (question.id, "no answer")
        for question in found.questions
        if not (question.answers or question.is_impossible)
    ]
    if bare:
        logging.warning(
            "%s: %d questions have no answer and are not said to be "
            "impossible, %s: %s",
            found.path,
            len(bare),
            what,
            squad.name(bare, name_all=False),
        )


def _warn_of_one_kind(found: squad.Questions, threshold: float) -> None:
    if found.has_answers:
        logging.warning(
            "%s: has not both questions with an answer and without, by which "
            "to find a threshold; %g is applied and none is stored",
            found.path,
            threshold,
        )


def can_tell(found: squad.Questions) -> bool:
    """Tells whether a threshold can be found: by questions of both kinds."""
    kinds = {bool(question.answers) for question in found.questions}
    return found.has_impossible and len(kinds) == 2


def _best_thresholds(
    found: squad.Questions, answers: Sequence[Answers]
) -> dict[str, squad_metrics.Threshold]:
    ids = [question.id for question in found.questions]
    return squad_metrics.best_thresholds(
        found,
        {i: a.best for i, a in zip(ids, answers, strict=True)},
        {i: a.null_odds for i, a in zip(ids, answers, strict=True)},
    )


def _to_apply(
    best: squad_metrics.Threshold,
    found: squad.Questions,
    answers: Sequence[Answers],
) -> float:
    """Returns the threshold that scores what the best one is said to score.

    Where nothing beats never answering, the official script says 0, above
    which some questions may be answered nevertheless.
    """
    unanswerable = sum(not question.answers for question in found.questions)
    if best.score > 100.0 * unanswerable / len(found):
        return best.threshold
    least = min(given.null_odds for given in answers)
    return min(0.0, math.nextafter(least, -math.inf))


def write(output_dir: str, made: Judgment) -> None:
    """Writes all files of answers; removes those that these have not."""
    ids = [question.id for question in made.found.questions]
    lists = {
        number: [_entry(entry) for entry in answers.entries]
        for number, answers in zip(ids, made.answers, strict=True)
    }
    _write_json(output_dir, PREDICTIONS, made.predictions)
    _write_json(output_dir, N_BEST, lists)
    if made.threshold is not None:
        odds = [answers.null_odds for answers in made.answers]
        _write_json(output_dir, NULL_ODDS, dict(zip(ids, odds, strict=True)))
    else:
        discard(output_dir, NULL_ODDS)
    if made.source is not None:
        _write_logits(output_dir, made.source)
    else:
        discard(output_dir, LOGITS)
    logging.info("%s: %d questions answered", output_dir, len(ids))


def discard(output_dir: str, *names: str) -> None:
    """Removes files that tell of other answers, as far as there are any."""
    for name in names:
        file_system.discard(os.path.join(output_dir, name))


def read_logits(directory: str, windows: Windows) -> SpanLogits | None:
    """Returns a run's logits, None if it has none of these windows."""
    digest = _digest(windows)
    with _open_logits(directory) as file:
        if file is None or str(file["windows"]) != digest:
            return None
        return SpanLogits(file["start"], file["end"])


def read_sizes(directory: str) -> squad_sets.Sizes | None:
    """Returns those of the windows of a run's logits, None if it tells none."""
    names = [field.name for field in dataclasses.fields(squad_sets.Sizes)]
    with _open_logits(directory) as file:
        if file is None or not set(names) <= set(file):
            return None
        return squad_sets.Sizes(**{name: int(file[name]) for name in names})


@contextlib.contextmanager
def _open_logits(directory: str) -> Iterator[Mapping[str, np.ndarray] | None]:
    """Gives a run's arrays by their names, None where it has left none."""
    path = os.path.join(directory, LOGITS)
    if not file_system.exists(path):
        yield None
        return
    try:
        with np.load(file_system.local(path), allow_pickle=False) as file:
            yield file
    except _DAMAGED as error:
        raise errors.InputError(f"{path}: cannot be read: {error}") from None


def _entry(entry: Entry) -> dict[str, str | float]:
    return {
        "text": entry.text,
        "probability": entry.probability,
        "start_logit": entry.start_logit,
        "end_logit": entry.end_logit,
    }


def _digest(windows: Windows) -> str:
    """Tells windows from any others by what the model sees."""
    features = windows.features
    sha = hashlib.sha256(features.row_splits.astype("<i8").tobytes())
    sha.update(features.ragged["input_ids"].astype("<i4").tobytes())
    return sha.hexdigest()


def _write_logits(output_dir: str, source: Source) -> None:
    path = os.path.join(output_dir, LOGITS)
    with file_system.whole(path) as temporary, open(temporary, "wb") as file:
        np.savez(
            file,
            start=source.logits.start,
            end=source.logits.end,
            windows=np.array(_digest(source.windows)),
            **dataclasses.asdict(source.sizes),
        )


def _write_json(directory, name, values, indent=4) -> None:
    text = json.dumps(values, indent=indent) + "\n"
    file_system.write_text(os.path.join(directory, name), text)
