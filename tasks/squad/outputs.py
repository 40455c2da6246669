"""Output files of question answering: model, predictions, scores, report.

    predictions.json         id -> text, "" for no answer
    nbest_predictions.json   id -> texts with probability and both logits
    null_odds.json           id -> odds of no answer; SQuAD 2.0 only
    predict_logits.npz       all logits and the windows' sizes, for ensembles
    eval_results.txt, .json and report.html, if the set has answers

The files of another set that are already there are kept: predictions.json of
dev.json becomes predictions_dev.json. Scores and report of another set stay if
the new set has no answers.
"""

import contextlib
import dataclasses
import hashlib
import math
import os
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from foundation import errors, file_system
from jobs import model_card, report, run_files
from tasks.squad import dataset, metrics, windowing
from tasks.squad.decoding import Answer, AnswerList, SpanLogits
from tasks.squad.windowing import Windows
from weights import model_directory, task_files, tokenizer_files

PREDICTIONS = "predictions.json"
N_BEST = "nbest_predictions.json"
NULL_ODDS = "null_odds.json"
LOGITS = "predict_logits.npz"
_PREDICTION_FILES = (PREDICTIONS, N_BEST, NULL_ODDS, LOGITS)
_SCORE_FILES = (run_files.TEXT, run_files.JSON, "report.html")
_TITLE = "BERT that answers questions from a paragraph"
_PANELS = (
    report.Panel("Loss", ("train/loss",)),
    report.Panel(
        "Score", ("train/start_accuracy", "train/end_accuracy", "eval/f1")
    ),
    report.Panel("Learning rate", ("train/learning_rate",)),
)
# The first of these words in a question is its type.
_TYPES = re.compile(
    r"\b(how many|how much|how long|how|what|which|who|whom|whose|when|where"
    r"|why)\b",
    re.IGNORECASE,
)
_NUM_GROUPS = 5  # Of paragraphs by their length.
_NUM_MISTAKES = 25
_CONTEXT = 80  # Characters shown on each side of an answer.
# Raised by np.load for a file that is damaged or of another format.
_DAMAGED = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    EOFError,
    zipfile.BadZipFile,
)


class WindowLogits(NamedTuple):
    """The logits of all windows of a set."""

    windows: Windows
    sizes: windowing.WindowSizes
    logits: SpanLogits


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The answers to a set and their scores.

    Attributes:
      values: scores in percent under the official names, and "score", by which
        runs are compared; empty if the set has no answers.
      question_set: the questions.
      answers: the predicted answers by the questions' ids.
      threshold: null odds above which there is no answer; None in 1.1.
      threshold_found: whether it is the best one for these questions.
      window_logits: what the answers were decoded from; None for an ensemble
        of lists.
    """

    values: Mapping[str, float]
    question_set: dataset.QuestionSet
    answers: Mapping[str, AnswerList]
    threshold: float | None
    threshold_found: bool = False
    window_logits: WindowLogits | None = None

    @property
    def predictions(self) -> dict[str, str]:
        """The predicted texts by the questions' ids."""
        return {i: a.text(self.threshold) for i, a in self.answers.items()}


def evaluate(
    question_set: dataset.QuestionSet,
    answers: Sequence[AnswerList],
    *,
    with_negative: bool,
    threshold: float | None = None,
    default_threshold: float = 0.0,
    window_logits: WindowLogits | None = None,
) -> Evaluation:
    """Scores answers, if the set has correct ones.

    Args:
      question_set: the questions.
      answers: the predicted answers.
      with_negative: whether questions may have no answer (SQuAD 2.0).
      threshold: null odds above which there is no answer; None finds the best.
      default_threshold: the threshold if none can be found.
      window_logits: see Evaluation.
    """
    ids = [question.id for question in question_set.questions]
    by_id = dict(zip(ids, answers, strict=True))
    best: dict[str, metrics.Threshold] = {}
    if with_negative and question_set.has_impossible:
        best = metrics.best_thresholds(
            question_set,
            {i: a.best for i, a in by_id.items()},
            {i: a.null_odds for i, a in by_id.items()},
        )
    finds_threshold = (
        with_negative and threshold is None and has_both_kinds(question_set)
    )
    if finds_threshold:
        threshold = _threshold_of(best["f1"], question_set, answers)
    elif with_negative and threshold is None:
        threshold = default_threshold
        if question_set.has_answers:
            logging.warning(
                "%s: a threshold needs questions with and without an answer; "
                "%g is applied and none is stored",
                question_set.path,
                threshold,
            )
    evaluation = Evaluation(
        values={},
        question_set=question_set,
        answers=by_id,
        threshold=threshold if with_negative else None,
        threshold_found=finds_threshold,
        window_logits=window_logits,
    )
    if not question_set.has_answers:
        if any(question.answers for question in question_set.questions):
            _warn_of_unanswered(question_set, "not scored")
        return evaluation
    _warn_of_unanswered(question_set, "evaluated as if there were none")
    values = metrics.evaluate(question_set, evaluation.predictions)
    values |= {**metrics.threshold_values(best), "score": values["f1"]}
    return dataclasses.replace(evaluation, values=values)


