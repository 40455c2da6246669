"""Tests which inputs change which outputs of the encoder.

python -m pytest tests/modeling/encoder_test.py
"""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from foundation import errors
from modeling import encoder, models, variables

SEED = tf.constant([7, 11])


def _encoder(config, **options):
    make = variables.Maker(stddev=0.5, seed=1)
    return encoder.BertEncoder(config, make=make, **options)


def _run(bert, features, positions=None, **options):
    names = "input_ids", "input_mask", "segment_ids"
    inputs = [features[name] for name in names]
    if positions is None:
        return bert(*inputs, **options)
    return bert.encode_positions(positions, *inputs, **options)


@pytest.fixture(scope="module")
def bert(tiny_config):
    """An encoder whose weights are so large that every input matters."""
    return _encoder(tiny_config)


def test_padding_does_not_change_real_positions(bert, features):
    whole = _run(bert, features)
    shorter = {name: ids[2:3, :3] for name, ids in features.items()}
    alone = _run(bert, shorter)
    np.testing.assert_allclose(
        whole.sequence_output[2:3, :3], alone.sequence_output, atol=1e-5
    )
    features["input_ids"][2, 3:] = 9
    changed = _run(bert, features)
    np.testing.assert_allclose(
        whole.sequence_output[2, :3], changed.sequence_output[2, :3], atol=1e-6
    )


def test_left_to_right_never_sees_the_future(tiny_config, features):
    bert = _encoder(tiny_config, attention="left_to_right")
    before = _run(bert, features).sequence_output
    for i in range(1, 12):
        changed = {name: ids.copy() for name, ids in features.items()}
        changed["input_ids"][:, i] = (changed["input_ids"][:, i] + 1) % 30
        after = _run(bert, changed).sequence_output
        np.testing.assert_array_equal(before[:, :i], after[:, :i])
        assert np.abs(before[0, i:] - after[0, i:]).max() > 1e-3


@pytest.mark.parametrize("attention", encoder.ATTENTIONS)
@pytest.mark.parametrize("packed", [False, True])
def test_chosen_positions_select_from_the_complete_layer(
    attention, packed, tiny_config, features
):
    bert = _encoder(tiny_config, attention=attention)
    features["input_mask"][:, 7:] *= 2  # A second instance, if packed.
    # Unordered, one of them twice, one of them padding (row 1 has 8 tokens).
    wanted = np.array([[5, 0, 9, 5], [1, 7, 8, 8], [2, 1, 0, 0], [11, 8, 7, 3]])
    pooled = np.array([[0, 7]] * 4)
    upstream = np.random.default_rng(0).normal(size=(4, 6, 8))

    def run(positions):
        with tf.GradientTape() as tape:
            outputs = _run(
                bert,
                features,
                pooled_positions=pooled.astype(np.int32),
                packed=packed,
                positions=positions,
            )
            states = outputs.sequence_output
            if positions is None:
                states = tf.gather(states, wanted, batch_dims=1)
            states = tf.concat([states, outputs.pooled_output], axis=1)
            loss = tf.reduce_sum(states * upstream)
        return outputs, states, tape.gradient(loss, bert.trainable_variables)

    whole, expected, gradients = run(None)
    some, states, found = run(wanted.astype(np.int32))
    np.testing.assert_allclose(states, expected, atol=1e-6)
    np.testing.assert_array_equal(
        some.all_encoder_layers[0], whole.all_encoder_layers[0]
    )
    assert some.all_encoder_layers[1].shape == (4, 4, 8)
    for one, other in zip(found, gradients, strict=True):
        one, other = map(tf.convert_to_tensor, (one, other))
        np.testing.assert_allclose(one, other, atol=2e-5)


@pytest.mark.parametrize("layers", [1, 2])
def test_only_the_pooled_position_may_be_computed(
    layers, tiny_config, features
):
    bert = _encoder(dataclasses.replace(tiny_config, num_hidden_layers=layers))
    none = features["input_ids"][:, :0]
    some = _run(bert, features, positions=none)
    whole = _run(bert, features)
    assert some.sequence_output.shape == (4, 0, 8)
    np.testing.assert_allclose(
        some.pooled_output, whole.pooled_output, atol=1e-6
    )


