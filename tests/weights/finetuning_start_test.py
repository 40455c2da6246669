"""Proves that a run starts from what lies beside its weights.

pytest tests/weights/finetuning_start_test.py
"""

import json

import pytest
import tiny_runs

from modeling import models
from weights import model_directory, pretrained

WORDS = [*tiny_runs.SPECIAL, "the", "cat"]


@pytest.fixture
def directory(tmp_path):
    """A classifier as transformers leaves it: two classes without names."""
    model = models.ClassificationModel(tiny_runs.config(WORDS), num_classes=2)
    model_directory.save(model, str(tmp_path))
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    path = tmp_path / "config.json"
    values = json.loads(path.read_text())
    for name in ("id2label", "label2id"):
        values.pop(name, None)
    values["architectures"] = ["BertForSequenceClassification"]
    path.write_text(json.dumps(values))
    settings = {"do_lower_case": True, "strip_accents": False}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    return tmp_path


def open_start(directory, **options):
    return pretrained.open_start(
        output_dir=None,
        init_checkpoint=str(directory),
        max_seq_length=16,
        **options,
    )


def test_a_vocabulary_that_is_named_keeps_the_other_settings(directory):
    named = open_start(directory, vocab_file=str(directory / "vocab.txt"))
    found = open_start(directory)
    assert named.tokenizer.settings == found.tokenizer.settings
    assert named.tokenizer.settings["strip_accents"] is False


def test_two_classes_without_names_are_numbered(directory):
    assert open_start(directory).labels == ["LABEL_0", "LABEL_1"]
    path = directory / "config.json"
    values = json.loads(path.read_text())
    path.write_text(json.dumps({**values, "architectures": ["BertModel"]}))
    assert open_start(directory).labels is None
    path.write_text(json.dumps({**values, "id2label": {"0": "a", "1": "b"}}))
    assert open_start(directory).labels == ["a", "b"]