def has_both_kinds(question_set: dataset.QuestionSet) -> bool:
    """Returns whether a threshold can be found on a set.

    It needs questions with an answer and questions without one.
    """
    kinds = {bool(question.answers) for question in question_set.questions}
    return question_set.has_impossible and len(kinds) == 2


def _warn_of_unanswered(
    question_set: dataset.QuestionSet, consequence: str
) -> None:
    """Warns of questions without an answer that are not marked impossible."""
    rows = [
        (question.id, "no answer")
        for question in question_set.questions
        if not (question.answers or question.is_impossible)
    ]
    if rows:
        logging.warning(
            "%s: %d questions have no answer and are not marked as "
            "impossible, %s: %s",
            question_set.path,
            len(rows),
            consequence,
            dataset.listing(rows, list_all=False),
        )


def _threshold_of(
    best: metrics.Threshold,
    question_set: dataset.QuestionSet,
    answers: Sequence[AnswerList],
) -> float:
    """Returns the threshold that gives the best score.

    Where never answering is best, the official script says 0, above which some
    questions may be answered nevertheless.
    """
    unanswerable = sum(not q.answers for q in question_set.questions)
    if best.score > 100.0 * unanswerable / len(question_set):
        return best.threshold
    least = min(row.null_odds for row in answers)
    return min(0.0, math.nextafter(least, -math.inf))


def write_predictions(output_dir: str, evaluation: Evaluation) -> None:
    """Writes all files of predictions, and removes older ones of the set."""
    lists = {
        number: [
            {name: getattr(entry, name) for name in Answer._fields[:-1]}
            for entry in answers.entries
        ]
        for number, answers in evaluation.answers.items()
    }
    _write_json(output_dir, PREDICTIONS, evaluation.predictions)
    _write_json(output_dir, N_BEST, lists)
    if evaluation.threshold is not None:
        odds = {i: a.null_odds for i, a in evaluation.answers.items()}
        _write_json(output_dir, NULL_ODDS, odds)
    else:
        file_system.discard(os.path.join(output_dir, NULL_ODDS))
    path = os.path.join(output_dir, LOGITS)
    if evaluation.window_logits is not None:
        windows, sizes, logits = evaluation.window_logits
        with (
            file_system.replacing(path, on_disk=True) as hidden,
            open(hidden, "wb") as file,
        ):
            np.savez(
                file,
                start=logits.start,
                end=logits.end,
                windows=np.array(_digest(windows)),
                **dataclasses.asdict(sizes),
            )
    else:
        file_system.discard(path)
    logging.info("%s: %d questions answered", output_dir, len(lists))


def _write_json(directory: str, name: str, values: Any) -> None:
    file_system.write_json(os.path.join(directory, name), values, indent=4)


def _digest(windows: Windows) -> str:
    """Returns the SHA-256 of the inputs of windows."""
    features = windows.features
    sha = hashlib.sha256(features.row_splits.astype("<i8").tobytes())
    sha.update(features.ragged["input_ids"].astype("<i4").tobytes())
    return sha.hexdigest()


def read_logits(directory: str, windows: Windows) -> SpanLogits | None:
    """Returns the logits in a directory; None if it has none of the windows."""
    digest = _digest(windows)
    with _open_logits(directory) as file:
        if file is None or str(file["windows"]) != digest:
            return None
        return SpanLogits(file["start"], file["end"])


