"""Imports TensorFlow without the notices of its C++ runtime.

On a machine without a GPU they fill a screen before the first line of a run.
Import this before anything that imports TensorFlow. TF_CPP_MIN_LOG_LEVEL=0
shows everything, e.g. why a GPU is not found; what really fails raises.
"""

import importlib
import os
import sys
import tempfile

_LEVEL = "TF_CPP_MIN_LOG_LEVEL"


def _import_quietly(name: str) -> None:
    """Imports a module while file descriptor 2 points to a file.

    Some notices are written before the runtime has read its log level, so
    that only the descriptor itself keeps them away. If the import fails, all
    that was written is shown.
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


# Processes that this one starts inherit the level, and are quiet as well.
if os.environ.setdefault(_LEVEL, "3") == "3":
    _import_quietly("tensorflow")
