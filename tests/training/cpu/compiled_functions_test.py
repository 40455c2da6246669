"""Compares steps with functions compiled by XLA and without.

python -m pytest tests/training/cpu/compiled_functions_test.py
"""

import functools

import numpy as np
import pytest
import tensorflow as tf

from foundation import replacement
from modeling import layers
from modeling.config import BertConfig
from tasks.classification import heads, label_kinds
from training import feed, optimizers, precision, step
from training.cpu import compiled_functions

CONFIG = BertConfig(
    vocab_size=20,
    hidden_size=8,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=16,
    hidden_dropout_prob=0.2,
    attention_probs_dropout_prob=0.2,
    max_position_embeddings=16,
    type_vocab_size=2,
)
BATCH, LENGTHS = 4, (6, 9)
HEAD = heads.head_of(label_kinds.OneLabel(("a", "b", "c")))


def draw(length):
    rng = np.random.default_rng(length)
    shape = BATCH, length
    values = {
        "input_ids": rng.integers(0, 20, shape),
        "input_mask": np.ones(shape),
        "segment_ids": np.zeros(shape),
        "label_ids": rng.integers(0, 3, BATCH),
    }
    return {name: x.astype(np.int32) for name, x in values.items()}


def make_batches(*, first_batch, part, num_parts, lengths=LENGTHS):
    del first_batch, part, num_parts
    length = lengths[0] if len(set(lengths)) == 1 else None
    signature = {
        name: tf.TensorSpec((BATCH, length)[: x.ndim], tf.int32)
        for name, x in draw(6).items()
    }
    return tf.data.Dataset.from_generator(
        lambda: iter(map(draw, lengths)), output_signature=signature
    )


@functools.cache
def train(dtype, *, compile_functions, recompute="none", lengths=LENGTHS):
    """Runs a step of each length, two micro-batches each."""
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    with strategy.scope():
        model = HEAD.build(
            CONFIG, recompute=recompute, seed=1, dtype=precision.policy(dtype)
        )
        optimizer = optimizers.Optimizer(
            optimizers.AdamW(),
            model.trainable_variables,
            optimizers.WarmupDecay(peak=1e-3, num_train_steps=100),
        )
    run = step.TrainStep(
        step.Learner(HEAD, model, optimizer),
        strategy=strategy,
        seed=1,
        compile_functions=compile_functions,
    )
    make = functools.partial(make_batches, lengths=lengths)
    batches = feed.distribute(strategy, make, num_accumulation_steps=2)
    results = run(iter(batches), 0, len(lengths))
    return results, [variable.numpy() for variable in model.weights]


@pytest.mark.parametrize(
    ("recompute", "lengths"),
    [
        ("all", LENGTHS),
        pytest.param("none", (6, 6), marks=pytest.mark.all),
    ],
)
def test_float32_steps_are_the_same_with_dropout_and_all_lengths(
    recompute, lengths
):
    expected, weights = train(
        "float32", compile_functions=False, lengths=lengths
    )
    found, others = train(
        "float32", compile_functions=True, recompute=recompute, lengths=lengths
    )
    np.testing.assert_allclose(found.sums, expected.sums, rtol=1e-5)
    np.testing.assert_allclose(
        found.gradient_norms, expected.gradient_norms, rtol=1e-5
    )
    for one, other in zip(others, weights, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.all
def test_bfloat16_steps_are_close_to_those_of_float32():
    exact, found = (
        train(dtype, compile_functions=dtype == "bfloat16")[0]
        for dtype in ("float32", "bfloat16")
    )
    np.testing.assert_allclose(
        found.gradient_norms, exact.gradient_norms, rtol=0.02
    )
    np.testing.assert_allclose(found.sums[:, 0], exact.sums[:, 0], rtol=0.01)


@pytest.mark.parametrize(
    ("function", "options"),
    [
        (layers.add_bias, {"activation": "gelu"}),
        (layers.add_bias, {"activation": "linear"}),
        (layers.residual_norm, {"rate": 0.5, "epsilon": 1e-12}),
    ],
)
def test_every_argument_of_a_function_has_its_gradient(function, options):
    def normal(*shape):
        return tf.random.stateless_normal(shape, (1, len(shape)))

    x, vector = normal(6, 8), normal(8)
    if function is layers.residual_norm:
        vectors = [vector, vector + 2.0, vector]
        tensors, others = [x, x[::-1], *vectors], [x > 0.1]
    else:
        tensors, others = [x, vector], []

    def run(choose):
        with replacement.using(choose), tf.GradientTape() as tape:
            tape.watch(tensors)
            out = function(*tensors, *others, **options)
            loss = tf.reduce_sum(out**3)
        return [out, *tape.gradient(loss, tensors)]

    compiler = compiled_functions.Compiler()
    found = run(compiler)
    assert len(compiler._compiled) == 1
    for one, other in zip(found, run(None), strict=True):
        assert np.abs(other).max() > 0.01
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_a_step_calls_the_compiled_functions(monkeypatch):
    seen = []

    class Recorder:
        def __call__(self, function):
            seen.append(function.__name__)
            return function

    monkeypatch.setattr(compiled_functions, "Compiler", Recorder)
    train.__wrapped__("float32", compile_functions=True, recompute="attention")
    assert compiled_functions.COMPILED < set(seen)
    # The mask of probabilities, a second time in the backward pass.
    assert seen.count("draw_mask") == 5 + 1
