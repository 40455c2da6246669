"""What remains of a question answering run: model, answers, scores, report."""

import contextlib
import dataclasses
import hashlib
import json
import math
import os
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from foundation import errors, file_system
from jobs import report, run_files
from tasks.squad import dataset, squad_metrics, squad_windows
from tasks.squad.decoding import Answers, Entry
from tasks.squad.span_task import SpanLogits
from tasks.squad.squad_windows import Windows
from weights import model_files, task_files, tokenizer_files

# ----------------------------------------------------------------------
# Answers to a set: scored, and written to the released files.
#
# predictions.json         id -> text, "" for no answer
# nbest_predictions.json   id -> texts with probability and both logits
# null_odds.json           id -> odds of no answer; SQuAD 2.0 only
# predict_logits.npz       all logits and the windows' sizes, for ensembles
#
# None of an earlier set's is left beside them.

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
    sizes: squad_windows.Sizes
    logits: SpanLogits


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
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
    found: dataset.Questions
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


def evaluate(
    found: dataset.Questions,
    answers: Sequence[Answers],
    *,
    with_negative: bool,
    threshold: float | None = None,
    otherwise: float = 0.0,
    source: Source | None = None,
) -> Evaluation:
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
    made = Evaluation(
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
    _warn_of_unanswered(found, "evaluated as if there were none")
    values = squad_metrics.evaluate(found, made.predictions)
    values |= {**squad_metrics.threshold_keys(best), "score": values["f1"]}
    return dataclasses.replace(made, values=values)


def _warn_of_unanswered(found: dataset.Questions, what: str) -> None:
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
            dataset.name(bare, name_all=False),
        )


def _warn_of_one_kind(found: dataset.Questions, threshold: float) -> None:
    if found.has_answers:
        logging.warning(
            "%s: has not both questions with an answer and without, by which "
            "to find a threshold; %g is applied and none is stored",
            found.path,
            threshold,
        )


def can_tell(found: dataset.Questions) -> bool:
    """Tells whether a threshold can be found: by questions of both kinds."""
    kinds = {bool(question.answers) for question in found.questions}
    return found.has_impossible and len(kinds) == 2


def _best_thresholds(
    found: dataset.Questions, answers: Sequence[Answers]
) -> dict[str, squad_metrics.Threshold]:
    ids = [question.id for question in found.questions]
    return squad_metrics.best_thresholds(
        found,
        {i: a.best for i, a in zip(ids, answers, strict=True)},
        {i: a.null_odds for i, a in zip(ids, answers, strict=True)},
    )


