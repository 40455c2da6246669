"""Output files of question answering: model, predictions, scores, report.

    predictions.json         id -> text, "" for no answer
    nbest_predictions.json   id -> texts with probability and both logits
    null_odds.json           id -> odds of no answer; SQuAD 2.0 only
    predict_logits.npz       all logits and the windows' sizes, for ensembles
    eval_results.txt, .json and report.html, if the set has answers

Existing files of another set are renamed: predictions.json of dev.json becomes
predictions_dev.json. If the new set has no answers, the scores and the report
of the other set keep their names.
"""

import bisect
import dataclasses
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from absl import logging
from markupsafe import Markup

from foundation import atomic, file_system
from jobs import report, run_directory
from jobs.outputs import RESULT_FILES, Description, Outputs, Scores
from tasks.squad import blocks, dataset, metrics, prompt, settings
from tasks.squad.decoding import Answer, AnswerList

PREDICTIONS = "predictions.json"
N_BEST = "nbest_predictions.json"
NULL_ODDS = "null_odds.json"
_PREDICTION_FILES = (PREDICTIONS, N_BEST, NULL_ODDS, blocks.LOGITS)
_PANELS = (
    report.Panel("Loss", ("train/loss",)),
    report.Panel(
        "Exact match and F1, %", ("eval/exact_match", "eval/exact", "eval/f1")
    ),
    report.Panel(
        "Accuracy of the answers' positions",
        ("train/start_accuracy", "train/end_accuracy"),
    ),
    report.Panel("Learning rate", ("train/learning_rate",)),
)
# The first of these words in a question is its type.
_TYPES = re.compile(
    r"\b(how many|how much|how long|how|what|which|who|whom|whose|when|where"
    r"|why)\b",
    re.IGNORECASE,
)
_ANSWER_WORDS = (1, 2, 3, 5, 10)  # The most words of an answer of each group.
_NUM_GROUPS = 5  # Number of groups of paragraphs of similar length.
_NUM_MISTAKES = 25
_NUM_PARAGRAPHS = 8  # The report shows one question about each of them.
_CONTEXT = 250  # Characters shown on each side of an answer.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The answers to a set and their scores.

    Attributes:
      values: scores in percent under the official names, and "score", by which
        runs are compared; empty if the set has no answers.
      question_set: the questions.
      answers: the candidate answers, by the questions' ids.
      threshold: null odds above which there is no answer; None in 1.1.
      threshold_found: whether these questions have determined the threshold.
    """

    values: Mapping[str, float]
    question_set: dataset.QuestionSet
    answers: Mapping[str, AnswerList]
    threshold: float | None
    threshold_found: bool = False

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
) -> Evaluation:
    """Scores answers, if the set has correct answers.

    Args:
      question_set: the questions.
      answers: the predicted answers.
      with_negative: whether questions may have no answer (SQuAD 2.0).
      threshold: null odds above which there is no answer; None finds the best
        threshold.
      default_threshold: the threshold for a set that determines none.
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
        threshold = best["f1"].threshold
        unanswerable = sum(not q.answers for q in question_set.questions)
        if best["f1"].score <= 100.0 * unanswerable / len(question_set):
            # Never answering is best. The official script then returns 0, with
            # which some questions may be answered nevertheless.
            least = min(row.null_odds for row in answers)
            threshold = min(0.0, math.nextafter(least, -math.inf))
        text = "threshold: %g, the best on %s"
        logging.info(text, threshold, question_set.path)
    elif with_negative and threshold is None:
        threshold = default_threshold
        logging.log(
            logging.WARNING if question_set.has_answers else logging.INFO,
            "%s: a threshold needs questions with and without an answer; %g is "
            "applied",
            question_set.path,
            threshold,
        )
    evaluation = Evaluation(
        values={},
        question_set=question_set,
        answers=by_id,
        threshold=threshold if with_negative else None,
        threshold_found=finds_threshold,
    )
    is_scored = question_set.has_answers
    if is_scored or any(q.answers for q in question_set.questions):
        consequence = "evaluated as if there were none"
        dataset.warn(
            question_set,
            "%d questions have no answer and are not marked as impossible, "
            + (consequence if is_scored else "not scored"),
            [
                (question.id, "no answer")
                for question in question_set.questions
                if not (question.answers or question.is_impossible)
            ],
        )
    if not is_scored:
        return evaluation
    values = metrics.evaluate(question_set, evaluation.predictions)
    values |= {**metrics.threshold_values(best), "score": values["f1"]}
    return dataclasses.replace(evaluation, values=values)


def has_both_kinds(question_set: dataset.QuestionSet) -> bool:
    """Returns whether a threshold can be found on a set.

    It needs questions with an answer and questions without one.
    """
    kinds = {bool(question.answers) for question in question_set.questions}
    return question_set.has_impossible and len(kinds) == 2


