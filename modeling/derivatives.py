"""Functions that give their own derivative, on every backend of Keras."""

from collections.abc import Callable
from typing import Any

from keras import ops


def own_derivative(function: Callable[..., tuple[Any, Callable]]) -> Callable:
    """Has a function of tensors differentiated as it says.

    Args:
        function: maps tensors to (result, gradients); gradients maps the
            gradient of the result to those of the tensors, one or a tuple of
            one for each, None where there is none. Under jax.checkpoint it may
            not refer to what is traced around it: hand that over as tensors.

    Returns:
        A function of the same tensors that returns the result.
    """

    @ops.custom_gradient
    def call(*tensors):
        result, gradients = function(*tensors)

        def derive(*arguments, upstream=None):
            if upstream is None:  # How a backend passes it differs.
                (upstream,) = arguments
            return gradients(upstream)

        return result, derive

    return call
