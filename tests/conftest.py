"""Shared fixtures: quiet TensorFlow, shared tokenizers, public data."""

import functools
import gc
import os
import pathlib
import sys
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest
from markupsafe import Markup

from modeling.config import BertConfig
from tests.modeling import formula

ROOT = pathlib.Path(__file__).resolve().parent.parent


def pytest_configure(config: pytest.Config) -> None:
    """Prepares TensorFlow where tests run: not in xdist's first process."""
    if config.getoption("numprocesses", None):
        return
    import foundation.tensorflow_setup  # noqa: F401

    # isort: split
    import keras
    import tensorflow as tf
    from tensorflow.python.util import tf_stack

    from training import precision

    # Most of the time of the tests is the tracing of graphs, a tenth of which
    # goes into the stack of each operation and into filters of tracebacks.
    tf_stack.extract_stack = functools.partial(
        lambda stack, stacklevel=1: stack, tf_stack.extract_stack()
    )
    tf.debugging.disable_traceback_filtering()
    keras.config.disable_traceback_filtering()
    # The tests compare float32, also on GPUs whose default is TF32.
    precision.forbid_tf32()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Defines where the proofs find public data."""
    parser.addoption("--data", help="folder of public data: make proofs")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Hides TensorFlow's log from caplog, in which tests count messages.

    It warns of retracing by a count over the process, so its warnings depend on
    the tests that ran before.
    """
    plugin = session.config.pluginmanager.getplugin("logging-plugin")
    plugin.caplog_handler.addFilter(lambda record: record.name != "tensorflow")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sorts the files of tests: slow ones first, marked as last ones last."""

    def paths(marker):
        return {item.path for item in items if item.get_closest_marker(marker)}

    first, last = paths("slow"), paths("last")
    items.sort(key=lambda item: (item.path in last, item.path not in first))


def pytest_collection_finish() -> None:
    """Excludes the objects of imports from garbage collection.

    Tracing makes so many objects that the default thresholds cost 5% of the
    time of the tests.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


@functools.cache
def _made_once(owner: type, name: str) -> property:
    """Returns a property that tokenizers of equal settings compute once."""
    make, made = vars(owner)[name].func, {}

    def get(tokenizer):
        key = tokenizer.vocabulary.sha256, *tokenizer.settings.values()
        if key not in made:
            made[key] = make(tokenizer)
        return made[key]

    return property(get)


@pytest.fixture(scope="module", autouse=True)
def shared_tokenizers() -> Iterator[None]:
    """Lets tokenizers of equal settings use one graph, which takes a second.

    The graph is a function of the vocabulary and the settings. The tests of the
    tokenizer itself override this fixture.
    """
    module = sys.modules.get("data.tokenization.wordpiece")
    if module is None:
        yield
        return
    parts = ("graph", "_encode_batch")
    shared = {name: _made_once(module.Tokenizer, name) for name in parts}
    with mock.patch.multiple(module.Tokenizer, **shared):
        yield


@pytest.fixture(scope="module", autouse=True)
def no_waiting_for_the_disk() -> Iterator[None]:
    """Lets os.fsync check its argument only: some files wait a thousand times.

    The tests of the file system, and all processes, really flush.
    """
    with mock.patch.object(os, "fsync", os.fstat):
        yield


def _without_drawing(draw: Callable[[Any], None]) -> Markup:
    from matplotlib.figure import Figure

    draw(Figure().subplots())
    return Markup("<svg></svg>")


@pytest.fixture(scope="module", autouse=True)
def charts() -> Iterator[None]:
    """Leaves out the drawing of charts: eight of them take as long as a run.

    pretraining_report_test draws.
    """
    with mock.patch("finetuning.report.plot", _without_drawing):
        yield


@pytest.fixture(scope="session")
def data_dir(pytestconfig: pytest.Config) -> pathlib.Path:
    """The public data of the proofs."""
    return pathlib.Path(pytestconfig.getoption("--data"))


@pytest.fixture(scope="session")
def repository() -> pathlib.Path:
    """The root of this checkout, with the commands."""
    return ROOT


@pytest.fixture(scope="session")
def tiny_config() -> BertConfig:
    """Two layers, H=8, N=2, V=30."""
    return BertConfig(**formula.CONFIG)


@pytest.fixture
def features() -> dict:
    """A batch of four padded pairs with masked positions."""
    return formula.features()


@pytest.fixture(scope="session")
def set_weights():
    """A function that sets a model's weights by the formula."""

    def assign(model):
        for variable in model.weights:
            shape = tuple(variable.shape)
            variable.assign(formula.weight(variable.path, shape))
        return model

    return assign
