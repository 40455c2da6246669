"""Answers questions with a model: its head, its logits, and a prompt.

The model has two logits for each token of a window: the answer starts at the
token with the highest start logit and ends at that with the highest end logit.
Both are trained with the cross entropy over all positions of a window. If the
answer is not in the window, both labels are 0, the position of [CLS].

A prompt answers typed questions:

    paragraph> The leader was John Smith (1895-1943).
    question> When was he born?
    1895  (probability 0.93, characters 27-31)
      The leader was John Smith ([1895]-1943).
"""

import dataclasses
import itertools
import sys
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import Any, ClassVar, NamedTuple

import numpy as np
from absl import logging
from keras import ops

from data.features import Features
from data.tokenization import wordpiece
from foundation import errors, file_system
from jobs import typed
from jobs.task_model import TaskModel
from modeling import losses, models
from modeling.config import BertConfig
from tasks.squad import blocks, dataset, decoding, outputs, windowing
from tasks.squad.decoding import Answer, AnswerList
from tasks.squad.settings import AnswerSettings
from weights import task_files

_LOSS = "span_loss"
_PARAGRAPH, _QUESTION = "paragraph> ", "question> "
_HELP = (
    "Type a paragraph, then questions about it. An empty line ends the "
    "paragraph, Ctrl-D the program.\n"
)
_CONTEXT = 60  # Characters shown on each side of an answer at the prompt.


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpanObjective:
    """The head, the loss and the predictions of question answering.

    Attributes:
      config: hyperparameters of the encoder.
      with_negative: whether questions may have no answer (SQuAD 2.0).
    """

    per_token: ClassVar[bool] = True
    config: BertConfig
    with_negative: bool = False

    @property
    def stored(self) -> dict[str, Any]:
        """See task_model.Objective."""
        return dataclasses.asdict(
            task_files.SquadSettings(version_2_with_negative=self.with_negative)
        )

    def make_model(self, **options: Any) -> models.QuestionAnsweringModel:
        """Makes the model; see task_model.Objective."""
        return models.QuestionAnsweringModel(self.config, **options)

    def load_files(self, model: Any, folder: str) -> Collection[str]:
        """Returns (): all weights are in one file."""
        del model, folder
        return ()

    def loss_weights(self, features: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the number of windows."""
        count = ops.shape(features["input_ids"])[0]
        return {_LOSS: ops.cast(count, "float32")}

    def forward(
        self, model: Any, features: Mapping[str, Any], dropout_seed: Any = None
    ) -> tuple[dict, dict]:
        """Returns the loss and the accuracies of both positions."""
        logits = model(features, dropout_seed=dropout_seed)
        return self.hard_losses(logits, features)

    def hard_losses(
        self, outputs: Any, features: Mapping[str, Any]
    ) -> tuple[dict, dict]:
        """Returns what `forward` does, from the logits."""
        logits = outputs
        start = ops.reshape(features["start_positions"], (-1,))
        end = ops.reshape(features["end_positions"], (-1,))
        loss = losses.span(logits.start_logits, logits.end_logits, start, end)
        accuracy = losses.classification_accuracy
        return {_LOSS: loss}, {
            "start_accuracy": accuracy(logits.start_logits, start),
            "end_accuracy": accuracy(logits.end_logits, end),
        }

    def soft_loss(
        self,
        outputs: Any,
        teacher: Mapping[str, Any],
        features: Mapping[str, Any],
        temperature: float,
    ) -> losses.Weighted:
        """See distillation.Objective."""
        names = ("start_logits", "end_logits")
        return losses.soft_span(
            [getattr(outputs, name) for name in names],
            [teacher[name][..., 0] for name in names],
            features["input_mask"],
            temperature,
        )

    def of_teacher(self, config: BertConfig, folder: str) -> "SpanObjective":
        """See distillation.Objective; both answer the same SQuAD.

        Raises:
          InputError: only one of both may leave a question without an answer.
        """
        stored = task_files.read_settings(folder)
        if stored and stored.version_2_with_negative != self.with_negative:
            raise errors.InputError(
                f"--version_2_with_negative is {self.with_negative}, but "
                f"{stored.version_2_with_negative} of the teacher in {folder}"
            )
        return dataclasses.replace(self, config=config)

    def predict(
        self, model: Any, features: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Returns both logits, float32 [B, S]."""
        logits = model(features)
        return {
            "start_logits": logits.start_logits,
            "end_logits": logits.end_logits,
        }


class ModelLogits(NamedTuple):
    """The logits of a model; a blocks.LogitsSource.

    predictions: maps N > 0 windows to batches of start_logits and end_logits
      [B, S] and example_index [B], the windows of a batch.
    precision: number format of the model.
    """

    predictions: Callable[[Features], Iterable[Mapping[str, np.ndarray]]]
    precision: str

    def span_logits(self, windows: windowing.Windows) -> decoding.SpanLogits:
        """Returns the model's logits of windows."""
        features = windows.features
        batches = self.predictions(features) if len(windows) else ()
        logits = decoding.collect_logits(batches, features.row_splits)
        if not np.isfinite(logits).all():
            logging.warning(
                "logits are not finite numbers, so answers are arbitrary: the "
                "weights are damaged, or --precision=%s is not enough",
                self.precision,
            )
        return logits


def model_logits(task_model: TaskModel, *, pads: bool) -> ModelLogits:
    """Returns the logits of a model.

    Args:
      task_model: the model.
      pads: whether windows fewer than devices, as those of a single question,
        are padded to a batch of predict_batch_size.
    """
    config, strategy = task_model.config, task_model.builder.strategy

    def predictions(features: Features) -> Iterator[dict[str, np.ndarray]]:
        batch_size = config.predict_batch_size
        if not pads and len(features) <= strategy.num_replicas_in_sync:
            batch_size = strategy.num_replicas_in_sync
        return task_model.predictions(features, batch_size)

    return ModelLogits(predictions, config.devices.precision)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Prompt:
    """Answers single questions.

    Attributes:
      tokenizer: tokenizer of the model.
      logits: where the logits of windows come from.
      settings: how answers are made from logits.
    """

    tokenizer: wordpiece.Tokenizer
    logits: blocks.LogitsSource
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
            self.logits.span_logits(windows),
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
    before, answer, after, _ = outputs.excerpt(context, entry.span, _CONTEXT)
    line = " ".join(f"{before}[{answer}]{after}".split())
    start, end = entry.span
    return f"{entry.text}  ({probability}, characters {start}-{end})\n  {line}"
