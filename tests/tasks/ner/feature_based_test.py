"""Proves which layers a choice reads, and that stored activations are right.

python -m pytest tests/tasks/ner/feature_based_test.py
"""

import full_disk
import keras
import numpy as np
import pytest

from data.features import Features
from foundation import errors, stamp
from modeling import encoder
from modeling.config import BertConfig
from tasks.ner import feature_based

CONFIG = BertConfig(
    vocab_size=20,
    hidden_size=8,
    num_hidden_layers=4,
    num_attention_heads=2,
    intermediate_size=16,
    max_position_embeddings=16,
    type_vocab_size=2,
)
LABELS = [-1, 0, 0, -1, -1, -1, 0, -1, 0, -1]


@pytest.fixture(scope="module")
def model():
    return encoder.make_encoder(CONFIG)


@pytest.fixture
def features():
    return Features(
        row_splits=np.array([0, 5, 10]),
        ragged={
            "input_ids": np.arange(3, 13, dtype=np.int32),
            "segment_ids": np.zeros(10, np.int32),
            "label_ids": np.array(LABELS),
        },
    )


def prepare(path, layers, features, model, made_from=None):
    calls = []

    def compute():
        calls.append(list(layers))
        for row in (1, 0):
            batch = features.batch(np.array([row]), 8)
            found = feature_based.StackObjective(CONFIG, layers).predict(
                model, batch
            )
            values = {
                k: keras.ops.convert_to_numpy(v) for k, v in found.items()
            }
            yield values | {"example_index": np.array([row])}

    store = feature_based.open_activation_file(
        str(path / "set"),
        layers,
        stamp.facts("records", made_from or {"words": "a"}),
        features=features,
        hidden_size=8,
        compute=compute,
    )
    return store, calls


@pytest.mark.parametrize(
    "name, layers, is_mixed",
    [
        ("embeddings", (0,), False),
        ("second_to_last", (11,), False),
        ("last", (12,), False),
        ("weighted_sum_last_four", (9, 10, 11, 12), True),
        ("concat_last_four", (9, 10, 11, 12), False),
        ("weighted_sum_all", tuple(range(1, 13)), True),
    ],
    ids=feature_based.CHOICES,
)
def test_choices_are_those_of_the_papers_table_7(name, layers, is_mixed):
    (choice,) = feature_based.choices(name, 12)
    assert (choice.layers, choice.is_mixed) == (layers, is_mixed)


def test_all_choices_share_their_layers():
    chosen = feature_based.choices("all", 6)
    assert [choice.name for choice in chosen] == list(feature_based.CHOICES)
    assert feature_based.layers_of(chosen) == [0, 1, 2, 3, 4, 5, 6]
    with pytest.raises(errors.InputError, match="only 3 layer"):
        feature_based.choices("concat_last_four", 3)


def test_a_word_has_the_activations_of_its_first_token(
    tmp_path, features, model
):
    store, _ = prepare(tmp_path, [0, 3, 4], features, model)
    batch = features.batch(np.array([0, 1]), 5)
    outputs = model(
        *(batch[n] for n in ("input_ids", "input_mask", "segment_ids"))
    )
    states = [outputs.embedding_output, *outputs.all_encoder_layers]
    flat = [keras.ops.convert_to_numpy(x).reshape(10, 8) for x in states]
    positions = np.flatnonzero(np.array(LABELS) >= 0)
    found = store.gather(np.array([[0, 1], [2, 3]]), [4, 0])
    assert found.shape == (2, 2, 2, 8) and found.dtype == np.float16
    for j, layer in enumerate((4, 0)):
        expected = flat[layer][positions].reshape(2, 2, 8)
        np.testing.assert_allclose(found[:, :, j], expected, atol=2e-3)


def test_they_are_computed_again_only_when_something_changed(
    tmp_path, features, model
):
    assert prepare(tmp_path, [1, 2, 4], features, model)[1] == [[1, 2, 4]]
    store, calls = prepare(tmp_path, [4], features, model)
    assert not calls
    assert store.gather(np.array([0]), [4]).shape == (1, 1, 8)
    assert prepare(tmp_path, [3], features, model)[1] == [[3]]
    assert prepare(tmp_path, [3], features, model, {"words": "b"})[1]
    path = tmp_path / "set.float16"
    path.write_bytes(path.read_bytes()[:-1])
    assert prepare(tmp_path, [3], features, model, {"words": "b"})[1]
    (tmp_path / "set.float16.json").write_text("{")
    assert prepare(tmp_path, [3], features, model, {"words": "b"})[1]
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "set.float16",
        "set.float16.json",
    ]


def test_an_interrupted_computation_leaves_nothing(tmp_path, features, model):
    def compute():
        raise KeyboardInterrupt
        yield

    with pytest.raises(KeyboardInterrupt):
        feature_based.open_activation_file(
            str(tmp_path / "set"),
            [1],
            stamp.Stamp(),
            features=features,
            hidden_size=8,
            compute=compute,
        )
    assert not list(tmp_path.iterdir())


def test_the_digest_tells_weights_apart(model):
    before = feature_based._digest_with_paths(model)
    assert feature_based._digest_with_paths(model) == before
    other = encoder.make_encoder(CONFIG)
    assert feature_based._digest_with_paths(other) == before
    other.weights[0].assign(other.weights[0] + 1)
    assert feature_based._digest_with_paths(other) != before


def test_activations_that_do_not_fit_on_the_disk_are_named(
    tmp_path, features, model
):
    with full_disk.longest_file(10), pytest.raises(OSError) as caught:
        prepare(tmp_path, [4], features, model)
    assert caught.value.filename == str(tmp_path / "set.float16")
