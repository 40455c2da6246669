"""Chooses the tf.distribute strategy from the flags and the hardware.

Call `create` before anything else touches a device.
"""

import ctypes
import dataclasses
import glob
import itertools
import os
import secrets
import signal
import site
import sys
import threading
from collections.abc import Callable

import numpy as np
import tensorflow as tf
from absl import logging

from foundation import errors, file_system, metadata
from training import precision, settings

# Files that the NVIDIA kernel driver creates for each GPU.
_GPU_FILES = ("/dev/nvidia[0-9]*", "/proc/driver/nvidia/gpus/*")
_DRIVER = "libcuda.so.1"
# By the version of CUDA that TensorFlow was built with.
_VERSIONS = {
    "12": {"cufft": 11, "cusolver": 11},
    "13": {"cufft": 12, "cusolver": 12},
}
# Types of processes that train, by the name in TF_CONFIG: TensorFlow 1 called
# the chief master.
_TRAINING = {"chief": "chief", "master": "chief", "worker": "worker"}
_INSTALL = "pip install 'tensorflow[and-cuda]'"


def create(
    name: str = "auto",
    *,
    one_machine: bool = False,
    num_replicas: int | None = None,
    tpu: settings.Devices | None = None,
) -> tf.distribute.Strategy:
    """Makes the strategy.

    Args:
        name: one of settings.Strategy; auto takes several workers where
            TF_CONFIG names them, else all GPUs, else the CPU.
        one_machine: whether auto uses this machine only, whatever TF_CONFIG
            names.
        num_replicas: a mirrored strategy's GPUs; without any, logical CPUs.
        tpu: the flags of the TPU, for the name "tpu".

    Raises:
        InputError: the hardware is not there, or this process is none of those
            that train.
    """
    precision.forbid_tf32()
    cluster = None
    if name == "multi_worker_mirrored" or (name == "auto" and not one_machine):
        cluster = _cluster()
    jobs = cluster.cluster_spec().as_dict() if cluster else {}
    if name == "auto" and sum(map(len, jobs.values())) > 1:
        name = "multi_worker_mirrored"
        if num_replicas is not None:
            raise errors.InputError(
                f"--num_replicas={num_replicas}: not possible with the workers "
                "that TF_CONFIG names; --strategy=mirrored uses this machine "
                "alone"
            )
    _check_replicas(name, num_replicas)
    if name == "tpu":
        return _tpu_strategy(tpu or settings.Devices())
    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        _call_early(tf.config.experimental.set_memory_growth, gpu, True)
    if not gpus:
        _warn_of_unused_gpus()
    if name == "multi_worker_mirrored":
        return _on_all_machines(cluster)
    return _on_this_machine(name, num_replicas, len(gpus))


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether this process writes the files of the run."""
    return strategy.extended.should_checkpoint


def is_one_cpu(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether the only device is the CPU that makes the batches."""
    (*_, device) = strategy.extended.worker_devices
    return (
        isinstance(strategy, tf.distribute.OneDeviceStrategy)
        and tf.DeviceSpec.from_string(device).device_type == "CPU"
    )


