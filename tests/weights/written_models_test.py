"""Proves that transformers computes the same from our directories.

transformers 5.23's Auto classes loaded every kind of model and tokenizer from
such directories, without one missing or unexpected weight; see
tests/testdata/make_written_models.py.

python -m pytest tests/weights/written_models_test.py
"""

import json
import pathlib

import numpy as np
import pytest

from data.tokenization import vocabulary, wordpiece
from modeling import models
from tests.testdata import make_written_models as made
from weights import checkpoint_sources, conversion, model_directory

TESTDATA = pathlib.Path(__file__).parent.parent / "testdata"
GOLDEN = json.loads((TESTDATA / "written_models.json").read_text("utf-8"))
TOLERANCE = 1e-5


def _summary(tensor):
    values = np.array(tensor, np.float64)
    return [*values.ravel()[:12], np.square(values).mean()]


@pytest.mark.parametrize("key", GOLDEN["outputs"])
def test_every_model_scores_as_its_directory_does_in_transformers(key):
    name, activation = key.split("-")
    features = {k: np.array(v, np.int32) for k, v in made.batch().items()}
    if name == "multiple_choice":
        features = {k: v.reshape(2, 2, -1) for k, v in features.items()}
    outputs = made.build(name, activation)(features)
    if isinstance(outputs, models.PretrainingOutputs):
        outputs = [x for x in outputs[:2] if x is not None]
    elif not isinstance(outputs, tuple):
        outputs = [outputs]
    expected = GOLDEN["outputs"][key]["values"]
    for ours, theirs in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(
            _summary(ours), theirs, atol=TOLERANCE, rtol=0
        )


@pytest.mark.parametrize(
    "key",
    [*(f"{x}-gelu" for x in made.MODELS), "pretraining-gelu_erf"],
)
def test_conversion_to_tf1_and_back_keeps_labels_and_bits(key, tmp_path):
    name, activation = key.split("-")
    labels = (
        made.LABELS if made.MODELS[name][1].get("num_classes") == 3 else None
    )
    model = made.build(name, activation)
    model_directory.save(model, str(tmp_path / "a"), labels=labels)
    for source, target, form in (
        ("a", "b", "tf1"),
        ("b", "c", "model_directory"),
    ):
        checkpoint = conversion.load(
            checkpoint_sources.read(str(tmp_path / source))
        )
        conversion.write(checkpoint, str(tmp_path / target), form)
    for file in ("model.safetensors", "bert_config.json"):
        assert (tmp_path / "a" / file).read_bytes() == (
            (tmp_path / "c" / file).read_bytes()
        ), file
    first, last = (
        json.loads((tmp_path / part / "config.json").read_text())
        for part in "ac"
    )
    assert first == last
    assert first["architectures"] == [made.MODELS[name][3]]
    if labels:
        assert GOLDEN["outputs"][key]["labels"] == labels
        assert model_directory.read_settings(tmp_path / "c").labels == labels


@pytest.mark.parametrize("name", made.TOKENIZERS)
def test_our_tokenizer_splits_text_like_transformers(name):
    words = vocabulary.Vocabulary.from_tokens(made.VOCABULARY)
    tokenizer = wordpiece.Tokenizer(words, **made.TOKENIZERS[name])
    *tokens, (ids, segments) = GOLDEN["tokens"][name]
    assert tokenizer.tokenize(made.TEXTS) == tokens
    a, b = (tokenizer.encode([text]).ids for text in made.TEXTS[:2])
    assert ids == [words.cls_id, *a, words.sep_id, *b, words.sep_id]
    assert segments == [0] * (len(a) + 2) + [1] * (len(b) + 1)
