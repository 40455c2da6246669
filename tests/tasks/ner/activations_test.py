"""Proves that stored activations are those of the words, and never outdated.

python -m pytest tests/tasks/ner/activations_test.py
"""

import types

import keras
import numpy as np
import pytest

from data.features import Features
from modeling import lstm
from modeling.config import BertConfig
from tasks.ner import activations
from weights import model_directory, pretrained

CONFIG = BertConfig(
    vocab_size=20,
    hidden_size=8,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=16,
    max_position_embeddings=16,
    type_vocab_size=2,
)
LAYERS = [0, 2]
# Sentences of 2, 1 and 3 words in three windows.
WORDS = [0, 5, 6, 0, 0, 0, 0, 7, 0, 0, 5, 4, 0, 6, 0]
SHAPE = (len(LAYERS), 8)


@pytest.fixture(scope="module")
def model():
    return lstm.FrozenTaggingModel(
        CONFIG, layers=LAYERS, num_classes=3, is_mixed=False, size=4
    )


@pytest.fixture
def features():
    return Features(
        row_splits=np.array([0, 5, 9, 15]),
        ragged={
            "input_ids": np.arange(3, 18, dtype=np.int32),
            "segment_ids": np.zeros(15, np.int32),
            "words": np.array(WORDS),
            "label_ids": np.where(np.array(WORDS) > 0, 1, -1),
        },
    )


class Predict:
    """Predicts each window by itself, the last one first; counts them."""

    def __init__(self, model, fails_at=None):
        """Fails at the window of this number."""
        self.count, self._model, self._fails_at = 0, model, fails_at

    def __call__(self, features):
        for row in reversed(range(len(features))):
            if self.count == self._fails_at:
                raise KeyboardInterrupt
            self.count += 1
            found = self._model.activations(features.batch(np.array([row]), 8))
            yield {
                activations.NAME: keras.ops.convert_to_numpy(found),
                "example_index": np.array([row]),
            }


def test_a_word_has_the_activations_of_its_first_token(features, model):
    found = activations.in_memory(features, SHAPE, Predict(model))
    batch = features.batch(np.arange(3), 6)
    flat = keras.ops.convert_to_numpy(model.activations(batch))
    rows, columns = np.nonzero(batch["words"])
    np.testing.assert_allclose(found, flat[rows, columns], atol=2e-3)
    assert found.dtype == np.float16
    sentences = activations.sentences(features, found)
    assert sentences.row_splits.tolist() == [0, 2, 3, 6]
    assert sentences.ragged["label_ids"].tolist() == [1] * 6


@pytest.mark.parametrize("order", [[[0, 2], [1]], [[2], [1], [0]]])
def test_values_of_words_come_in_their_order_from_any_batches(features, order):
    splits = features.row_splits
    found = np.zeros(6)

    def batch(numbers):
        values = np.full((len(numbers), 8), -1.0)
        for row, i in enumerate(numbers):
            part = np.arange(splits[i], splits[i + 1])
            values[row, : len(part)] = part
        return {activations.NAME: values, "example_index": np.array(numbers)}

    activations.set_words(found, features, map(batch, order))
    np.testing.assert_array_equal(found, np.flatnonzero(WORDS))


def test_a_killed_computation_continues_with_the_next_block(
    tmp_path, features, model, monkeypatch
):
    monkeypatch.setattr(activations, "BLOCK", 1)
    path = str(tmp_path / "set.float16")
    killed = Predict(model, fails_at=2)
    with pytest.raises(KeyboardInterrupt):
        activations.on_disk(path, features, SHAPE, killed, {})
    again = Predict(model)
    found = activations.on_disk(path, features, SHAPE, again, {})
    assert again.count == 1
    expected = activations.in_memory(features, SHAPE, Predict(model))
    np.testing.assert_array_equal(found, expected)


def test_they_are_computed_again_when_something_changed(tmp_path, features):
    path = tmp_path / "folder" / "set.float16"
    zeros = np.zeros((1, 8, *SHAPE))
    model = types.SimpleNamespace(activations=lambda batch: zeros)

    def count(facts, changed=features):
        predict = Predict(model)
        activations.on_disk(str(path), changed, SHAPE, predict, facts)
        return predict.count

    assert count({"weights": "a"}) == 3
    assert count({"weights": "a"}) == 0
    assert count({"weights": "b"}) == 3
    for name in ("input_ids", "segment_ids", "words"):
        changed = features.ragged[name].copy()
        changed[1] += 1 if name != "words" else 2
        ragged = {**features.ragged, name: changed}
        other = Features(row_splits=features.row_splits, ragged=ragged)
        assert count({"weights": "b"}, other) == 3
    path.write_bytes(path.read_bytes()[:-1])
    assert count({"weights": "b"}) == 3
    path.with_name("set.float16.json").write_text("{")
    assert count({"weights": "b"}) == 3
    assert len(list(path.parent.iterdir())) == 2


def test_the_weights_of_layers_are_kept_with_the_model(tmp_path):
    options = {"num_classes": 3, "is_mixed": True, "size": 4, "depth": 0}
    models = [
        lstm.FrozenTaggingModel(CONFIG, layers=LAYERS, **options)
        for _ in range(2)
    ]
    models[0].bilstm.mix.gamma.assign(2.0)
    model_directory.save(models[0], str(tmp_path))
    pretrained.assign(models[1], str(tmp_path))
    assert float(models[1].bilstm.mix.gamma) == 2.0
