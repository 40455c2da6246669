"""Records which lines each test runs, of this process and those it starts.

Python imports this module by itself if its folder is on PYTHONPATH. Rooms are
in the environment variable TRACED_ROOMS (absolute, with os.pathsep between),
the folder of the records in TRACES. pytest names the test in its environment,
which processes inherit. A function that a test has called often, and a loop
that has run long, are no longer followed.
"""

import atexit
import collections
import json
import os
import sys
import threading
import uuid

MOST_CALLS, MOST_LINES = 50, 20_000
_lines = collections.defaultdict(set)  # (test, file) -> line numbers
_calls = collections.Counter()  # Of (test, code).
_rooms = tuple(os.environ.get("TRACED_ROOMS", "").split(os.pathsep))


def _trace(frame, event, argument):
    path = frame.f_code.co_filename
    if not path.startswith(_rooms):
        return None
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
    _calls[test, frame.f_code] += 1
    if _calls[test, frame.f_code] > MOST_CALLS:
        return None
    lines = _lines[test, path]
    lines.add(frame.f_lineno)
    count = 0

    def trace_line(frame, event, argument):
        nonlocal count
        count += 1
        if event == "line":
            lines.add(frame.f_lineno)
        return trace_line if count < MOST_LINES else None

    return trace_line


def write():
    """Writes what this process has recorded."""
    sys.settrace(None)
    path = os.path.join(os.environ["TRACES"], f"{uuid.uuid4().hex}.json")
    with open(path, "w") as file:
        json.dump([[*key, [*value]] for key, value in _lines.items()], file)
    _lines.clear()


def pytest_sessionfinish():
    """Writes: a worker of pytest-xdist ends without a call of atexit."""
    write()


if "TRACES" in os.environ:
    threading.settrace(_trace)
    sys.settrace(_trace)
    atexit.register(write)
