"""BERT's AdamW, LAMB and learning-rate schedule under tf.distribute.

A rule (AdamW, Lamb) computes the update of one variable. Optimizer owns the
slots and the clipping, and applies the rule on every device. A schedule
(WarmupDecay) is a pure function of the step.
"""

import dataclasses
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

# A regex search over the variable's path, so output_bias is excluded as well:
# https://github.com/google-research/bert/blob/eedf5716/optimization.py#L65
NO_DECAY = r"LayerNorm|layer_norm|bias"
_MOMENTS = ("adam_m", "adam_v")


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdamW:
    """The released optimizer: no bias correction, decoupled weight decay.

    m = beta_1 m + (1 - beta_1) g,  v = beta_2 v + (1 - beta_2) g^2
    w = w - rate (m / (sqrt(v) + epsilon) + weight_decay w)

    With `bias_correction`, m / (1 - beta_1^t) and v / (1 - beta_2^t) replace m
    and v, as in PyTorch's AdamW.
    """

    weight_decay: float = 0.01
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-6
    bias_correction: bool = False

    def scalars(self, rate: tf.Tensor, step: tf.Tensor) -> Mapping[str, Any]:
        """Returns what `apply` needs, the same for all variables of a rate."""
        powers = [tf.zeros([]), tf.zeros([])]  # beta^t = 0: no bias correction.
        epsilon = tf.constant(self.epsilon)
        if self.bias_correction:
            t = tf.cast(step, tf.float32) + 1.0
            powers = [tf.pow(self.beta_1, t), tf.pow(self.beta_2, t)]
            # The operation adds it to the root of v as it is, uncorrected.
            epsilon *= tf.sqrt(1.0 - powers[1])
        return {
            "kept": 1.0 - rate * self.weight_decay,
            "lr": rate,
            "beta1_power": powers[0],
            "beta2_power": powers[1],
            "beta1": tf.constant(self.beta_1),
            "beta2": tf.constant(self.beta_2),
            "epsilon": epsilon,
        }

    def apply(
        self,
        variable: tf.Variable,
        slots: Sequence[tf.Variable],
        gradient: tf.Tensor,
        path: str,
        *,
        kept: tf.Tensor,
        **adam: tf.Tensor,
    ) -> None:
        """Moves one variable and its two slots on the current device."""
        if self.weight_decay and not re.search(NO_DECAY, path):
            # Decay first: it uses the weights of before the step.
            variable.assign(variable * kept)
        # One fused pass over memory instead of a dozen.
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=slots[0].handle,
            v=slots[1].handle,
            grad=gradient,
            **adam,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lamb:
    """LAMB as the paper states it (arXiv:1904.00962, algorithm 2).

    m and v as in Adam, with bias correction; r = m / (sqrt(v) + epsilon)
    u = r + weight_decay w,  w = w - rate (|w| / |u|) u

    The trust ratio |w| / |u| is 1 where either norm is 0. It is taken for every
    variable, also for those that the authors' code leaves out.
    """

    weight_decay: float = 0.01
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-6

    def scalars(self, rate: tf.Tensor, step: tf.Tensor) -> Mapping[str, Any]:
        """Returns what `apply` needs, the same for all variables of a rate."""
        t = tf.cast(step, tf.float32) + 1.0
        powers = tf.pow(self.beta_1, t), tf.pow(self.beta_2, t)
        return {"rate": rate, "corrections": [1.0 - x for x in powers]}

    def apply(
        self,
        variable: tf.Variable,
        slots: Sequence[tf.Variable],
        gradient: tf.Tensor,
        path: str,
        *,
        rate: tf.Tensor,
        corrections: Sequence[tf.Tensor],
    ) -> None:
        """Moves one variable and its two slots on the current device."""
        m = self.beta_1 * slots[0] + (1.0 - self.beta_1) * gradient
        v = self.beta_2 * slots[1] + (1.0 - self.beta_2) * gradient**2
        slots[0].assign(m)
        slots[1].assign(v)
        m = m / corrections[0]
        v = v / corrections[1]
        update = m / (tf.sqrt(v) + self.epsilon)
        if self.weight_decay and not re.search(NO_DECAY, path):
            update += self.weight_decay * variable
        ratio = tf.math.divide_no_nan(tf.norm(variable), tf.norm(update))
        update *= tf.where(ratio > 0.0, ratio, 1.0)
        variable.assign_sub(rate * update)


