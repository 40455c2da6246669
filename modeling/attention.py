"""From queries, keys and values to the context: softmax and two products.

    scores = query . key + bias
    probs = softmax(scores), in float32; then in the dtype of the queries
    context = dropout(probs) . value

A framework keeps softmax's float32 result for the way back, the largest tensor
of a layer. Here the way back is by the probabilities that the products saw, in
the dtype of the queries, and drops out of them again. All within it is summed
in float32, of the same rounded values on both sides, so that a row that sees a
single place has a gradient of exactly zero.
"""

from keras import ops

import fusion
from modeling import derivatives, dropout, parts


def attend(query, key, value, bias, dropout_seed=None, *, rate=0.0):
    """Attends.

    Args:
        query: float [B, N, R, D], scaled; as a rule R = S.
        key: [B, N, D, S].
        value: [B, N, S, D].
        bias: float32 [B, 1, 1 or R, S]; it has no gradient.
        dropout_seed: int32 [2], or None for inference.
        rate: of dropout.

    Returns:
        [B, N, R, D], in the dtype of the queries.
    """
    if dropout_seed is None:
        return ops.matmul(_probabilities(query, key, bias), value)

    @derivatives.own_derivative
    def call(query, key, value, bias, dropout_seed):
        probs = _probabilities(query, key, bias)
        kept = dropout.keep(probs, rate, dropout_seed)
        context = ops.matmul(dropout.drop(probs, kept, rate), value)

        def gradients(upstream):
            by_scores = fusion.part(
                parts.gradient_of_scores,
                ops.matmul(upstream, _transposed(value)),
                probs,
                kept,
                rate=rate,
            )
            dropped = dropout.drop(probs, kept, rate)
            return (
                ops.matmul(by_scores, _transposed(key)),
                ops.matmul(_transposed(query), by_scores),
                ops.matmul(_transposed(dropped), upstream),
                None,
                None,
            )

        return context, gradients

    return call(query, key, value, bias, dropout_seed)


def _probabilities(query, key, bias):
    scores = ops.matmul(query, key)  # [B, N, R, S]
    return fusion.kernel("softmax", _softmax, scores, bias)


def _softmax(scores, bias):
    wide = ops.cast(scores, "float32")
    return ops.cast(ops.softmax(wide + bias), scores.dtype)


def _transposed(x):
    return ops.transpose(x, (0, 1, 3, 2))