def _to_apply(
    best: squad_metrics.Threshold,
    found: dataset.Questions,
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


def write(output_dir: str, made: Evaluation) -> None:
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


def read_sizes(directory: str) -> squad_windows.Sizes | None:
    """Returns those of the windows of a run's logits, None if it tells none."""
    names = [field.name for field in dataclasses.fields(squad_windows.Sizes)]
    with _open_logits(directory) as file:
        if file is None or not set(names) <= set(file):
            return None
        return squad_windows.Sizes(**{name: int(file[name]) for name in names})


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
    with (
        file_system.replacing(path, on_disk=True) as temporary,
        open(temporary, "wb") as file,
    ):
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


# ----------------------------------------------------------------------
# What report.html shows of answers to a set whose right answers are known.

PANELS = (
    report.Panel("Loss", ("train/loss",)),
    report.Panel(
        "Score", ("train/start_accuracy", "train/end_accuracy", "eval/f1")
    ),
    report.Panel("Learning rate", ("train/learning_rate",)),
)
# The first that occurs in a question is its type.
_TYPES = re.compile(
    r"\b(how many|how much|how long|how|what|which|who|whom|whose|when|where"
    r"|why)\b",
    re.IGNORECASE,
)
_OTHER = "other"
_NO_ANSWER = "none"
_GROUPS = 5
_MISTAKES = 25
_AROUND = 80  # Characters shown on each side of what was answered.


def sections(evaluated: Evaluation) -> list[report.Section]:
    """Returns scores by group, and the worst mistakes."""
    found = evaluated.found
    scores = squad_metrics.score_all(found, evaluated.predictions)
    words = np.array([len(dataset.words(text)) for text in found.contexts])
    lengths = words[[question.paragraph for question in found.questions]]
    groups = {
        "By type of question": [
            question_type(question.text) for question in found.questions
        ],
        "By length of answer": [
            _answer_length(question) for question in found.questions
        ],
        "By length of paragraph": _by_size(lengths),
    }
    shown = [
        report.Section(title, _table(names, scores))
        for title, names in groups.items()
    ]
    mistakes = report.Section("Worst mistakes", _mistakes(evaluated, scores))
    return [*shown, mistakes]


def question_type(text: str) -> str:
    """Returns the first question word, in lower case."""
    match = _TYPES.search(text)
    return match[1].lower() if match else _OTHER


def _answer_length(question: dataset.Question) -> str:
    """Returns the group of the shortest answer by its number of words."""
    if not question.answers:
        return _NO_ANSWER
    count = min(len(a.text.split()) for a in question.answers)
    for last in (1, 2, 3, 5, 10):
        if count <= last:
            first = {1: 1, 2: 2, 3: 3, 5: 4, 10: 6}[last]
            span = str(last) if first == last else f"{first} - {last}"
            return f"{span:>6} words"
    return "over 10 words"


def _by_size(sizes: np.ndarray) -> list[str]:
    """Names groups of about equal size, from the shortest paragraphs on."""
    bounds = np.quantile(
        sizes, np.linspace(0, 1, _GROUPS + 1)[1:-1], method="lower"
    )
    groups = np.searchsorted(bounds, sizes)
    names = {}
    for group in np.unique(groups):
        part = sizes[groups == group]
        names[group] = f"{part.min():>5} - {part.max()} words"
    return [names[group] for group in groups]


def _table(names: Sequence[str], scores) -> str:
    rows = []
    for name in sorted(set(names)):
        part = [s for n, s in zip(names, scores, strict=True) if n == name]
        exact, f1 = np.mean(part, axis=0) * 100
        rows.append([name.strip(), len(part), float(exact), float(f1)])
    return report.table(["group", "questions", "exact match", "F1"], rows)


def _mistakes(evaluated: Evaluation, scores) -> str:
    """Shows what is wrong although the model was sure of it."""
    wrong = []
    for question, answers, scored in zip(
        evaluated.found.questions, evaluated.answers, scores, strict=True
    ):
        text = answers.text(evaluated.threshold)
        entry = next((e for e in answers.entries if e.text == text), None)
        if scored.f1 < 1 and entry is not None:
            wrong.append((scored.f1, -entry.probability, question, entry))
    wrong.sort(key=lambda row: row[:2])
    if not wrong:
        return "<p>None.</p>"
    rows = [
        [
            question.id,
            question.text,
            " | ".join(squad_metrics.truth(evaluated.found, question)) or "-",
            entry.text or "-",
            -probability,
            f1,
            _excerpt(evaluated.found.contexts[question.paragraph], entry.span),
        ]
        for f1, probability, question, entry in wrong[:_MISTAKES]
    ]
    header = ["id", "question", "right", "answered", "probability", "F1"]
    return report.table([*header, "in the text"], rows)


def _excerpt(context: str, span: tuple[int, int] | None) -> str:
    if span is None:
        return context[: 2 * _AROUND] + "..."
    start, end = max(0, span[0] - _AROUND), span[1] + _AROUND
    before = "..." if start else ""
    after = "..." if end < len(context) else ""
    return f"{before}{context[start:end]}{after}"


_TITLE = "BERT that answers questions from a paragraph"
# What tells of the answers beside it how good they are.
_SCORES = (run_files.TEXT, run_files.JSON, "report.html")


class OutputWriter:
    """Writes all files that remain of a job."""

    def __init__(
        self,
        files: run_files.RunFiles,
        *,
        trained_on: dataset.Questions | None = None,
        with_negative: bool,
        threshold: float | None,
    ):
        """Writes nothing yet.

        Args:
          files: where everything goes.
          trained_on: the questions that were learned, if any.
          with_negative: whether there may be no answer.
          threshold: above which there is none, as far as it is known.
        """
        self._files = files
        self._trained_on = trained_on
        self._with_negative = with_negative
        self._threshold = threshold

    def save_model(self, model: Any) -> None:
        """Writes the model directory into output_dir.

        Where a finished run is started again the weights remain, and so does
        what was found out about them: the threshold, and the card's scores.
        """
        if not self._files.is_chief:
            return
        weights = self._files.save_model(model)
        is_told = task_files.read_settings(self._files.output_dir) is not None
        if weights is None and is_told:
            logging.info(
                "%s: the model is as it was, and so is its threshold",
                self._files.output_dir,
            )
            return
        self._store(self._threshold)
        if weights is not None:
            self._begin_card(weights)

    def threshold(self, made: Evaluation) -> None:
        """Stores a threshold with the model, if one was found for it.

        A model that was trained to answer always remains one, although it was
        evaluated once as if there might be no answer.
        """
        if not self._files.is_chief or not made.threshold_found:
            return
        stored = task_files.read_settings(self._files.output_dir)
        if stored is not None and stored.version_2_with_negative:
            self._store(made.threshold)

    def predictions(self, made: Evaluation, step: int | None = None) -> None:
        """Writes the answers and, if they can be scored, all about that."""
        if not self._files.is_chief:
            return
        output_dir = self._files.output_dir
        if not made.values:
            discard(output_dir, *_SCORES)
        write(output_dir, made)
        if model_files.is_here(output_dir):
            self.threshold(made)
        else:
            self._describe(made)
        if not made.values:
            return
        values = write_scores(output_dir, made, step)
        self._judge_card(values, made.found)
        self._files.report(
            _TITLE,
            values=values,
            panels=PANELS,
            sections=sections(made),
        )

    def _describe(self, made: Evaluation) -> None:
        """Writes beside answers without a model what ensembles need to know."""
        self._store(made.threshold if made.threshold_found else self._threshold)
        tokenizer = self._files.tokenizer
        if tokenizer is not None:
            tokenizer_files.save(
                tokenizer,
                self._files.output_dir,
                max_length=self._files.settings["max_seq_length"],
            )

    def _store(self, threshold: float | None) -> None:
        settings = task_files.SquadSettings(
            version_2_with_negative=self._with_negative,
            null_score_diff_threshold=threshold,
        )
        task_files.write_settings(self._files.output_dir, settings)

    def _begin_card(self, weights: str) -> None:
        data = {"train": squad_windows.describe(self._trained_on)}
        self._files.begin_card(_TITLE, data=data, weights=weights)
        done = self._files.results.best
        if done["values"]:  # Of a grid, whose runs were all evaluated.
            values = _named(done["values"]) | {"global_step": done["step"]}
            self._judge_card(values, None)

    def _judge_card(
        self, values: Mapping[str, float], found: dataset.Questions | None
    ) -> None:
        data = {} if found is None else {"dev": squad_windows.describe(found)}
        self._files.add_scores("dev", data=data, metrics=values)


def _named(values: Mapping[str, float]) -> dict[str, float]:
    named = {f"eval_{name}": value for name, value in values.items()}
    named.pop("eval_score")
    return named


def write_scores(
    output_dir: str, made: Evaluation, step: int | None
) -> dict[str, float]:
    """Writes eval_results.txt and returns what it holds."""
    values = _named(made.values)
    if made.threshold is not None:
        values["null_score_diff_threshold"] = made.threshold
    if step is not None:
        values["global_step"] = step
    file_system.make_folder(output_dir)
    run_files.write_eval_results(output_dir, values)
    return values
