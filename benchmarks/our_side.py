"""Our side of a speed benchmark: whole training steps, or predictions."""

import itertools
from collections.abc import Callable
from typing import Any

import foundation.tensorflow_setup  # noqa: F401
from training import feed, optimizers, precision, prediction, strategy
from training import step as steps_lib
from weights import pretrained


def training(
    make_model: Callable[..., Any],
    task: Any,
    make_batches: feed.MakeBatches,
    *,
    dtype: str,
    steps: int,
    init_checkpoint: str | None = None,
    jit_compile: bool = False,
) -> Callable[[], Any]:
    """Returns what trains `steps` more batches whenever it is called.

    Args:
      make_model: takes dtype, a policy.
      task: as training.step asks for it.
      make_batches: as training.feed asks for it.
      dtype: of training.precision.
      steps: of one call.
      init_checkpoint: what is fine-tuned, or None.
      jit_compile: whether XLA compiles the step.
    """
    scope = strategy.create("one_device")
    with scope.scope():
        model = make_model(dtype=precision.policy(dtype))
        optimizer = optimizers.Optimizer(
            optimizers.AdamW(),
            model.trainable_variables,
            optimizers.WarmupDecay(peak=2e-5, num_train_steps=10**6),
        )
    if init_checkpoint is not None:
        pretrained.assign(model, init_checkpoint)
    train_step = steps_lib.TrainStep(
        task,
        model,
        optimizer,
        strategy=scope,
        seed=1,
        jit_compile=jit_compile,
        # As in runs of some hundred steps.
        compile_parts=dtype == "bfloat16" and strategy.is_one_cpu(scope),
    )
    batches = iter(feed.distribute(scope, make_batches, is_endless=True))
    first = itertools.count(0, steps)
    return lambda: train_step(batches, next(first), steps)


def predictor(
    make_model: Callable[..., Any],
    task: Any,
    *,
    dtype: str,
    init_checkpoint: str,
) -> prediction.Predictor:
    """Returns what predicts batches; the arguments are those of `training`."""
    scope = strategy.create("one_device")
    with scope.scope():
        model = make_model(dtype=precision.policy(dtype))
    pretrained.assign(model, init_checkpoint)
    return prediction.Predictor(task, model, strategy=scope)
