"""Proves which devices and which numbers are chosen, and what is refused.

pytest tests/training/hardware_test.py
"""

import types

import pytest
import tensorflow as tf

from foundation import errors
from jobs import assembly, run_config
from training import precision, strategy

CLUSTER = '{"cluster": {"worker": ["a:1", "b:1"]}}'


def pretend(monkeypatch, *, gpus=0, tpus=0, capability=(8, 0)):
    """Makes TensorFlow list devices that are not there."""
    found = {"GPU": ["gpu"] * gpus, "TPU": ["tpu"] * tpus, "CPU": ["cpu"]}
    for name in ("list_physical_devices", "list_logical_devices"):
        monkeypatch.setattr(tf.config, name, lambda kind: found[kind])
    details = {"compute_capability": capability}
    monkeypatch.setattr(
        tf.config.experimental, "get_device_details", lambda gpu: details
    )
    monkeypatch.setattr(
        tf.config.experimental, "set_memory_growth", lambda gpu, grows: None
    )


def test_without_a_gpu_auto_takes_the_cpu(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    made = strategy.create()
    assert isinstance(made, tf.distribute.OneDeviceStrategy)
    assert strategy.is_one_cpu(made)
    assert strategy.is_chief(made)
    assert not strategy.is_multi_worker(made)
    assert not strategy.is_one_cpu(strategy.create("mirrored"))


def test_a_runner_without_a_shared_folder_stays_on_one_machine(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", CLUSTER)
    config = run_config.DeviceConfig()
    made = assembly.make_strategy(config, output_dir=None)
    assert isinstance(made, tf.distribute.OneDeviceStrategy)
    assert strategy.is_chief(made)


@pytest.mark.parametrize(
    ("name", "number", "cluster", "words"),
    [
        ("two", None, "{}", "--strategy=two: not one of"),
        ("auto", 0, "{}", "--num_replicas=0: must be at least 1"),
        ("one_device", 2, "{}", "--strategy=one_device does not take it"),
        ("tpu", 8, "{}", "--strategy=tpu does not take it"),
        ("auto", 2, CLUSTER, "multi_worker_mirrored does not take it"),
        ("multi_worker_mirrored", None, "{}", "TF_CONFIG names no workers"),
        ("auto", None, "{", "TF_CONFIG is not JSON"),
        ("mirrored", 99, "{}", "--num_replicas=99: this process already has"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_what_cannot_be_is_refused_in_one_line(
    monkeypatch, name, number, cluster, words
):
    monkeypatch.setenv("TF_CONFIG", cluster)
    tf.config.list_logical_devices("CPU")  # They are in use by now.
    with pytest.raises(errors.InputError) as refused:
        strategy.create(name, num_replicas=number)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_more_gpus_than_there_are_are_refused(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    pretend(monkeypatch, gpus=2)
    with pytest.raises(errors.InputError, match="this machine has 2 GPU"):
        strategy.create(num_replicas=3)


def test_a_tpu_that_is_not_there_is_refused_in_one_line(monkeypatch):
    def resolver(**arguments):
        raise ValueError("no such TPU\nand more")

    monkeypatch.setattr(
        tf.distribute.cluster_resolver, "TPUClusterResolver", resolver
    )
    with pytest.raises(errors.InputError) as refused:
        strategy.create(use_tpu=True, tpu_name="x")
    expected = "--use_tpu=true --tpu_name=x: no TPU: no such TPU"
    assert str(refused.value) == expected


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        ({"tpus": 8}, "bfloat16"),
        ({"gpus": 2, "capability": (9, 0)}, "bfloat16"),
        ({"gpus": 1, "capability": (7, 5)}, "float32"),
    ],
    ids=["tpu", "ampere_or_newer", "older_gpu"],
)
def test_bfloat16_is_taken_where_the_device_multiplies_it(
    monkeypatch, devices, expected
):
    pretend(monkeypatch, **devices)
    assert precision.choose() == expected
    assert precision.choose("float16") == "float16"


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("fpu avx512_bf16", "bfloat16"),
        ("amx_bf16 fpu", "bfloat16"),
        ("fpu avx512f", "float32"),
        (None, "float32"),
    ],
    ids=["avx512", "amx", "neither", "unknown"],
)
def test_a_cpu_says_by_its_flags_what_it_multiplies(
    monkeypatch, flags, expected
):
    def read_text():
        if flags is None:
            raise OSError
        return f"processor: 0\nflags\t\t: {flags}\n"

    file = types.SimpleNamespace(read_text=read_text)
    pathlib = types.SimpleNamespace(Path=lambda path: file)
    monkeypatch.setattr(precision, "pathlib", pathlib)
    pretend(monkeypatch)
    assert precision.choose("auto") == expected


def test_an_unknown_precision_is_refused():
    with pytest.raises(errors.InputError, match="--precision=int8: not one"):
        precision.choose("int8")


@pytest.mark.parametrize(
    ("devices", "flag", "expected"),
    [
        ({"gpus": 1}, "auto", True),
        ({"gpus": 1}, "false", False),
        ({}, "auto", False),
        ({}, "true", True),
        # Its strategy compiles everything by itself.
        ({"tpus": 8}, "auto", False),
        ({"tpus": 8}, "true", False),
    ],
    ids=["gpu", "gpu_off", "cpu", "cpu_on", "tpu", "tpu_on"],
)
def test_xla_is_asked_for_where_it_helps(monkeypatch, devices, flag, expected):
    pretend(monkeypatch, **devices)
    config = types.SimpleNamespace(use_xla=flag)
    assert assembly.uses_xla(config) == expected
