"""Ends a command with one line if Python or the packages are not the required.

Import this module before any package that has to be installed: a forgotten
`. .venv/bin/activate` or an old Python then is no traceback. Python 3.8 and 3.9
can run this module, and the lines of a command that come before it. Programs
that `import bert` get an ImportError.
"""

import importlib.util
import os
import sys

_OLDEST = (3, 10)
# A server of ONNX files needs no TensorFlow.
_NEEDED = ("absl", "msgspec", "numpy")
_CHECKOUT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))


def _problem():
    remedy = (
        "activate the environment (. .venv/bin/activate), or make it "
        "(make install) with Python 3.10 to 3.13"
    )
    if sys.version_info[:2] < _OLDEST:
        version = "this is {}.{}".format(*sys.version_info[:2])
        return f"Python 3.10 to 3.13 is required, {version}: {remedy}"
    for name in _NEEDED:
        if importlib.util.find_spec(name) is None:
            return f"no package {name!r} for {sys.executable}: {remedy}"
    return None


if _problem():
    _main = getattr(sys.modules.get("__main__"), "__file__", None)
    _path = os.path.relpath(os.path.realpath(_main or "/"), _CHECKOUT)
    # Neither another program nor one in the environment, such as pytest.
    if _path.split(os.sep)[0] in (os.pardir, ".venv"):
        raise ImportError(_problem())
    sys.stderr.write(f"{os.path.basename(sys.argv[0])}: {_problem()}\n")
    sys.exit(2)