def is_multi_worker(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether other processes take part."""
    return isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)


def is_tpu(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether the replicas are the cores of a TPU."""
    return "TPU" in type(strategy).__name__


def wait_for_all(strategy: tf.distribute.Strategy) -> None:
    """Waits until every process has called this; each must."""
    if is_multi_worker(strategy):
        sum_over_replicas(strategy, tf.zeros([1])).numpy()


@tf.function
def sum_over_replicas(
    strategy: tf.distribute.Strategy, values: tf.Tensor
) -> tf.Tensor:
    """Returns the sum of all replicas' values; every process must call this."""

    def reduce(values):
        # The identity puts the values on the replica's device.
        return tf.distribute.get_replica_context().all_reduce(
            tf.distribute.ReduceOp.SUM, tf.identity(values)
        )

    total = strategy.run(reduce, args=(values,))
    return strategy.experimental_local_results(total)[0]


def _warn_of_unused_gpus() -> None:
    """Logs one line if the kernel's driver has GPUs."""
    for pattern in _GPU_FILES:
        if devices := sorted(glob.glob(pattern)):
            text = "%s: %d NVIDIA GPU(s), which TensorFlow does not use: %s"
            return logging.warning(text, devices[0], len(devices), why_unused())


def why_unused() -> str:
    """Returns why TensorFlow has no GPU, and what helps."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and visible.strip() in ("", "-1", "none"):
        return f"CUDA_VISIBLE_DEVICES={visible!r} hides them"
    build = tf.sysconfig.get_build_info()
    if not build.get("is_cuda_build"):
        return f"this TensorFlow is built without CUDA; {_INSTALL}"
    if not _is_loadable(_DRIVER):
        return f"the driver's {_DRIVER} cannot be loaded"
    missing = [name for name in libraries_of(build) if not _is_loadable(name)]
    if missing:
        return f"{', '.join(missing)} cannot be loaded; {_INSTALL}"
    return "the reason is in TensorFlow's notices: TF_CPP_MIN_LOG_LEVEL=0"


def libraries_of(build: dict) -> list[str]:
    """Returns the libraries that TensorFlow loads, by its build's versions."""
    cuda = str(build.get("cuda_version", "")).partition(".")[0]
    cudnn = str(build.get("cudnn_version", "")).partition(".")[0]
    names = ("cudart", "cublas", "cublasLt", "cufft", "cusolver", "cusparse")
    versions = {}
    if cuda in _VERSIONS:
        versions = dict.fromkeys(names, cuda) | _VERSIONS[cuda]
    if cudnn:
        versions["cudnn"] = cudnn
    return [f"lib{name}.so.{version}" for name, version in versions.items()]


def _is_loadable(name: str) -> bool:
    """Looks where TensorFlow does: the system's paths and pip's packages."""
    folders = {*sys.path, *site.getsitepackages()}
    packaged = (glob.glob(f"{x}/nvidia/*/lib/{name}") for x in folders)
    for path in itertools.chain([name], *packaged):
        try:
            ctypes.CDLL(path)
        except OSError:
            continue
        return True
    return False


def _on_all_machines(
    cluster: tf.distribute.cluster_resolver.ClusterResolver | None,
) -> tf.distribute.Strategy:
    if cluster is None:
        raise errors.InputError(
            "--strategy=multi_worker_mirrored: the environment variable "
            "TF_CONFIG names no workers"
        )
    strategy = tf.distribute.MultiWorkerMirroredStrategy(cluster)
    if threading.current_thread() is threading.main_thread():
        # TensorFlow has replaced the handler by one that ignores SIGTERM.
        handler = signal.getsignal(signal.SIGTERM) or signal.SIG_DFL
        signal.signal(signal.SIGTERM, handler)
    return strategy


def _on_this_machine(
    name: str, num_replicas: int | None, gpus: int
) -> tf.distribute.Strategy:
    count = num_replicas or (1 if name == "one_device" else max(gpus, 1))
    if gpus and count > gpus:
        raise errors.InputError(
            f"--num_replicas={count}: this machine has {gpus} GPU(s)"
        )
    kind = "GPU" if gpus else "CPU"
    if name == "one_device" or (name == "auto" and count == 1):
        return tf.distribute.OneDeviceStrategy(f"{kind}:0")
    if not gpus and count > 1:
        text = "no GPU is found: %d parts of this CPU are the replicas"
        logging.warning(text, count)
        _make_logical_cpus(count)
    return tf.distribute.MirroredStrategy([f"{kind}:{i}" for i in range(count)])


def _check_replicas(name: str, num_replicas: int | None) -> None:
    """Refuses a number that the strategy ignores."""
    if num_replicas is None:
        return
    if num_replicas < 1:
        raise errors.InputError(
            f"--num_replicas={num_replicas}: must be at least 1"
        )
    most = {"auto": None, "mirrored": None, "one_device": 1}.get(name, 0)
    if most is not None and num_replicas > most:
        raise errors.InputError(
            f"--num_replicas={num_replicas}: --strategy={name} does not take "
            "it, only mirrored does"
        )


def _make_logical_cpus(number: int) -> None:
    (cpu,) = tf.config.list_physical_devices("CPU")
    _call_early(
        tf.config.set_logical_device_configuration,
        cpu,
        [tf.config.LogicalDeviceConfiguration()] * number,
    )
    existing = len(tf.config.list_logical_devices("CPU"))
    if existing < number:
        raise errors.InputError(
            f"--num_replicas={number}: this process already has {existing} "
            "logical CPU(s)"
        )


def _call_early(function, *arguments) -> None:
    """Calls what must precede the first use of a device; too late is logged."""
    try:
        function(*arguments)
    except RuntimeError as error:
        logging.info("%s", error)


@dataclasses.dataclass(frozen=True)
class _Process:
    """Which of the cluster's processes this one is."""

    type: str = ""
    index: int = -1


@dataclasses.dataclass(frozen=True)
class _TfConfig:
    """What is read of the environment variable TF_CONFIG."""

    cluster: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    task: _Process = _Process()


def _cluster() -> tf.distribute.cluster_resolver.ClusterResolver | None:
    """Returns the processes that train; None if TF_CONFIG has no cluster.

    Raises:
      InputError: this process is none of them.
    """
    text = os.environ.get("TF_CONFIG") or "{}"
    values = file_system.parse_json(text.encode(), "TF_CONFIG")
    config = metadata.convert(values, _TfConfig, "TF_CONFIG")
    if not config.cluster:
        return None
    training = {
        _TRAINING[kind]: addresses
        for kind, addresses in config.cluster.items()
        if kind in _TRAINING
    }
    kind, index = _TRAINING.get(config.task.type, ""), config.task.index
    if index not in range(len(training.get(kind, []))):
        raise errors.InputError(
            f"TF_CONFIG: task: type={config.task.type!r}, index={index}: only "
            f"the cluster's processes of the types {', '.join(_TRAINING)} "
            "train; do not start this command as another one"
        )
    return tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(training),
        task_type=kind,
        task_id=index,
        rpc_layer="grpc",
    )


