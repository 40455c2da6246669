"""Proves that every kind of device computes the losses that are stored for it.

tests/testdata/make_device_losses.py stores those of the present device: ten
steps of a tiny model by XLA, with dropout, in each number format.

python -m pytest tests/training/device_losses_test.py
"""

import importlib.util
import json

import pytest

from training import precision as policies

# Largest relative difference from the CPU's float32. One H100 was 3e-7, 1.6e-4
# and 1.6e-3 apart in the first three, with BERT-Base.
BOUNDS = {"float32": 1e-5, "tf32": 1e-3, "bfloat16": 5e-3, "float16": 1e-3}
# From the same kind of device, which may choose other kernels.
REPEATED = {"float32": 1e-5, "tf32": 3e-4, "bfloat16": 1e-3, "float16": 3e-4}


@pytest.fixture(scope="module")
def maker(repository):
    path = repository / "tests" / "testdata" / "make_device_losses.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    policies.forbid_tf32()  # A case of TF32 allows it.


@pytest.fixture(scope="module")
def stored(repository):
    path = repository / "tests" / "testdata" / "device_losses.json"
    return json.loads(path.read_text())


def apart(losses, reference):
    pairs = zip(losses, reference, strict=True)
    return max(abs(a / b - 1) for a, b in pairs)


def test_stored_losses_are_those_of_the_cpu_within_bounds(stored):
    reference = stored["CPU"]["float32"]
    assert len(reference) == 10 and reference[-1] < reference[0]
    for kind, found in stored.items():
        for precision, losses in found.items():
            difference = apart(losses, reference)
            assert difference < BOUNDS[precision], (kind, precision)


def check(maker, stored, kind, precision):
    losses = maker.losses(precision)
    difference = apart(losses, stored["CPU"]["float32"])
    assert difference < BOUNDS[precision], "of the CPU"
    if precision in stored.get(kind, {}):
        difference = apart(losses, stored[kind][precision])
        assert difference < REPEATED[precision], kind


@pytest.mark.all
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_a_cpu_computes_its_losses(maker, stored, precision):
    if maker.device_name() != "CPU":
        pytest.skip("this machine has a GPU")
    check(maker, stored, "CPU", precision)


@pytest.mark.gpu
@pytest.mark.parametrize("precision", BOUNDS)
def test_a_gpu_computes_its_losses(maker, stored, precision):
    kind = maker.device_name()
    if kind == "CPU":
        pytest.skip("no GPU")
    check(maker, stored, kind, precision)
