"""Proves AdamW and LAMB equal a float64 NumPy transcription over 100 steps.

pytest tests/training/optimizers_test.py
"""

import contextlib
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

from finetuning import flags as flags_lib
from finetuning import learner as learners
from foundation import config_flags, errors
from training import optimizers

SHAPES = {
    "bert/embeddings/word_embeddings": (11, 4),
    "bert/encoder/layer_0/output/dense/kernel": (4, 3),
    "bert/encoder/layer_0/output/dense/bias": (3,),
    "bert/encoder/layer_0/output/LayerNorm/gamma": (3,),
    "cls/predictions/output_bias": (11,),
}
NO_DECAY = {p for p in SHAPES if "bias" in p or "LayerNorm" in p}
# So small that the epsilon counts.
SMALL = {"bert/encoder/layer_0/output/dense/bias": 1e-5}
STEPS = 100
SCHEDULE = optimizers.WarmupDecay(
    peak=0.01, num_train_steps=STEPS, num_warmup_steps=10
)


def rate_of(step):
    if step < 10:
        return 0.01 * step / 10
    return 0.01 * (1 - step / STEPS)


def draws():
    rng = np.random.default_rng(3)
    weights = {p: rng.normal(size=s) for p, s in SHAPES.items()}
    # Norms from 0.2 to 20: most steps are clipped, some are not.
    gradients = [
        {
            p: rng.normal(size=s) * scale * SMALL.get(p, 1)
            for p, s in SHAPES.items()
        }
        for scale in np.exp(rng.uniform(-3.5, 1, STEPS))
    ]
    return weights, gradients


def numpy_run(
    rule,
    *,
    bias_correction,
    weight_decay=0.01,
    beta_1=0.9,
    beta_2=0.999,
    epsilon=1e-6,
    clip_norm=1.0,
):
    """The optimizers written out in float64."""
    weights, gradients = draws()
    m = {p: np.zeros(s) for p, s in SHAPES.items()}
    v = {p: np.zeros(s) for p, s in SHAPES.items()}
    for step, g in enumerate(gradients):
        norm = np.sqrt(sum(np.sum(x**2) for x in g.values()))
        for path, w in weights.items():
            x = g[path] * min(1.0, clip_norm / norm)
            m[path] = beta_1 * m[path] + (1 - beta_1) * x
            v[path] = beta_2 * v[path] + (1 - beta_2) * x**2
            m_hat, v_hat = m[path], v[path]
            rate = rate_of(step)
            if bias_correction:
                m_hat = m_hat / (1 - beta_1 ** (step + 1))
                v_hat = v_hat / (1 - beta_2 ** (step + 1))
            update = m_hat / (np.sqrt(v_hat) + epsilon)
            if path not in NO_DECAY:
                update = update + weight_decay * w
            if rule == "lamb":
                norms = np.linalg.norm(w), np.linalg.norm(update)
                if min(norms) > 0:
                    rate = rate * norms[0] / norms[1]
            weights[path] = w - rate * update
    return weights, m, v


def keras_variables(weights):
    found = []
    for path, value in weights.items():
        *scopes, name = path.split("/")
        with contextlib.ExitStack() as stack:
            for scope in scopes:
                stack.enter_context(keras.name_scope(scope))
            variable = keras.Variable(value.astype(np.float32), name=name)
        assert variable.path == path
        found.append(variable)
    return found


def tensorflow_run(rule, **kwargs):
    weights, gradients = draws()
    variables = keras_variables(weights)
    optimizer = optimizers.Optimizer(rule, variables, SCHEDULE, **kwargs)
    run(optimizer, gradients)
    return {v.path: v.numpy() for v in variables}, optimizer.slots


def run(optimizer, gradients, first_step=0):
    """Applies the gradients of successive steps."""

    @tf.function
    def apply(step, *values):
        clipped, _ = optimizer.reduce(values)
        optimizer.apply(clipped, step)

    for step, g in enumerate(gradients, first_step):
        values = [tf.constant(x, tf.float32) for x in g.values()]
        apply(tf.constant(step, tf.int64), *values)


@pytest.mark.parametrize(
    "rule, name, bias_correction",
    [
        (optimizers.AdamW(), "adamw", False),
        (optimizers.AdamW(bias_correction=True), "adamw", True),
        (optimizers.Lamb(), "lamb", True),
    ],
    ids=["adamw", "corrected_adamw", "lamb"],
)
def test_rule_equals_numpy_over_100_steps(rule, name, bias_correction):
    found, slots = tensorflow_run(rule)
    expected, m, v = numpy_run(name, bias_correction=bias_correction)
    for path in SHAPES:
        # ResourceApplyAdam takes 1 - beta_2 in float32, where it is 1.3e-5 too
        # small; over these 100 steps the weights move by about 1.
        np.testing.assert_allclose(
            found[path], expected[path], rtol=2e-5, atol=1e-5
        )
        for kind, values in (("adam_m", m), ("adam_v", v)):
            np.testing.assert_allclose(
                slots[f"{path}/{kind}"].numpy(),
                values[path],
                rtol=2e-5,
                atol=1e-7,
            )


@pytest.mark.parametrize("name", ["adamw", "lamb"])
@pytest.mark.parametrize("clip_norm", [0.3, np.inf])
def test_every_flag_of_the_optimizer_has_its_place_in_the_formula(
    name, clip_norm
):
    config = config_flags.build(
        flags_lib.RunFlags,
        output_dir="out",
        optimizer=name,
        weight_decay_rate=0.1,
        adam_beta_1=0.8,
        adam_beta_2=0.95,
        adam_epsilon=1e-3,
        bias_correction=name == "adamw",
        clip_norm=0.0 if clip_norm == np.inf else clip_norm,
    )
    weights, gradients = draws()
    variables = keras_variables(weights)
    learner = learners.make_learner(
        config,
        None,
        types.SimpleNamespace(trainable_variables=variables),
        strategy=tf.distribute.get_strategy(),
        learning_rate=1e-2,
        num_train_steps=STEPS,
        num_warmup_steps=10,
    )
    expected, *_ = numpy_run(
        name,
        bias_correction=True,
        weight_decay=0.1,
        beta_1=0.8,
        beta_2=0.95,
        epsilon=1e-3,
        clip_norm=clip_norm,
    )
    run(learner.optimizer, gradients)
    for variable in variables:
        np.testing.assert_allclose(
            variable.numpy(), expected[variable.path], rtol=2e-5, atol=1e-5
        )


def frozen_run(freeze_layers):
    variables = keras_variables(draws()[0])
    model = types.SimpleNamespace(
        trainable_variables=variables, bert=types.SimpleNamespace(blocks=[None])
    )
    trained = learners.trained_variables(model, freeze_layers)
    return {v.path for v in variables} - {v.path for v in trained}


def test_frozen_variables_are_not_trained():
    layer = {path for path in SHAPES if "layer_0" in path}
    embeddings = {"bert/embeddings/word_embeddings"}
    assert not frozen_run(None)
    assert frozen_run(0) == embeddings
    assert frozen_run(1) == layer | embeddings
    with pytest.raises(errors.InputError, match="--freeze_layers=2: the model"):
        frozen_run(2)
