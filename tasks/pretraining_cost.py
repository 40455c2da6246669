"""How many floating-point operations one example of pre-training needs.

Of the matrix products alone, two per multiply-add, three times the forward
pass: what model FLOPs utilization is measured by. Padding counts, as the
hardware multiplies it; recomputation does not, nor do the places of the last
layer that no head reads, which are not computed.
"""

from data import schema
from modeling.config import BertConfig
from tasks import pretraining


def task_flops(
    config: BertConfig,
    task: pretraining.PretrainingTask,
    records: schema.Schema,
) -> float:
    """Returns what one record costs, by what the task predicts from it."""
    sizes = {feature.name: feature.size for feature in records.features}
    length, predictions = sizes["input_ids"], sizes["masked_lm_positions"]
    if task.objective == "left_to_right":
        predictions = length - 1
    pairs = sizes["next_sentence_labels"] if task.predicts_next_sentence else 0
    return training_flops(config, length, predictions, pairs)


def training_flops(
    config: BertConfig,
    max_seq_length: int,
    num_predictions: int,
    num_pairs: int = 1,
) -> float:
    """Returns the operations of forward and backward for one example."""
    size, inner = config.hidden_size, config.intermediate_size
    # Per place: keys and values; queries, output, scores, context and FFN.
    seen = 2 * size * size
    seeing = 2 * size * size + 2 * max_seq_length * size + 2 * size * inner
    whole = (config.num_hidden_layers - 1) * max_seq_length
    # Of the last layer only what the heads read is computed.
    read = num_predictions + num_pairs
    transform_and_scores = size * size + size * config.vocab_size
    pooler = size * size + 2 * size
    multiply_adds = (
        (whole + max_seq_length) * seen
        + (whole + read) * seeing
        + num_predictions * transform_and_scores
        + num_pairs * pooler
    )
    return 6.0 * multiply_adds
