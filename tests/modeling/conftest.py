"""Fixtures of the modeling tests: the model and batch of the formula."""

import pytest

from modeling.config import BertConfig
from tests.modeling import formula


@pytest.fixture(scope="session")
def tiny_config() -> BertConfig:
    """Two layers, H=8, N=2, V=30."""
    return BertConfig(**formula.CONFIG)


@pytest.fixture
def features() -> dict:
    """A batch of four padded pairs with masked places."""
    return formula.features()


@pytest.fixture(scope="session")
def set_weights():
    """A function that gives a model the formula's weights."""

    def assign(model):
        for variable in model.weights:
            shape = tuple(variable.shape)
            variable.assign(formula.weight(variable.path, shape))
        return model

    return assign