def write_predictions(
    output_dir: str,
    evaluation: Evaluation,
    store: blocks.ReadableStore,
    sizes: settings.WindowSizes | None,
) -> None:
    """Writes all files of predictions, and removes older ones of the set.

    The sizes of the windows are None if the blocks have no logits.
    """
    blocks.write_lists(os.path.join(output_dir, N_BEST), store)
    path = os.path.join(output_dir, PREDICTIONS)
    atomic.write_json(path, evaluation.predictions, indent=4)
    path = os.path.join(output_dir, NULL_ODDS)
    if evaluation.threshold is not None:
        odds = {i: a.null_odds for i, a in evaluation.answers.items()}
        atomic.write_json(path, odds, indent=4)
    else:
        file_system.discard(path)
    path = os.path.join(output_dir, blocks.LOGITS)
    if sizes is not None:
        blocks.write_logits(path, store, sizes)
    else:
        file_system.discard(path)


def write_set(
    evaluation: Evaluation,
    store: blocks.ReadableStore,
    sizes: settings.WindowSizes | None,
    output: Outputs,
    step: int | None = None,
) -> None:
    """Writes the predictions and, if the set has answers, the scores.

    See `write_predictions`; the training step is None for an ensemble.
    """
    names = (*_PREDICTION_FILES, *(RESULT_FILES if evaluation.values else ()))
    question_set = evaluation.question_set
    output.keep_other_sets(
        *names,
        set_name=run_directory.set_name(question_set.paths),
        digest=" ".join(question_set.digests),
    )
    write_predictions(output.output_dir, evaluation, store, sizes)
    if evaluation.values:
        output.write_evaluation(describe(evaluation, step))


def describe(evaluation: Evaluation, step: int | None) -> Description:
    """Describes the answers to a set and their scores for its files."""
    values = named(evaluation.values)
    if evaluation.threshold is not None:
        values["null_score_diff_threshold"] = evaluation.threshold
    if step is not None:
        values["global_step"] = step
    question_set = evaluation.question_set
    exact = values.get("eval_exact_match", values.get("eval_exact"))
    return Description(
        scores=Scores(
            name="dev",
            set_name=run_directory.set_name(question_set.paths),
            data={"dev": question_set.description},
            values=values,
        ),
        digest=" ".join(question_set.digests),
        title=f"question answering: {names_of(question_set)}",
        panels=_PANELS,
        sections=sections(evaluation),
        facts={
            "exact match, %": exact,
            "F1, %": values["eval_f1"],
            "questions": len(question_set.questions),
            **({} if step is None else {"training steps": step}),
        },
    )


def names_of(question_set: dataset.QuestionSet) -> str:
    """Returns the names of the files of a set."""
    return ", ".join(map(os.path.basename, question_set.paths))


def named(values: Mapping[str, float]) -> dict[str, float]:
    """Returns scores under the names of eval_results.txt."""
    values = {f"eval_{name}": value for name, value in values.items()}
    values.pop("eval_score")
    return values


@dataclasses.dataclass(frozen=True)
class Group:
    """The mean scores of a group of questions, e.g. of one question word."""

    name: str
    count: int
    exact: float
    f1: float


class Answered(NamedTuple):
    """A question with its predicted answer.

    `f1` is between 0 and 1. `excerpt` shows the predicted answer.
    """

    question: dataset.Question
    correct: Sequence[str]
    predicted: Answer
    f1: float
    excerpt: prompt.Excerpt


class ErrorAnalysis(NamedTuple):
    """The scores of groups of questions, and what was predicted.

    `groups` maps the title of a division to the scores of its groups.
    `mistakes` are sorted: lowest F1 first, then most probable first. `examples`
    are right and wrong answers; their paragraphs are spread over the set.
    """

    groups: Mapping[str, Sequence[Group]]
    mistakes: Sequence[Answered]
    examples: Sequence[Answered]


