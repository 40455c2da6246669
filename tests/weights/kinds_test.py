"""Proves that every kind of task can be exported and loaded in Python.

python -m pytest tests/weights/kinds_test.py
"""

from serving import predictors
from weights import kinds


def test_every_kind_has_a_predictor():
    assert predictors.PREDICTORS.keys() == kinds.ARCHITECTURES.keys()
