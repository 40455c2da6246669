"""From queries, keys and values to the context: softmax and two products.

    scores = query . key + bias
    probs = softmax(scores), in float32; then in the dtype of the queries
    context = dropout(probs) . value

Derived by a framework, softmax keeps its float32 result for the way back and
sums over every row of it. Of that sum no more is needed than

    sum over s of probs[t, s] * (gradient of probs)[t, s]
        = context[t] . (gradient of context)[t],

a product of D terms in place of S (arXiv:2205.14135, appendix B.2).
"""

from keras import ops

import fusion
from modeling import dropout, parts


def attend(query, key, value, bias, dropout_seed=None, *, rate=0.0):
    """Attends.

    Args:
        query: float [B, N, S, D], scaled.
        key: [B, N, D, S].
        value: [B, N, S, D].
        bias: float32 [B, 1, 1 or S, S]; it has no gradient.
        dropout_seed: int32 [2], or None for inference.
        rate: of dropout.

    Returns:
        [B, N, S, D], in the dtype of the queries.
    """
    if dropout_seed is None:
        return ops.matmul(_probabilities(query, key, bias), value)

    @ops.custom_gradient
    def call(query, key, value, bias, dropout_seed):
        probs = _probabilities(query, key, bias)
        kept = dropout.keep(probs, rate, dropout_seed)
        dropped = dropout.drop(probs, kept, rate)
        context = ops.matmul(dropped, value)

        def gradients(*arguments, upstream=None):
            if upstream is None:  # How a backend passes it differs.
                (upstream,) = arguments
            by_scores = fusion.part(
                parts.by_scores,
                ops.matmul(upstream, _transposed(value)),
                probs,
                _dot(context, upstream),
                kept,
                rate=rate,
            )
            return (
                ops.matmul(by_scores, _transposed(key)),
                ops.matmul(_transposed(query), by_scores),
                ops.matmul(_transposed(dropped), upstream),
                None,
                None,
            )

        return context, gradients

    # All of them as arguments: on JAX a function with a derivative of its own
    # may not refer to what is traced outside.
    return call(query, key, value, bias, dropout_seed)


def _probabilities(query, key, bias):
    scores = ops.cast(ops.matmul(query, key), "float32")  # [B, N, S, S]
    return ops.cast(ops.softmax(scores + bias), query.dtype)


def _dot(x, y):
    """Multiplies row by row: [..., D] twice -> float32 [..., 1]."""
    product = ops.cast(x, "float32") * ops.cast(y, "float32")
    return ops.sum(product, axis=-1, keepdims=True)


def _transposed(x):
    return ops.transpose(x, (0, 1, 3, 2))
