"""Answers questions that are typed at a prompt.

paragraph> The leader was John Smith (1895-1943).
question> When was he born?
1895  (probability 0.93, characters 27-31)
  The leader was John Smith ([1895]-1943).
"""

import dataclasses
import itertools
import sys
from collections.abc import Sequence

from foundation import file_system
from jobs import finetuning, typed
from tasks.squad import dataset, decoding, outputs, squad_job, windowing
from tasks.squad.decoding import Answer, AnswerList

_PARAGRAPH, _QUESTION = "paragraph> ", "question> "
_CONTEXT = 60  # Characters shown on each side of an answer.


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Prompt:
    """Answers single questions.

    Attributes:
      task_model: the model.
      data: gives the sizes of windows and the answer rules.
      threshold: null odds above which there is no answer; None in 1.1.
    """

    task_model: finetuning.TaskModel
    data: squad_job.SquadData
    threshold: float | None

    def answer(self, question: str, context: str) -> Answer:
        """Returns the answer; its text is "" if there is none."""
        ((found, _),) = self.answers([(question, context)])
        return found

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
        job = self.task_model.job
        tokenizer = job.start.tokenizer
        windows = windowing.make_windows(
            question_set, tokenizer, self.data.sizes
        )
        batch_size = job.strategy.num_replicas_in_sync
        if len(windows) > batch_size:
            batch_size = job.config.predict_batch_size
        decoded = decoding.decode(
            question_set,
            windows,
            squad_job.predict_logits(self.task_model, windows, batch_size),
            tokenizer=tokenizer,
            rules=self.data.rules,
        )
        return [(self._chosen(answers), answers) for answers in decoded]

    def _chosen(self, answers: AnswerList) -> Answer:
        text = answers.text(self.threshold)
        nothing = Answer("", 1.0, 0.0, 0.0, None)
        if text == decoding.NOTHING and answers.entries[0].span is None:
            return nothing
        return next((e for e in answers.entries if e.text == text), nothing)

    def show(self, question: str, context: str) -> None:
        """Prints the answer and the text around it."""
        entry = self.answer(question, context)
        sys.stdout.write(f"{describe(entry, context)}\n")

    def run(self, context: str | None) -> None:
        """Answers questions from standard input until it ends.

        An empty line ends the questions about a paragraph.

        Args:
          context: the first paragraph; None reads it.

        Raises:
          InputError: a line is not UTF-8.
        """
        read = typed.reader(sys.stdin, sys.stdout)
        for number in itertools.count(1):
            line = read(_PARAGRAPH if context is None else _QUESTION)
            if not line:
                sys.stdout.write("\n" if sys.stdin.isatty() else "")
                return
            text = file_system.decode(line, "standard input", number).strip()
            if context is None:
                context = text or None
            elif text:
                self.show(text, context)
            else:
                context = None


def describe(entry: Answer, context: str) -> str:
    """Returns an answer in two lines, the second with the text around it."""
    probability = f"probability {entry.probability:.2f}"
    if entry.span is None or not entry.text:
        return f"(no answer)  ({probability})"
    before, answer, after, _ = outputs.excerpt(context, entry.span, _CONTEXT)
    shown = " ".join(f"{before}[{answer}]{after}".split())
    start, end = entry.span
    return f"{entry.text}  ({probability}, characters {start}-{end})\n  {shown}"
