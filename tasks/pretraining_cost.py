"""How many floating-point operations one example of pre-training needs.

Of the matrix products alone, two per multiply-add, three times the forward
pass: what model FLOPs utilization is measured by. Padding counts, as the
hardware multiplies it; recomputation does not.
"""

from modeling.config import BertConfig


def training_flops(
    config: BertConfig, max_seq_length: int, max_predictions_per_seq: int
) -> float:
    """Returns the operations of forward and backward for one example."""
    size, inner = config.hidden_size, config.intermediate_size
    projections = 4 * size * size + 2 * size * inner  # Q, K, V, output; FFN.
    attention = 2 * max_seq_length * size  # Scores and context, per place.
    layers = config.num_hidden_layers * max_seq_length
    transform_and_scores = size * size + size * config.vocab_size
    pooler = size * size + 2 * size
    multiply_adds = (
        layers * (projections + attention)
        + max_predictions_per_seq * transform_and_scores
        + pooler
    )
    return 6.0 * multiply_adds
