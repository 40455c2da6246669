"""Reads and writes TensorFlow checkpoints under the released TF1 names.

    bert_model.ckpt.index                  names, shapes, places
    bert_model.ckpt.data-00000-of-00001    values

What google-research/bert released, what its runs and ours leave behind
(optimizer slots and the step included), and the raw view of TF2 checkpoints,
whose names `model_garden` understands.
"""

import os
import re
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

import errors
from modeling import weight_names
from modeling.stored_weights import Matched, StoredTensor
from tasks import bundle_index

PREFIX = "bert_model.ckpt"
OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_DATA = ".data-00000-of-00001"
# What training leaves beside the weights: slots of whatever optimizer, steps.
_TRAINING = re.compile(
    r"(.*/)?(adam_[mv]|Adam(_1)?|lamb_[mv]|LAMB(_1)?|AdamWeightDecayOptimizer"
    r"(_1)?|Momentum|beta[12]_power|global_step|save_counter|training_state"
    r"|loss_scale|good_steps|(current_)?loss_scale.*|.*_slot.*)"
)


def find(directory: str) -> str | None:
    """Returns the prefix that `checkpoint` names, or the only one there is.

    Raises:
      InputError: there are several, and nothing says which.
    """
    path = os.path.join(directory, "checkpoint")
    if tf.io.gfile.exists(path):
        with tf.io.gfile.GFile(path) as file:
            named = re.search(
                r'^model_checkpoint_path: "(.*)"', file.read(), re.M
            )
        if named:  # The directory may have been moved since.
            prefix = os.path.join(directory, os.path.basename(named[1]))
            if tf.io.gfile.exists(prefix + ".index"):
                return prefix
    found = sorted(tf.io.gfile.glob(os.path.join(directory, "*.index")))
    if len(found) > 1:
        names = ", ".join(os.path.basename(name)[:-6] for name in found[:3])
        raise errors.InputError(
            f"{directory}: {len(found)} checkpoints there ({names}, ...); "
            "name one of them"
        )
    return found[0][: -len(".index")] if found else None


def read(prefix: str, *, needs_data: bool = True) -> dict[str, StoredTensor]:
    """Lists all tensors; they are read, and their checksums tested, later."""
    entries = bundle_index.read(prefix, needs_data=needs_data)
    reader = None

    def load(name: str) -> np.ndarray:
        nonlocal reader
        if entries[name].is_sliced:
            raise errors.InputError(f"{prefix}: {name} is stored in slices")
        try:
            if reader is None:
                reader = tf.train.load_checkpoint(prefix)
            return reader.get_tensor(name)
        except (tf.errors.OpError, RuntimeError, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise errors.InputError(
                f"{prefix}: {name} cannot be read: {reason:.200}"
            ) from error

    return {
        name: StoredTensor(
            name, entry.shape, entry.dtype, lambda name=name: load(name)
        )
        for name, entry in entries.items()
    }


def is_training_state(name: str) -> bool:
    """Tells optimizer slots and steps from weights."""
    return _TRAINING.fullmatch(name) is not None


def match(stored: Mapping[str, StoredTensor]) -> Matched:
    """Sorts out BERT's weights; their names are ours already."""
    tensors = {
        name: tensor
        for name, tensor in stored.items()
        if weight_names.to_hugging_face(name) is not None
    }
    others = {name: t for name, t in stored.items() if name not in tensors}
    return Matched(tensors, others)


def write(prefix: str, values: Mapping[str, np.ndarray]) -> None:
    """Writes a checkpoint that any TensorFlow restores by name.

    Both files appear under their names only when they are whole, the index
    last.
    """
    directory, name = os.path.split(prefix)
    tf.io.gfile.makedirs(directory)
    scratch = os.path.join(directory, f".{name}.{os.getpid()}")
    try:
        with tf.device("CPU:0"):
            tf.raw_ops.SaveV2(
                prefix=os.path.join(scratch, name),
                tensor_names=list(values),
                shape_and_slices=[""] * len(values),
                tensors=[tf.constant(value) for value in values.values()],
            )
        for suffix in (_DATA, ".index"):
            tf.io.gfile.rename(
                os.path.join(scratch, name) + suffix,
                prefix + suffix,
                overwrite=True,
            )
    finally:
        if tf.io.gfile.exists(scratch):
            tf.io.gfile.rmtree(scratch)
