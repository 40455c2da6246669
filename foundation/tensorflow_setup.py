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

import gc
import importlib
import logging
import os
import sys
import tempfile

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


# Child processes inherit both variables.
# Where ONEDNN_MAX_CPU_ISA hides bfloat16 instructions of the CPU, TensorFlow
# aborts in the first oneDNN product in bfloat16.
_isa = os.environ.get("ONEDNN_MAX_CPU_ISA", "DEFAULT").upper()
_has_bfloat16 = any(
    name in _isa for name in ("DEFAULT", "ALL", "BF16", "FP16", "AMX", "AVX10")
)
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1" if _has_bfloat16 else "0")
# Imported by Keras for unused features. None makes an import fail, as the
# documentation of sys.modules says.
_hidden = {"sklearn", "matplotlib"} - sys.modules.keys()
sys.modules.update(dict.fromkeys(_hidden))  # type: ignore[arg-type]
_collects = gc.isenabled()
gc.disable()
try:
    if os.environ.setdefault(_LEVEL, "3") == "3":
        _import_quietly("tensorflow")
        # Warnings are shown once, by the root's handlers.
        _logger = sys.modules["tensorflow"].get_logger()
        _logger.setLevel(logging.WARNING)
        _logger.handlers.clear()
    else:
        importlib.import_module("tensorflow")
finally:
    gc.freeze()
    if _collects:
        gc.enable()
    for _name in _hidden:
        del sys.modules[_name]
