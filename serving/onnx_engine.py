"""Computes ONNX models with onnxruntime, for the server.

A directory is one that export_model.py --format=onnx writes. Only taggers and
masked LMs import TensorFlow, because their tasks do.
"""

import functools
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime

from foundation import errors, file_system
from serving import exported, served_directories, served_model
from serving.served_model import Spec

_FILE = served_directories.FILES["onnxruntime"]
# Tokens whose logits of words are computed together: 125 MB for 30,522 words.
_WORD_TOKENS = 1024


def make(threads: int = 0) -> served_model.Engine:
    """Returns the engine; `threads` compute a batch, 0 is all cores."""
    return served_model.Engine(_FILE, functools.partial(_load, threads=threads))


def _load(directory: str, threads: int) -> exported.Model:
    """Loads a directory.

    Raises:
      InputError: a file is missing or damaged.
    """
    setup = exported.read_setup(directory)
    if setup is None:
        raise errors.InputError(
            f"{directory}: {served_model.DESCRIPTION} is missing"
        )
    session = _open_session(os.path.join(directory, _FILE), threads)
    outputs = {
        info.name: Spec(
            tuple(n if isinstance(n, int) else None for n in info.shape[1:]),
            np.dtype("f4"),
        )
        for info in session.get_outputs()
        if info.name != "last_hidden_state"
    }

    def compute(features: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        inputs = {
            theirs: features[name].astype(np.int64)
            for name, theirs in exported.ONNX_NAMES.items()
        }
        values = session.run([*outputs], inputs)
        return dict(zip(outputs, values, strict=True))

    def run(features: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        if "masked_lm_positions" not in features:
            return compute(features)
        return _at_masks(compute, features)

    return exported.Model(setup, run, outputs)


def _at_masks(
    compute: Any, features: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Returns the logits of words at masked_lm_positions, some at a time."""
    batch, length = features["input_ids"].shape
    size, parts = max(1, _WORD_TOKENS // length), []
    for first in range(0, batch, size):
        rows = {k: x[first : first + size] for k, x in features.items()}
        (logits,) = compute(rows).values()
        positions = rows["masked_lm_positions"][..., None]
        parts.append(np.take_along_axis(logits, positions, axis=1))
    return {"logits": np.concatenate(parts)}


def _open_session(path: str, threads: int) -> onnxruntime.InferenceSession:
    file_system.refuse_pointer(path)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(
            path, options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # Its types are not public.
        raise errors.InputError(
            f"{path}: cannot be loaded: {errors.reason(error)}"
        ) from error
