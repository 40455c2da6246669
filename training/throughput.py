"""Reports the speed of a training: tokens per second and utilization.

A device's utilization is relative to its published peak, which is found by the
name of the first GPU.
"""

import dataclasses

import tensorflow as tf

# TFLOP/s of one device, dense, without sparsity: 16-bit floats, TF32, float32.
# From the makers' data sheets; without TF32 units its rate is float32's. The
# names are the driver's, complete: a part of a device (MIG), a laptop's or
# another form of it has another peak.
_A100, _H100 = (312.0, 156.0, 19.5), (989.0, 494.0, 67.0)
_PEAKS = {
    "NVIDIA A100-SXM4-40GB": _A100,
    "NVIDIA A100-SXM4-80GB": _A100,
    "NVIDIA A100-PCIE-40GB": _A100,
    "NVIDIA A100 80GB PCIe": _A100,
    "NVIDIA A10": (125.0, 62.5, 31.2),
    "NVIDIA A10G": (70.0, 35.0, 31.5),
    "NVIDIA H100 PCIe": (756.0, 378.0, 51.0),
    "NVIDIA H100 80GB HBM3": _H100,
    "NVIDIA H200": _H100,
    "NVIDIA L4": (121.0, 60.0, 30.3),
    "NVIDIA L40S": (362.0, 183.0, 91.6),
    "NVIDIA GeForce RTX 3090": (71.0, 35.5, 35.6),
    "NVIDIA GeForce RTX 4090": (165.0, 82.6, 82.6),
    "Tesla T4": (65.0, 8.1, 8.1),
    "Tesla V100-SXM2-16GB": (125.0, 15.7, 15.7),
    "Tesla V100-SXM2-32GB": (125.0, 15.7, 15.7),
}
_COLUMNS = {"bfloat16": 0, "float16": 0, "tf32": 1, "float32": 2}


def training_flops(
    num_parameters: int, num_tokens: int, *, num_layers: int, hidden_size: int
) -> float:
    """Returns the operations of a training step on one example.

    The usual formula, 6 N + 12 L H S for each of S tokens: two operations for
    each weight and each product of attention in the forward pass, and twice as
    many in the backward pass. N does not count the tables of embeddings.
    """
    attention = 12.0 * num_layers * hidden_size * num_tokens
    return num_tokens * (6.0 * num_parameters + attention)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Throughput:
    """Computes tokens per second and model FLOPs utilization.

    The utilization compares the operations of the mathematics, without those
    of recomputation, with the published dense peak of the devices. TensorFlow
    does not report the kind of a TPU.

    Attributes:
        tokens: tokens of one example, padding included.
        flops: operations of one example, see training_flops; used with a peak.
        peak: FLOP/s of all devices together, or None where it is not known.
    """

    tokens: int
    flops: float | None = None
    peak: float | None = None

    def __call__(self, examples_per_second: float) -> dict[str, float]:
        """Returns the values by their names in metrics.jsonl."""
        values = {"train/tokens_per_second": self.tokens * examples_per_second}
        if self.peak and self.flops is not None:
            values["train/model_flops_utilization"] = (
                self.flops * examples_per_second / self.peak
            )
        return values


def peak(strategy: tf.distribute.Strategy, compute_dtype: str) -> float | None:
    """Returns the FLOP/s of all devices; None if it is unknown.

    Args:
        strategy: its replicas are counted.
        compute_dtype: float32 or a 16-bit float.
    """
    tflops = published(device_name(), compute_dtype)
    if tflops is None:
        return None
    return tflops * 1e12 * strategy.num_replicas_in_sync


def published(name: str, compute_dtype: str) -> float | None:
    """Returns the TFLOP/s of a device by its name; None if it is not known.

    Args:
        name: name of the device, as TensorFlow reports it.
        compute_dtype: float32, tf32 or a 16-bit float.
    """
    peaks = _PEAKS.get(name)
    return peaks and peaks[_COLUMNS[compute_dtype]]


def device_name() -> str:
    """Returns the name of the first GPU; "" without one."""
    for gpu in tf.config.list_physical_devices("GPU"):
        details = tf.config.experimental.get_device_details(gpu)
        return details.get("device_name", "")
    return ""
