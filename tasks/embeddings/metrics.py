"""The metrics of the vectors of a complete set, in NumPy."""

from collections.abc import Sequence

import numpy as np
import scipy.stats

from tasks.embeddings.text_groups import Group

RANKS = (1, 5, 10)
_QUERIES_AT_ONCE = 256


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


def retrieval(groups: Sequence[Group], vectors: np.ndarray) -> dict[str, float]:
    """Returns recalls at RANKS and the MRR at 10, which is the "score".

    Each distinct anchor is a query, each distinct positive or hard negative a
    document. The correct documents are the anchor's own positives. A document
    with the same cosine as a correct one is ranked before it.

    Args:
      groups: N groups of K texts.
      vectors: [N, K, H].
    """
    vectors = _directions(vectors)
    anchors: dict[str, int] = {}
    documents: dict[str, int] = {}
    places: list[tuple[int, int]] = []  # Indices of the documents' vectors.
    positives: dict[str, set[int]] = {}
    for i, group in enumerate(groups):
        anchor, *others = group.texts
        anchors.setdefault(anchor, i)
        for k, text in enumerate(others, 1):
            if text not in documents:
                documents[text] = len(documents)
                places.append((i, k))
        positives.setdefault(anchor, set()).add(documents[others[0]])
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