@pytest.mark.all
def test_recomputing_gives_the_same_gradients_with_dropout(
    tiny_config, features
):
    results = []
    for recompute in ("none", "attention", "all"):
        model = models.PretrainingModel(tiny_config, recompute=recompute)

        @tf.function
        def step(model=model):
            with tf.GradientTape() as tape:
                outputs = model(features, dropout_seed=SEED)
                loss = tf.reduce_sum(outputs.masked_lm_logits**2)
                loss += tf.reduce_sum(outputs.next_sentence_logits**2)
            return tape.gradient(loss, model.trainable_variables)

        results.append([tf.convert_to_tensor(g).numpy() for g in step()])
    for others in results[1:]:
        for kept, recomputed in zip(results[0], others, strict=True):
            np.testing.assert_allclose(kept, recomputed, rtol=1e-5, atol=1e-6)


@pytest.mark.all
@pytest.mark.parametrize(
    ("wanted", "packed", "attention"),
    [("all", False, "bidirectional"), ("some", True, "left_to_right")],
)
def test_compiled_and_dynamic_shapes_compute_the_same(
    wanted, packed, attention, tiny_config, features
):
    bert = _encoder(tiny_config, attention=attention)
    names = ("input_ids", "input_mask", "segment_ids")
    inputs = {name: tf.constant(features[name]) for name in names}

    def run(x, seed=None):
        # Positions 0 and 1, the values of the mask.
        some = None if wanted == "all" else x["input_mask"]
        with tf.GradientTape() as tape:
            outputs = _run(
                bert,
                x,
                positions=some,
                packed=packed,
                dropout_seed=seed,
            )
            found = outputs.sequence_output, outputs.pooled_output
            loss = tf.add_n([tf.reduce_sum(one**2) for one in found])
        kernel = bert.blocks[1].attention.query.kernel
        return *found, tape.gradient(loss, kernel.value)

    compiled = tf.function(run, jit_compile=True)
    for one, other in zip(compiled(inputs), run(inputs), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    open_shape = tf.TensorSpec([None, None], tf.int32)
    dynamic = tf.function(
        lambda x: run(x, SEED),
        input_signature=[{name: open_shape for name in names}],
    )
    for one, other in zip(dynamic(inputs), run(inputs, SEED), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_half_precision_stays_close_with_float32_weights(
    policy, tiny_config, features
):
    exact = models.PretrainingModel(tiny_config)
    half = models.PretrainingModel(tiny_config, dtype=policy)
    assert {v.dtype for v in half.weights} == {"float32"}
    states = _run(half.bert, features).sequence_output
    assert states.dtype == policy.removeprefix("mixed_")
    ours, theirs = half(features), exact(features)
    for name in ("masked_lm_logits", "next_sentence_logits"):
        logits = getattr(ours, name)
        assert logits.dtype == "float32"
        np.testing.assert_allclose(logits, getattr(theirs, name), atol=0.02)


def test_wrong_inputs_are_refused_with_one_line(bert, features, tiny_config):
    ids = np.zeros((2, 17), np.int32)
    with pytest.raises(errors.InputError, match="max_position_embeddings 16"):
        bert(ids, ids, ids)
    with pytest.raises(errors.InputError, match=r"must be \[B, S\]"):
        bert(ids[0], ids[0], ids[0])
    with pytest.raises(errors.InputError, match="differ in shape"):
        bert(ids[:, :4], ids[:, :5], ids[:, :4])
    with pytest.raises(errors.InputError, match="must be integers"):
        bert(ids[:, :4].astype(np.float32), ids[:, :4], ids[:, :4])
    with pytest.raises(errors.InputError, match="none of: bidirectional"):
        _encoder(tiny_config, attention="sideways")
    with pytest.raises(errors.InputError, match="lack segment_ids"):
        del features["segment_ids"]
        models.PretrainingModel(tiny_config)(features)
