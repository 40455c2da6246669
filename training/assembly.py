"""Makes the parts of a run from its RunConfig, the same way for every runner.

strategy -> model, in strategy.scope() -> optimizer -> loop.train(...)
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import logging
from tensorflow.python.framework import config as tf_config

from training import (
    clock,
    config_flags,
    feed,
    loop,
    optimizers,
    precision,
    run_config,
    schedules,
    shared_folder,
    throughput,
)
from training import strategy as strategies

# For fewer, compiling parts of a step takes longer than it saves.
_LEAST_STEPS = 200


def make_strategy(
    config: run_config.DeviceConfig, output_dir: str | None
) -> tf.distribute.Strategy:
    """Chooses the devices; call it before anything else touches one.

    `output_dir` is the folder of the run, which all workers must share; with
    None, auto takes one machine, whatever TF_CONFIG names.

    Raises:
        InputError: the hardware is not there, or the folder is not shared.
    """
    strategy = strategies.create(
        config.strategy,
        one_machine=output_dir is None,
        use_tpu=config.use_tpu,
        tpu_name=config.tpu_name,
        tpu_zone=config.tpu_zone,
        gcp_project=config.gcp_project,
        master=config.master,
        num_tpu_cores=config.num_tpu_cores,
        num_replicas=config.num_replicas,
    )
    if output_dir is not None:
        shared_folder.check(strategy, output_dir)
    logging.info("%s", describe(config, strategy))
    return strategy


def describe(
    config: run_config.DeviceConfig, strategy: tf.distribute.Strategy
) -> str:
    """Returns one line: devices, strategy, precision, XLA, determinism."""
    name = throughput.device_name()
    is_deterministic = tf_config.is_op_determinism_enabled()
    return "; ".join(
        [
            f"devices: {', '.join(strategy.extended.worker_devices)}"
            + (f" ({name})" if name else ""),
            f"strategy: {type(strategy).__name__}, "
            f"{strategy.num_replicas_in_sync} replica(s)",
            f"precision: {precision.choose(config.precision)}",
            f"XLA: {_xla(config)}",
            f"deterministic operations: {'yes' if is_deterministic else 'no'}",
        ]
    )


def _xla(config: run_config.DeviceConfig) -> str:
    if tf.config.list_logical_devices("TPU"):
        return "on"
    if uses_xla(config):
        return "on"
    if compiles_parts(config, _LEAST_STEPS):
        return f"for parts of a step, in runs of {_LEAST_STEPS} steps or more"
    return "off"


def check_batch_sizes(
    config: run_config.RunConfig,
    strategy: tf.distribute.Strategy,
    *,
    train_batch_size: int,
    **others: int,
) -> None:
    """Refuses batches, by flag, that do not cut into equal shares."""
    feed.check_batch_size(
        "train_batch_size",
        train_batch_size,
        strategy,
        config.gradient_accumulation_steps,
    )
    for name, size in others.items():
        feed.check_batch_size(name, size, strategy)


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Says whether this process writes the files of the run."""
    return strategies.is_chief(strategy)


def write_run_config(
    config: run_config.RunConfig, strategy: tf.distribute.Strategy
) -> None:
    """Notes the flags in output_dir: the chief's, for all workers."""
    if is_chief(strategy):
        config_flags.write_run_config(config, config.output_dir)


def dtype_policy(config: run_config.DeviceConfig) -> str:
    """Returns the Keras policy of the model's layers."""
    return precision.policy(precision.choose(config.precision))


def uses_xla(config: run_config.DeviceConfig) -> bool:
    """Says whether to ask for XLA: it is faster on GPUs, slower on CPUs.

    On a TPU it compiles the whole step unasked.
    """
    if tf.config.list_logical_devices("TPU"):
        return False
    if config.use_xla != "auto":
        return config.use_xla == "true"
    return bool(tf.config.list_logical_devices("GPU"))


def compiles_parts(
    config: run_config.DeviceConfig, num_train_steps: int
) -> bool:
    """Says whether XLA is to compile parts of every step.

    They are faster where a CPU multiplies bfloat16, whose other operations
    TensorFlow is slow at, and equally fast in float32. Compiling takes about
    a second for every length of sequence.
    """
    devices = tf.config.list_logical_devices()
    return (
        config.use_xla == "auto"
        and num_train_steps >= _LEAST_STEPS
        and all(device.device_type == "CPU" for device in devices)
        and precision.choose(config.precision) == "bfloat16"
    )


def make_clock(
    config: run_config.RunConfig, num_train_steps: int
) -> clock.Clock | None:
    """Makes what ends the run in time, if that is asked for."""
    if config.max_train_hours is None:
        return None
    return clock.Clock(config.max_train_hours * 3600, num_train_steps)


