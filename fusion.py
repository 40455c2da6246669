"""Parts of a model that whoever trains may compile into one operation.

A part is a pure function of tensors. By itself it runs as its operations say;
within `compiled_by` a compiler of the caller's makes of each part one function,
with its derivative. So the layers stay free of any backend. Gradients are to be
taken within it too: derivatives that layers give by themselves have parts.
"""

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any

Compiler = Callable[..., Any]

_compiler: contextvars.ContextVar[Compiler | None] = contextvars.ContextVar(
    "compiler", default=None
)


@contextlib.contextmanager
def compiled_by(compiler: Compiler | None) -> Iterator[None]:
    """Has parts computed by `compiler(function, tensors, options)`."""
    token = _compiler.set(compiler)
    try:
        yield
    finally:
        _compiler.reset(token)


def part(function: Callable[..., Any], *tensors: Any, **options: Any) -> Any:
    """Computes function(*tensors, **options).

    Args:
      function: pure; defined at the top level of a module.
      *tensors: what it is differentiated by, where they are floating; or None.
      **options: hashable, the same in every step.

    Returns:
      The one tensor.
    """
    compiler = _compiler.get()
    if compiler is None:
        return function(*tensors, **options)
    return compiler(function, tensors, options)
