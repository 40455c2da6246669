"""Proves what conftest.py does for all tests.

python -m pytest tests/conftest_test.py
"""

import pathlib
import types

import tensorflow as tf
from absl import logging

from tests import conftest


def test_slow_files_are_first_and_those_that_leave_threads_are_last():
    def item(file, name, *markers):
        return types.SimpleNamespace(
            path=pathlib.Path(file),
            name=name,
            get_closest_marker=lambda marker: marker in markers,
        )

    items = [
        item("a", "threads", "last"),
        item("b", "plain"),
        item("c", "quick"),
        item("c", "slow", "slow"),
    ]
    conftest.pytest_collection_modifyitems(items)
    names = [item.name for item in items]
    assert names == ["quick", "slow", "plain", "threads"]


def test_warnings_of_retracing_are_not_in_caplog(caplog):
    function = tf.function(lambda x: x)
    for number in range(9):
        function(number)  # A Python number is traced again.
    logging.warning("ours")
    assert caplog.messages == ["ours"]