def make_optimizer(
    config: run_config.RunConfig,
    variables: Sequence[Any],
    schedule: Callable[[tf.Tensor], tf.Tensor],
    *,
    bias_correction: bool | None = None,
    rate_multiplier: Callable[[str], float] | None = None,
) -> optimizers.Optimizer:
    """Makes the optimizer and its slots; call it in strategy.scope().

    `bias_correction` is the rule's own unless given; `rate_multiplier` maps a
    variable's path to a factor on its learning rate.
    """
    rules = {"adamw": optimizers.AdamW, "lamb": optimizers.Lamb}
    given = {"bias_correction": bias_correction}
    given = {k: v for k, v in given.items() if v is not None}
    return optimizers.Optimizer(
        rules[config.optimizer](**given),
        variables,
        schedule,
        rate_multiplier=rate_multiplier,
    )


def make_loss_scale(
    config: run_config.RunConfig,
) -> precision.LossScale | None:
    """Makes what float16 needs; call it in strategy.scope()."""
    is_float16 = precision.choose(config.precision) == "float16"
    return precision.LossScale() if is_float16 else None


def make_throughput(
    config: run_config.RunConfig,
    strategy: tf.distribute.Strategy,
    *,
    tokens: int,
    flops: float,
    peak_tflops: float | None = None,
) -> throughput.Throughput:
    """Makes what reports speed, from what one example costs."""
    dtype = precision.choose(config.precision)
    peak = throughput.peak(strategy, dtype, peak_tflops)
    return throughput.Throughput(tokens=tokens, flops=flops, peak=peak)


def train(
    config: run_config.RunConfig,
    task: Any,
    model: Any,
    *,
    strategy: tf.distribute.Strategy,
    phases: Sequence[loop.Phase],
    num_warmup_steps: int,
    eval_every: int = 0,
    warm_start: Callable[[], None] | None = None,
    begun: Callable[[], None] = lambda: None,
    data_settings: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    optimizer_options: Mapping[str, Any] | None = None,
    loop_options: Mapping[str, Any] | None = None,
) -> int:
    """Trains a model as its flags say; see loop.train.

    `data_settings` is what decides which records a step reads, or what the best
    step is told by, by flag, as JSON values; a resumed run may not change it.
    `settings` are flags besides those of `config` whose change is warned of.
    The options are those of make_optimizer and of loop.Options.

    Returns:
        The step that the run started from.
    """
    steps = (sum(phase.num_steps for phase in phases), num_warmup_steps)
    with strategy.scope():
        run_clock = make_clock(config, steps[0])
        schedule = _schedule(config, *steps, run_clock)
        more = optimizer_options or {}
        variables = model.trainable_variables
        optimizer = make_optimizer(config, variables, schedule, **more)
        loss_scale = make_loss_scale(config)
    return loop.train(
        task,
        model,
        optimizer,
        strategy=strategy,
        phases=phases,
        output_dir=config.output_dir,
        options=_options(
            config, steps[0], eval_every, data_settings, settings, loop_options
        ),
        loss_scale=loss_scale,
        run_clock=run_clock,
        warm_start=warm_start,
        begun=begun,
    )


def _schedule(config, num_train_steps, num_warmup_steps, run_clock) -> Callable:
    """Makes the learning rate of every step, by steps or by the clock."""
    if run_clock is not None:
        return clock.TimedDecay(
            peak=config.learning_rate,
            warmup=num_warmup_steps / num_train_steps,
            clock=run_clock,
        )
    return schedules.WarmupDecay(
        peak=config.learning_rate,
        num_train_steps=num_train_steps,
        num_warmup_steps=num_warmup_steps,
    )


def _chosen(config) -> dict[str, str]:
    """Returns what "auto" has found, which a run may not find again."""
    kinds = {device.device_type for device in tf.config.list_logical_devices()}
    kind = next(k for k in ("TPU", "GPU", "CPU") if k in kinds)
    return {
        "strategy's devices": kind,
        "precision in fact": precision.choose(config.precision),
    }


def _options(
    config, num_train_steps, eval_every, data_settings, settings, loop_options
) -> loop.Options:
    data_settings = data_settings or {}
    return loop.Options(
        seed=config.random_seed,
        num_accumulation_steps=config.gradient_accumulation_steps,
        iterations_per_loop=config.iterations_per_loop,
        log_every=config.log_every_steps,
        save_checkpoints_steps=config.save_checkpoints_steps,
        keep_checkpoint_max=config.keep_checkpoint_max,
        eval_every=eval_every,
        jit_compile=uses_xla(config),
        compile_parts=compiles_parts(config, num_train_steps),
        settings={
            **config.settings(),
            **_chosen(config),
            **(settings or {}),
            **data_settings,
        },
        data_settings=tuple(data_settings),
        allow_changed_data=config.allow_changed_data,
        **(loop_options or {}),
    )
