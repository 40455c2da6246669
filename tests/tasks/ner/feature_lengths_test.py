"""Proves that the flags decide which lengths batches of sentences have.

python -m pytest tests/tasks/ner/feature_lengths_test.py
"""

import types

import numpy as np
import pytest

from foundation import config_flags
from jobs import finetuning, task_model
from tasks.ner import feature_based, settings

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
    config = config_flags.build(
        settings.NerConfig, output_dir="out", do_train=True, **flags
    )
    builder = task_model.Builder(
        config=config,
        start=None,
        strategy=strategy,
        objective=None,
        max_seq_length=config.max_seq_length,
    )
    inputs = feature_based.ActivationData(
        config=config,
        task=None,
        job=finetuning.Job(source=None, builder=builder, task=None),
        splits=list(LENGTHS),
        layers=[],
    )
    sets = {
        name: types.SimpleNamespace(lengths=np.array(lengths))
        for name, lengths in LENGTHS.items()
    }
    object.__setattr__(inputs, "sentences", sets.get)
    assert inputs.lengths == expected
