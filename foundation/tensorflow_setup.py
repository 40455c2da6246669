"""Imports TensorFlow fast and without notices.

Import this module before anything that imports TensorFlow. It does:

1. It enables oneDNN, which multiplies matrices faster than TensorFlow's own
   code on every x86 processor, but is the default only on processors with
   AVX512-VNNI or better. With AVX2, a training step takes 0.9 of the time
   (docs/LOG.md). TF_ENABLE_ONEDNN_OPTS=0 disables it.
2. It hides the notices of the C++ runtime, which fill a screen on a machine
   without a GPU, and those of tf.distribute, one for every collective
   operation. TF_CPP_MIN_LOG_LEVEL=0 shows them, e.g. the reason why a GPU is
   not found.
3. It saves a third of the import time: Keras imports scikit-learn and
   matplotlib for wrappers and galleries that nothing here uses, and Python's
   garbage collector examines half a million objects that live as long as the
   process.
"""

import contextlib
import gc
import importlib
import logging
import os
import sys
import tempfile
from collections.abc import Iterator

_UNUSED = ("sklearn", "matplotlib")  # Imported by Keras for unused features.
_LEVEL = "TF_CPP_MIN_LOG_LEVEL"


def _import_quietly(name: str) -> None:
    """Imports a module while file descriptor 2 points to a file.

    The runtime writes some notices before it reads its log level. If the import
    fails, this shows them.
    """
    sys.stderr.flush()
    terminal = os.dup(2)
    with tempfile.TemporaryFile() as notices:
        os.dup2(notices.fileno(), 2)
        try:
            importlib.import_module(name)
        except BaseException:
            notices.seek(0)
            os.write(terminal, notices.read())
            raise
        finally:
            os.dup2(terminal, 2)
            os.close(terminal)


@contextlib.contextmanager
def _hidden(names: tuple[str, ...]) -> Iterator[None]:
    """Makes imports of these modules fail, unless they are already imported."""
    hidden = [name for name in names if name not in sys.modules]
    # None makes the import fail, as the documentation of sys.modules says.
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


@contextlib.contextmanager
def _kept_from_collection() -> Iterator[None]:
    """Exempts all objects made in this context from garbage collection."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


# Child processes inherit both.
# Where ONEDNN_MAX_CPU_ISA hides bfloat16 instructions of the CPU, TensorFlow
# aborts in the first oneDNN product in bfloat16.
_isa = os.environ.get("ONEDNN_MAX_CPU_ISA", "DEFAULT").upper()
_has_bfloat16 = any(
    name in _isa for name in ("DEFAULT", "ALL", "BF16", "FP16", "AMX", "AVX10")
)
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1" if _has_bfloat16 else "0")
with _hidden(_UNUSED), _kept_from_collection():
    if os.environ.setdefault(_LEVEL, "3") == "3":
        _import_quietly("tensorflow")
        # Warnings are shown once, by the root's handlers.
        _logger = sys.modules["tensorflow"].get_logger()
        _logger.setLevel(logging.WARNING)
        _logger.handlers.clear()
    else:
        importlib.import_module("tensorflow")
