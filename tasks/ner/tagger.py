"""A tagger: words or raw lines -> windows -> model -> tags and entities."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.special

from data import features as features_lib
from data.features import Features
from jobs.task_model import TaskModel
from tasks.ner import raw_text, settings, tagging, windowing, word_files


class Tagger:
    """Predicts the tags of sentences, and the entities of lines."""

    def __init__(
        self,
        windows: settings.WindowSettings,
        task_model: TaskModel,
        batch_size: int,
    ):
        """Creates a tagger.

        Args:
          windows: how words are arranged in windows.
          task_model: the model; its objective is a TaggingObjective.
          batch_size: windows per batch.
        """
        self._windows = windows
        self._task_model = task_model
        self._batch_size = batch_size
        objective = task_model.builder.objective
        assert isinstance(objective, tagging.TaggingObjective)
        self._objective = objective

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

        Args:
          sentences: the words.
          statistics: counters of lost tokens; None logs the losses.
        """
        tokenizer = self._task_model.start.tokenizer
        return windowing.encode(
            tokenizer, sentences, None, self._windows, statistics
        )

    def predict(self, features: Features | None) -> np.ndarray:
        """Returns the logits float32 [W, C] of the words of a block."""
        num_classes = len(self._objective.labels)
        if features is None:
            return np.zeros((0, num_classes), np.float32)
        batches = self._task_model.predictions(features, self._batch_size)
        return tagging.word_logits(features, num_classes, batches)

    def tags(
        self, sentences: word_files.Sentences, logits: np.ndarray
    ) -> list[str]:
        """Returns the best tag of each word for logits [W, C]."""
        model, labels = self._task_model.model, self._objective.labels
        return tagging.best_tags(model, logits, sentences.row_splits, labels)

    def entities(
        self, text: raw_text.Text, logits: np.ndarray
    ) -> list[list[dict[str, Any]]]:
        """Returns the entities of each line."""
        tags = self.tags(text.sentences, logits)
        label_ids = [self._objective.labels.index(tag) for tag in tags]
        probabilities = scipy.special.softmax(logits.astype(np.float64), axis=1)
        return raw_text.find_entities(
            text,
            tags,
            probabilities[np.arange(len(tags)), label_ids],
            is_plain=self._objective.is_plain,
        )
