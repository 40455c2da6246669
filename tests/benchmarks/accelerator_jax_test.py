"""Proves that the control under JAX computes the losses of TensorFlow's step.

JAX is not a requirement; an environment with all requirements and jax runs

pytest tests/benchmarks/accelerator_jax_test.py -m all
"""

import importlib.util
import sys

import pytest

# Rounding, over ten steps with dropout.
BOUNDS = {"float32": 1e-5, "bfloat16": 1e-3}


@pytest.mark.all
@pytest.mark.skipif(
    importlib.util.find_spec("jax") is None, reason="jax is not installed"
)
@pytest.mark.parametrize("precision", BOUNDS)
def test_losses_are_those_of_the_step_in_tensorflow(repository, precision):
    sys.path.insert(0, str(repository / "benchmarks"))
    import accelerator_cases
    import accelerator_process

    case = accelerator_cases.Case(
        name="tiny",
        work="losses",
        size="tiny",
        length=16,
        batch=4,
        precision=precision,
    )
    worker = accelerator_process.Worker(script="accelerator_jax.py")
    try:
        worker.start()
        assert worker.device["jax"]
        worker.send(case, "")
        expected = accelerator_cases.first_losses(case)
        found = worker.receive(case, 300.0)
    finally:
        worker.stop()
    for name, values in expected.items():
        bound = BOUNDS[precision]
        assert found[name] == pytest.approx(values, rel=bound), name
