"""Proves that imports end in one line by Ctrl-C, and take no more than used.

python -m pytest tests/foundation/tensorflow_setup_test.py
"""

import os
import signal
import subprocess
import sys
import textwrap

import pytest

WAITS = """
import os
os.write(2, b"a notice\\n")
print("waiting", flush=True)
import time
time.sleep(60)
"""
# Instead of TensorFlow, which would take seconds.
TENSORFLOW = """
import logging
get_logger = logging.getLogger
"""


@pytest.fixture
def start(repository, tmp_path):
    """Starts a program that imports two modules of the given sources.

    Without one, the first is TensorFlow itself.
    """

    def call(tensorflow, later=""):
        if tensorflow is not None:
            (tmp_path / "tensorflow.py").write_text(tensorflow)
        (tmp_path / "later.py").write_text(later)
        program = tmp_path / "program.py"
        program.write_text("import foundation.tensorflow_setup\nimport later\n")
        return subprocess.Popen(
            [sys.executable, program],
            env=os.environ
            | {"PYTHONPATH": str(repository), "TF_CPP_MIN_LOG_LEVEL": "3"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # Shells start what runs in the background deaf to it.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    return call


@pytest.mark.parametrize(
    ("sources", "notices"),
    [((WAITS,), ""), ((TENSORFLOW, WAITS), "a notice\n")],
    ids=["tensorflow", "later"],
)
def test_ctrl_c_while_importing_ends_with_130_and_one_line(
    start, sources, notices
):
    process = start(*sources)
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=300)
    assert (process.returncode, err) == (
        130,
        f"{notices}program.py: interrupted\n",
    )


def test_another_exception_keeps_its_traceback_and_the_notices(start):
    broken = "import os\nos.write(2, b'a notice\\n')\nraise OSError('broken')\n"
    process = start(broken)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 1
    assert err.startswith("a notice\nTraceback")
    assert err.endswith("OSError: broken\n")


@pytest.mark.parametrize(
    ("kind", "is_typed_into"), [("OSError", False), ("KeyboardInterrupt", True)]
)
def test_the_former_hook_is_asked_for_the_rest(start, kind, is_typed_into):
    later = f"""
        import sys
        from foundation import tensorflow_setup
        tensorflow_setup._former_hook = lambda kind, *_: print(kind.__name__)
        if {is_typed_into}:
            sys.ps1 = ">>> "
        raise {kind}
    """
    process = start(TENSORFLOW, textwrap.dedent(later))
    out, err = process.communicate(timeout=300)
    assert (out, err) == (f"{kind}\n", "")


def test_keras_does_without_what_only_its_wrappers_use(start):
    later = """
        import gc, sys
        import keras
        print(gc.isenabled() and gc.get_freeze_count() > 100_000)
        print(sorted({"sklearn", "matplotlib"} & set(sys.modules)))
        import matplotlib, sklearn
        print(keras.Model.__module__)
    """
    process = start(None, textwrap.dedent(later))
    out, err = process.communicate(timeout=300)
    assert out.splitlines() == ["True", "[]", "keras.src.models.model"], err
