"""Ends a run after a given time: the clock moves the end of the schedule.

The learning rate follows a progress from 0 to 1. A plan says how it grows:

    progress(step) = p + (1 - p) (step - s) / (end - s)   from step s on

A new plan is made now and then, from the seconds that a step takes and those
that are left; it never jumps, because p is the old plan's progress at s.
Between two plans a step is the same pure function of its number as in any other
run, and a checkpoint stores all plans and the time used. A resumed run cannot
repeat the plans that were made after its checkpoint: it measures again.

A phase ends at the progress that is its part of all steps. Its last step moves
with the plans until the run has reached it.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from training import optimizers

# Plans per run, about: often enough to end in time, seldom enough to be quiet.
_PLANS = 50


class Clock:
    """Plans the last step; make it in strategy.scope()."""

    def __init__(self, max_seconds: float, num_train_steps: int):
        """Plans to do all steps, until they are known to take too long."""
        self._max_seconds = max_seconds
        self._num_train_steps = num_train_steps
        self._used_before = 0.0
        self._plan = (0, 0.0, num_train_steps)
        # Step and progress at which each plan but the last began.
        self._earlier: list[tuple[int, float]] = []
        self._first: tuple[int, float] | None = None
        self._next = 0
        # The same on every replica.
        self._variable = tf.Variable(
            [0.0, 0.0, float(num_train_steps)],
            trainable=False,
            name="plan",
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )

    @property
    def end(self) -> int:
        """The step at which progress is 1, as planned now."""
        return self._plan[2]

    def step_at(self, planned: int) -> int:
        """Returns the first step with the progress of a planned step.

        Args:
            planned: the number of this step if all num_train_steps were done.
        """
        return step_at(self._plans(), planned / self._num_train_steps)

    def begin_phase(self) -> None:
        """Measures the seconds of a step anew."""
        self._first = None

    def progress(self, step: tf.Tensor) -> tf.Tensor:
        """Returns the float32 [] progress of an integer [] step."""
        start, done, end = tf.unstack(tf.identity(self._variable))
        fraction = tf.math.divide_no_nan(
            tf.cast(step, tf.float32) - start, end - start
        )
        return tf.minimum(done + (1.0 - done) * fraction, 1.0)

    def tick(self, step: int, elapsed: float) -> None:
        """Makes a new plan where it is time for one.

        Args:
            step: how many steps are done.
            elapsed: seconds since this process began to train.
        """
        left = self._max_seconds - self._used_before - elapsed
        if left <= 0:
            self._replan(step, 0)
        elif self._first is None:  # Not measured: the first call compiles.
            self._first = step, elapsed
            self._next = step + 1
        elif step >= self._next:
            before, since = self._first
            pace = max(elapsed - since, 1e-9) / (step - before)
            self._replan(step, int(left / pace))
            done = step - before
            self._next = step + max(1, min(done, (self.end - step) // _PLANS))

    def state(self, elapsed: float) -> dict[str, Any]:
        """Returns what a checkpoint keeps; see `tick` for the argument."""
        return {**self._plans(), "seconds_used": self._used_before + elapsed}

    def restore(self, state: dict[str, Any]) -> None:
        """Continues the plan of a checkpoint.

        A run that ran out of time continues if it is given more. A run that
        reached the end of its plan, a learning rate of 0, is finished.
        """
        self._used_before = state["seconds_used"]
        start, done, end = state["plan"]
        is_cut_off = start == end and done < 1.0
        if is_cut_off and self._used_before < self._max_seconds:
            end = self._num_train_steps
        self._earlier = [(s, p) for s, p in state.get("earlier_plans", [])]
        self._assign(start, done, end)

    def _plans(self) -> dict[str, Any]:
        return {"plan": list(self._plan), "earlier_plans": self._earlier}

    def _replan(self, step: int, steps_left: int) -> None:
        start, done, end = self._plan
        if step < end:
            self._earlier.append((start, done))
            done += (1.0 - done) * (step - start) / (end - start)
            self._assign(
                step, done, min(step + steps_left, self._num_train_steps)
            )
        if step >= self.end and step < self._num_train_steps:
            logging.info(
                "the time is over after %d steps: progress %.3f",
                step,
                float(self.progress(tf.constant(step, tf.int64))),
            )

    def _assign(self, start: int, done: float, end: int) -> None:
        self._plan = (start, done, end)
        self._variable.assign([float(start), done, float(end)])


def step_at(state: Mapping[str, Any], progress: float) -> int:
    """Returns the first step with a progress, by the plans of a `Clock.state`.

    Later plans do not change it once the run has reached it.
    """
    start, done, end = state["plan"]
    points = [*state.get("earlier_plans", []), (start, done), (end, 1.0)]
    steps, reached = zip(*points, strict=True)
    # Not one more by rounding.
    return math.ceil(np.interp(progress, reached, steps) - 1e-6)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TimedDecay:
    """Linear warm-up and decay over progress instead of steps.

    Attributes:
        peak: the rate that the warm-up rises to.
        warmup: the progress at which it ends.
        clock: gives the progress.
        decay: a name in optimizers.DECAYS.
        power: exponent of the polynomial.
    """

    peak: float
    warmup: float
    clock: Clock
    decay: str = "linear"
    power: float = 1.0

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        """Returns the float32 [] rate of an integer [] step."""
        done = self.clock.progress(step)
        decaying = self.peak * optimizers.DECAYS[self.decay](done, self.power)
        if not self.warmup:
            return decaying
        rising = self.peak * (done / self.warmup)
        return tf.where(done < self.warmup, rising, decaying)