def _tpu_strategy(tpu: settings.Devices) -> tf.distribute.Strategy:
    # TensorFlow looks for "local" in the cloud, if it finds it in TPU_NAME.
    address = tpu.tpu_name or tpu.master or os.environ.get("TPU_NAME", "")
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(
            tpu=address, zone=tpu.tpu_zone, project=tpu.gcp_project
        )
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except Exception as error:  # Every layer below raises its own kind.
        raise errors.InputError(
            f"--use_tpu=true --tpu_name={address}: no TPU: "
            + errors.reason(error)
        ) from error
    strategy = tf.distribute.TPUStrategy(resolver)
    num_cores = strategy.num_replicas_in_sync
    if num_cores != tpu.num_tpu_cores:
        logging.warning(
            f"--num_tpu_cores={tpu.num_tpu_cores}, found {num_cores}"
        )
    return strategy


def check_same_number(
    strategy: tf.distribute.Strategy, number: int, refusal: str
) -> None:
    """Refuses workers with different numbers; every worker must call this.

    Raises:
        InputError: the numbers differ; raised on every worker, with the text
          `refusal`.
    """
    if not is_multi_worker(strategy):
        return
    differs = _mean_over_workers(strategy, number, True) != number
    if _mean_over_workers(strategy, differs, True) > 0:
        raise errors.InputError(refusal)


def check_shared_folder(
    strategy: tf.distribute.Strategy, output_dir: str
) -> None:
    """Refuses workers that do not find what the chief writes.

    The chief writes a file with a random name, sends the name to all workers,
    and removes the file when each worker has looked for it. Every worker must
    call this. All raise if one does, so that none waits for the others.

    Raises:
        InputError: a worker has another folder of this name.
        OpError: this worker's folder cannot be made or written to.
    """
    if not is_multi_worker(strategy):
        return
    refusal = errors.InputError(
        f"--output_dir={output_dir}: not every worker finds there what the "
        "chief has just written: give all workers the same shared folder"
    )
    writes = is_chief(strategy)
    token = secrets.randbits(40) if writes else 0  # Exact as a float64.

    def path():
        return os.path.join(output_dir, f".shared_folder.{token:010x}")

    def enter():
        # Every worker makes the folder: NFS remembers for a while that it did
        # not exist, unless one tries to make it.
        tf.io.gfile.makedirs(output_dir)
        if writes:
            with tf.io.gfile.GFile(path(), "w") as file:
                file.write("Written by a run that begins; may be removed.\n")

    def look():
        if not file_system.exists(path()):
            raise refusal

    problem = _attempt(enter)
    token = int(_mean_over_workers(strategy, token, writes))
    problem = problem or _attempt(look)
    is_refused = _mean_over_workers(strategy, problem is not None, True) > 0
    if writes:
        _attempt(lambda: tf.io.gfile.remove(path()))
    if is_refused:
        raise problem or refusal


def _attempt(action: Callable[[], None]) -> Exception | None:
    """Returns the error of an action, to be raised by all workers at once."""
    try:
        action()
    except (tf.errors.OpError, errors.InputError) as error:
        return error
    return None


def _mean_over_workers(
    strategy: tf.distribute.Strategy, value: float, weight: float
) -> float:
    """Returns the weighted mean of the workers' values."""
    row = tf.constant(np.array([value * weight, weight], np.float64))
    total, weights = sum_over_replicas(strategy, row).numpy()
    return total / weights
