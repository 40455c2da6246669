"""Proves that the levers of the accelerator benchmark compute today's step.

Sums are merged, so they are equal to rounding; masks are others, as good.

pytest tests/benchmarks/accelerator_levers_test.py
"""

import functools
import sys

import numpy as np
import pytest
import tensorflow as tf

from modeling import encoder, layers, losses, models
from tasks.pretraining import objectives
from training import xla_dropout

THRESHOLD = round(0.1 * 2**16)
EQUAL = ("qkv", "vocabulary", "labels", "gather")  # To rounding.


@pytest.fixture(scope="module")
def levers(repository):
    sys.path.insert(0, str(repository / "benchmarks"))
    import accelerator_levers

    return accelerator_levers


@pytest.fixture(scope="module")
def first_losses(levers):
    """A function: losses of steps of the benchmark with some levers."""
    import accelerator_cases as cases

    case = cases.Case(
        name="tiny",
        size="tiny",
        length=16,
        batch=2,
        precision="float32",
        xla=False,
    )

    @functools.cache
    def compute(names):
        with levers.using(names):
            return cases.first_losses(case, 3)["losses"]

    return compute


@pytest.fixture
def gradients(tiny_config, features, set_weights):
    """A function: loss and gradients of the tiny model, without dropout.

    In float64: a float32 element that nearly cancels differs by more than its
    rounding with the order of a sum.
    """
    model = set_weights(models.PretrainingModel(tiny_config, dtype="float64"))
    objective = objectives.PretrainingObjective()

    def compute():
        with tf.GradientTape() as tape:
            losses, _ = objective.forward(model, features)
            total = tf.add_n([x.sum for x in losses.values()])
        found = tape.gradient(total, model.trainable_variables)
        return [total, *map(tf.convert_to_tensor, found)], model

    return compute


@pytest.mark.parametrize("names", [*EQUAL, ",".join(EQUAL)])
def test_losses_and_gradients_are_todays_to_rounding(levers, gradients, names):
    expected, _ = gradients()
    with levers.using(names):
        found, model = gradients()
    again, _ = gradients()
    for a, b, c in zip(expected, found, again, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)
        np.testing.assert_array_equal(a, c)
    # Variables, and with them files, keep their names and shapes.
    assert model.bert.embeddings.word_embeddings.shape[0] == 30


@pytest.mark.all
@pytest.mark.parametrize("names", EQUAL)
def test_complete_steps_have_todays_losses(first_losses, names):
    assert first_losses(names) == pytest.approx(first_losses(""), rel=1e-6)


def products(function, *specs):
    """Returns the matrix products of a traced function."""
    graph = tf.function(function).get_concrete_function(*specs).graph
    return [op for op in graph.get_operations() if op.type == "MatMul"]


@pytest.mark.parametrize("is_last", [False, True])
def test_query_key_and_value_are_one_product(levers, tiny_config, is_last):
    attention = encoder.make_encoder(tiny_config).blocks[0].attention
    x, memory = tf.TensorSpec([2, 3, 8]), tf.TensorSpec([2, 5, 8])

    def project(x, memory=None):
        return attention.project(x, x if memory is None else memory)

    specs = (x, memory) if is_last else (x,)
    with levers.using("qkv"):
        found = products(project, *specs)
    # In the last block the queries are others than the keys.
    widths = [8, 16] if is_last else [24]
    assert [op.outputs[0].shape[1] for op in found] == widths


def test_the_vocabulary_is_padded_in_the_product(levers, tiny_config):
    embeddings = encoder.make_encoder(tiny_config).embeddings
    with levers.using("vocabulary"):
        (product,) = products(
            embeddings.vocabulary_scores, tf.TensorSpec([2, 3, 8])
        )
    assert product.outputs[0].shape[1] == 128


