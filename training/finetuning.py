"""How a task is trained for some epochs on top of a pre-trained encoder."""

import os
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

import errors
from training import (
    assembly,
    checkpoints,
    feed,
    finetuning_config,
    loop,
    run_config,
)

BEST = "best"  # Where the loop keeps the best checkpoint.
Diverged = loop.Diverged
# What evaluations are compared by, while training and in a grid.
SCORE = "score"


def num_train_steps(
    num_examples: int, train_batch_size: int, num_train_epochs: float
) -> int:
    """Returns how many steps the epochs have, as released."""
    steps = int(num_examples / train_batch_size * num_train_epochs)
    if steps < 1:
        raise errors.InputError(
            f"--train_batch_size={train_batch_size}: {num_examples} examples "
            f"in {num_train_epochs:g} epoch(s) do not fill one batch"
        )
    return steps


def length_step(
    config: finetuning_config.FinetuningConfig,
    strategy: tf.distribute.Strategy,
) -> str:
    """Returns which lengths batches may have; see data.length_groups.

    A TPU takes one; XLA compiles every one anew, so there should be few.
    """
    is_tpu = "TPU" in type(strategy).__name__
    if is_tpu or not config.group_by_length:
        return "one"
    return "coarse" if assembly.uses_xla(config) else "fine"


def train(
    config: finetuning_config.FinetuningConfig,
    run: run_config.RunConfig,
    task: Any,
    model: Any,
    *,
    strategy: tf.distribute.Strategy,
    make_batches: feed.MakeBatches,
    num_examples: int,
    warm_start: Callable[[], None],
    data_settings: Mapping[str, Any],
    evaluate: Callable[[], Mapping[str, float]] | None = None,
    rate_multiplier: Callable[[str], float] | None = None,
) -> int:
    """Trains for the epochs, or until evaluations say that it is enough.

    Args:
        config: the flags.
        run: those of this run of the grid.
        task: see step.Task.
        model: made in strategy.scope().
        strategy: the devices.
        make_batches: endless.
        num_examples: in an epoch.
        warm_start: assigns the pre-trained weights.
        data_settings: see assembly.train.
        evaluate: returns held-out values, SCORE among them.
        rate_multiplier: see assembly.make_optimizer.

    Returns:
        The step whose weights the model has now.
    """
    batch_size, epochs = config.train_batch_size, config.num_train_epochs
    steps = num_train_steps(num_examples, batch_size, epochs)
    phase = loop.Phase(steps, make_batches, evaluate=evaluate)
    assembly.train(
        run,
        task,
        model,
        strategy=strategy,
        phases=[phase],
        num_warmup_steps=int(steps * config.warmup_proportion),
        eval_every=config.eval_every_steps,
        warm_start=warm_start,
        data_settings=data_settings,
        settings=config.outcome,
        optimizer_options=_optimizer_options(config, rate_multiplier),
        loop_options=_loop_options(config),
    )
    return restore(config, model, run.output_dir) or 0


def _optimizer_options(config, rate_multiplier) -> dict[str, Any]:
    return {
        "bias_correction": config.bias_correction or None,
        "rate_multiplier": rate_multiplier,
    }


def _loop_options(config) -> dict[str, Any]:
    return {
        "best_metric": SCORE,
        "higher_is_better": True,
        "patience": config.early_stopping_patience,
    }


def restore(
    config: finetuning_config.FinetuningConfig, model: Any, output_dir: str
) -> int | None:
    """Loads what a run ended with; returns its step, None if there is none."""
    if config.early_stopping_patience:
        step = loop.restore_model(model, os.path.join(output_dir, BEST))
        if step is not None:
            return step
    return loop.restore_model(model, output_dir)


def seconds(output_dir: str) -> float:
    """Returns how long a run has trained, by all processes that did."""
    return loop.seconds(output_dir)


def remove_checkpoints(directory: str) -> None:
    """Removes a finished run's checkpoints, which its model replaces."""
    for folder in (directory, os.path.join(directory, BEST)):
        checkpoints.remove_all(folder)
