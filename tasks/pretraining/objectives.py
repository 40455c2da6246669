"""The pre-training objectives: masked LM and next sentence (paper, 3.1).

The objectives of the paper's table on pre-training tasks (section 5.1) read
the same records, so that only the objective differs between them:

    masked_lm_and_next_sentence   both losses, as released
    masked_lm                     "No NSP"
    left_to_right                 "LTR & No NSP": masks are undone and every
                                  token is predicted from the tokens before it

    input_ids            [CLS] the [MASK] sat [SEP]
    masked_lm_ids                  cat
    left-to-right inputs [CLS] the  cat   sat
    targets               the  cat  sat  [SEP]

Records may be packed: a row holds several instances, which do not attend to
each other and count as if each had its own row.
"""

from collections.abc import Mapping
from typing import Any

from keras import ops

from modeling import losses

OBJECTIVES = ("masked_lm_and_next_sentence", "masked_lm", "left_to_right")
_NEIGHBORS = (slice(None, -1), slice(1, None))


def unmasked_ids(features: Mapping[str, Any]) -> Any:
    """Replaces the masks by the original tokens.

    Args:
      features: `input_ids` int32 [B, S], `masked_lm_positions` and
        `masked_lm_ids` int32 [B, P], `masked_lm_weights` float32 [B, P].

    Returns:
      int32 [B, S], the tokens before masking.
    """
    length = features["input_ids"].shape[1]
    is_prediction = ops.cast(features["masked_lm_weights"] > 0, "int32")
    # One-hot sums instead of a scatter have static shapes on every backend.
    # Padded predictions, which point at position 0, add 0.
    at = ops.one_hot(features["masked_lm_positions"], length, dtype="int32")
    at = at * is_prediction[:, :, None]  # [B, P, S]
    originals = ops.sum(at * features["masked_lm_ids"][:, :, None], axis=1)
    is_masked = ops.sum(at, axis=1)
    return features["input_ids"] * (1 - is_masked) + originals


def next_token_targets(features: Mapping[str, Any]) -> tuple[Any, Any]:
    """Returns the token that follows each of the first S - 1 positions.

    Returns:
      Ids int32 and weights float32, [B, S - 1] each.
    """
    current, following = (features["input_mask"][:, x] for x in _NEIGHBORS)
    # Packed instances are numbered; none predicts the first token of the next.
    is_next = ops.logical_and(following > 0, ops.equal(current, following))
    return unmasked_ids(features)[:, 1:], ops.cast(is_next, "float32")


class PretrainingObjective:
    """Computes losses and metrics of a `PretrainingModel` on records."""

    def __init__(
        self,
        objective: str = OBJECTIVES[0],
        next_sentence_loss_weight: float = 1.0,
    ):
        """Stores the arguments.

        Args:
          objective: one of OBJECTIVES.
          next_sentence_loss_weight: the total loss is the masked-LM loss plus
            this weight times the next-sentence loss; the paper adds them
            (section A.2), so its weight is 1.
        """
        self.name = objective
        self.is_left_to_right = objective == "left_to_right"
        self._next_sentence_loss_weight = next_sentence_loss_weight

    @property
    def attention(self) -> str:
        """The encoder's attention kind that this objective needs."""
        return "left_to_right" if self.is_left_to_right else "bidirectional"

    @property
    def predicts_next_sentence(self) -> bool:
        """Whether the model has a next-sentence loss."""
        return self.name == "masked_lm_and_next_sentence"

    def loss_weights(self, features: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the weight of each loss term, from the batch alone."""
        weights = {"masked_lm_loss": ops.sum(self._targets(features)[1])}
        if self.predicts_next_sentence:
            weights["next_sentence_loss"] = ops.sum(_pair_weights(features))
        return weights

    def forward(
        self, model: Any, features: Mapping[str, Any], dropout_seed: Any = None
    ) -> tuple[dict, dict]:
        """Returns the training losses and the metrics.

        Args:
          model: a `modeling.models.PretrainingModel`.
          features: a batch of pre-training records; without
            `is_real_example` int32 [B], no example is padding.
          dropout_seed: int32 [2], or None for inference.

        Returns:
          Two dicts of `losses.Weighted`.
        """
        targets = self._targets(features)
        outputs = self.outputs(model, features, dropout_seed)
        logits = outputs.masked_lm_logits
        terms = {"masked_lm_loss": losses.masked_lm(logits, *targets)}
        metrics = {"masked_lm_accuracy": losses.accuracy(logits, *targets)}
        if self.predicts_next_sentence:
            labels = features["next_sentence_labels"]
            weights = _pair_weights(features)
            logits = outputs.next_sentence_logits
            terms["next_sentence_loss"] = losses.classification(
                logits, labels, weights
            )._replace(factor=self._next_sentence_loss_weight)
            metrics["next_sentence_accuracy"] = losses.accuracy(
                logits, labels, weights
            )
        return terms, metrics

    def outputs(
        self, model: Any, features: Mapping[str, Any], dropout_seed: Any = None
    ) -> Any:
        """Returns the outputs of the model; arguments as for `forward`."""
        return model(
            self._inputs(features),
            dropout_seed=dropout_seed,
            packed=_is_packed(features),
        )

    def _inputs(self, features: Mapping[str, Any]) -> dict:
        names = ["input_ids", "input_mask", "segment_ids"]
        if _is_packed(features):
            names += ["position_ids", "next_sentence_positions"]
        inputs = {name: features[name] for name in names}
        if self.is_left_to_right:
            inputs["input_ids"] = unmasked_ids(features)
            # Every position but the last predicts the next token.
            batch, length = ops.shape(features["input_ids"])
            positions = ops.arange(length - 1, dtype="int32")
            inputs["masked_lm_positions"] = ops.broadcast_to(
                positions, (batch, length - 1)
            )
        else:
            inputs["masked_lm_positions"] = features["masked_lm_positions"]
        return inputs

    def _targets(self, features: Mapping[str, Any]) -> tuple[Any, Any]:
        """Returns the ids and the weights of the masked-LM head, [B, P]."""
        ids, weights = features["masked_lm_ids"], features["masked_lm_weights"]
        if self.is_left_to_right:
            ids, weights = next_token_targets(features)
        return ids, weights * _example_weights(features)[:, None]


def _example_weights(features: Mapping[str, Any]) -> Any:
    """Returns float32 [B]: 0 for padding examples, else 1."""
    if "is_real_example" in features:
        return ops.cast(features["is_real_example"], "float32")
    return ops.ones_like(features["input_ids"][:, 0], dtype="float32")


def _is_packed(features: Mapping[str, Any]) -> bool:
    return "next_sentence_positions" in features


def _pair_weights(features: Mapping[str, Any]) -> Any:
    """Returns the weight of each pair: float32 [B], packed [B, M]."""
    weights = _example_weights(features)
    if _is_packed(features):
        weights = features["next_sentence_weights"] * weights[:, None]
    return weights