@pytest.mark.parametrize("is_compiled", [False, True])
def test_compared_labels_give_the_same_bits(levers, is_compiled):
    x = tf.random.stateless_normal([3, 4, 30], [1, 2])
    labels = tf.random.stateless_uniform([3, 4], [1, 2], 0, 30, tf.int32)
    values = tf.random.stateless_normal([3, 4], [3, 4])
    expected = losses._replace_at_labels(x, labels, values)
    with levers.using("labels"):
        replace = tf.function(
            losses._replace_at_labels, jit_compile=is_compiled
        )
        graph = replace.get_concrete_function(x, labels, values).graph
        found = replace(x, labels, values)
    assert not [x for x in graph.get_operations() if "Scatter" in x.type]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_gradient_of_the_gather_sums_repeated_positions(levers, dtype):
    x = tf.cast(tf.random.stateless_normal([2, 5, 3], [1, 2]), dtype)
    positions = tf.constant([[0, 4, 0, 0], [3, 1, 2, 3]])
    upstream = tf.cast(tf.random.stateless_normal([2, 4, 3], [3, 4]), dtype)

    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layers.gather(x, positions)
        return y, tf.convert_to_tensor(tape.gradient(y, x, upstream))

    expected = gradient(x)
    with levers.using("gather"):
        function = tf.function(gradient)
        graph = function.get_concrete_function(x).graph
        found = function(x)
        mask = layers.gather(
            tf.constant([[1, 2, 0, 0], [3, 3, 0, 4]]), positions[:, :1]
        )
    types = {op.type for op in graph.get_operations()}
    assert "BatchMatMulV2" in types and "UnsortedSegmentSum" not in types
    np.testing.assert_array_equal(found[0], expected[0])
    tolerance = 1e-6 if dtype == "float32" else 2e-2
    for a, b in zip(found, expected, strict=True):
        a, b = (tf.cast(y, "float32") for y in (a, b))
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
    np.testing.assert_array_equal(mask, [[1], [4]])


def mask(levers, seed, shape=(1000, 1000)):
    seed = tf.constant(seed)
    return levers.draw_two_per_word(
        seed, shape=shape, threshold=THRESHOLD
    ).numpy()


def test_the_fraction_that_is_dropped_is_the_rate(levers):
    for seed in ((0, 0), (1, 0), (0, 1), (-1, 2**31 - 1)):
        kept = mask(levers, seed)
        # Five standard deviations of a million draws.
        assert kept.mean() == pytest.approx(1 - THRESHOLD / 2**16, abs=0.0015)
        for half in (kept.ravel()[::2], kept.ravel()[1::2]):
            assert half.mean() == pytest.approx(0.9, abs=0.0022)
        assert kept.mean(axis=0).std() == pytest.approx(0.0095, rel=0.15)
        assert kept.mean(axis=1).std() == pytest.approx(0.0095, rel=0.15)


@pytest.mark.parametrize("shift", [1, 2, 3, 64, 128, 768, 1000, 4096])
def test_neighbors_do_not_depend_on_each_other(levers, shift):
    kept = mask(levers, (12345, -678)).ravel() - (1 - THRESHOLD / 2**16)
    together = (kept[shift:] * kept[:-shift]).mean() / kept.var()
    assert abs(together) < 0.005


def test_the_halves_of_a_word_do_not_depend_on_each_other(levers):
    kept = mask(levers, (9, 9)).ravel() * 1.0
    assert abs(np.corrcoef(kept[::2], kept[1::2])[0, 1]) < 0.007


@pytest.mark.parametrize("other", [(6, 7), (5, 8), (7, 5), (5, -7)])
def test_masks_of_different_seeds_do_not_depend_on_each_other(levers, other):
    first, second = (mask(levers, seed) * 1.0 for seed in ((5, 7), other))
    assert abs(np.corrcoef(first.ravel(), second.ravel())[0, 1]) < 0.005


def test_the_mask_is_the_same_with_and_without_xla(levers):
    def draw(seed):
        return levers.draw_two_per_word(seed, shape=(7, 33), threshold=6554)

    seed = tf.constant([3, -77])
    compiled = tf.function(draw, jit_compile=True)(seed)
    np.testing.assert_array_equal(compiled, draw(seed))


def test_a_step_under_xla_uses_the_lever_and_then_no_longer(levers):
    seed, options = tf.constant([3, 4]), {"shape": (9, 9), "threshold": 6554}
    choose = xla_dropout.choose(xla_dropout.draw_mask)
    with levers.using("masks"):
        inside = xla_dropout.choose(xla_dropout.draw_mask)(seed, **options)
    assert choose is xla_dropout.choose(xla_dropout.draw_mask)
    expected = levers.draw_two_per_word(seed, **options)
    np.testing.assert_array_equal(inside, expected)
