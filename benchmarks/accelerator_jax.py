"""Measures our pre-training step under JAX: the control of TensorFlow's step.

A process that accelerator.py starts with --plan=levers, by the Python of
--jax_python: jax and keras, but no TensorFlow. It reads and writes the lines
that accelerator_cases.py does. Model and objective are the code of modeling/
and tasks/ on Keras's backend for JAX. The batches, the dropout masks, the
clipping and the optimizer are those of training.step.TrainStep under XLA, so
losses are equal to rounding (tests/benchmarks/accelerator_jax_test.py). The
batches are in the device's memory, and there are no micro-batches.

What differs is the program that XLA gets, and its version. A shorter step here
means that a faster program of these formulas exists; `hlo_jax/` has it.
"""

import importlib.util
import math
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

os.environ["KERAS_BACKEND"] = "jax"
sys.path.insert(0, os.path.join(os.path.dirname(__file__), os.pardir))

import accelerator_cases

Case = accelerator_cases.Case
_MISSING = [
    name for name in ("jax", "keras") if importlib.util.find_spec(name) is None
]
_SEED = 1
# Those of training.optimizers.AdamW and of accelerator_cases.trainer.
_BETA_1, _BETA_2, _EPSILON, _DECAY = 0.9, 0.999, 1e-6, 0.01
_PEAK_RATE, _NUM_TRAIN_STEPS, _CLIP_NORM = 1e-4, 1e6, 1.0


def choose(function: Callable) -> Callable:
    """Replaces the random draws of modeling.dropout, as xla_dropout does."""
    replacements = {"draw_mask": draw_mask, "derive_seed": derive_seed}
    return replacements.get(function.__name__, function)


def draw_mask(seed, *, shape, threshold: int):
    """Draws bool of a shape; equal to xla_dropout.draw_mask."""
    import jax.numpy as jnp

    words = _hash_words(jnp.arange(math.prod(shape)), seed)
    return (words >= jnp.uint32(threshold << 16)).reshape(shape)


def derive_seed(seed, *, number: int):
    """Hashes int32 [2] and a number; equal to xla_dropout.derive_seed."""
    import jax.numpy as jnp

    numbers = jnp.array([2 * number, 2 * number + 1])
    return _hash_words(numbers, seed).view("int32")


def dropout_seed(step):
    """Hashes uint32 [] to int32 [2]; equal to training.step.dropout_seed."""
    import jax.numpy as jnp

    state = jnp.array([0x9E3779B9, 0x7F4A7C15], "uint32")
    for word in (_SEED, 0, step, 0, 0):
        state = state ^ jnp.uint32(word)
        state = _xor_shift(state, 16) * jnp.uint32(0x7FEB352D)
        state = _xor_shift(state, 15) * jnp.uint32(0x846CA68B)
        state = _xor_shift(state, 16)
    return state.view("int32")


def _hash_words(index, seed):
    import jax.numpy as jnp

    key = seed.view("uint32")
    x = index.astype("uint32") * jnp.uint32(0x9E3779B9) + key[0]
    x = _xor_shift(x, 16) * jnp.uint32(0x7FEB352D)
    x = _xor_shift(x, 15) ^ key[1]
    x = x * jnp.uint32(0x846CA68B)
    x = _xor_shift(x, 16) * jnp.uint32(0x7FEB352D)
    return _xor_shift(x, 15)


def _xor_shift(x, bits: int):
    return x ^ (x >> bits)


class State(NamedTuple):
    """The arrays that a step changes, in the order of the variables."""

    weights: list
    first_moments: list
    second_moments: list


