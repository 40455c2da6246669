"""Answers questions one at a time, at a prompt, with a model loaded once.

paragraph> The leader was John Smith (1895-1943).
question> When was he born?
1895  (probability 0.93, characters 27-31)
  The leader was John Smith ([1895]-1943).
"""

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import TextIO

import numpy as np

from data.features import Features
from data.tokenization import normalization, wordpiece
from foundation import file_system
from tasks.squad import dataset, decoding, span_task, squad_windows
from tasks.squad.decoding import Answers, Entry
from tasks.squad.squad_windows import Sizes

_PARAGRAPH, _QUESTION = "paragraph> ", "question> "
_AROUND = 60  # Characters shown on each side of an answer.
Predict = Callable[[Features], Iterable[Mapping[str, np.ndarray]]]


class Reader:
    """Finds answers in any paragraph that it is given."""

    def __init__(
        self,
        predict: Predict,
        tokenizer: wordpiece.Tokenizer,
        *,
        sizes: Sizes,
        limits: decoding.Limits,
        threshold: float | None,
    ):
        """Takes what the model is asked with.

        Args:
          predict: yields both logits, and `example_index`.
          tokenizer: of the model.
          sizes: of windows.
          limits: of what may be an answer.
          threshold: null odds above which there is none; None in 1.1.
        """
        self._predict = predict
        self._tokenizer = tokenizer
        self._normalize = normalization.Normalization(**tokenizer.settings)
        self._sizes = sizes
        self._limits = limits
        self._threshold = threshold

    def windows(self, found: dataset.Questions) -> squad_windows.Windows:
        """Cuts the paragraphs of questions into windows."""
        return squad_windows.make(
            self._tokenizer,
            found,
            is_training=False,
            max_seq_length=self._sizes.max_seq_length,
            doc_stride=self._sizes.doc_stride,
            max_query_length=self._sizes.max_query_length,
        )

    def logits(self, windows: squad_windows.Windows) -> span_task.SpanLogits:
        """Asks the model about windows."""
        batches = self._predict(windows.features) if len(windows) else ()
        splits = windows.features.row_splits
        return span_task.collect(batches, splits)

    def decode(
        self,
        found: dataset.Questions,
        windows: squad_windows.Windows,
        logits: span_task.SpanLogits,
    ) -> list[Answers]:
        """Returns the answers to questions."""
        return decoding.decode(
            found,
            windows,
            logits,
            normalize=self._normalize.words,
            pieces=self._tokenizer.vocabulary.tokens,
            limits=self._limits,
        )

    def ask(self, question: str, context: str) -> Entry:
        """Returns what is answered; the text "" is no answer."""
        found = dataset.Questions(
            path="",
            contexts=[context],
            questions=[dataset.Question(id="", text=question, paragraph=0)],
        )
        windows = self.windows(found)
        (answers,) = self.decode(found, windows, self.logits(windows))
        text = answers.text(self._threshold)
        nothing = Entry("", 1.0, 0.0, 0.0, None)
        if text == decoding.NOTHING and answers.entries[0].span is None:
            return nothing
        return next((e for e in answers.entries if e.text == text), nothing)


def describe(entry: Entry, context: str) -> str:
    """Returns an answer in two lines, the second its place in the text."""
    sure = f"probability {entry.probability:.2f}"
    if entry.span is None or not entry.text:
        return f"(no answer)  ({sure})"
    start, end = entry.span
    before, after = max(0, start - _AROUND), end + _AROUND
    place = (
        ("..." if before else "")
        + f"{context[before:start]}[{context[start:end]}]{context[end:after]}"
        + ("..." if after < len(context) else "")
    )
    place = " ".join(place.split())
    return f"{entry.text}  ({sure}, characters {start}-{end})\n  {place}"


def talk(
    reader: Reader,
    read: Callable[[str], bytes],
    output: TextIO,
    context: str | None = None,
) -> None:
    """Answers until the input ends; an empty line asks for another paragraph.

    Args:
      reader: of the model.
      read: see jobs.typed.
      output: where answers go.
      context: the first paragraph; None asks for it.

    Raises:
      InputError: a line is not UTF-8.
    """
    for number in itertools.count(1):
        is_question = context is not None
        line = read(_QUESTION if is_question else _PARAGRAPH)
        if not line:
            output.write("\n")
            return
        line = file_system.decode(line, "standard input", number).strip()
        if context is None:
            context = line or None
        elif not line:
            context = None
        else:
            answer = describe(reader.ask(line, context), context)
            output.write(f"{answer}\n")
