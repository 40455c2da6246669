"""Builds a training run's strategy, learner and loop options from its flags.

strategy = make_strategy(config.devices, output_dir)
with strategy.scope():
    model = ...
learner = make_learner(config, objective, model, strategy=strategy, ...)
options = loop_options(config, num_train_steps, settings=settings_of(...))
loop.train(learner, strategy=strategy, phases=phases, options=options)
"""

import collections
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import logging
from tensorflow.python.framework import config as tf_config

from data import length_groups
from foundation import config_flags, errors, stamp
from jobs import run_config
from training import (
    checkpoints,
    feed,
    loop,
    optimizers,
    precision,
    step,
    throughput,
)
from training import settings as flag_groups
from training import strategy as strategies
from training.cpu import compiled_functions, onednn  # noqa: F401  Register.

# In shorter runs, compiling functions takes longer than it saves.
_LEAST_STEPS = 200


def make_strategy(
    devices: flag_groups.Devices, output_dir: str | None
) -> tf.distribute.Strategy:
    """Chooses the devices; call it before anything else uses one.

    Args:
      devices: the flags.
      output_dir: directory of the run, which all workers share; None if the
        command runs on one machine, whatever TF_CONFIG names.

    Raises:
      InputError: a device is missing, the directory is not shared, or workers
        compute in different precisions.
    """
    if devices.deterministic:
        tf.config.experimental.enable_op_determinism()
    strategy = strategies.create(
        "tpu" if devices.use_tpu else devices.strategy,
        one_machine=output_dir is None,
        num_replicas=devices.num_replicas,
        tpu=devices,
    )
    if output_dir is not None:
        strategies.check_shared_folder(strategy, output_dir)
        strategies.check_same_number(
            strategy,
            precision.NAMES.index(precision.choose(devices.precision)),
            "--precision: some workers compute in another precision than "
            "others; give all the same, such as --precision=float32",
        )
    logging.info("%s", describe(devices, strategy))
    return strategy


def describe(
    devices: flag_groups.Devices, strategy: tf.distribute.Strategy
) -> str:
    """Returns one line: devices, strategy, precision, XLA, determinism."""
    kinds = collections.Counter(
        tf.DeviceSpec.from_string(device).device_type
        for device in strategy.extended.worker_devices
    )
    shown = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    if name := throughput.device_name():
        shown += f" ({name})"
    is_deterministic = tf_config.is_op_determinism_enabled()
    return "; ".join(
        [
            f"devices: {shown}",
            f"strategy: {type(strategy).__name__}, "
            f"{strategy.num_replicas_in_sync} replica(s)",
            f"precision: {precision.choose(devices.precision)}",
            f"XLA: {_xla(devices)}",
            f"deterministic operations: {'yes' if is_deterministic else 'no'}",
        ]
    )


def _xla(devices: flag_groups.Devices) -> str:
    if tf.config.list_logical_devices("TPU") or uses_xla(devices):
        return "on"
    if compiles_functions(devices, _LEAST_STEPS):
        return f"for parts of a step, in runs of {_LEAST_STEPS} steps or more"
    return "off"


def check_batch_sizes(
    config: run_config.RunConfig,
    strategy: tf.distribute.Strategy,
    *,
    train: Sequence[int],
    others: Mapping[str, int],
) -> None:
    """Refuses batch sizes that replicas cannot divide equally.

    Args:
      config: the flags.
      strategy: the devices.
      train: values of --train_batch_size.
      others: further sizes by flag.
    """
    for size in train:
        feed.check_batch_size(
            "train_batch_size",
            size,
            strategy,
            config.loop.gradient_accumulation_steps,
        )
    for name, size in others.items():
        feed.check_batch_size(name, size, strategy)


def write_run_config(
    config: run_config.RunConfig, strategy: tf.distribute.Strategy
) -> None:
    """Writes the flags into output_dir, if this is the chief."""
    if strategies.is_chief(strategy) and not config.loop.dry_run:
        config_flags.write_run_config(config, config.output_dir)


