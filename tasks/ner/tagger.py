"""A tagger: words or raw lines -> windows -> model -> tags and entities."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.special

from data import features as features_lib
from data.features import Features
from data.tokenization import wordpiece
from jobs.task_model import TaskModel
from modeling import crf
from tasks.ner import raw_text, settings, tagging, windowing, word_files


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Tagger:
    """Predicts the tags of sentences, and the entities of lines.

    Attributes:
      windows: how words are arranged in windows.
      tokenizer: tokenizer of the model.
      objective: what the model computes, with the labels of its outputs.
      predictions: maps windows to batches of `logits` [B, S, C] and
        `example_index` [B], the windows of a batch.
      scores: scores of tag sequences; None without a CRF.
    """

    windows: settings.WindowSettings
    tokenizer: wordpiece.Tokenizer
    objective: tagging.TaggingObjective
    predictions: Callable[[Features], Iterable[Mapping[str, np.ndarray]]]
    scores: crf.Scores | None

    @classmethod
    def of_model(
        cls,
        windows: settings.WindowSettings,
        task_model: TaskModel,
        batch_size: int,
        *,
        pads: bool = True,
    ) -> "Tagger":
        """Returns the tagger of a model.

        Args:
          windows: how words are arranged in windows.
          task_model: the model; its objective is a TaggingObjective.
          batch_size: windows per batch.
          pads: see TaskModel.predict.
        """
        objective = task_model.builder.objective
        assert isinstance(objective, tagging.TaggingObjective)
        return cls(
            windows=windows,
            tokenizer=task_model.start.tokenizer,
            objective=objective,
            predictions=lambda x: task_model.predictions(
                x, batch_size, pads=pads
            ),
            scores=task_model.model.scores if objective.has_crf else None,
        )

    def encode_lines(
        self,
        lines: Sequence[str],
        name: str,
        statistics: features_lib.TokenizationStatistics | None = None,
    ) -> tuple[raw_text.Text, Features | None]:
        """Splits lines into words; returns no features if there is no word."""
        text = raw_text.split_lines(name, lines)
        sentences = text.sentences
        if not sentences.words:
            return text, None
        return text, self.encode(sentences, statistics)

    def encode(
        self,
        sentences: word_files.Sentences,
        statistics: features_lib.TokenizationStatistics | None,
    ) -> Features:
        """Tokenizes words, and arranges them in windows.

        `statistics` count lost tokens; None logs the losses.
        """
        return windowing.encode(
            self.tokenizer, sentences, None, self.windows, statistics
        )

    def predict(self, features: Features | None) -> np.ndarray:
        """Returns the logits float32 [W, C] of the words of a block."""
        num_classes = len(self.objective.labels)
        if features is None:
            return np.zeros((0, num_classes), np.float32)
        return tagging.word_logits(
            features, num_classes, self.predictions(features)
        )

    def tags(
        self, sentences: word_files.Sentences, logits: np.ndarray
    ) -> list[str]:
        """Returns the best tag of each word for logits [W, C]."""
        return tagging.best_tags(
            self.scores, logits, sentences.row_splits, self.objective.labels
        )

    def entities(
        self, text: raw_text.Text, logits: np.ndarray
    ) -> list[list[dict[str, Any]]]:
        """Returns the entities of each line."""
        tags = self.tags(text.sentences, logits)
        label_ids = [self.objective.labels.index(tag) for tag in tags]
        probabilities = scipy.special.softmax(logits.astype(np.float64), axis=1)
        return raw_text.find_entities(
            text,
            tags,
            probabilities[np.arange(len(tags)), label_ids],
            is_plain=self.objective.is_plain,
        )
