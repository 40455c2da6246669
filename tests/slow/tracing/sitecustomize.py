"""Records which lines each test runs, of this process and those it starts.

Python imports this module by itself if its folder is on PYTHONPATH. Rooms are
in the environment variable TRACED_ROOMS (absolute, with os.pathsep between),
the folder of the records in TRACES. pytest names the test in its environment,
which processes inherit.
"""

import atexit
import collections
import json
import os
import sys
import threading

_lines = collections.defaultdict(set)  # (test, file) -> line numbers
_rooms = tuple(os.environ.get("TRACED_ROOMS", "").split(os.pathsep))


def _trace(frame, event, argument):
    path = frame.f_code.co_filename
    if not path.startswith(_rooms):
        return None
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
    lines = _lines[test, path]
    lines.add(frame.f_lineno)

    def trace_line(frame, event, argument):
        if event == "line":
            lines.add(frame.f_lineno)
        return trace_line

    return trace_line


def _write():
    sys.settrace(None)
    path = os.path.join(os.environ["TRACES"], f"{os.getpid()}.json")
    with open(path, "w") as file:
        json.dump([[*key, [*value]] for key, value in _lines.items()], file)


if "TRACES" in os.environ:
    threading.settrace(_trace)
    sys.settrace(_trace)
    atexit.register(_write)
