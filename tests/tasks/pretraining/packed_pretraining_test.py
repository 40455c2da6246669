"""Proves that packed records train exactly like the same instances alone.

pytest tests/tasks/pretraining/packed_pretraining_test.py
"""

import numpy as np
import pytest
import tensorflow as tf

from data import manifest, records, schema
from data.pretraining import masking, packing
from data.pretraining.settings import Settings
from foundation import errors
from modeling import models
from modeling.config import BertConfig
from tasks.pretraining import objectives, pretraining_data, settings

LENGTH, PREDICTIONS, VOCABULARY = 32, 5, 40
CONFIG = BertConfig(
    vocab_size=VOCABULARY,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=LENGTH,
    type_vocab_size=2,
    initializer_range=0.5,  # Or what is attended to would hardly matter.
)
RULE = packing.PackingRule(
    max_seq_length=LENGTH, predictions_per_row=8, instances_per_row=4
)


class Words:
    """The parts of a vocabulary that masking uses."""

    mask_id = 4
    replacement_ids = np.arange(VOCABULARY, dtype=np.int32)


@pytest.fixture(scope="module")
def alone():
    """Twenty masked instances of many lengths."""
    rng = np.random.default_rng(3)
    sizes = rng.integers(5, LENGTH, (20, 1), endpoint=True)
    position = np.arange(LENGTH)
    is_real = position < sizes
    ids = rng.integers(5, VOCABULARY, (20, LENGTH)) * is_real
    ids[:, 0] = 2
    ids[position == sizes - 1] = 3
    is_candidate = is_real & (position > 0) & (position < sizes - 1)
    masked = masking.mask(
        ids.astype(np.int32),
        is_candidate,
        sizes[:, 0],
        rule=Settings(max_predictions_per_seq=PREDICTIONS),
        vocabulary=Words,
        rng=rng,
    )
    return {
        **masked,
        "input_mask": is_real.astype(np.int32),
        "segment_ids": (is_real & (position > sizes // 2)).astype(np.int32),
        "next_sentence_labels": rng.integers(0, 2, (20, 1)).astype(np.int32),
    }


@pytest.fixture(scope="module")
def packed(alone):
    """The same instances, packed into fewer rows."""
    wanted = alone["masked_lm_weights"].sum(1).astype(int)
    lengths = alone["input_mask"].sum(1)
    rows = packing.pack(lengths, wanted, RULE, np.random.default_rng(0))
    order = np.argsort(rows, kind="stable")
    columns = {name: values[order] for name, values in alone.items()}
    count = int(rows.max()) + 1
    assert count <= 13 and np.bincount(rows).max() >= 3
    return packing.lay_out(columns, rows[order], count, RULE)


def losses_and_gradients(objective, features):
    task = objectives.PretrainingObjective(objective)
    model = models.PretrainingModel(
        CONFIG,
        attention=task.attention,
        next_sentence=task.predicts_next_sentence,
        seed=3,
    )
    weights = task.loss_weights(features)
    with tf.GradientTape() as tape:
        terms, metrics = task.forward(model, features)
        values = {
            name: term.sum / (weights[name] + term.epsilon)
            for name, term in terms.items()
        }
        total = sum(values.values())
    variables = [variable.value for variable in model.trainable_variables]
    gradients = [
        tf.convert_to_tensor(x).numpy()
        for x in tape.gradient(total, variables, unconnected_gradients="zero")
    ]
    for name, term in terms.items():
        assert float(weights[name]) == float(term.weight)
    numbers = {name: float(x) for name, x in values.items()}
    numbers |= {n: (float(m.sum), float(m.weight)) for n, m in metrics.items()}
    return numbers, gradients


@pytest.mark.parametrize("objective", objectives.OBJECTIVES)
def test_losses_and_gradients_are_those_of_the_instances_alone(
    objective, alone, packed
):
    expected, expected_gradients = losses_and_gradients(objective, alone)
    values, gradients = losses_and_gradients(objective, packed)
    assert set(values) == set(expected)
    for name, value in expected.items():
        assert values[name] == pytest.approx(value, rel=2e-6), name
    largest = max(np.abs(x).max() for x in expected_gradients)
    for gradient, other in zip(gradients, expected_gradients, strict=True):
        np.testing.assert_allclose(gradient, other, atol=2e-6 * largest)


def test_padding_rows_of_a_packed_batch_weigh_nothing(packed):
    rows = len(packed["input_ids"])
    filled = {
        name: np.concatenate([values, values[:2]])
        for name, values in packed.items()
    }
    filled["is_real_example"] = np.repeat([1, 0], [rows, 2]).astype(np.int32)
    objective = objectives.OBJECTIVES[0]
    expected, _ = losses_and_gradients(objective, packed)
    values, _ = losses_and_gradients(objective, filled)
    for name, value in expected.items():
        assert values[name] == pytest.approx(value, rel=2e-6), name


@pytest.fixture
def shard(packed, tmp_path):
    """A packed shard with its manifest."""
    kind = schema.packed_pretraining(LENGTH, 8, 4)
    path = tmp_path / "a.tfrecord"
    records.write(str(path), [records.encode(kind, packed)])
    made = manifest.Manifest(
        kind=kind.kind,
        max_seq_length=LENGTH,
        max_predictions_per_seq=PREDICTIONS,
        vocabulary={"file": "a.vocab.txt", "size": VOCABULARY, "sha256": ""},
        tokenizer={},
        shards=(
            manifest.Shard(
                file=path.name,
                records=len(packed["input_ids"]),
                bytes=path.stat().st_size,
            ),
        ),
        job={},
        totals={},
        packing={
            "instances_per_row": 4,
            "predictions_per_row": 8,
            "packing_factor": 2.5,
            "efficiency": 0.9,
            "efficiency_unpacked": 0.4,
        },
    )
    manifest.write(str(tmp_path / "a.manifest.json"), made)
    return str(path)


def open_shards(pattern):
    shards = pretraining_data.find_shards(pattern, None)
    spec = settings.PhaseSpec(1, LENGTH, PREDICTIONS)
    (phase,) = pretraining_data.open_phases(shards, [spec], CONFIG, None)
    return phase


def test_packed_shards_are_recognized(shard, packed):
    found = open_shards(shard).train
    batches = found.eval_batches(100)(first_batch=0, part=0, num_parts=1)
    (batch,) = batches
    count = len(packed["input_ids"])
    for name, values in packed.items():
        np.testing.assert_array_equal(batch[name][:count], values, name)
    floor = pretraining_data.baseline(found)
    fraction = packed["next_sentence_labels"].sum() / 20  # Of the instances.
    expected = max(fraction, 1 - fraction)
    assert floor["next_sentence_accuracy"] == pytest.approx(expected)


def test_packed_and_other_shards_together_are_refused(shard, alone, tmp_path):
    kind = schema.pretraining(LENGTH, PREDICTIONS)
    records.write(f"{tmp_path}/b.tfrecord", [records.encode(kind, alone)])
    with pytest.raises(errors.InputError, match="b.tfrecord.*other features"):
        open_shards(f"{tmp_path}/*.tfrecord")
