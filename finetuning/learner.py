"""From flags to what trains a model: optimizer, schedule, loss scale."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from finetuning import flags as flags_lib
from foundation import errors
from training import optimizers, precision, step


def make_learner(
    flags: flags_lib.RunFlags,
    objective: step.Objective,
    model: Any,
    *,
    strategy: tf.distribute.Strategy,
    learning_rate: float,
    num_train_steps: int,
    num_warmup_steps: int,
    rate_factors: Mapping[str, float] | None = None,
) -> step.Learner:
    """Makes the optimizer and its schedule, and the loss scale.

    Args:
      flags: the flags of optimizer and devices.
      objective: the loss.
      model: the model, made in strategy.scope().
      strategy: the devices.
      learning_rate: the peak learning rate.
      num_train_steps: number of steps of all phases together.
      num_warmup_steps: number of steps in which the learning rate rises.
      rate_factors: maps variables' paths to factors on the learning rate.

    Raises:
      InputError: the model has fewer layers than --freeze_layers.
    """
    chosen = flags.optimizer
    moments: dict[str, Any] = {
        "weight_decay": chosen.weight_decay_rate,
        "beta_1": chosen.adam_beta_1,
        "beta_2": chosen.adam_beta_2,
        "epsilon": chosen.adam_epsilon,
    }
    rule: optimizers.AdamW | optimizers.Lamb
    if chosen.optimizer == "lamb":
        rule = optimizers.Lamb(**moments)
    else:
        rule = optimizers.AdamW(
            bias_correction=chosen.bias_correction, **moments
        )
    with strategy.scope():
        optimizer = optimizers.Optimizer(
            rule,
            trained_variables(model, chosen.freeze_layers),
            optimizers.WarmupDecay(
                peak=learning_rate,
                num_train_steps=num_train_steps,
                num_warmup_steps=num_warmup_steps,
                decay=chosen.lr_decay,
            ),
            clip_norm=chosen.clip_norm or None,
            rate_factors=rate_factors,
        )
        is_float16 = precision.choose(flags.devices.precision) == "float16"
        loss_scale = precision.LossScale() if is_float16 else None
    return step.Learner(objective, model, optimizer, loss_scale)


def trained_variables(model: Any, freeze_layers: int | None) -> list[Any]:
    """Returns the variables of a model that are not frozen.

    Args:
      model: the model.
      freeze_layers: number of lowest layers that are frozen, besides the
        embeddings; None to freeze nothing.

    Raises:
      InputError: the model has fewer layers.
    """
    if freeze_layers is None:
        return list(model.trainable_variables)
    count = len(model.bert.blocks)
    if freeze_layers > count:
        raise errors.InputError(
            f"--freeze_layers={freeze_layers}: the model has {count} layers"
        )
    frozen = ["bert/embeddings/"]
    frozen += [f"bert/encoder/layer_{i}/" for i in range(freeze_layers)]
    return [
        variable
        for variable in model.trainable_variables
        if not variable.path.startswith(tuple(frozen))
    ]


def layer_factors(model: Any, decay: float) -> dict[str, float]:
    """Returns factors on the learning rates of variables, by their paths.

    The factors are decay for the top layer, decay^2 for the layer below it,
    ..., decay^(L + 1) for the embeddings. Head and pooler have none.
    """
    count, factors = len(model.bert.blocks), {}
    for path in (variable.path for variable in model.variables):
        if path.startswith("bert/embeddings/"):
            factors[path] = decay ** (count + 1)
        elif path.startswith("bert/encoder/layer_"):
            layer = int(path.split("/")[2].removeprefix("layer_"))
            factors[path] = decay ** (count - layer)
    return factors
