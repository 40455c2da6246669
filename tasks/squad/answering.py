"""From questions and paragraphs to answers, by the logits of any model.

    texts --encode--> windows --model--> logits --decode--> answers

run_squad.py, Python's API and the server answer with this class; it needs no
TensorFlow.
"""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from absl import logging

from data import features as features_lib
from data.features import Features
from data.tokenization import plain_wordpiece
from tasks.squad import decoding, windowing
from tasks.squad.decoding import Answer, AnswerList
from tasks.squad.settings import AnswerSettings
from tasks.squad.windowing import Window

_CHUNK = 128  # Questions that are decoded together.


class Answerer:
    """Answers questions with a tokenizer and the settings of a model."""

    def __init__(
        self,
        tokenizer: plain_wordpiece.PlainTokenizer,
        settings: AnswerSettings,
    ):
        """Takes the tokenizer and the settings."""
        self._tokenizer, self._settings = tokenizer, settings
        self._project = decoding.projector(tokenizer, settings)
        # Successive questions are about the same paragraph.
        self._document = functools.lru_cache(4)(
            functools.partial(windowing.read_document, tokenizer)
        )

    def encode(self, question: str, context: str) -> list[Window]:
        """Returns the windows of a question."""
        document = self._document(context)
        return windowing.cut(
            self._tokenizer, question, document, self._settings
        )

    def decode(
        self,
        sequences: Sequence[Sequence[Window]],
        outputs: Mapping[str, np.ndarray],
    ) -> list[AnswerList]:
        """Returns the best answers to each question.

        Args:
          sequences: the windows of each question.
          outputs: "start_logits" and "end_logits", float32 [T] of the tokens of
            all windows; neither if there is no window.
        """
        nothing = np.zeros(0, np.float32)
        logits = np.stack(
            [outputs.get(f"{x}_logits", nothing) for x in ("start", "end")]
        )
        if not np.isfinite(logits).all():
            logging.warning(
                "logits are not finite numbers, so answers are arbitrary: the "
                "weights are damaged, or --precision is not enough"
            )
        found: list[AnswerList] = []
        end = 0
        for first in range(0, len(sequences), _CHUNK):
            some = sequences[first : first + _CHUNK]
            begin, end = end, end + sum(len(x.ids) for y in some for x in y)
            found += decoding.answer_lists(
                some, logits[:, begin:end], self._project, self._settings
            )
        return found

    def answers(
        self,
        questions: Iterable[tuple[str, str]],
        predict: Callable[[Features], Mapping[str, np.ndarray]],
    ) -> list[tuple[Answer, AnswerList]]:
        """Returns the answer to each question, and the best answers.

        Args:
          questions: pairs of a question and its paragraph.
          predict: returns the outputs of windows; see `decode`.
        """
        questions = list(questions)
        sequences = [self.encode(*pair) for pair in questions]
        features = features_lib.from_sequences(sequences)
        outputs = predict(features) if len(features) else {}
        lists = self.decode(sequences, outputs)
        return [(self.chosen(found), found) for found in lists]

    def chosen(self, answers: AnswerList) -> Answer:
        """Returns the answer to give; its text is "" if there is none."""
        text = answers.text(self._settings.threshold)
        nothing = Answer("", 1.0, 0.0, 0.0, None)
        if text == decoding.NOTHING and answers.entries[0].span is None:
            return nothing
        return next((x for x in answers.entries if x.text == text), nothing)
