"""Proves that the flags decide which lengths batches of sentences have.

python -m pytest tests/tasks/ner/feature_lengths_test.py
"""

import dataclasses
import types

import numpy as np
import pytest

from jobs import finetuning
from tasks.ner import feature_based

LENGTHS = {"train": [3, 60], "dev": [70, 5]}
FINE = [*range(8, 70, 8), 70]
COARSE = [8, 24, 32, 40, 56, 70]


class TPUStrategy:
    """Known by its name, as the real one is."""


@pytest.mark.parametrize(
    ("flags", "strategy", "expected"),
    [
        ({}, None, FINE),
        ({"use_xla": "true"}, None, COARSE),
        ({"group_by_length": False}, None, [70]),
        ({}, TPUStrategy(), [70]),
    ],
    ids=["cpu", "xla", "one", "tpu"],
)
def test_lengths_are_those_that_the_devices_like(flags, strategy, expected):
    flags = {"group_by_length": True, "use_xla": "auto"} | flags
    config = types.SimpleNamespace(**flags)
    fields = {field.name: None for field in dataclasses.fields(finetuning.Job)}
    inputs = feature_based.ActivationData(
        config=config,
        options=None,
        data=None,
        job=finetuning.Job(
            **(fields | {"config": config, "strategy": strategy})
        ),
        splits=list(LENGTHS),
        layers=[],
    )
    sets = {
        name: types.SimpleNamespace(lengths=np.array(lengths))
        for name, lengths in LENGTHS.items()
    }
    object.__setattr__(inputs, "sentences", sets.get)
    assert inputs.lengths == expected
