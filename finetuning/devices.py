"""The devices of a command, opened: strategy, precision, XLA."""

import collections
import dataclasses

import tensorflow as tf
from absl import logging

from data import length_groups
from training import feed, precision, settings, throughput
from training import strategy as strategies

# In shorter runs, compiling functions takes longer than it saves.
_LEAST_STEPS_TO_COMPILE = 200


@dataclasses.dataclass(frozen=True, kw_only=True)
class Devices:
    """What a command computes with.

    Attributes:
      strategy: the devices.
      is_chief: whether this process writes files.
      is_multi_worker: whether several processes compute together.
      precision: float32, bfloat16 or float16.
      dtype_policy: the Keras policy of the model's layers.
      uses_xla: whether XLA compiles the model: faster on GPUs, slower on CPUs.
        On a TPU, TensorFlow compiles the complete step by itself.
      may_compile: whether XLA may compile parts of a step on the CPU.
    """

    strategy: tf.distribute.Strategy
    is_chief: bool
    is_multi_worker: bool
    precision: str
    dtype_policy: str
    uses_xla: bool
    may_compile: bool

    def compiles_functions(self, num_train_steps: int) -> bool:
        """Returns whether XLA compiles parts of every step on the CPU.

        This is faster in bfloat16, where TensorFlow's operations other than
        matrix products are slow, and makes no difference in float32. Compiling
        takes about a second for every sequence length.
        """
        is_long = num_train_steps >= _LEAST_STEPS_TO_COMPILE
        return self.may_compile and is_long

    def batch_lengths(self, longest: int) -> list[int]:
        """Returns the lengths that batches of sequences may have.

        A TPU needs a single length. XLA compiles the model for each length, so
        it gets few.
        """
        granularity = "coarse" if self.uses_xla else "fine"
        if strategies.is_tpu(self.strategy):
            granularity = "one"
        return length_groups.permitted_lengths(longest, granularity)

    def check_batch_sizes(self, num_parts: int = 1, **sizes: int) -> None:
        """Refuses batch sizes that replicas cannot divide equally.

        Args:
          num_parts: the number of parts in which a batch is computed.
          **sizes: the sizes by the names of their flags.
        """
        for name, size in sizes.items():
            feed.check_batch_size(name, size, self.strategy, num_parts)


def open_devices(flags: settings.Devices, output_dir: str | None) -> Devices:
    """Chooses the devices; call it before anything else uses one.

    Args:
      flags: the flags.
      output_dir: directory of the run, which all workers share; None if the
        command runs on one machine, whatever TF_CONFIG names.

    Raises:
      InputError: a device is missing, the directory is not shared, or workers
        compute in different precisions.
    """
    if flags.deterministic:
        tf.config.experimental.enable_op_determinism()
    strategy = strategies.create(
        "tpu" if flags.use_tpu else flags.strategy,
        one_machine=output_dir is None,
        num_replicas=flags.num_replicas,
        tpu=flags,
    )
    chosen = precision.choose(flags.precision)
    if output_dir is not None:
        strategies.check_shared_folder(strategy, output_dir)
        strategies.check_same_number(
            strategy,
            precision.NAMES.index(chosen),
            "--precision: some workers compute in another precision than "
            "others; give all the same, such as --precision=float32",
        )
    kinds = collections.Counter(
        tf.DeviceSpec.from_string(device).device_type
        for device in strategy.extended.worker_devices
    )
    uses_xla = flags.use_xla == "true" or (
        flags.use_xla == "auto" and "GPU" in kinds
    )
    devices = Devices(
        strategy=strategy,
        is_chief=strategies.is_chief(strategy),
        is_multi_worker=strategies.is_multi_worker(strategy),
        precision=chosen,
        dtype_policy=precision.policy(chosen),
        uses_xla=uses_xla and "TPU" not in kinds,
        may_compile=flags.use_xla == "auto"
        and chosen == "bfloat16"
        and not tf.config.list_logical_devices("GPU")
        and not tf.config.list_logical_devices("TPU"),
    )
    shown = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    name = throughput.device_name()
    logging.info(
        "devices: %s%s; strategy: %s, %d replica(s); precision: %s; XLA: %s",
        shown,
        f" ({name})" if name else "",
        type(strategy).__name__,
        strategy.num_replicas_in_sync,
        chosen,
        "on" if devices.uses_xla or "TPU" in kinds else "off",
    )
    return devices
