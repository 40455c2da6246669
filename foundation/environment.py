"""Ends a command with one line if Python or the packages are not the required.

Import this module before any package that has to be installed: a forgotten
`. .venv/bin/activate` or an old Python then is no traceback. Python 3.8 and 3.9
can run this module, and the lines of a command that come before it. Programs
that `import bert` keep their own errors; an old Python is an ImportError.
"""

import importlib.util
import os
import sys

_OLDEST, _NEWEST = (3, 10), (3, 13)
_PYTHON = "Python {}.{} to {}.{}".format(*_OLDEST, *_NEWEST)
_ACTIVATE = "activate the environment (. .venv/bin/activate)"
_MAKE = "make it (make install)"
_former_hook = sys.excepthook


def _is_command():
    """Returns whether the program is of this checkout.

    Others, which `import bert`, keep their own errors. Those in the environment
    of the checkout, such as pytest, are others.
    """
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    if main is None:
        return False
    checkout = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    path = os.path.relpath(os.path.realpath(main), checkout)
    return path.split(os.sep)[0] not in (os.pardir, ".venv")


def _end(problem):
    if not _is_command():
        raise ImportError(problem)
    program = os.path.basename(sys.argv[0]) or "python"
    sys.stderr.write(f"{program}: {problem}\n")
    sys.exit(2)


def _end_if_not_installed(kind, error, traceback):
    """Ends the process if a package is missing; else calls the former hook.

    A missing module of a package that is there is a defect.
    """
    package = (getattr(error, "name", None) or "").partition(".")[0]
    is_missing = issubclass(kind, ModuleNotFoundError) and package
    if (
        not is_missing
        or hasattr(sys, "ps1")
        or package in sys.modules
        or importlib.util.find_spec(package) is not None
    ):
        _former_hook(kind, error, traceback)
        return
    _end(
        f"the package {package!r} is not installed for {sys.executable}: "
        f"{_ACTIVATE}, or {_MAKE} with {_PYTHON}"
    )


if sys.version_info[:2] < _OLDEST:
    _end(
        "{} is required, this is {}.{}: {}, or {} with a newer Python".format(
            _PYTHON, *sys.version_info[:2], _ACTIVATE, _MAKE
        )
    )
if _is_command():
    sys.excepthook = _end_if_not_installed
