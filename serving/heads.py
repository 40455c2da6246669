"""Heads that no command trains: words of masks, and vectors of texts."""

from collections.abc import Mapping
from typing import Any

import keras

from finetuning.head import Head
from modeling import models
from modeling.config import BertConfig
from tasks.features import heads as feature_heads


class MaskedLmHead(Head):
    """The logits of words at masked positions, or at all."""

    architecture = "BertForMaskedLM"

    def build(self, config: BertConfig, **options: Any) -> keras.Model:
        """See Head."""
        del options["bilstm_size"]
        return models.PretrainingModel(config, next_sentence=False, **options)

    def predict(
        self, model: keras.Model, features: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Returns float32 [B, S, V], or [B, P, V] of masked_lm_positions."""
        return {"logits": model(features).masked_lm_logits}


class EmbeddingHead(feature_heads.LayersHead):
    """One vector for each text."""

    def predict(
        self, model: keras.Model, features: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Returns float32 [B, size]."""
        (embedding,) = super().predict(model, features).values()
        return {"sentence_embedding": embedding}
