"""Chooses the tf.distribute strategy from the flags and the hardware at hand.

Call `create` before anything else touches a device.
"""

import json
import os

import tensorflow as tf
from absl import logging

import errors
from training import precision, unused_gpus

NAMES = ("auto", "one_device", "mirrored", "multi_worker_mirrored", "tpu")


def create(
    name: str = "auto",
    *,
    one_machine: bool = False,
    use_tpu: bool = False,
    tpu_name: str | None = None,
    tpu_zone: str | None = None,
    gcp_project: str | None = None,
    master: str | None = None,
    num_tpu_cores: int = 8,
    num_replicas: int | None = None,
) -> tf.distribute.Strategy:
    """Makes the strategy.

    Args:
        name: one of NAMES; auto takes several workers where TF_CONFIG names
            them, else all GPUs, else the CPU.
        one_machine: whether auto takes this one, whatever TF_CONFIG names.
        use_tpu: the same as name="tpu".
        tpu_name: the TPU's name or grpc:// address.
        tpu_zone: its zone.
        gcp_project: its project.
        master: an address in place of tpu_name.
        num_tpu_cores: only checked against what is found.
        num_replicas: a mirrored strategy's GPUs; without any, logical CPUs.

    Raises:
        InputError: the hardware is not there.
    """
    if name not in NAMES:
        raise errors.InputError(f"--strategy={name}: not one of {NAMES}")
    precision.forbid_tf32()
    if use_tpu:
        name = "tpu"
    elif name == "auto" and not one_machine and _num_workers() > 1:
        name = "multi_worker_mirrored"
    _check_replicas(name, num_replicas)
    if name == "tpu":
        strategy = _tpu(tpu_name or master, tpu_zone, gcp_project)
        _check_cores(strategy, num_tpu_cores)
    else:
        gpus = tf.config.list_physical_devices("GPU")
        for gpu in gpus:
            _call_early(tf.config.experimental.set_memory_growth, gpu, True)
        if not gpus:
            unused_gpus.warn()
        strategy = _on_this_machine(name, num_replicas)
    return strategy


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Says whether this process writes the files of the run."""
    return strategy.extended.should_checkpoint


def is_one_cpu(strategy: tf.distribute.Strategy) -> bool:
    """Says whether everything happens where the batches are made."""
    (*_, device) = strategy.extended.worker_devices
    return (
        isinstance(strategy, tf.distribute.OneDeviceStrategy)
        and tf.DeviceSpec.from_string(device).device_type == "CPU"
    )


def is_multi_worker(strategy: tf.distribute.Strategy) -> bool:
    """Says whether other processes take part."""
    return isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)


def wait_for_all(strategy: tf.distribute.Strategy) -> None:
    """Returns when every process has come here; each must call it."""
    if is_multi_worker(strategy):
        sum_over_replicas(strategy, tf.zeros([1])).numpy()


@tf.function
def sum_over_replicas(
    strategy: tf.distribute.Strategy, values: tf.Tensor
) -> tf.Tensor:
    """Adds up what each process has; every process must call it."""

    def reduce(values):
        # The identity puts the values on the replica's device.
        return tf.distribute.get_replica_context().all_reduce(
            tf.distribute.ReduceOp.SUM, tf.identity(values)
        )

    total = strategy.run(reduce, args=(values,))
    return strategy.experimental_local_results(total)[0]


def _on_this_machine(
    name: str, num_replicas: int | None
) -> tf.distribute.Strategy:
    if name == "multi_worker_mirrored":
        if _num_workers() < 1:
            raise errors.InputError(
                "--strategy=multi_worker_mirrored: the environment variable "
                "TF_CONFIG names no workers"
            )
        return tf.distribute.MultiWorkerMirroredStrategy()
    gpus = len(tf.config.list_physical_devices("GPU"))
    wanted = num_replicas or (1 if name == "one_device" else max(gpus, 1))
    if gpus and wanted > gpus:
        raise errors.InputError(
            f"--num_replicas={wanted}: this machine has {gpus} GPU(s)"
        )
    if name == "one_device" or (name == "auto" and wanted == 1):
        return tf.distribute.OneDeviceStrategy("GPU:0" if gpus else "CPU:0")
    if not gpus and wanted > 1:
        text = "no GPU is found: %d parts of this CPU are the replicas"
        logging.warning(text, wanted)
        _make_logical_cpus(wanted)
    kind = "GPU" if gpus else "CPU"
    return tf.distribute.MirroredStrategy(
        [f"{kind}:{i}" for i in range(wanted)]
    )


def _check_replicas(name: str, num_replicas: int | None) -> None:
    """Refuses a number that the strategy would not heed."""
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
    found = len(tf.config.list_logical_devices("CPU"))
    if found < number:
        raise errors.InputError(
            f"--num_replicas={number}: this process already has {found} "
            "logical CPU(s)"
        )


def _call_early(function, *arguments) -> None:
    """Calls what must precede the first use of a device; too late is logged."""
    try:
        function(*arguments)
    except RuntimeError as error:
        logging.info("%s", error)


def _num_workers() -> int:
    text = os.environ.get("TF_CONFIG", "{}")
    try:
        cluster = json.loads(text).get("cluster", {})
    except ValueError as error:
        raise errors.InputError(f"TF_CONFIG is not JSON: {error}") from error
    return len(cluster.get("worker", [])) + len(cluster.get("chief", []))


def _tpu(
    address: str | None, zone: str | None, project: str | None
) -> tf.distribute.Strategy:
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(
            tpu=address or "", zone=zone, project=project
        )
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except Exception as error:  # Every layer below raises its own kind.
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise errors.InputError(
            f"--use_tpu=true --tpu_name={address}: no TPU: {reason}"
        ) from error
    return tf.distribute.TPUStrategy(resolver)


def _check_cores(strategy: tf.distribute.Strategy, expected: int) -> None:
    found = strategy.num_replicas_in_sync
    if found != expected:
        logging.warning("--num_tpu_cores=%d, found %d", expected, found)
