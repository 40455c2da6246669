"""Finds entities in lines of raw text, with any engine that runs the model."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from data import features as features_lib
from data.features import Features
from data.tokenization import wordpiece
from tasks.ner import raw_text, tag_spans, tagging, windowing


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Tagger:
    """Predicts the entities of lines.

    Attributes:
      windows: how words are arranged in windows.
      tokenizer: tokenizer of the model.
      labels: labels of the model's outputs.
      predict: maps windows to `logits` [T, C] of their tokens.
      scores: scores of tag sequences; None without a CRF.
    """

    windows: windowing.Windows
    tokenizer: wordpiece.Tokenizer
    labels: Sequence[str]
    predict: Callable[[Features], Mapping[str, np.ndarray]]
    scores: tagging.Scores | None

    def __call__(self, lines: Sequence[str]) -> list[list[dict[str, Any]]]:
        """Returns the entities of each line."""
        places = list(map(raw_text.split, lines))
        texts = list(map(raw_text.words, lines, places))
        found = [
            window
            for text in texts
            for window in windowing.encode(self.tokenizer, text, self.windows)
        ]
        lengths = [len(words) for text in texts for words in text]
        logits = np.zeros((sum(lengths), len(self.labels)), np.float32)
        if found:
            features = features_lib.from_sequences([found])
            is_word = np.concatenate([window.words for window in found]) > 0
            logits = self.predict(features)["logits"][is_word]
        tags = tagging.best_tags(logits, lengths, self.labels, self.scores)
        return raw_text.find_entities(
            lines,
            places,
            tags,
            tagging.probabilities(logits, tags, self.labels),
            is_plain=tag_spans.scheme_of(self.labels) == tag_spans.PLAIN,
        )
