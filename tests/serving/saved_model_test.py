"""Proves that a failing export leaves the earlier one.

python -m pytest tests/serving/saved_model_test.py

A text file takes the part of the SavedModel.
"""

import os
import pathlib
import types

import pytest
import tensorflow as tf

from serving import exported, saved_model, served_model


@pytest.fixture
def export(monkeypatch):
    """Returns a function that exports text as a SavedModel."""
    monkeypatch.setattr(saved_model, "_facts", lambda *_: {})
    default = served_model.DEFAULT_SIGNATURE
    monkeypatch.setattr(saved_model, "signatures", lambda *_: {default: None})
    monkeypatch.setattr(exported, "write", lambda *_, **__: None)
    opened = types.SimpleNamespace(
        setup=types.SimpleNamespace(config=None),
        model=types.SimpleNamespace(weights=[]),
    )

    def call(directory, text):
        def save(module, path, signatures):
            os.makedirs(path)
            pathlib.Path(path, "saved_model.pb").write_text(text)
            pathlib.Path(path, "export.json").write_text("{}")

        monkeypatch.setattr(tf.saved_model, "save", save)
        saved_model.save(opened, str(directory), precision="float32")

    return call


def test_a_full_disk_leaves_the_earlier_export(tmp_path, monkeypatch, export):
    def fail(*_):
        raise OSError(28, "No space left on device")

    directory = tmp_path / "exports" / "model"
    for text in ("first", "old"):
        export(directory, text)
    monkeypatch.setattr("foundation.atomic.os.rename", fail)
    with pytest.raises(OSError, match="No space left.*exports/model'"):
        export(directory, "new")
    assert (directory / "saved_model.pb").read_text() == "old"
    assert os.listdir(tmp_path / "exports") == ["model"]
