"""Proves when a training begins with a new output layer.

python -m pytest tests/finetuning/network_test.py
"""

import types

import pytest

from finetuning import network
from weights import pretrained


@pytest.mark.parametrize(
    ("labels", "own", "is_new"),
    [
        (None, ["a", "b"], False),
        (["a", "b"], ["a", "b"], False),
        (["b", "a"], ["a", "b"], True),
        (["x", "y"], ["a", "b"], True),
        (["LABEL_0", "LABEL_1"], ["a", "b"], False),
        (["LABEL_0", "LABEL_1"], ["a", "b", "c"], True),
        (["LABEL_0"], None, False),
        (["a", "b"], None, True),
    ],
)
def test_the_output_layer_is_new_where_outputs_differ(
    monkeypatch, labels, own, is_new
):
    found = []
    monkeypatch.setattr(
        pretrained,
        "assign",
        lambda *_, new_output_layer, **__: found.append(new_output_layer),
    )
    ours = network.Network.__new__(network.Network)
    ours.head, ours.model = types.SimpleNamespace(labels=own), None
    start = types.SimpleNamespace(
        init_checkpoint=None, tokenizer=None, init_layers=()
    )
    ours.warm_start(start, labels=labels)
    assert found == [is_new]
