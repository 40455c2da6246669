"""The losses of embeddings, and the scores of the vectors of a complete set.

    in-batch negatives    [B, K, H]: anchors, positives, hard negatives
    cosine regression     [B, 2, H] and the target cosines

The negatives of an anchor are the other positives and the hard negatives of its
micro-batch, i.e. of the examples that one device computes at once. Larger
batches on several replicas or with accumulated gradients add no negatives. With
gradient_cache, a device computes a larger batch than its memory holds.
"""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.stats
from keras import ops

from data.examples import Example
from modeling import losses, models
from modeling.config import BertConfig
from tasks.embeddings import gradient_cache
from weights.sentence_modules import SentenceModules

VECTORS = "embedding"
RANKS = (1, 5, 10)
_QUERIES_AT_ONCE = 256


@dataclasses.dataclass(frozen=True, kw_only=True)
class EmbeddingObjective:
    """Vectors and their loss.

    Attributes:
      config: hyperparameters of the encoder.
      modules: how vectors are made.
      scale: the inverse of the temperature.
      cache_size: number of texts that training encodes at once; 0 for all.
    """

    config: BertConfig
    modules: SentenceModules
    scale: float
    cache_size: int = 0

    @property
    def stored(self) -> dict[str, Any]:
        """See task_model.Objective."""
        modules = self.modules
        return {"pooling": modules.pooling, "normalize": modules.normalize}

    def make_model(self, *, bilstm_size: int = 0, **options: Any) -> Any:
        """Makes the model; see task_model.Objective."""
        del bilstm_size
        return models.EmbeddingModel(
            self.config,
            pooling_names=self.modules.pooling,
            normalize=self.modules.normalize,
            **options,
        )

    def load_files(self, model: Any, folder: str) -> Collection[str]:
        """Returns (): all weights are in one file."""
        del model, folder
        return ()

    def loss_weights(self, features: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the number of examples."""
        count = ops.shape(features["input_ids"])[0]
        return {_loss_name(features): ops.cast(count, "float32")}

    def forward(
        self, model: Any, features: Mapping[str, Any], dropout_seed: Any = None
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
            vectors[:, 0], ops.concatenate(groups, axis=0), self.scale
        )
        accuracy = losses.in_batch_accuracy(logits)
        return {name: losses.in_batch_negatives(logits)}, {"accuracy": accuracy}

    def _vectors(
        self, model: Any, features: Mapping[str, Any], dropout_seed: Any
    ) -> Any:
        """Returns float32 [B, K, H] for a loss."""
        if not self.cache_size:
            return model(features, dropout_seed=dropout_seed)
        texts = models.flat(features)
        vectors = gradient_cache.encode(
            lambda part, seed: model(part, dropout_seed=seed),
            texts,
            dropout_seed,
            size=self.cache_size,
        )
        num_texts = features["input_ids"].shape[1]
        return ops.reshape(vectors, (-1, num_texts, vectors.shape[-1]))

    def predict(
        self, model: Any, features: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Returns the vectors float32 [B, H], or [B, K, H]."""
        return {VECTORS: model(features)}


def _loss_name(features: Mapping[str, Any]) -> str:
    is_regression = "label_ids" in features
    return "cosine_loss" if is_regression else "in_batch_loss"


def correlations(vectors: np.ndarray, scores: np.ndarray) -> dict[str, float]:
    """Returns the correlations of cosines and scores; "score" is Spearman's.

    They are 0 if either side is constant, and of fewer than two pairs.

    Args:
      vectors: [N, 2, H].
      scores: [N, 1].
    """
    cosines, similarities = pair_cosines(vectors), scores[:, 0]
    spearman = pearson = 0.0
    if len(scores) > 1 and 0 not in (np.ptp(cosines), np.ptp(similarities)):
        spearman = float(scipy.stats.spearmanr(cosines, similarities).statistic)
        pearson = float(scipy.stats.pearsonr(cosines, similarities).statistic)
    return {"spearman": spearman, "pearson": pearson, "score": spearman}


def retrieval(
    texts: Sequence[Example], vectors: np.ndarray
) -> dict[str, float]:
    """Returns recalls at RANKS and the MRR at 10, which is the "score".

    Each distinct anchor is a query, each distinct positive or hard negative a
    document. The correct documents are the anchor's own positives. A document
    with the same cosine as a correct one is ranked before it.

    Args:
      texts: N groups of K texts.
      vectors: [N, K, H].
    """
    vectors = _directions(vectors)
    anchors: dict[str, int] = {}
    documents: dict[str, int] = {}
    places: list[tuple[int, int]] = []  # Indices of the documents' vectors.
    positives: dict[str, set[int]] = {}
    for i, example in enumerate(texts):
        anchors.setdefault(example.first, i)
        for k, text in enumerate(example.second, 1):
            if text not in documents:
                documents[text] = len(documents)
                places.append((i, k))
        positives_of_anchor = positives.setdefault(example.first, set())
        positives_of_anchor.add(documents[example.second[0]])
    searched = vectors[tuple(np.transpose(places))]
    queries = list(anchors.items())
    scores: list[list[float]] = []
    for start in range(0, len(queries), _QUERIES_AT_ONCE):
        block = queries[start : start + _QUERIES_AT_ONCE]
        cosines = vectors[[i for _, i in block], 0] @ searched.T
        for (text, _), row in zip(block, cosines, strict=True):
            ranks = [np.count_nonzero(row >= row[j]) for j in positives[text]]
            recalls = [float(np.mean([r <= k for r in ranks])) for k in RANKS]
            best = min(ranks)
            scores.append([*recalls, 1 / best if best <= RANKS[-1] else 0.0])
    names = [f"recall_at_{k}" for k in RANKS] + [f"mrr_at_{RANKS[-1]}"]
    means = np.mean(scores, axis=0).tolist()
    return {**dict(zip(names, means, strict=True)), "score": means[-1]}


def pair_cosines(vectors: np.ndarray) -> np.ndarray:
    """Returns the cosine [N] of the first two of vectors [N, K, H]."""
    first, second = np.moveaxis(_directions(vectors[:, :2]), 1, 0)
    return np.sum(first * second, axis=-1)


def _directions(vectors: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.maximum(norms, 1e-12)
