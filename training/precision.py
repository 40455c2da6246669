"""Which number format to compute in, and the loss scale that float16 needs.

Master weights, slots, softmax, LayerNorm and loss are float32 everywhere.
"""

import pathlib
import typing

import tensorflow as tf

from foundation import errors
from training import settings

NAMES = typing.get_args(settings.Precision)
# Bounds of the loss scale. Unbounded doubling would reach infinity, and half of
# infinity is infinity. If gradients overflow at a scale of 1, the scale is not
# the cause; a smaller one would only lose small gradients.
_SMALLEST, _LARGEST = 1.0, 2.0**24
_CPU_FLAGS = ("amx_bf16", "avx512_bf16")


def choose(name: str = "auto") -> str:
    """Returns the compute dtype: auto takes bfloat16 where it is multiplied.

    That is on TPUs, on GPUs from Ampere on, and on CPUs with AMX-BF16 or
    AVX512-BF16; elsewhere bfloat16 is emulated, and slower than float32.
    """
    if name not in NAMES:
        raise errors.InputError(f"--precision={name}: not one of {NAMES}")
    if name != "auto":
        return name
    if tf.config.list_logical_devices("TPU"):
        return "bfloat16"
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        details = [tf.config.experimental.get_device_details(g) for g in gpus]
        capabilities = [d.get("compute_capability", (0, 0)) for d in details]
        return "bfloat16" if min(capabilities) >= (8, 0) else "float32"
    return "bfloat16" if cpu_multiplies_bfloat16() else "float32"


def forbid_tf32() -> None:
    """Makes products of float32 matrices exact to float32 on every GPU.

    From Ampere on TensorFlow would round their factors to TF32, which has
    float16's mantissa.
    """
    tf.config.experimental.enable_tensor_float_32_execution(False)


def policy(compute_dtype: str) -> str:
    """Maps a compute dtype to the Keras policy with float32 variables."""
    return "float32" if compute_dtype == "float32" else f"mixed_{compute_dtype}"


class LossScale:
    """The dynamic loss scale of float16.

    A step whose summed gradient is not finite on any replica is skipped,
    on all replicas, and halves the scale; `growth_steps` good steps in a row
    double it. Make it under `strategy.scope()`.
    """

    def __init__(
        self,
        *,
        initial: float = 2.0**15,
        growth_steps: int = 2000,
        max_skipped: int = 50,
    ):
        """Makes the state; `max_skipped` in a row are too many."""
        self._max_skipped = max_skipped
        self._growth_steps = growth_steps
        # value, good steps in a row, skipped in a row, skipped in all.
        # Aggregation: every replica computes the same next state.
        self.state = tf.Variable(
            [initial, 0.0, 0.0, 0.0],
            trainable=False,
            name="loss_scale",
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )

    def value(self) -> tf.Tensor:
        """Returns the factor on the loss, float32 []."""
        return tf.identity(self.state)[0]

    def update(self, is_finite: tf.Tensor) -> None:
        """Records one step; replica context, the same value on all replicas."""
        value, good, skipped, total = tf.unstack(tf.identity(self.state))
        grows = good + 1.0 >= self._growth_steps
        good_state = tf.stack(
            [
                tf.where(grows, tf.minimum(value * 2.0, _LARGEST), value),
                tf.where(grows, 0.0, good + 1.0),
                0.0,
                total,
            ]
        )
        halved = tf.maximum(value / 2.0, _SMALLEST)
        bad_state = tf.stack([halved, 0.0, skipped + 1.0, total + 1.0])
        self.state.assign(tf.where(is_finite, good_state, bad_state))

    def check(self) -> tuple[int, str]:
        """Returns how many steps were skipped so far, and the problem, if any.

        The problem is that so many in a row mean that the run has diverged.
        """
        value, _, skipped, total = self.state.numpy().tolist()
        problem = ""
        if skipped >= self._max_skipped:
            problem = (
                f"{int(skipped)} steps in a row had gradients that are not "
                f"finite, down to a loss scale of {value:g}"
            )
        return int(total), problem


def cpu_multiplies_bfloat16() -> bool:
    """Returns whether the CPU has bfloat16 instructions, as far as known."""
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text()
    except OSError:  # Not Linux.
        return False
    flags = next((s for s in text.splitlines() if s.startswith("flags")), "")
    return any(flag in flags.split() for flag in _CPU_FLAGS)
