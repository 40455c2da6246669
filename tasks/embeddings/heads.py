"""The vectors of texts and their losses.

    in-batch negatives    [B, K, H]: anchors, positives, hard negatives
    cosine regression     [B, 2, H] and the target cosines

The negatives of an anchor are the other positives and the hard negatives of its
micro-batch, i.e. of the examples that one device computes at once. Larger
batches on several replicas or with accumulated gradients add no negatives. With
gradient_cache, a device computes a larger batch than its memory holds.
"""

from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from data.tokenization import wordpiece
from finetuning import head
from modeling import losses, models
from modeling.config import BertConfig
from tasks.embeddings import gradient_cache
from weights import sentence_modules

VECTORS = "embedding"


class VectorHead(head.Head):
    """A vector of each text."""

    pipeline_tag = "sentence-similarity"

    def __init__(
        self,
        modules: sentence_modules.SentenceModules,
        *,
        scale: float,
        cache_size: int,
    ):
        """Takes how vectors are made and compared.

        Args:
          modules: how vectors are made.
          scale: the inverse of the temperature.
          cache_size: number of texts that training encodes at once; 0 for all.
        """
        self._modules, self._scale = modules, scale
        self._cache_size = cache_size

    def build(self, config: BertConfig, **options: Any) -> keras.Model:
        """See Head."""
        return models.EmbeddingModel(
            config,
            pooling_names=self._modules.pooling,
            normalize=self._modules.normalize,
            **options,
        )

    def loss_weights(self, features: Mapping[str, Any]) -> dict[str, Any]:
        """See Head; the loss has the name of its kind."""
        return {_loss_name(features): self.weight(features)}

    def forward(
        self,
        model: keras.Model,
        features: Mapping[str, Any],
        dropout_seed: Any = None,
    ) -> tuple[dict, dict]:
        """Returns the loss, and the accuracy among in-batch negatives."""
        vectors = self._vectors(model, features, dropout_seed)
        name = _loss_name(features)
        if "label_ids" in features:
            loss = losses.cosine_regression(
                vectors[:, 0], vectors[:, 1], features["label_ids"][:, 0]
            )
            return {name: loss}, {}
        groups = [vectors[:, i] for i in range(1, vectors.shape[1])]
        logits = losses.cosine_logits(
            vectors[:, 0], ops.concatenate(groups, axis=0), self._scale
        )
        positives = ops.arange(ops.shape(logits)[0])
        accuracy = losses.accuracy(logits, positives)
        loss = losses.classification(logits, positives)
        return {name: loss}, {"accuracy": accuracy}

    def _vectors(
        self, model: Any, features: Mapping[str, Any], dropout_seed: Any
    ) -> Any:
        """Returns float32 [B, K, H] for a loss."""
        if not self._cache_size:
            return model(features, dropout_seed=dropout_seed)
        vectors = gradient_cache.encode(
            lambda part, seed: model(part, dropout_seed=seed),
            models.flat(features),
            dropout_seed,
            size=self._cache_size,
        )
        num_texts = features["input_ids"].shape[1]
        return ops.reshape(vectors, (-1, num_texts, vectors.shape[-1]))

    def predict(
        self, model: keras.Model, features: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Returns the vectors float32 [B, H], or [B, K, H]."""
        return {VECTORS: model(features)}

    def save(
        self, model: Any, directory: str, tokenizer: wordpiece.Tokenizer
    ) -> None:
        """See Head; sentence-transformers opens the directory."""
        size = model.config.hidden_size
        sentence_modules.write(directory, self._modules, size)
        super().save(model, directory, tokenizer)


def _loss_name(features: Mapping[str, Any]) -> str:
    is_regression = "label_ids" in features
    return "cosine_loss" if is_regression else "in_batch_loss"
