"""What report.html shows of answers to a set whose right answers are known."""

import re
from collections.abc import Sequence

import numpy as np

from data import squad
from tasks import report, squad_metrics
from tasks.squad_predictions import Judgment

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


def sections(judged: Judgment) -> list[report.Section]:
    """Returns scores by group, and the worst mistakes."""
    found = judged.found
    scores = squad_metrics.score_all(found, judged.predictions)
    words = np.array([len(squad.words(text)) for text in found.contexts])
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
    mistakes = report.Section("Worst mistakes", _mistakes(judged, scores))
    return [*shown, mistakes]


def question_type(text: str) -> str:
    """Returns the first question word, in lower case."""
    match = _TYPES.search(text)
    return match[1].lower() if match else _OTHER


def _answer_length(question: squad.Question) -> str:
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


def _mistakes(judged: Judgment, scores) -> str:
    """Shows what is wrong although the model was sure of it."""
    wrong = []
    for question, answers, scored in zip(
        judged.found.questions, judged.answers, scores, strict=True
    ):
        text = answers.text(judged.threshold)
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
            " | ".join(squad_metrics.truth(judged.found, question)) or "-",
            entry.text or "-",
            -probability,
            f1,
            _excerpt(judged.found.contexts[question.paragraph], entry.span),
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
