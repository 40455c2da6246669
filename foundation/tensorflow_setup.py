"""Imports TensorFlow as all programs here want it: fast and without notices.

oneDNN multiplies matrices faster than TensorFlow's own code on every x86
processor, but is its default only on those with AVX512-VNNI or better: with
AVX2, a training step takes 0.9 of the time (docs/LOG.md).
TF_ENABLE_ONEDNN_OPTS=0 is obeyed.

The notices of the C++ runtime fill a screen on a machine without a GPU, before
the first line of a run, and those of tf.distribute one for every collective
operation that is traced. TF_CPP_MIN_LOG_LEVEL=0 shows everything, e.g. why a
GPU is not found; what really fails raises.

Keras takes scikit-learn and matplotlib where it finds them, for wrappers and
galleries that nothing here uses: a third of the seconds that a program takes to
start. It does not find them. Nor is Python's collector of garbage let loose on
the half million objects that stay as long as the process.

All of a program's imports take seconds, and Ctrl-C among them ends it as
config_flags.run does later: with one line and exit code 130.

Import this before anything that imports TensorFlow.
"""

import contextlib
import gc
import importlib
import logging
import os
import sys
import tempfile
import types
from collections.abc import Iterator

_UNUSED = ("sklearn", "matplotlib")  # By Keras, as we need it.
_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
_former_hook = sys.excepthook


def _end_if_interrupted(
    kind: type[BaseException],
    error: BaseException,
    traceback: types.TracebackType | None,
) -> None:
    """Ends the process on Ctrl-C; leaves everything else to the former hook.

    SystemExit of a hook is obeyed. Without it, Python would end itself by
    SIGINT. An interactive interpreter continues.
    """
    if not issubclass(kind, KeyboardInterrupt) or hasattr(sys, "ps1"):
        _former_hook(kind, error, traceback)
        return
    program = os.path.basename(sys.argv[0]) or "python"
    sys.stderr.write(f"{program}: interrupted\n")
    sys.exit(130)


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
        except KeyboardInterrupt:
            raise
        except BaseException:
            notices.seek(0)
            os.write(terminal, notices.read())
            raise
        finally:
            os.dup2(terminal, 2)
            os.close(terminal)


@contextlib.contextmanager
def _hidden(names: tuple[str, ...]) -> Iterator[None]:
    """Makes imports of these fail, unless they have been imported before."""
    hidden = [name for name in names if name not in sys.modules]
    # What Python's documentation of sys.modules says that None does.
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


@contextlib.contextmanager
def _kept_from_collection() -> Iterator[None]:
    """Keeps what is made here from being looked at, now and ever after."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


def _leave_warnings(name: str) -> None:
    """Lets a logger say warnings, once: the root's handlers show them."""
    logger = sys.modules[name].get_logger()
    logger.setLevel(logging.WARNING)
    logger.handlers.clear()


sys.excepthook = _end_if_interrupted
# Processes that this one starts inherit both.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
with _hidden(_UNUSED), _kept_from_collection():
    if os.environ.setdefault(_LEVEL, "3") == "3":
        _import_quietly("tensorflow")
        _leave_warnings("tensorflow")
    else:
        importlib.import_module("tensorflow")
