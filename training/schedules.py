"""Learning rates as pure functions of the step: linear warm-up, then decay."""

import dataclasses

import tensorflow as tf


@dataclasses.dataclass(frozen=True, kw_only=True)
class WarmupDecay:
    """The released schedule, in float32 like the released graph.

    The decay is measured from step 0, warm-up or not, so step 0 of a run with
    warm-up has rate 0, and at the end of the warm-up the rate falls at once
    from its peak to `peak * (1 - num_warmup_steps / num_train_steps)`:
    https://github.com/google-research/bert/blob/eedf5716/optimization.py#L29-L54

    Attributes:
        peak: the rate that the warm-up rises to.
        num_train_steps: where the decay ends at 0; the rate stays 0 after it.
        num_warmup_steps: 0 means no warm-up.
        power: 1 is linear; 0 holds the peak (the rate is 0 from the end on).
    """

    peak: float
    num_train_steps: int
    num_warmup_steps: int = 0
    power: float = 1.0

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        """Returns the float32 [] rate of an integer [] step."""
        total = tf.constant(self.num_train_steps, tf.float32)
        peak = tf.constant(self.peak, tf.float32)
        done = tf.minimum(tf.cast(step, tf.float32), total)
        left = 1.0 - done / total
        if self.power != 1.0:
            left = tf.pow(left, self.power)
        rate = peak * left
        if not self.num_warmup_steps:
            return rate
        warmup = tf.constant(self.num_warmup_steps, tf.float32)
        rising = peak * (tf.cast(step, tf.float32) / warmup)
        is_warmup = tf.cast(step, tf.int64) < self.num_warmup_steps
        return tf.where(is_warmup, rising, rate)
