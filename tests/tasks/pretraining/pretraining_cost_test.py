"""Proves the count of operations against one by hand.

python -m pytest tests/tasks/pretraining/pretraining_cost_test.py
"""

import pytest
import tensorflow as tf

from data import schema
from foundation import config_flags
from jobs import assembly, run_config
from modeling import models
from modeling.config import BertConfig
from tasks.pretraining import objectives, pretraining_job
from training import cost, throughput

CONFIG = BertConfig(
    vocab_size=97,
    hidden_size=24,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=40,
    max_position_embeddings=32,
)
# The records, their length, masked positions and instances.
RECORDS = {
    "short": (schema.pretraining(16, 3), 16, 3, 1),
    "long": (schema.pretraining(32, 5), 32, 5, 1),
    "packed": (schema.packed_pretraining(32, 11, 4), 32, 11, 4),
}


def multiply_adds(length, predictions, pairs):
    """Returns those of the forward pass."""
    size, inner = CONFIG.hidden_size, CONFIG.intermediate_size
    keys_and_values = 2 * size * size
    # Queries and output; scores and context; the feed-forward network.
    other = 2 * size * size + 2 * length * size + 2 * size * inner
    layers = CONFIG.num_hidden_layers
    # The last layer computes only the positions that a head reads.
    positions = (layers - 1) * length + predictions + pairs
    return (
        # The lookup of the token types is a product.
        length * CONFIG.type_vocab_size * size
        + layers * length * keys_and_values
        + positions * other
        + predictions * (size * size + size * CONFIG.vocab_size)
        + pairs * (size * size + 2 * size)
    )


@pytest.mark.parametrize("objective", objectives.OBJECTIVES)
@pytest.mark.parametrize("records", RECORDS)
@pytest.mark.parametrize("recompute", ["nothing", "blocks"])
def test_utilization_counts_three_times_the_forward_pass(
    records, objective, recompute
):
    if recompute == "blocks" and records != "short":
        pytest.skip("the same for all records")
    task = objectives.PretrainingObjective(objective)
    model = models.PretrainingModel(
        CONFIG,
        attention=task.attention,
        next_sentence=task.predicts_next_sentence,
        recompute=recompute,
    )
    kind, length, predictions, pairs = RECORDS[records]
    if objective == "left_to_right":
        predictions = length - 1
    if not task.predicts_next_sentence:
        pairs = 0
    found = cost.training_flops(
        task, model, pretraining_job._example_spec(kind)
    )
    assert found == 6 * multiply_adds(length, predictions, pairs)
    (recomputing,) = cost._recomputing(model)
    assert recomputing.recompute == recompute


@pytest.mark.parametrize("peak", [None, 2.0])
def test_operations_are_counted_only_for_devices_of_known_peak(
    peak, monkeypatch
):
    counted = []

    def count_flops():
        counted.append(1)
        return 5e9

    monkeypatch.setattr(throughput, "device_name", lambda: "a CPU")
    found = assembly.make_throughput(
        config_flags.build(
            run_config.RunConfig,
            output_dir="out",
            precision="float32",
            peak_tflops=peak,
        ),
        tf.distribute.OneDeviceStrategy("CPU:0"),
        tokens=16,
        count_flops=count_flops,
    )
    assert len(counted) == (peak is not None)
    assert found.flops == (5e9 if counted else None)
