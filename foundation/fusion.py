"""Parts of a model that whoever runs it may make one operation of.

A part is a pure function of tensors. By itself it runs as its operations say;
within `compiled_by` a compiler of the caller's makes of each part one function,
with its derivative. So the layers stay free of any backend. Gradients are to be
taken within it too: derivatives that layers give by themselves have parts.

Some functions have a name, under which the caller may know a kernel of the
hardware's: within `using` it is called in their place.
"""

import contextlib
import contextvars
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Compiler = Callable[..., Any]

_compiler: contextvars.ContextVar[Compiler | None] = contextvars.ContextVar(
    "compiler", default=None
)
_NO_KERNELS: Mapping[str, Callable[..., Any]] = {}
_kernels: contextvars.ContextVar[Mapping[str, Callable[..., Any]]] = (
    contextvars.ContextVar("kernels", default=_NO_KERNELS)
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


@contextlib.contextmanager
def using(kernels: Mapping[str, Callable[..., Any]]) -> Iterator[None]:
    """Has the functions of these names replaced; of gradients nothing is said.

    Args:
      kernels: name -> what takes the same tensors and options.
    """
    token = _kernels.set(kernels)
    try:
        yield
    finally:
        _kernels.reset(token)


def kernel(
    name: str, function: Callable[..., Any], *tensors: Any, **options: Any
) -> Any:
    """Computes function(*tensors, **options), or what `using` has instead."""
    return _kernels.get().get(name, function)(*tensors, **options)
