"""BERT's AdamW, LAMB, and how either is applied under tf.distribute.

A rule (AdamW, Lamb) says how one variable moves; Optimizer owns the slots,
the schedule and the clipping, and runs the rule on every device.
"""

import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

# A regex search over the variable's path, so output_bias is excluded as well:
# https://github.com/google-research/bert/blob/eedf5716/optimization.py#L65
NO_DECAY = r"LayerNorm|layer_norm|bias"


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdamW:
    """The released optimizer: no bias correction, decoupled weight decay.

    m = beta_1 m + (1 - beta_1) g,  v = beta_2 v + (1 - beta_2) g^2
    w = w - rate (m / (sqrt(v) + epsilon) + weight_decay w)

    With `bias_correction`, m / (1 - beta_1^t) and v / (1 - beta_2^t) take the
    places of m and v, as in PyTorch's AdamW.
    """

    weight_decay: float = 0.01
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-6
    bias_correction: bool = False
    no_decay: str = NO_DECAY

    def apply(
        self,
        variable: tf.Variable,
        slots: Sequence[tf.Variable],
        gradient: tf.Tensor,
        rate: tf.Tensor,
        step: tf.Tensor,
        path: str,
    ) -> None:
        """Moves one variable and its two slots on the current device."""
        m, v = slots
        powers = [tf.zeros([]), tf.zeros([])]  # 1 - 0: no correction.
        epsilon = tf.constant(self.epsilon)
        if self.bias_correction:
            t = tf.cast(step, tf.float32) + 1.0
            powers = [tf.pow(self.beta_1, t), tf.pow(self.beta_2, t)]
            # The operation adds it to the root of v as it is, uncorrected.
            epsilon *= tf.sqrt(1.0 - powers[1])
        if self.weight_decay and not re.search(self.no_decay, path):
            # Decay first: it uses the weights of before the step.
            variable.assign(variable * (1.0 - rate * self.weight_decay))
        # One fused pass over memory in place of a dozen.
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=m.handle,
            v=v.handle,
            beta1_power=powers[0],
            beta2_power=powers[1],
            lr=rate,
            beta1=self.beta_1,
            beta2=self.beta_2,
            epsilon=epsilon,
            grad=gradient,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lamb:
    """LAMB as the paper states it (arXiv:1904.00962, algorithm 2).

    m and v as in Adam, with bias correction; r = m / (sqrt(v) + epsilon)
    u = r + weight_decay w,  w = w - rate (|w| / |u|) u

    The trust ratio |w| / |u| is 1 where either norm is 0. It is taken for every
    variable; `no_adaptation` names those for which it is left at 1 (the
    authors' code gives NO_DECAY here).
    """

    weight_decay: float = 0.01
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-6
    bias_correction: bool = True
    no_decay: str = NO_DECAY
    no_adaptation: str | None = None

    def apply(
        self,
        variable: tf.Variable,
        slots: Sequence[tf.Variable],
        gradient: tf.Tensor,
        rate: tf.Tensor,
        step: tf.Tensor,
        path: str,
    ) -> None:
        """Moves one variable and its two slots on the current device."""
        m = self.beta_1 * slots[0] + (1.0 - self.beta_1) * gradient
        v = self.beta_2 * slots[1] + (1.0 - self.beta_2) * gradient**2
        slots[0].assign(m)
        slots[1].assign(v)
        if self.bias_correction:
            t = tf.cast(step, tf.float32) + 1.0
            m = m / (1.0 - tf.pow(self.beta_1, t))
            v = v / (1.0 - tf.pow(self.beta_2, t))
        update = m / (tf.sqrt(v) + self.epsilon)
        if self.weight_decay and not re.search(self.no_decay, path):
            update += self.weight_decay * variable
        if not (self.no_adaptation and re.search(self.no_adaptation, path)):
            weight_norm = tf.norm(variable)
            ratio = tf.math.divide_no_nan(weight_norm, tf.norm(update))
            update *= tf.where(ratio > 0.0, ratio, 1.0)
        variable.assign_sub(rate * update)