def make_step(case: Case) -> tuple[State, Callable]:
    """Returns the first state, and what maps it and a batch to the next.

    The function takes a State, which it overwrites, features and the number of
    the step; it returns a State, the loss and the other results of TrainStep.
    """
    import jax
    import jax.numpy as jnp
    import keras

    from foundation import replacement
    from modeling import models
    from tasks.pretraining import objectives

    if case.precision == "float16" or case.accumulation != 1:
        raise ValueError("under JAX without loss scale and micro-batches")
    dtype, products = {
        "float32": ("float32", "highest"),
        "tf32": ("float32", "tensorfloat32"),
        "bfloat16": ("mixed_bfloat16", None),
    }[case.precision]
    if products:
        jax.config.update("jax_default_matmul_precision", products)
    objective = objectives.PretrainingObjective()
    model = models.PretrainingModel(
        accelerator_cases.model_config(case),
        dtype=dtype,
        recompute=case.recompute,
    )
    variables = model.trainable_variables

    def loss_of(weights, features, seed):
        pairs = list(zip(variables, weights, strict=True))
        with keras.StatelessScope(pairs), replacement.using(choose):
            losses, metrics = objective.forward(model, features, seed)
            totals = objective.loss_weights(features)
        terms = [
            x.factor * x.sum / (totals[name] + x.epsilon)
            for name, x in losses.items()
        ]
        values = [*losses.values(), *metrics.values()]
        return sum(terms), [(x.sum, x.weight) for x in values]

    def step(state, features, number):
        (loss, sums), gradients = jax.value_and_grad(loss_of, has_aux=True)(
            state.weights, features, dropout_seed(number)
        )
        norm = jnp.sqrt(sum(jnp.sum(jnp.square(g)) for g in gradients))
        scale = _CLIP_NORM / jnp.maximum(norm, _CLIP_NORM)
        rate = _PEAK_RATE * (1.0 - number.astype("float32") / _NUM_TRAIN_STEPS)
        moved = [
            _adamw(w, m, v, g * scale, rate)
            for w, m, v, g in zip(*state, gradients, strict=True)
        ]
        return State(*map(list, zip(*moved, strict=True))), loss, (norm, sums)

    weights = [x.value for x in variables]
    zeros = [[jnp.zeros_like(x) for x in weights] for _ in range(2)]
    return State(weights, *zeros), jax.jit(step, donate_argnums=0)


def _adamw(w, m, v, g, rate):
    """Computes training.optimizers.AdamW, which exempts vectors from decay."""
    import jax.numpy as jnp

    if w.ndim > 1:
        w = w * (1.0 - rate * _DECAY)
    m = m + (g - m) * (1.0 - _BETA_1)
    v = v + (jnp.square(g) - v) * (1.0 - _BETA_2)
    return w - rate * m / (jnp.sqrt(v) + _EPSILON), m, v


def trainer(case: Case) -> Callable[[int], tuple[float, float]]:
    """Returns what trains steps and returns the last one's loss and norm."""
    import jax
    import numpy as np

    state, step = make_step(case)
    arrays = accelerator_cases.arrays(case)
    rows = len(arrays["input_ids"])
    batches = [
        jax.device_put({k: x[i : i + case.batch] for k, x in arrays.items()})
        for i in range(0, rows, case.batch)
    ]
    done = 0

    def run(number: int) -> tuple[float, float]:
        nonlocal state, done
        for _ in range(number):
            batch = batches[done % len(batches)]
            state, loss, (norm, _) = step(state, batch, np.uint32(done))
            done += 1
        return float(loss), float(norm)  # Waits for the device.

    return run


def measure(case: Case, flops: float | None) -> dict[str, Any]:
    """Measures a case; `flops` are those of one sequence, if they are known."""
    values, _, (loss, _) = accelerator_cases.time_calls(
        case, lambda: trainer(case)
    )
    values |= {"last_loss": loss, "peak_gib": _peak_gib()}
    if flops is not None:
        values["tflops"] = flops * values["sequences_per_second"] / 1e12
    return values


def first_losses(case: Case, number: int = 10) -> dict[str, Any]:
    """Returns the losses and gradient norms of the first steps."""
    run = trainer(case)
    losses, norms = zip(*(run(1) for _ in range(number)), strict=True)
    return {"losses": losses, "gradient_norms": norms}


def _peak_gib() -> float:
    """Returns the peak of the GPU's allocator, or of this process's memory."""
    import jax

    memory = jax.local_devices()[0].memory_stats()
    if memory:
        return memory["peak_bytes_in_use"] / 2**30
    return accelerator_cases.process_peak_gib()


def run_case(case: Case, directory: str, flops: float | None) -> dict[str, Any]:
    """Returns the case's result; a failure is its text."""
    del directory
    if _MISSING:
        return accelerator_cases.not_installed(case, _MISSING, "jax_python")
    import jax

    if case.work == "losses":
        result = accelerator_cases.attempt(case, lambda: first_losses(case))
    else:
        result = accelerator_cases.attempt(case, lambda: measure(case, flops))
    return {**result, "jax": jax.__version__}


def device() -> Mapping[str, Any]:
    """Returns JAX's version and whether it uses a GPU."""
    if _MISSING:
        return {}
    import jax

    is_gpu = jax.default_backend() == "gpu"
    return {"jax": jax.__version__, "is_gpu": is_gpu}


if __name__ == "__main__":
    accelerator_cases.serve(device, run_case)
