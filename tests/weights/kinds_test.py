"""Proves that every kind of task can be exported and loaded in Python.

python -m pytest tests/weights/kinds_test.py
"""

import dataclasses
import typing

import export_model
from serving import predictors, task_graphs
from weights import kinds


def test_every_kind_has_a_graph_a_model_and_a_value_of_the_flag():
    names = set(kinds.EXPORT_NAMES)
    assert set(task_graphs._GRAPHS) == names
    assert set(predictors.PREDICTORS) == names
    (flag,) = (
        x
        for x in dataclasses.fields(export_model.ExportConfig)
        if x.name == "task"
    )
    literal, _ = typing.get_args(flag.type)
    assert set(typing.get_args(literal)) == names
