"""Proves AdamW and LAMB equal a float64 NumPy transcription over 100 steps.

pytest tests/training/optimizers_test.py
"""

import contextlib

import keras
import numpy as np
import pytest
import tensorflow as tf

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


def numpy_run(rule, *, bias_correction, clip_norm=1.0):
    """The optimizers written out in float64."""
    weights, gradients = draws()
    m = {p: np.zeros(s) for p, s in SHAPES.items()}
    v = {p: np.zeros(s) for p, s in SHAPES.items()}
    for step, g in enumerate(gradients):
        norm = np.sqrt(sum(np.sum(x**2) for x in g.values()))
        for path, w in weights.items():
            x = g[path] * min(1.0, clip_norm / norm)
            m[path] = 0.9 * m[path] + 0.1 * x
            v[path] = 0.999 * v[path] + 0.001 * x**2
            m_hat, v_hat = m[path], v[path]
            rate = rate_of(step)
            if bias_correction:
                m_hat = m_hat / (1 - 0.9 ** (step + 1))
                v_hat = v_hat / (1 - 0.999 ** (step + 1))
            update = m_hat / (np.sqrt(v_hat) + 1e-6)
            if path not in NO_DECAY:
                update = update + 0.01 * w
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

    @tf.function
    def apply(step, *values):
        clipped, _ = optimizer.reduce(values)
        optimizer.apply(clipped, step)

    for step, g in enumerate(gradients):
        values = [tf.constant(x, tf.float32) for x in g.values()]
        apply(tf.constant(step, tf.int64), *values)
    return {v.path: v.numpy() for v in variables}, optimizer.slots


@pytest.mark.parametrize("bias_correction", [False, True])
@pytest.mark.parametrize("name", ["adamw", "lamb"])
def test_rule_equals_numpy_over_100_steps(name, bias_correction):
    rule = {"adamw": optimizers.AdamW, "lamb": optimizers.Lamb}[name]
    found, slots = tensorflow_run(rule(bias_correction=bias_correction))
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


def test_defaults_are_the_released_ones():
    rule = optimizers.AdamW()
    assert (rule.weight_decay, rule.epsilon) == (0.01, 1e-6)
    assert not rule.bias_correction
    assert optimizers.Lamb().bias_correction


def one_step(rule, path, weight, gradient, **kwargs):
    (variable,) = keras_variables({path: np.asarray(weight, np.float64)})
    constant = optimizers.WarmupDecay(peak=0.1, num_train_steps=1000)
    optimizer = optimizers.Optimizer(rule, [variable], constant, **kwargs)
    gradients = [tf.convert_to_tensor(np.asarray(gradient, np.float32))]
    optimizer.apply(gradients, tf.constant(0, tf.int64))
    return variable.numpy()


@pytest.mark.parametrize("rule", [optimizers.AdamW(), optimizers.Lamb()])
@pytest.mark.parametrize(
    "path, decays", [(p, p not in NO_DECAY) for p in SHAPES]
)
def test_decay_spares_layer_norm_and_every_bias(rule, path, decays):
    moved = one_step(rule, path, np.ones(3), np.zeros(3))
    assert (moved < 1.0).all() if decays else (moved == 1.0).all()


def test_rate_multiplier_scales_one_variable():
    rule = optimizers.AdamW(weight_decay=0.0)
    plain = one_step(rule, "a/kernel", np.zeros(2), np.ones(2))
    half = one_step(
        rule,
        "a/kernel",
        np.zeros(2),
        np.ones(2),
        rate_multiplier=lambda path: 0.5,
    )
    np.testing.assert_allclose(half, plain / 2, rtol=1e-6)


def test_lamb_can_leave_the_trust_ratio_of_some_at_one():
    rule = optimizers.Lamb(no_adaptation=optimizers.NO_DECAY)
    moved = one_step(rule, "a/bias", np.full(4, 5.0), np.ones(4))
    np.testing.assert_allclose(moved, 5.0 - 0.1, rtol=1e-5)
    moved = one_step(optimizers.Lamb(), "a/bias", np.full(4, 5.0), np.ones(4))
    np.testing.assert_allclose(moved, 5.0 - 0.1 * 5.0, rtol=1e-5)


def test_an_unwanted_step_changes_nothing():
    (variable,) = keras_variables({"a/kernel": np.ones(3)})
    optimizer = optimizers.Optimizer(optimizers.AdamW(), [variable], SCHEDULE)
    bad = [tf.constant([np.nan, np.inf, 1.0])]
    step = tf.constant(50, tf.int64)
    optimizer.apply(bad, step, tf.constant(False))
    assert (variable.numpy() == 1.0).all()
    assert all((s.numpy() == 0.0).all() for s in optimizer.slots.values())
    optimizer.apply([tf.ones(3)], step, tf.constant(True))
    assert (variable.numpy() < 1.0).all()
