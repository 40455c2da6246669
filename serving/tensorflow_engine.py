"""Computes SavedModels with TensorFlow, for the server.

Those of this project are computed by their signature `serve`, from token ids;
those of other programs and of tasks of one's own by all signatures whose inputs
have rows.
"""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from foundation import errors, tensor_files
from serving import exported, served_directories, served_model
from serving.served_model import Signature, Spec


def set_threads(threads_per_batch: int) -> None:
    """Sets how many threads compute a batch, before the first computation.

    Args:
      threads_per_batch: the number of threads; 0 for all cores.
    """
    tf.config.threading.set_intra_op_parallelism_threads(threads_per_batch)


def _load(directory: str) -> served_model.Model:
    """Loads a SavedModel.

    Raises:
      InputError: it is damaged, or has no default signature whose inputs have
        rows.
    """
    # Registers the operations of the tokenizer.
    from data.tokenization import graph_tokenization  # noqa: F401

    setup = exported.read_setup(directory)
    try:
        loadable = tensor_files.without_pattern(directory)
        model = tf.saved_model.load(loadable)
    except (tf.errors.OpError, OSError, *tensor_files.DAMAGES) as error:
        raise errors.InputError(
            f"{directory}: cannot be loaded: {errors.reason(error)}"
        ) from error
    functions = {}
    for name, function in model.signatures.items():
        specs = function.structured_input_signature[1].values()
        if specs and all(spec.shape.rank for spec in specs):
            functions[name] = _Function(model, function)
    if served_model.DEFAULT_SIGNATURE not in functions:
        raise errors.InputError(
            f"{directory}: has no signature {served_model.DEFAULT_SIGNATURE} "
            "whose inputs have rows"
        )
    if setup is None:
        return _Foreign(functions)
    names = {"masked_lm_positions": "masked_lm_positions", **exported.HUB_NAMES}

    def run(features: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        has_masks = "masked_lm_positions" in features
        serve = functions["serve_masks" if has_masks else "serve"]
        return serve({names[k]: x for k, x in features.items() if k in names})

    return exported.Model(setup, run, functions["serve"].signature.outputs)


ENGINE = served_model.Engine(served_directories.FILES["tensorflow"], _load)


class _Function:
    """A function of a loaded SavedModel.

    Attributes:
      signature: its form.
    """

    def __init__(self, model: Any, function: Any):
        """Takes the function, and its model, which must live as long."""
        self._model, self._function = model, function
        self.signature = Signature(
            _specs(function.structured_input_signature[1]),
            _specs(function.structured_outputs),
        )

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Maps arrays [n, ...] to arrays, by name."""
        with tf.device("CPU"):
            tensors = {
                name: tf.constant(inputs[name], tf.as_dtype(spec.dtype))
                for name, spec in self.signature.inputs.items()
            }
        try:
            outputs = self._function(**tensors)
            return {name: outputs[name].numpy() for name in sorted(outputs)}
        # The line of the latter has bytes of the request that are not UTF-8.
        except (tf.errors.InvalidArgumentError, UnicodeDecodeError) as error:
            raise errors.InputError(_reason(error)) from error


class _Foreign(served_model.Model):
    """A model of another program."""

    def __init__(self, functions: Mapping[str, _Function]):
        self._functions = functions
        self.signatures = {k: x.signature for k, x in functions.items()}

    def predict(
        self, signature_name: str, inputs: Mapping[str, np.ndarray]
    ) -> list[dict[str, Any]]:
        """See served_model.Model."""
        return served_model.rows(self._functions[signature_name](inputs))


def _specs(specs: Mapping[str, tf.TensorSpec]) -> dict[str, Spec]:
    return {
        name: Spec(
            tuple(spec.shape[1:].as_list()) if spec.shape.rank else (),
            np.dtype(spec.dtype.as_numpy_dtype),
        )
        for name, spec in sorted(specs.items())
    }


def _reason(error: Exception) -> str:
    """Returns the line of an error in the graph that says what is wrong."""
    text = str(getattr(error, "message", ""))
    match = re.search(r"assertion failed: \[(.*?)\](\s|$)", text, re.DOTALL)
    return match[1] if match else errors.reason(error)
