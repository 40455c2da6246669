"""Reports GPUs that this machine has and TensorFlow does not use, and why.

TensorFlow's own notice is one of those that tensorflow_setup hides, and it does
not name the libraries.
"""

import ctypes
import glob
import os
import site
import sys

import tensorflow as tf
from absl import logging

# What the kernel's NVIDIA driver makes for each GPU.
_TRACES = ("/dev/nvidia[0-9]*", "/proc/driver/nvidia/gpus/*")
_DRIVER = "libcuda.so.1"
# By the version of CUDA that TensorFlow was built with.
_LIBRARIES = {
    "12": (
        "libcudart.so.12",
        "libcublas.so.12",
        "libcublasLt.so.12",
        "libcufft.so.11",
        "libcusolver.so.11",
        "libcusparse.so.12",
    ),
    "13": (
        "libcudart.so.13",
        "libcublas.so.13",
        "libcublasLt.so.13",
        "libcufft.so.12",
        "libcusolver.so.12",
        "libcusparse.so.12",
    ),
}
_INSTALL = "pip install 'tensorflow[and-cuda]'"


def warn() -> None:
    """Logs one line if a GPU is there; call it where TensorFlow has none."""
    found = gpus()
    if found:
        logging.warning(
            "%s: %d NVIDIA GPU(s), which TensorFlow does not use: %s",
            found[0],
            len(found),
            reason(),
        )


def gpus() -> list[str]:
    """Returns one path of each GPU that the kernel's driver has found."""
    for pattern in _TRACES:
        found = sorted(glob.glob(pattern))
        if found:
            return found
    return []


def reason() -> str:
    """Returns why TensorFlow has no GPU, and what helps."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and visible.strip() in ("", "-1", "none"):
        return f"CUDA_VISIBLE_DEVICES={visible!r} hides them"
    build = tf.sysconfig.get_build_info()
    if not build.get("is_cuda_build"):
        return f"this TensorFlow is built without CUDA; {_INSTALL}"
    if not _is_loadable(_DRIVER):
        return f"the driver's {_DRIVER} cannot be loaded"
    missing = [name for name in libraries(build) if not _is_loadable(name)]
    if missing:
        return f"{', '.join(missing)} cannot be loaded; {_INSTALL}"
    return "the reason is in TensorFlow's notices: TF_CPP_MIN_LOG_LEVEL=0"


def libraries(build: dict) -> list[str]:
    """Returns the libraries that TensorFlow loads, by its build's versions."""
    cuda = str(build.get("cuda_version", "")).partition(".")[0]
    cudnn = str(build.get("cudnn_version", "")).partition(".")[0]
    named = [f"libcudnn.so.{cudnn}"] if cudnn else []
    return [*_LIBRARIES.get(cuda, ()), *named]


def _is_loadable(name: str) -> bool:
    """Looks where TensorFlow does: the system's paths and pip's packages."""
    folders = {*sys.path, *site.getsitepackages()}
    packaged = [f"{folder}/nvidia/*/lib/{name}" for folder in folders]
    paths = [path for pattern in packaged for path in glob.glob(pattern)]
    for path in [name, *paths]:
        try:
            ctypes.CDLL(path)
        except OSError:
            continue
        return True
    return False
