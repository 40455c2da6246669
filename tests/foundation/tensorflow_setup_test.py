"""Proves that imports are quiet, and take no more than is used.

python -m pytest tests/foundation/tensorflow_setup_test.py
"""

import os
import signal
import subprocess
import sys
import textwrap

import pytest


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


def test_another_exception_keeps_its_traceback_and_the_notices(start):
    broken = "import os\nos.write(2, b'a notice\\n')\nraise OSError('broken')\n"
    process = start(broken)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 1
    assert err.startswith("a notice\nTraceback")
    assert err.endswith("OSError: broken\n")


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
