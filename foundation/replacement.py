"""Replaces functions of a model by faster implementations.

The functions in modeling/ are formulas. The program that runs a model may know
an implementation of some of them that is faster on its hardware:

    @replacement.replaceable
    def layer_norm(x, gamma, beta):     # modeling/: the formula
        ...

    with replacement.using(choose):     # training/: calls choose(layer_norm)
        model(features)                 # instead of layer_norm
"""

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator
from typing import Any

Function = Callable[..., Any]
# Maps a replaceable function to the function to call, often the same.
Choose = Callable[[Function], Function]

_choose: contextvars.ContextVar[Choose] = contextvars.ContextVar(
    "choose", default=lambda function: function
)


def replaceable(function: Function) -> Function:
    """Decorates a pure function of tensors that `using` may replace.

    Args:
      function: defined at the top level of a module. Positional arguments are
        tensors or None; keyword arguments are hashable.
    """

    @functools.wraps(function)
    def call(*tensors: Any, **options: Any) -> Any:
        return _choose.get()(function)(*tensors, **options)

    return call


@contextlib.contextmanager
def using(choose: Choose | None) -> Iterator[None]:
    """Replaces functions while its body runs; None replaces nothing.

    Args:
      choose: maps a function to one that takes the same arguments and returns
        the same tensor, up to rounding.
    """
    token = _choose.set(choose or (lambda function: function))
    try:
        yield
    finally:
        _choose.reset(token)
