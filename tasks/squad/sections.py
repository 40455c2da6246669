"""What the report shows of answers: a table, examples, the worst mistakes."""

from collections.abc import Mapping, Sequence

import numpy as np
from markupsafe import Markup

from finetuning import report
from tasks.squad import dataset, metrics, prompt
from tasks.squad.decoding import Answer, AnswerList

_NUM_MISTAKES = 25
_NUM_PARAGRAPHS = 8  # The report shows one question about each of them.
_CONTEXT = 250  # Characters shown on each side of an answer.


def make(
    questions: dataset.QuestionSet,
    answers: Mapping[str, AnswerList],
    threshold: float | None,
) -> list[report.Section]:
    """Returns the sections of a set with correct answers.

    The mistakes are sorted: lowest F1 first, then most probable first. The
    paragraphs of the examples are spread over the set.

    Args:
      questions: the questions.
      answers: the predicted answers, by the questions' ids.
      threshold: null odds above which there is no answer; None in SQuAD 1.1.
    """
    texts = {number: x.text(threshold) for number, x in answers.items()}
    scores = metrics.score_all(questions, texts)
    predicted = [
        next((x for x in answers[q.id].entries if x.text == texts[q.id]), None)
        for q in questions.questions
    ]
    wrong = [
        (scores[i].f1, -answer.probability, i)
        for i, answer in enumerate(predicted)
        if answer is not None and scores[i].f1 < 1
    ]
    firsts: dict[str, int] = {}  # The first question of each paragraph.
    for i, question in enumerate(questions.questions):
        firsts.setdefault(question.context, i)
    every = max(1, len(firsts) // _NUM_PARAGRAPHS)
    examples = list(firsts.values())[::every][:_NUM_PARAGRAPHS]

    def items(numbers: Sequence[int]) -> Markup:
        shown = [
            _item(questions, questions.questions[i], answer, scores[i].f1)
            for i in numbers
            if (answer := predicted[i]) is not None
        ]
        return report.items(shown)

    sections = [
        report.Section("Answers", items(examples)),
        report.Section(
            "Worst mistakes",
            items([i for *_, i in sorted(wrong)[:_NUM_MISTAKES]]),
        ),
    ]
    if threshold is not None:
        kinds = np.zeros((2, 2), int)
        for question in questions.questions:
            kinds[int(not question.answers), int(not texts[question.id])] += 1
        table = report.heat_map(
            "the paragraph has", ["an answer", "no answer"], kinds.tolist()
        )
        sections.insert(0, report.Section("Answerable questions", table))
    return sections


def _item(
    questions: dataset.QuestionSet,
    question: dataset.Question,
    answer: Answer,
    f1: float,
) -> list[Markup | str]:
    """Returns the paragraphs that show a question with its answers."""
    before, found, after, shift = prompt.excerpt(
        question.context, answer.span, _CONTEXT
    )
    text = before + found + after
    spans = []
    if found:
        kind = "good" if f1 == 1 else "bad"
        begin = len(before)
        spans.append(report.Span(begin, begin + len(found), kind))
    for correct, start in question.answers:
        at = -1 if start is None else start - shift
        if correct and at >= 0 and text.startswith(correct, at):
            span = report.Span(at, at + len(correct), label="correct")
            # They have a character together.
            if not any(x.start < span.end and at < x.end for x in spans):
                spans.append(span)
    texts = dict.fromkeys(metrics.correct_answers(questions, question))
    return [
        Markup("<b>{}</b>").format(question.text),
        report.highlight(text, spans),
        f"Predicted: {answer.text or 'no answer'} (probability "
        f"{answer.probability:.2f}, F1 {100 * f1:.0f} %)",
        f"Correct: {' | '.join(texts) or 'no answer'}",
        Markup('<span class="soft">question {}</span>').format(question.id),
    ]
