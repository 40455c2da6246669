"""Makes the parts of a run from its RunConfig, the same way for every runner.

strategy -> model, in strategy.scope() -> optimizer -> loop.train(...)
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from training import (
    feed,
    loop,
    optimizers,
    precision,
    run_config,
    schedules,
)
from training import strategy as strategies


def make_strategy(config: run_config.RunConfig) -> tf.distribute.Strategy:
    """Chooses the devices; call it before anything else touches one."""
    return strategies.create(
        config.strategy,
        use_tpu=config.use_tpu,
        tpu_name=config.tpu_name,
        tpu_zone=config.tpu_zone,
        gcp_project=config.gcp_project,
        master=config.master,
        num_tpu_cores=config.num_tpu_cores,
        num_replicas=config.num_replicas,
    )


def check_batch_sizes(
    config: run_config.RunConfig,
    strategy: tf.distribute.Strategy,
    train_batch_size: int,
    eval_batch_size: int,
) -> None:
    """Refuses batches that do not cut into equal shares."""
    feed.check_batch_size(
        "train_batch_size",
        train_batch_size,
        strategy,
        config.gradient_accumulation_steps,
    )
    feed.check_batch_size("eval_batch_size", eval_batch_size, strategy)


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Says whether this process writes the files of the run."""
    return strategies.is_chief(strategy)


def dtype_policy(config: run_config.RunConfig) -> str:
    """Returns the Keras policy of the model's layers."""
    return precision.policy(precision.choose(config.precision))


def uses_xla(config: run_config.RunConfig) -> bool:
    """Says whether XLA compiles the model: it is slower on CPUs."""
    if config.use_xla != "auto":
        return config.use_xla == "true"
    return any(tf.config.list_logical_devices(d) for d in ("GPU", "TPU"))


def make_optimizer(
    config: run_config.RunConfig,
    variables: Sequence[Any],
    *,
    num_train_steps: int,
    num_warmup_steps: int,
) -> optimizers.Optimizer:
    """Makes the optimizer and its slots; call it in strategy.scope()."""
    rules = {"adamw": optimizers.AdamW, "lamb": optimizers.Lamb}
    schedule = schedules.WarmupDecay(
        peak=config.learning_rate,
        num_train_steps=num_train_steps,
        num_warmup_steps=num_warmup_steps,
    )
    return optimizers.Optimizer(rules[config.optimizer](), variables, schedule)


def train(
    config: run_config.RunConfig,
    task: Any,
    model: Any,
    *,
    strategy: tf.distribute.Strategy,
    make_batches: feed.MakeBatches,
    num_train_steps: int,
    num_warmup_steps: int,
    eval_every: int = 0,
    evaluate: Callable | None = None,
    warm_start: Callable[[], None] | None = None,
    describe_batch: Callable[[int], str] | None = None,
    diagnose: Callable[[], None] | None = None,
) -> int:
    """Trains a model as its flags say; see loop.train.

    Returns:
      The step that the run started from.
    """
    with strategy.scope():
        optimizer = make_optimizer(
            config,
            model.trainable_variables,
            num_train_steps=num_train_steps,
            num_warmup_steps=num_warmup_steps,
        )
        is_float16 = precision.choose(config.precision) == "float16"
        loss_scale = precision.LossScale() if is_float16 else None
    options = loop.Options(
        num_train_steps=num_train_steps,
        seed=config.random_seed,
        num_accumulation_steps=config.gradient_accumulation_steps,
        iterations_per_loop=config.iterations_per_loop,
        log_every=config.log_every_steps,
        save_checkpoints_steps=config.save_checkpoints_steps,
        keep_checkpoint_max=config.keep_checkpoint_max,
        eval_every=eval_every,
        jit_compile=uses_xla(config),
    )
    return loop.train(
        task,
        model,
        optimizer,
        strategy=strategy,
        make_batches=make_batches,
        output_dir=config.output_dir,
        options=options,
        loss_scale=loss_scale,
        warm_start=warm_start,
        evaluate=evaluate,
        describe_batch=describe_batch,
        diagnose=diagnose,
    )
