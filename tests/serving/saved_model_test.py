"""Proves that a failing export leaves the earlier one.

python -m pytest tests/serving/saved_model_test.py

A text file takes the part of the SavedModel.
"""

import json
import os
import pathlib
import types

import pytest
import tensorflow as tf
import tiny_runs

from data.tokenization import vocabulary, wordpiece
from foundation import errors
from serving import predictors, saved_model


@pytest.fixture
def export(monkeypatch):
    """Returns a function that exports text as a SavedModel."""
    monkeypatch.setattr(saved_model, "_ExportedModel", lambda *_: None)
    monkeypatch.setattr(saved_model, "_signatures", lambda *_: None)
    tokenizer = wordpiece.Tokenizer(
        vocabulary.Vocabulary.from_tokens(tiny_runs.SPECIAL)
    )
    setup = predictors.Setup(
        name="m",
        task="regression",
        config=tiny_runs.config(tiny_runs.SPECIAL),
        tokenizer=tokenizer,
        max_seq_length=8,
    )

    def call(directory, text):
        graph = types.SimpleNamespace(
            setup=setup, inputs=["text"], outputs=["score"], model=None
        )

        def save(module, path, signatures):
            os.makedirs(path)
            pathlib.Path(path, "saved_model.pb").write_text(text)

        monkeypatch.setattr(tf.saved_model, "save", save)
        saved_model.save(
            graph, str(directory), precision="float32", source={"text": text}
        )

    return call


@pytest.mark.parametrize("name", ["a[1]", "a\\b", "a"])
def test_a_path_from_which_tensorflow_cannot_load_gets_a_warning(
    tmp_path, caplog, export, name
):
    export(tmp_path / name / "model", "new")
    assert (f"--output_dir={tmp_path}/{name}" in caplog.text) == (name != "a")


def test_a_mount_point_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(os.path, "ismount", lambda path: path == str(tmp_path))
    saved_model.check_folder(f"{tmp_path}/model")
    with pytest.raises(errors.InputError, match=f"--output_dir={tmp_path}: "):
        saved_model.check_folder(str(tmp_path))


@pytest.mark.parametrize("call", ["flush_folder", "os.rename"])
def test_a_full_disk_leaves_the_earlier_export(
    tmp_path, monkeypatch, export, call
):
    def fail(*_):
        raise OSError(28, "No space left on device")

    directory = tmp_path / "exports" / "model"
    for text in ("first", "old"):
        export(directory, text)
    monkeypatch.setattr(f"foundation.atomic.{call}", fail)
    with pytest.raises(OSError, match="No space left.*exports/model'"):
        export(directory, "new")
    assert (directory / "saved_model.pb").read_text() == "old"
    description = json.loads((directory / "export.json").read_text())
    assert description["source"] == {"text": "old"}
    assert os.listdir(tmp_path / "exports") == ["model"]
