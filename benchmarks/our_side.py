"""Our side of a comparison of speed: training steps or predictions."""

import itertools
from collections.abc import Callable
from typing import Any

import foundation.tensorflow_setup  # noqa: F401
from training import feed, inference, optimizers, precision, strategy
from training import step as steps_lib
from training.cpu import compiled_functions, onednn  # noqa: F401  Register.
from weights import pretrained


def training(
    make_model: Callable[..., Any],
    objective: Any,
    make_batches: feed.MakeBatches,
    *,
    dtype: str,
    steps: int,
    init_checkpoint: str | None = None,
    jit_compile: bool = False,
) -> Callable[[], Any]:
    """Returns a function that trains on the next `steps` batches.

    Args:
      make_model: takes a dtype policy, returns a model.
      objective: see step.Objective.
      make_batches: makes the batches of training.feed.
      dtype: a precision of training.precision.
      steps: steps per call.
      init_checkpoint: the initial weights; None keeps the random ones.
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
        steps_lib.Learner(objective, model, optimizer),
        strategy=scope,
        seed=1,
        jit_compile=jit_compile,
        # As the commands do in runs of at least 200 steps.
        compile_functions=dtype == "bfloat16" and strategy.is_one_cpu(scope),
    )
    batches = iter(feed.distribute(scope, make_batches, is_endless=True))
    first = itertools.count(0, steps)
    return lambda: train_step(batches, next(first), steps)


def predictor(
    make_model: Callable[..., Any],
    objective: Any,
    *,
    dtype: str,
    init_checkpoint: str,
) -> inference.Predictor:
    """Returns a predictor; the arguments are those of `training`."""
    scope = strategy.create("one_device")
    with scope.scope():
        model = make_model(dtype=precision.policy(dtype))
    pretrained.assign(model, init_checkpoint)
    return inference.Predictor(objective, model, strategy=scope)