def read_sizes(directory: str) -> windowing.WindowSizes | None:
    """Returns the sizes of the windows of the logits in a directory."""
    fields = dataclasses.fields(windowing.WindowSizes)
    names = [field.name for field in fields]
    with _open_logits(directory) as file:
        if file is None or not set(names) <= set(file):
            return None
        sizes = {name: int(file[name]) for name in names}
        return windowing.WindowSizes(**sizes)


@contextlib.contextmanager
def _open_logits(directory: str) -> Iterator[Mapping[str, np.ndarray] | None]:
    """Opens the arrays of predict_logits.npz; None if there is no such file."""
    path = os.path.join(directory, LOGITS)
    if not file_system.exists(path):
        yield None
        return
    try:
        with np.load(file_system.local(path), allow_pickle=False) as file:
            yield file
    except _DAMAGED as error:
        raise errors.InputError(f"{path}: cannot be read: {error}") from None


class OutputWriter:
    """Writes all output files of a job."""

    def __init__(
        self,
        files: run_files.RunFiles,
        *,
        trained_on: dataset.QuestionSet | None = None,
        with_negative: bool,
        threshold: float | None,
    ):
        """Writes nothing yet.

        Args:
          files: where the files go.
          trained_on: the training set, if the command trains.
          with_negative: whether questions may have no answer (SQuAD 2.0).
          threshold: null odds above which there is no answer, if known.
        """
        self._files = files
        self._trained_on = trained_on
        self._with_negative = with_negative
        self._threshold = threshold

    def save_model(self, model: Any) -> None:
        """Writes the model directory into output_dir.

        If it already contains the same weights, the stored threshold and the
        scores in the model card stay.
        """
        if not self._files.is_chief:
            return
        output_dir = self._files.output_dir
        weights = self._files.save_model(model)
        if weights is None and task_files.read_settings(output_dir) is not None:
            logging.info("%s: model and threshold are unchanged", output_dir)
            return
        self._store(self._threshold)
        if weights is None:
            return
        data = {"train": self._trained_on.description}
        self._files.begin_card(_TITLE, data=data, weights=weights)
        best = self._files.results.best
        if best["values"]:  # The runs of a grid are evaluated before.
            values = _named(best["values"]) | {"global_step": best["step"]}
            self._files.add_scores("dev", data={}, metrics=values)

    def write_threshold(self, evaluation: Evaluation) -> None:
        """Stores a threshold with the model, if the evaluation found one.

        The settings of a model that was trained on SQuAD 1.1 stay.
        """
        if not self._files.is_chief or not evaluation.threshold_found:
            return
        stored = task_files.read_settings(self._files.output_dir)
        if stored is not None and stored.version_2_with_negative:
            self._store(evaluation.threshold)

    def write(self, evaluation: Evaluation, step: int | None = None) -> None:
        """Writes the predictions and, if the set has answers, the scores."""
        if not self._files.is_chief:
            return
        output_dir = self._files.output_dir
        names = (
            *_PREDICTION_FILES,
            *(_SCORE_FILES if evaluation.values else ()),
        )
        digests = evaluation.question_set.digests
        set_name = run_files.set_name(evaluation.question_set.paths)
        run_files.keep_other_sets(
            output_dir, names, name=set_name, digest=" ".join(digests)
        )
        write_predictions(output_dir, evaluation)
        if model_directory.has_model(output_dir):
            self.write_threshold(evaluation)
        else:
            self._write_for_ensembles(evaluation)
        if not evaluation.values:
            return
        values = _named(evaluation.values)
        if evaluation.threshold is not None:
            values["null_score_diff_threshold"] = evaluation.threshold
        if step is not None:
            values["global_step"] = step
        run_files.write_eval_results(output_dir, values)
        self._add_scores(set_name, evaluation.question_set, values)
        self._files.report(
            _TITLE,
            values=values,
            panels=_PANELS,
            sections=_sections(evaluation),
        )

    def _add_scores(
        self,
        set_name: str,
        question_set: dataset.QuestionSet,
        values: Mapping[str, float],
    ) -> None:
        """Adds scores to the model card, beside those of another set."""
        described = question_set.description
        dev = model_card.data_of(self._files.output_dir, "dev")
        if dev in (None, described):
            name, metrics = "dev", values
        else:
            name = f"predicted {set_name}"
            metrics = {f"{set_name}_{key}": x for key, x in values.items()}
        self._files.add_scores(name, data={name: described}, metrics=metrics)

    def _write_for_ensembles(self, evaluation: Evaluation) -> None:
        """Writes settings and tokenizer beside predictions without a model."""
        is_found = evaluation.threshold_found
        self._store(evaluation.threshold if is_found else self._threshold)
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


