"""Tests the distribution of initial weights, by seed and name.

python -m pytest tests/modeling/variables_test.py
"""

import numpy as np
import pytest

from modeling import models, variables

SHAPE = (400, 500)
# Drawn once on x86-64 with NumPy 2.
GOLDEN = [-1.7171346, -1.6229488, 1.1841884, 0.5356917]


@pytest.fixture(scope="module")
def draws():
    return variables.truncated_normal(SHAPE, seed=1, path="a/kernel")


def test_the_draw_is_a_function_of_seed_and_path(draws):
    def draw(seed, path):
        return variables.truncated_normal(SHAPE, seed=seed, path=path)

    np.testing.assert_array_equal(draws, draw(1, "a/kernel"))
    for other in (draw(2, "a/kernel"), draw(1, "b/kernel")):
        correlation = np.corrcoef(draws.ravel(), other.ravel())[0, 1]
        assert abs(correlation) < 5 / np.sqrt(draws.size)


def test_the_draw_is_the_same_on_every_machine():
    values = variables.truncated_normal((4,), seed=12345, path="bert/x")
    np.testing.assert_array_equal(values, np.array(GOLDEN, np.float32))


def test_kernels_and_tables_are_normal_and_the_rest_is_plain(tiny_config):
    for variable in models.PretrainingModel(tiny_config).weights:
        value = variable.numpy()
        if variable.path.endswith("gamma"):
            assert (value == 1).all(), variable.path
        elif variable.path.endswith(("beta", "bias")):
            assert (value == 0).all(), variable.path
        else:
            assert value.std() == pytest.approx(0.0176, rel=0.6)
            assert np.abs(value).max() <= 0.04, variable.path


def test_a_variable_has_exactly_its_released_path():
    make = variables.Maker(stddev=0.02, seed=0)
    assert make.zeros("output_bias", (3,)).path == "output_bias"
    path = "bert/encoder/layer_0/output/dense/kernel"
    variable = make.normal(path, (300, 200))
    assert variable.path == path
    assert variable.numpy().std() == pytest.approx(0.01759, rel=0.01)
