"""Shared fixtures: quiet TensorFlow, shared tokenizers, optional real data."""

import functools
import gc
import os
import pathlib
import sys
from collections.abc import Iterator
from unittest import mock

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import pytest

import tensorflow_setup  # noqa: F401
from training import precision

# The tests compare float32, also on GPUs whose default is TF32.
precision.forbid_tf32()
ROOT = pathlib.Path(__file__).resolve().parent.parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begins with the files of slow tests: none is left to one worker alone."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def pytest_collection_finish() -> None:
    """Spares every later collection what the imports have made."""
    gc.collect()
    gc.freeze()


@functools.cache
def _made_once(owner: type, name: str) -> property:
    """Makes a part of tokenizers once for all of one vocabulary and case."""
    make, made = vars(owner)[name].func, {}

    def get(tokenizer):
        key = tokenizer.vocabulary.sha256, *tokenizer.settings.values()
        if key not in made:
            made[key] = make(tokenizer)
        return made[key]

    return property(get)


@pytest.fixture(scope="module", autouse=True)
def shared_tokenizers() -> Iterator[None]:
    """Lets the runs of a process split text by one graph: it takes a second.

    It is a function of the vocabulary and the switches. The tests of the
    tokenizer itself have another fixture of this name.
    """
    module = sys.modules.get("data.tokenization")
    if module is None:
        yield
        return
    parts = ("_graph", "_encode_batch")
    shared = {name: _made_once(module.Tokenizer, name) for name in parts}
    with mock.patch.multiple(module.Tokenizer, **shared):
        yield


@pytest.fixture(scope="session")
def shared_data() -> pathlib.Path:
    """Real public data laid beside the checkout; skips where there is none."""
    path = ROOT.parent / "shared" / "data"
    if not path.is_dir():
        pytest.skip("no shared/data beside this checkout")
    return path


@pytest.fixture(scope="session")
def repository() -> pathlib.Path:
    """The root of this checkout, where the runners lie."""
    return ROOT
