"""Proves the count of operations against those of the model's own graph.

python -m pytest tests/tasks/pretraining/pretraining_cost_test.py
"""

import math

import pytest
import tensorflow as tf

from data import schema
from modeling import models
from modeling.config import BertConfig
from tasks.pretraining import objectives

CONFIG = BertConfig(
    vocab_size=97,
    hidden_size=24,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=40,
    max_position_embeddings=32,
)


def multiply_adds(operation) -> int:
    """Counts those of one product of (stacks of) matrices."""
    left, _ = (x.shape.as_list() for x in operation.inputs)
    flipped = "transpose_a" if operation.type == "MatMul" else "adj_x"
    inner = left[-2] if operation.get_attr(flipped) else left[-1]
    return math.prod(operation.outputs[0].shape.as_list()) * inner


RECORDS = {
    "short": schema.pretraining(16, 3),
    "long": schema.pretraining(32, 5),
    "packed": schema.packed_pretraining(32, 11, 4),
}


@pytest.mark.parametrize("objective", objectives.OBJECTIVES)
@pytest.mark.parametrize("records", RECORDS)
def test_the_forward_pass_is_a_third(records, objective):
    task = objectives.PretrainingTask(objective)
    model = models.PretrainingModel(
        CONFIG,
        attention=task.attention,
        next_sentence=task.predicts_next_sentence,
    )
    specs = {
        feature.name: tf.TensorSpec(
            (1, *feature.shape),
            tf.int32 if feature.dtype == "int64" else feature.dtype,
        )
        for feature in RECORDS[records].features
    }
    function = tf.function(lambda x: task.forward(model, x), autograph=False)
    graph = function.get_concrete_function(specs).graph
    products = [
        operation
        for operation in graph.get_operations()
        if operation.type in ("MatMul", "BatchMatMulV2")
        # The lookup of the two token types is written as a product.
        and "/embeddings" not in operation.name
    ]
    assert not [x for x in graph.get_operations() if x.type == "Einsum"]
    found = 2 * sum(map(multiply_adds, products))
    counted = objectives.task_flops(CONFIG, task, RECORDS[records])
    # Three times the forward pass: the gradient of a product is two.
    assert counted == 3 * found
