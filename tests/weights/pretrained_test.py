"""Proves that a run starts from the files beside its weights.

pytest tests/weights/pretrained_test.py
"""

import json
import logging

import pytest
import tiny_runs

from modeling import models
from weights import model_directory, pretrained

WORDS = [*tiny_runs.SPECIAL, "[unused0]", "the", "cat"]


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


def test_two_classes_without_names_are_numbered(directory):
    assert open_start(directory).settings.labels == ["LABEL_0", "LABEL_1"]
    path = directory / "config.json"
    values = json.loads(path.read_text())
    path.write_text(json.dumps({**values, "architectures": ["BertModel"]}))
    assert open_start(directory).settings.labels is None
    path.write_text(json.dumps({**values, "id2label": {"0": "a", "1": "b"}}))
    assert open_start(directory).settings.labels == ["a", "b"]


@pytest.mark.parametrize(
    ("vocab_size", "found", "is_warned"),
    [
        (30522, 30522, False),
        (30528, 30522, False),  # Padded to a multiple of 8.
        (30592, 30522, False),  # Padded to a multiple of 128.
        (30593, 30522, True),
        (30522, 4096, True),
        (256, 128, True),
    ],
)
def test_a_much_smaller_vocabulary_is_warned_of(
    vocab_size, found, is_warned, caplog
):
    with caplog.at_level(logging.WARNING, "absl"):
        pretrained.check_vocabulary(vocab_size, found, "v.txt")
    assert is_warned == ("v.txt: the vocabulary has" in caplog.text)
    assert is_warned == (f"{vocab_size - found} embeddings" in caplog.text)


def test_a_small_model_needs_no_file(tmp_path):
    for name in ("uncased_L-4_H-256_A-4", "gone/uncased_L-4_H-256_A-4.json"):
        assert pretrained.read_config(name).hidden_size == 256
    path = tmp_path / "uncased_L-4_H-256_A-4.json"
    path.write_text('{"vocab_size": 9}')
    assert pretrained.read_config(str(path)).vocab_size == 9
    with pytest.raises(FileNotFoundError):
        pretrained.read_config("uncased_L-5_H-256_A-4")
