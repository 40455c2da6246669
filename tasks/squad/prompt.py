"""Answers single questions by the logits of any model, without TensorFlow.

A prompt answers typed questions:

    paragraph> The leader was John Smith (1895-1943).
    question> When was he born?
    1895  (probability 0.93, characters 27-31)
      The leader was John Smith ([1895]-1943).
"""

import dataclasses
import itertools
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from absl import logging

from data.features import Features
from data.tokenization import wordpiece
from finetuning import typed
from foundation import file_system
from tasks.squad import blocks, dataset, decoding, windowing
from tasks.squad.decoding import Answer, AnswerList
from tasks.squad.settings import AnswerSettings

_PARAGRAPH, _QUESTION = "paragraph> ", "question> "
_HELP = (
    "Type a paragraph, then questions about it. An empty line ends the "
    "paragraph, Ctrl-D the program.\n"
)
_CONTEXT = 60  # Characters shown on each side of an answer at the prompt.


def model_logits(
    predictions: Callable[[Features], Iterable[Mapping[str, np.ndarray]]],
    precision: str,
) -> blocks.Logits:
    """Returns a function that computes a model's logits of windows.

    Args:
      predictions: maps N > 0 windows to batches of start_logits and end_logits
        [B, S] and example_index [B], the windows of a batch.
      precision: number format of the model.
    """

    def compute(windows: windowing.Windows) -> decoding.SpanLogits:
        features = windows.features
        batches = predictions(features) if len(windows) else ()
        logits = decoding.collect_logits(batches, features.row_splits)
        if not np.isfinite(logits).all():
            logging.warning(
                "logits are not finite numbers, so answers are arbitrary: the "
                "weights are damaged, or --precision=%s is not enough",
                precision,
            )
        return logits

    return compute


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Prompt:
    """Answers single questions by a model's tokenizer and logits."""

    tokenizer: wordpiece.Tokenizer
    logits: blocks.Logits
    settings: AnswerSettings

    def answer(self, question: str, context: str) -> Answer:
        """Returns the answer; its text is "" if there is none."""
        ((entry, _),) = self.answers([(question, context)])
        return entry

    def answers(
        self, questions: Sequence[tuple[str, str]]
    ) -> list[tuple[Answer, AnswerList]]:
        """Returns the answer to each (question, paragraph) and its list."""
        question_set = dataset.QuestionSet(
            path="",
            contexts=[context for _, context in questions],
            questions=[
                dataset.Question(id="", text=text, paragraph=number)
                for number, (text, _) in enumerate(questions)
            ],
        )
        windows = windowing.make_windows(
            question_set, self.tokenizer, self.settings.windows
        )
        decoded = decoding.decode(
            question_set,
            windows,
            self.logits(windows),
            tokenizer=self.tokenizer,
            rules=self.settings.rules,
        )
        return [(self._chosen(answers), answers) for answers in decoded]

    def _chosen(self, answers: AnswerList) -> Answer:
        text = answers.text(self.settings.threshold)
        nothing = Answer("", 1.0, 0.0, 0.0, None)
        if text == decoding.NOTHING and answers.entries[0].span is None:
            return nothing
        return next((e for e in answers.entries if e.text == text), nothing)

    def show(self, question: str, context: str) -> None:
        """Prints the answer and the text around it."""
        entry = self.answer(question, context)
        sys.stdout.write(f"{describe_answer(entry, context)}\n")

    def run(self, context: str | None) -> None:
        """Answers questions from standard input until it ends.

        An empty line ends the questions about a paragraph.

        Args:
          context: the first paragraph; None reads it.

        Raises:
          InputError: a line is not UTF-8.
        """
        is_typed = sys.stdin.isatty()
        if is_typed:
            sys.stderr.write(_HELP)
        read = typed.reader(sys.stdin, sys.stdout)
        for number in itertools.count(1):
            line = read(_PARAGRAPH if context is None else _QUESTION)
            if not line:
                sys.stdout.write("\n" if is_typed else "")
                return
            text = file_system.decode(line, "standard input", number).strip()
            if context is None:
                context = text or None
            elif text:
                # At a terminal, the question is what was typed.
                sys.stdout.write("" if is_typed else f"{_QUESTION}{text}\n")
                self.show(text, context)
                sys.stdout.flush()
            else:
                context = None


def describe_answer(entry: Answer, context: str) -> str:
    """Returns an answer in two lines, the second with the text around it."""
    probability = f"probability {entry.probability:.2f}"
    if entry.span is None or not entry.text:
        return f"(no answer)  ({probability})"
    before, answer, after, _ = excerpt(context, entry.span, _CONTEXT)
    line = " ".join(f"{before}[{answer}]{after}".split())
    start, end = entry.span
    return f"{entry.text}  ({probability}, characters {start}-{end})\n  {line}"


class Excerpt(NamedTuple):
    """An answer and the text around it; "" is no answer.

    Character i of the paragraph is character i - `shift` of the excerpt.
    """

    before: str
    answer: str
    after: str
    shift: int


def excerpt(context: str, span: tuple[int, int] | None, width: int) -> Excerpt:
    """Returns the text around an answer, `width` characters on each side.

    Without an answer, it is the beginning of the paragraph.
    """
    start, end = span or (width, width)
    low, high = max(0, start - width), end + width
    dots = "..." if low else ""
    return Excerpt(
        dots + context[low:start],
        context[start:end],
        context[end:high] + ("..." if high < len(context) else ""),
        low - len(dots),
    )