def _named(values: Mapping[str, float]) -> dict[str, float]:
    """Returns scores under the names of eval_results.txt."""
    values = {f"eval_{name}": value for name, value in values.items()}
    values.pop("eval_score")
    return values


def _sections(evaluation: Evaluation) -> list[report.Section]:
    """Returns the scores by group and the worst mistakes for report.html."""
    question_set = evaluation.question_set
    questions = question_set.questions
    scores = metrics.score_all(question_set, evaluation.predictions)
    counts = [len(dataset.words(text)) for text in question_set.contexts]
    lengths = np.array([counts[q.paragraph] for q in questions])
    groups = {
        "By type of question": [_question_type(q.text) for q in questions],
        "By length of answer": [_answer_length(q) for q in questions],
        "By length of paragraph": _length_groups(lengths),
    }
    sections = [
        report.Section(title, _group_table(names, scores))
        for title, names in groups.items()
    ]
    mistakes = report.Section("Worst mistakes", _mistakes(evaluation, scores))
    return [*sections, mistakes]


def _question_type(text: str) -> str:
    """Returns the first question word in lower case."""
    match = _TYPES.search(text)
    return match[1].lower() if match else "other"


def _answer_length(question: dataset.Question) -> str:
    """Returns the group of the shortest answer by its number of words."""
    if not question.answers:
        return "none"
    count = min(len(a.text.split()) for a in question.answers)
    for first, last in ((0, 1), (2, 2), (3, 3), (4, 5), (6, 10)):
        if count <= last:
            span = str(last) if first in (0, last) else f"{first} - {last}"
            return f"{span:>6} words"
    return "over 10 words"


def _length_groups(lengths: np.ndarray) -> list[str]:
    """Returns a group for each length; the groups have about equal sizes."""
    quantiles = np.linspace(0, 1, _NUM_GROUPS + 1)[1:-1]
    bounds = np.quantile(lengths, quantiles, method="lower")
    groups = np.searchsorted(bounds, lengths)
    names = {}
    for group in np.unique(groups):
        part = lengths[groups == group]
        names[group] = f"{part.min():>5} - {part.max()} words"
    return [names[group] for group in groups]


def _group_table(names: Sequence[str], scores: Sequence[metrics.Scores]) -> str:
    rows = []
    for name in sorted(set(names)):
        part = [s for n, s in zip(names, scores, strict=True) if n == name]
        exact, f1 = np.mean(part, axis=0) * 100
        rows.append([name.strip(), len(part), float(exact), float(f1)])
    return report.table(["group", "questions", "exact match", "F1"], rows)


def _mistakes(evaluation: Evaluation, scores: Sequence[metrics.Scores]) -> str:
    """Returns a table of wrong answers: lowest F1, then most probable first."""
    question_set = evaluation.question_set
    wrong = []
    for question, score in zip(question_set.questions, scores, strict=True):
        answers = evaluation.answers[question.id]
        text = answers.text(evaluation.threshold)
        entry = next((e for e in answers.entries if e.text == text), None)
        if score.f1 < 1 and entry is not None:
            wrong.append((score.f1, -entry.probability, question, entry))
    wrong.sort(key=lambda row: row[:2])
    if not wrong:
        return "<p>None.</p>"
    rows = [
        [
            question.id,
            question.text,
            " | ".join(metrics.correct_answers(question_set, question)) or "-",
            entry.text or "-",
            entry.probability,
            f1,
            _excerpt(question_set.contexts[question.paragraph], entry.span),
        ]
        for f1, _, question, entry in wrong[:_NUM_MISTAKES]
    ]
    header = ["id", "question", "correct", "predicted", "probability", "F1"]
    return report.table([*header, "in the text"], rows)


def _excerpt(context: str, span: tuple[int, int] | None) -> str:
    """Returns the text around a span, or the beginning if there is none."""
    if span is None:
        return context[: 2 * _CONTEXT] + "..."
    start, end = max(0, span[0] - _CONTEXT), span[1] + _CONTEXT
    before = "..." if start else ""
    after = "..." if end < len(context) else ""
    return f"{before}{context[start:end]}{after}"