class Optimizer:
    """Slots, schedule, clipping, and the rule on every device.

    Make it under `strategy.scope()`. Clipping follows the sum over replicas, so
    that the update does not depend on their number. (The released code clips
    each TPU core's own gradient before the sum.)
    """

    def __init__(
        self,
        rule: AdamW | Lamb,
        variables: Sequence[Any],
        schedule: Callable[[tf.Tensor], tf.Tensor],
        *,
        clip_norm: float | None = 1.0,
        rate_factors: Mapping[str, float] | None = None,
    ):
        """Makes the slots.

        Args:
            rule: how one variable moves.
            variables: Keras variables; their `path` keys decay and slots.
            schedule: maps the step to the learning rate.
            clip_norm: the largest global norm of the gradients, or None.
            rate_factors: maps variables' paths to factors on the learning
                rate; 1 for the others.
        """
        self.schedule = schedule
        self.variables = list(variables)
        self.clip_norm = clip_norm
        self._rule = rule
        self._rate_factors = rate_factors or {}
        self._slots = [
            [_slot(v, name) for name in _MOMENTS] for v in self.variables
        ]

    @property
    def slots(self) -> dict[str, tf.Variable]:
        """Maps `<variable's path>/adam_m`, `/adam_v` ... to the slots."""
        return {
            f"{v.path}/{name}": slot
            for v, slots in zip(self.variables, self._slots, strict=True)
            for name, slot in zip(_MOMENTS, slots, strict=True)
        }

    def reduce(
        self, gradients: Sequence[tf.Tensor]
    ) -> tuple[list[tf.Tensor], tf.Tensor]:
        """Sums over replicas and clips, in this order; replica context.

        Returns:
            The gradients of the global batch, and their norm before clipping.
        """
        context = tf.distribute.get_replica_context()
        if context.num_replicas_in_sync > 1:
            gradients = context.all_reduce(
                tf.distribute.ReduceOp.SUM, list(gradients)
            )
        norm = tf.linalg.global_norm(gradients)
        if self.clip_norm:
            gradients, _ = tf.clip_by_global_norm(
                gradients, self.clip_norm, use_norm=norm
            )
        return list(gradients), norm

    def apply(
        self,
        gradients: Sequence[tf.Tensor],
        step: tf.Tensor,
        is_wanted: tf.Tensor | None = None,
    ) -> None:
        """Applies reduced gradients; replica context.

        Args:
            gradients: the same dense tensors on every replica.
            step: int64 [], counted from 0.
            is_wanted: bool []; False leaves weights and slots as they are.
        """
        context = tf.distribute.get_replica_context()
        is_applied = tf.constant(True) if is_wanted is None else is_wanted
        rate, factors = self.schedule(step), self._rate_factors
        scalars = {
            factor: self._rule.scalars(rate * factor, step)
            for factor in {1.0, *factors.values()}
        }

        def move(variable, gradient, scalars, is_applied, *slots, path):
            own = scalars[factors.get(path, 1.0)]

            def apply():
                self._rule.apply(variable, slots, gradient, path, **own)

            if is_wanted is None:
                apply()
            else:
                tf.cond(is_applied, apply, lambda: None)

        def move_all(strategy, gradients, *arguments):
            for variable, slots, gradient in zip(
                self.variables, self._slots, gradients, strict=True
            ):
                strategy.extended.update(
                    variable.value,
                    move,
                    args=(gradient, *arguments, *slots),
                    kwargs={"path": variable.path},
                    group=False,
                )

        strategy = context.strategy
        if not isinstance(strategy, tf.distribute.OneDeviceStrategy):
            context.merge_call(
                move_all, args=(list(gradients), scalars, is_applied)
            )
            return
        # Without merge_call, XLA can compile the update with the gradients.
        for variable, slots, gradient in zip(
            self.variables, self._slots, gradients, strict=True
        ):
            move(
                variable.value,
                gradient,
                scalars,
                is_applied,
                *slots,
                path=variable.path,
            )


def _slot(variable: Any, name: str) -> tf.Variable:
    strategy = tf.distribute.get_strategy()
    with strategy.extended.colocate_vars_with(variable.value):
        return tf.Variable(
            tf.zeros(variable.shape),
            trainable=False,
            name=f"{variable.path}/{name}",
        )


# Shapes of the decay: progress float32 [], 0 to 1 -> rate / peak.
DECAYS: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "linear": lambda done: 1.0 - done,
    "cosine": lambda done: 0.5 + 0.5 * tf.cos(math.pi * done),
    "constant": tf.ones_like,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class WarmupDecay:
    """Linear warm-up, then decay, in float32 as in the released code.

    The decay is measured from step 0, warm-up or not, so step 0 of a run with
    warm-up has rate 0, and at the end of the warm-up the rate of the linear
    decay falls at once from its peak to
    `peak * (1 - num_warmup_steps / num_train_steps)`:
    https://github.com/google-research/bert/blob/eedf5716/optimization.py#L29-L54

    Attributes:
        peak: the rate that the warm-up rises to.
        num_train_steps: where the decay ends.
        num_warmup_steps: 0 means no warm-up.
        decay: a name in DECAYS.
    """

    peak: float
    num_train_steps: int
    num_warmup_steps: int = 0
    decay: str = "linear"

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        """Returns the float32 [] rate of an integer [] step."""
        total = tf.constant(self.num_train_steps, tf.float32)
        peak = tf.constant(self.peak, tf.float32)
        done = tf.minimum(tf.cast(step, tf.float32), total)
        rate = peak * DECAYS[self.decay](done / total)
        if not self.num_warmup_steps:
            return rate
        warmup = tf.constant(self.num_warmup_steps, tf.float32)
        rising = peak * (tf.cast(step, tf.float32) / warmup)
        is_warmup = tf.cast(step, tf.int64) < self.num_warmup_steps
        return tf.where(is_warmup, rising, rate)
