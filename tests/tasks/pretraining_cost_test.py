"""Proves the count of operations against those of the model's own graph.

python -m pytest tests/tasks/pretraining_cost_test.py
"""

import math

import pytest
import tensorflow as tf

from modeling import models
from modeling.config import BertConfig
from tasks import pretraining_cost

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


@pytest.mark.parametrize("length, predictions", [(16, 3), (32, 5)])
def test_the_forward_pass_is_a_third(length, predictions):
    model = models.PretrainingModel(CONFIG)
    sequence = tf.TensorSpec((1, length), tf.int32)
    names = ("input_ids", "input_mask", "segment_ids")
    features = dict.fromkeys(names, sequence)
    features["masked_lm_positions"] = tf.TensorSpec((1, predictions), tf.int32)
    function = tf.function(lambda x: model(x)[:2], autograph=False)
    graph = function.get_concrete_function(features).graph
    products = [
        operation
        for operation in graph.get_operations()
        if operation.type in ("MatMul", "BatchMatMulV2")
        # The lookup of the two token types is written as a product.
        and "/embeddings" not in operation.name
    ]
    assert not [x for x in graph.get_operations() if x.type == "Einsum"]
    found = 2 * sum(map(multiply_adds, products))
    counted = pretraining_cost.training_flops(CONFIG, length, predictions)
    # Three times the forward pass: the gradient of a product is two.
    assert counted == 3 * found