def analyze(evaluation: Evaluation) -> ErrorAnalysis:
    """Returns scores by groups of questions, mistakes and examples."""
    question_set = evaluation.question_set
    questions, contexts = question_set.questions, question_set.contexts
    scores = metrics.score_all(question_set, evaluation.predictions)
    words = [len(dataset.words(text)) for text in contexts]
    lengths = [words[question.paragraph] for question in questions]
    by_length: dict[int, tuple[int, str]] = {}
    groups = report.length_groups(lengths, _NUM_GROUPS)
    for number, (name, members) in enumerate(groups):
        by_length |= dict.fromkeys(members.tolist(), (number, name))
    predicted = {
        i: entry
        for i, question in enumerate(questions)
        if (entry := _predicted(evaluation, question)) is not None
    }
    wrong = [i for i in predicted if scores[i].f1 < 1]
    wrong.sort(key=lambda i: (scores[i].f1, -predicted[i].probability))
    firsts: dict[int, int] = {}  # The first question of each paragraph.
    for i, question in enumerate(questions):
        firsts.setdefault(question.paragraph, i)
    every = max(1, len(firsts) // _NUM_PARAGRAPHS)
    examples = list(firsts.values())[::every][:_NUM_PARAGRAPHS]

    def answered(i: int) -> Answered:
        question, entry = questions[i], predicted[i]
        context = contexts[question.paragraph]
        return Answered(
            question,
            metrics.correct_answers(question_set, question),
            entry,
            scores[i].f1,
            prompt.excerpt(context, entry.span, _CONTEXT),
        )

    return ErrorAnalysis(
        groups={
            "By type of question": _group(
                map(_question_type, questions), scores
            ),
            "By length of answer": _group(
                map(_answer_length, questions), scores
            ),
            "By length of paragraph": _group(
                [by_length[i] for i in range(len(questions))], scores
            ),
        },
        mistakes=list(map(answered, wrong[:_NUM_MISTAKES])),
        examples=[answered(i) for i in examples if i in predicted],
    )


def _question_type(question: dataset.Question) -> tuple[int, str]:
    """Returns the first question word in lower case."""
    match = _TYPES.search(question.text)
    return 0, match[1].lower() if match else "other"


def _answer_length(question: dataset.Question) -> tuple[int, str]:
    """Returns the group of the shortest answer by its number of words."""
    if not question.answers:
        return len(_ANSWER_WORDS) + 1, "no answer"
    count = min(len(a.text.split()) for a in question.answers)
    number = bisect.bisect_left(_ANSWER_WORDS, count)
    if number == len(_ANSWER_WORDS):
        return number, f"over {_ANSWER_WORDS[-1]}"
    last = _ANSWER_WORDS[number]
    first = _ANSWER_WORDS[number - 1] + 1 if number else last
    return number, f"{first}\u2013{last}" if first < last else str(last)


def _group(
    keys: Iterable[tuple[int, str]], scores: Sequence[metrics.Scores]
) -> list[Group]:
    """Returns the groups in the order of their keys: a number and the name."""
    members: dict[tuple[int, str], list[metrics.Scores]] = {}
    for key, score in zip(keys, scores, strict=True):
        members.setdefault(key, []).append(score)
    return [
        Group(key[1], len(part), *(np.mean(part, axis=0) * 100).tolist())
        for key, part in sorted(members.items())
    ]


def _predicted(
    evaluation: Evaluation, question: dataset.Question
) -> Answer | None:
    """Returns the predicted answer; None if the list does not have it."""
    answers = evaluation.answers[question.id]
    text = answers.text(evaluation.threshold)
    return next((e for e in answers.entries if e.text == text), None)


def sections(evaluation: Evaluation) -> list[report.Section]:
    """Returns the answers and the error analysis for report.html."""
    analysis = analyze(evaluation)
    header = ["questions", "exact match, %", "F1, %"]
    tables = [
        report.Section(
            title,
            report.table(
                ["words" if "length" in title else "question word", *header],
                [
                    [
                        group.name,
                        group.count,
                        report.heat(group.exact, group.exact / 100),
                        report.heat(group.f1, group.f1 / 100),
                    ]
                    for group in groups
                ],
            ),
        )
        for title, groups in analysis.groups.items()
    ]
    return [
        *tables,
        report.Section("Answers", report.items(map(_shown, analysis.examples))),
        report.Section(
            "Worst mistakes", report.items(map(_shown, analysis.mistakes))
        ),
    ]


def _shown(answered: Answered) -> list[Markup | str]:
    """Returns the paragraphs that show a question with its answers."""
    before, answer, after, shift = answered.excerpt
    text = before + answer + after
    spans = []
    if answer:
        kind = "good" if answered.f1 == 1 else "bad"
        end = len(before) + len(answer)
        spans.append(report.Span(len(before), end, kind))
    for correct, start in answered.question.answers:
        at = -1 if start is None else start - shift
        if correct and at >= 0 and text.startswith(correct, at):
            span = report.Span(at, at + len(correct), label="correct")
            if not any(map(span.overlaps, spans)):
                spans.append(span)
    correct = " | ".join(dict.fromkeys(answered.correct)) or "no answer"
    return [
        Markup("<b>{}</b>").format(answered.question.text),
        report.highlight(text, spans),
        f"Predicted: {answered.predicted.text or 'no answer'} (probability "
        f"{answered.predicted.probability:.2f}, F1 {100 * answered.f1:.0f} %)",
        f"Correct: {correct}",
        Markup('<span class="soft">question {}</span>').format(
            answered.question.id
        ),
    ]
