"""Proves which devices and which numbers are chosen, and what is refused.

pytest tests/training/hardware_test.py
"""

import json
import types

import pytest
import tensorflow as tf

from finetuning import devices as devices_lib
from foundation import errors
from training import precision, settings, strategy

CLUSTER = '{"cluster": {"worker": ["a:1", "b:1"]}}'


def task(kind, *index):
    """Returns the TF_CONFIG of a process of a cluster."""
    jobs = {"master": ["c:1"], "worker": ["a:1", "b:1"], "ps": ["d:1"]}
    names = {"type": kind} | dict(zip(["index"], index, strict=False))
    return json.dumps({"cluster": jobs, "task": names})


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


def test_without_a_gpu_auto_takes_the_cpu(monkeypatch, caplog):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    monkeypatch.setattr(strategy, "_GPU_FILES", ("/nowhere/nvidia[0-9]*",))
    made = strategy.create()
    assert not caplog.records
    assert isinstance(made, tf.distribute.OneDeviceStrategy)
    assert strategy.is_one_cpu(made)
    assert strategy.is_chief(made)
    assert not strategy.is_multi_worker(made)
    assert not strategy.is_one_cpu(strategy.create("mirrored"))
    monkeypatch.setenv("TF_CONFIG", "")
    assert strategy.is_one_cpu(strategy.create())


def test_missing_libraries_of_an_unused_gpu_are_named(monkeypatch):
    build = {"is_cuda_build": True, "cuda_version": "12.5", "cudnn_version": 9}
    found = {"libcuda.so.1", *strategy.libraries_of(build)} - {"libcudnn.so.9"}
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(tf.sysconfig, "get_build_info", lambda: build)
    monkeypatch.setattr(strategy, "_is_loadable", found.__contains__)
    assert strategy.why_unused().startswith("libcudnn.so.9 cannot be loaded; ")


@pytest.mark.parametrize(
    ("kind", "index", "job"), [("master", 0, "chief"), ("worker", 1, "worker")]
)
def test_the_cluster_is_the_processes_that_train(monkeypatch, kind, index, job):
    seen = []
    monkeypatch.setattr(
        tf.distribute, "MultiWorkerMirroredStrategy", seen.append
    )
    monkeypatch.setenv("TF_CONFIG", task(kind, index))
    strategy.create()
    (cluster,) = seen
    jobs = {"chief": ["c:1"], "worker": ["a:1", "b:1"]}
    assert cluster.cluster_spec().as_dict() == jobs
    assert (cluster.task_type, cluster.task_id) == (job, index)
    assert cluster.rpc_layer == "grpc"


def test_a_runner_without_a_shared_folder_stays_on_one_machine(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", CLUSTER)
    made = devices_lib.open_devices(settings.Devices(), None).strategy
    assert isinstance(made, tf.distribute.OneDeviceStrategy)
    assert strategy.is_chief(made)
    assert not strategy.is_multi_worker(strategy.create("mirrored"))


@pytest.mark.parametrize(
    ("name", "number", "cluster", "words"),
    [
        ("auto", 0, "{}", "--num_replicas=0: must be at least 1"),
        ("one_device", 2, "{}", "--strategy=one_device does not take it"),
        ("tpu", 8, "{}", "--strategy=tpu does not take it"),
        (
            "auto",
            2,
            task("worker", 1),
            "not possible with the workers that TF_CONFIG",
        ),
        (
            "multi_worker_mirrored",
            2,
            task("master", 0),
            "--strategy=multi_worker_mirrored does not take it",
        ),
        ("multi_worker_mirrored", None, "{}", "TF_CONFIG names no workers"),
        ("auto", None, "{", "TF_CONFIG: malformed JSON"),
        ("auto", None, "[]", "TF_CONFIG: Expected object"),
        ("auto", None, '{"cluster": []}', "TF_CONFIG: cluster: "),
        ("auto", None, CLUSTER, "TF_CONFIG: task: type='', index=-1: only"),
        ("auto", None, task("evaluator", 0), "type='evaluator', index=0: only"),
        ("auto", None, task("ps", 0), "type='ps', index=0: only"),
        ("auto", None, task("worker", 2), "type='worker', index=2: only"),
        ("auto", None, task("worker"), "type='worker', index=-1: only"),
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


def test_a_tpu_that_is_not_there_is_refused_in_one_line(monkeypatch):
    def resolver(**arguments):
        raise ValueError("{{function_node x}} no such TPU\nand more")

    monkeypatch.setattr(
        tf.distribute.cluster_resolver, "TPUClusterResolver", resolver
    )
    with pytest.raises(errors.InputError) as refused:
        strategy.create("tpu", tpu=settings.Devices(tpu_name="x"))
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


@pytest.mark.parametrize(
    ("precision", "use_xla", "xla", "functions"),
    [
        ("float32", "auto", False, False),
        ("float32", "true", True, False),
        ("bfloat16", "auto", False, True),
        ("bfloat16", "true", True, False),
        ("bfloat16", "false", False, False),
    ],
)
def test_what_xla_compiles_on_a_cpu(
    monkeypatch, precision, use_xla, xla, functions
):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    flags = settings.Devices(precision=precision, use_xla=use_xla)
    opened = devices_lib.open_devices(flags, None)
    assert opened.uses_xla == xla
    assert opened.compiles_functions(1000) == functions
    # Compiling would take longer than it saves.
    assert not opened.compiles_functions(20)