def dtype_policy(devices: flag_groups.Devices) -> str:
    """Returns the Keras policy of the model's layers."""
    return precision.policy(precision.choose(devices.precision))


def uses_xla(devices: flag_groups.Devices) -> bool:
    """Returns whether XLA compiles the model: faster on GPUs, slower on CPUs.

    On a TPU, TensorFlow compiles the complete step by itself.
    """
    if tf.config.list_logical_devices("TPU"):
        return False
    if devices.use_xla != "auto":
        return devices.use_xla == "true"
    return bool(tf.config.list_logical_devices("GPU"))


def compiles_functions(
    devices: flag_groups.Devices, num_train_steps: int
) -> bool:
    """Returns whether XLA compiles parts of every step on the CPU.

    This is faster in bfloat16, where TensorFlow's operations other than matrix
    products are slow, and makes no difference in float32. Compiling takes about
    a second for every sequence length.
    """
    logical = tf.config.list_logical_devices()
    return (
        devices.use_xla == "auto"
        and num_train_steps >= _LEAST_STEPS
        and all(device.device_type == "CPU" for device in logical)
        and precision.choose(devices.precision) == "bfloat16"
    )


def recomputed(flags: flag_groups.Loop) -> str:
    """Returns what the backward pass computes again; see BertEncoder."""
    return flags.recompute


def batch_lengths(
    devices: flag_groups.Devices,
    strategy: tf.distribute.Strategy,
    longest: int,
    *,
    group_by_length: bool,
) -> list[int]:
    """Returns the sequence lengths that batches may have.

    A TPU needs a single length. XLA compiles the model for each length, so it
    gets few lengths.

    Args:
      devices: the flags.
      strategy: the devices.
      longest: length of the longest sequence.
      group_by_length: whether batches may have several lengths.
    """
    granularity = "coarse" if uses_xla(devices) else "fine"
    if strategies.is_tpu(strategy) or not group_by_length:
        granularity = "one"
    return length_groups.permitted_lengths(longest, granularity)


def make_learner(
    config: run_config.RunConfig,
    objective: Any,
    model: Any,
    *,
    strategy: tf.distribute.Strategy,
    learning_rate: float,
    num_train_steps: int,
    num_warmup_steps: int,
    rate_factors: Mapping[str, float] | None = None,
) -> step.Learner:
    """Makes the optimizer, its schedule and the loss scale.

    Args:
      config: the flags.
      objective: see step.Objective.
      model: the model, made in strategy.scope().
      strategy: the devices.
      learning_rate: the peak learning rate.
      num_train_steps: number of steps of all phases together.
      num_warmup_steps: number of steps in which the learning rate rises.
      rate_factors: maps variables' paths to factors on the learning rate.

    Raises:
      InputError: the model has fewer layers than --freeze_layers.
    """
    flags = config.optimizer
    rule: optimizers.AdamW | optimizers.Lamb
    hyperparameters = {
        "weight_decay": flags.weight_decay_rate,
        "beta_1": flags.adam_beta_1,
        "beta_2": flags.adam_beta_2,
        "epsilon": flags.adam_epsilon,
    }
    if flags.optimizer == "lamb":
        rule = optimizers.Lamb(**hyperparameters)
    else:
        rule = optimizers.AdamW(
            bias_correction=flags.bias_correction, **hyperparameters
        )
    decay: dict[str, Any] = {
        "peak": learning_rate,
        "decay": flags.lr_decay,
    }
    is_float16 = precision.choose(config.devices.precision) == "float16"
    with strategy.scope():
        optimizer = optimizers.Optimizer(
            rule,
            trained_variables(flags, model),
            optimizers.WarmupDecay(
                num_train_steps=num_train_steps,
                num_warmup_steps=num_warmup_steps,
                **decay,
            ),
            clip_norm=flags.clip_norm or None,
            rate_factors=rate_factors,
        )
        loss_scale = precision.LossScale() if is_float16 else None
    return step.Learner(objective, model, optimizer, loss_scale)