class Optimizer:
    """Slots, schedule, clipping, and the rule on every device.

    Make it under `strategy.scope()`. Clipping follows the sum over replicas, so
    that the update does not depend on their number. The released code clips
    each TPU core's own gradient before the sum; `clip_per_replica` does so too.
    """

    def __init__(
        self,
        rule: AdamW | Lamb,
        variables: Sequence[Any],
        schedule: Callable[[tf.Tensor], tf.Tensor],
        *,
        clip_norm: float | None = 1.0,
        clip_per_replica: bool = False,
        rate_multiplier: Callable[[str], float] | None = None,
    ):
        """Makes the slots.

        Args:
            rule: how one variable moves.
            variables: Keras variables; their `path` keys decay and slots.
            schedule: maps the step to the learning rate.
            clip_norm: the largest global norm of the gradients, or None.
            clip_per_replica: clip each replica's share, then sum.
            rate_multiplier: maps a variable's path to a factor on its rate.
        """
        self.schedule = schedule
        self.variables = list(variables)
        self.clip_norm = clip_norm
        self.clip_per_replica = clip_per_replica
        self._rule = rule
        self._multiplier = rate_multiplier or (lambda path: 1.0)
        self._slots = [
            [_slot(v, name) for name in ("adam_m", "adam_v")]
            for v in self.variables
        ]

    @property
    def slots(self) -> dict[str, tf.Variable]:
        """Maps `<variable's path>/adam_m` and `/adam_v` to the slots."""
        return {
            f"{v.path}/{name}": slot
            for v, slots in zip(self.variables, self._slots, strict=True)
            for name, slot in zip(("adam_m", "adam_v"), slots, strict=True)
        }

    def reduce(
        self, gradients: Sequence[tf.Tensor]
    ) -> tuple[list[tf.Tensor], tf.Tensor]:
        """Sums over replicas and clips, in this order; replica context.

        Returns:
            The gradients of the global batch, and their norm before clipping.
        """
        context = tf.distribute.get_replica_context()
        replicas = context.num_replicas_in_sync
        if self.clip_per_replica and self.clip_norm:
            # Each replica holds its share of a sum, not a mean: hence the
            # division. On one replica this is clipping after the sum.
            gradients, _ = clip(gradients, self.clip_norm / replicas)
        if replicas > 1:
            gradients = context.all_reduce(
                tf.distribute.ReduceOp.SUM, list(gradients)
            )
        if self.clip_norm and not self.clip_per_replica:
            return clip(gradients, self.clip_norm)
        return list(gradients), tf.linalg.global_norm(gradients)

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
        rate = self.schedule(step)
        wanted = () if is_wanted is None else (is_wanted,)
        tf.distribute.get_replica_context().merge_call(
            self._update, args=(list(gradients), rate, step, *wanted)
        )

    def apply_on_one_device(
        self,
        gradients: Sequence[tf.Tensor],
        step: tf.Tensor,
        is_wanted: tf.Tensor | None = None,
    ) -> None:
        """Does what `apply` does, under OneDeviceStrategy.

        It needs no merge_call, so that XLA may compile it with the gradients.
        """
        rate = self.schedule(step)

        def apply_all():
            for variable, slots, gradient in zip(
                self.variables, self._slots, gradients, strict=True
            ):
                path = variable.path
                own_rate = rate * self._multiplier(path)
                self._rule.apply(
                    variable.value, slots, gradient, own_rate, step, path
                )

        if is_wanted is None:
            apply_all()
        else:
            tf.cond(is_wanted, apply_all, lambda: None)

    def _update(self, strategy, gradients, rate, step, *wanted):
        def update(variable, gradient, rate, step, *rest, path):
            *slots, wanted = rest if len(rest) == 3 else (*rest, None)
            rate = rate * self._multiplier(path)

            def apply():
                self._rule.apply(variable, slots, gradient, rate, step, path)

            if wanted is None:
                apply()
            else:
                tf.cond(wanted, apply, lambda: None)

        for variable, slots, gradient in zip(
            self.variables, self._slots, gradients, strict=True
        ):
            strategy.extended.update(
                variable.value,
                update,
                args=(gradient, rate, step, *slots, *wanted),
                kwargs={"path": variable.path},
                group=False,
            )


def clip(
    gradients: Sequence[tf.Tensor], clip_norm: float
) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Scales gradients down to a global norm; returns them and the old norm."""
    norm = tf.linalg.global_norm(gradients)
    clipped, _ = tf.clip_by_global_norm(gradients, clip_norm, use_norm=norm)
    return clipped, norm


def _slot(variable: Any, name: str) -> tf.Variable:
    strategy = tf.distribute.get_strategy()
    with strategy.extended.colocate_vars_with(variable.value):
        return tf.Variable(
            tf.zeros(variable.shape),
            trainable=False,
            name=f"{variable.path}/{name}",
        )