def trained_variables(flags: flag_groups.Optimizer, model: Any) -> list[Any]:
    """Returns the variables of a model that are not frozen by flags.

    Raises:
      InputError: the model has fewer layers than --freeze_layers, or no
        embeddings.
    """
    frozen = []
    if flags.freeze_layers is not None:
        frozen = ["bert/embeddings/"]
        frozen += [
            f"bert/encoder/layer_{i}/" for i in range(flags.freeze_layers)
        ]
    paths = [variable.path for variable in model.trainable_variables]
    for scope in frozen:
        if not any(path.startswith(scope) for path in paths):
            raise errors.InputError(
                f"--freeze_layers={flags.freeze_layers}: the model has no "
                f"{scope[:-1]}"
            )
    return [
        variable
        for variable in model.trainable_variables
        if not variable.path.startswith(tuple(frozen))
    ]


def layer_factors(
    paths: Iterable[str], num_layers: int, decay: float
) -> dict[str, float]:
    """Returns factors on the learning rates of variables, by their paths.

    The factors are decay for the top layer, decay^2 for the layer below it,
    ..., decay^(num_layers + 1) for the embeddings. Variables of the head and
    the pooler have none.
    """
    factors = {}
    for path in paths:
        if path.startswith("bert/embeddings/"):
            factors[path] = decay ** (num_layers + 1)
        elif path.startswith("bert/encoder/layer_"):
            layer = int(path.split("/")[2].removeprefix("layer_"))
            factors[path] = decay ** (num_layers - layer)
    return factors


def loop_options(
    config: run_config.RunConfig,
    num_train_steps: int,
    *,
    output_dir: str,
    seed: int,
    selection: loop.Selection,
    settings: stamp.Stamp,
    task_settings: Mapping[str, Any] | None = None,
) -> loop.Options:
    """Returns the loop's options for a run of num_train_steps."""
    return loop.Options(
        output_dir=output_dir,
        seed=seed,
        flags=config.loop,
        selection=selection,
        jit_compile=uses_xla(config.devices),
        compile_functions=compiles_functions(config.devices, num_train_steps),
        stored={
            "settings": settings.to_json(),
            "task_settings": dict(task_settings or {}),
        },
    )


def settings_of(
    config: run_config.RunConfig,
    strategy: tf.distribute.Strategy,
    resolved: stamp.Stamp,
) -> stamp.Stamp:
    """Returns the settings that a resumed run compares with its checkpoint's.

    Args:
      config: the flags.
      strategy: the devices.
      resolved: further settings, and settings that replace those of the flags,
        e.g. the digest of a file instead of its name.
    """
    kinds = {device.device_type for device in tf.config.list_logical_devices()}
    kind = next(k for k in ("TPU", "GPU", "CPU") if k in kinds)
    chosen = precision.choose(config.devices.precision)
    flags = config_flags.affecting(config, "records", "result", "execution")
    replicas = strategy.num_replicas_in_sync
    flags |= stamp.facts("execution", {"replicas in fact": replicas})
    flags |= stamp.facts("execution", {"strategy's devices": kind})
    flags |= stamp.facts("result", {"precision in fact": chosen})
    return flags | resolved


def check_settings(directory: str, settings: stamp.Stamp) -> None:
    """Refuses to resume a run on other data; warns of other changes.

    Call it before files of the run are written again, such as its records.

    Args:
      directory: directory of the run, with or without a checkpoint.
      settings: what `loop_options` stores.

    Raises:
      InputError: the run would go on with other records or evaluations.
    """
    state = loop.last_state(directory)
    changes = settings.difference(state.get("settings", {}))
    latest = checkpoints.path_of(directory, state.get("step", 0))
    stamp.refuse(
        [change for change in changes if change.forbids_resuming],
        f"the run in {latest} would go on with other records or evaluations; "
        "resume it as it was begun, or begin another --output_dir with "
        f"--init_checkpoint={latest}",
    )
    if changes:
        text = "resuming with other settings: %s"
        logging.warning(text, ", ".join(map(str, changes)))
