"""Kills runs of toy_run.py again and again: a process of killed_test.py.

    python tests/training/killed_runs.py DIRECTORY OPTIONS POINTS

POINTS is a JSON list. A number n kills the process just before its n-th
operation on a file (of any save), a fraction kills it after so many seconds of
training, and a run to the end follows. Another run is left alone. Children are
forked from here, so that each one starts in a second.
"""

import json
import os
import signal
import sys
import threading
import time

import tensorflow as tf
import toy_run
from absl import flags

from training import loop


def die():
    """Ends this process as the kernel would."""
    os.kill(os.getpid(), signal.SIGKILL)


def die_before_operation(number):
    """Counts operations on files and dies before one of them."""
    left = [number]

    def counted(function):
        def call(*args, **kwargs):
            left[0] -= 1
            if left[0] == 0:
                die()
            return function(*args, **kwargs)

        return call

    for name in ("makedirs", "rename", "remove", "rmtree"):
        setattr(tf.io.gfile, name, counted(getattr(tf.io.gfile, name)))
    for name in ("fsync", "replace", "remove"):
        setattr(os, name, counted(getattr(os, name)))
    tf.raw_ops.SaveV2 = counted(tf.raw_ops.SaveV2)


def die_inside_a_save():
    """Dies when half of the data has been written."""

    def save(prefix, **kwargs):
        with open(f"{prefix}.data-00000-of-00001.tempstate1", "wb") as file:
            file.write(b"half")
        die()

    tf.raw_ops.SaveV2 = save


def die_after(step, seconds):
    """Dies so long after that step, whatever is being done then."""
    add = loop.Loop._add

    def added(self, *arguments):
        add(self, *arguments)
        if self.progress.step == step:
            timer = threading.Thread(
                target=lambda: (time.sleep(seconds), die()), daemon=True
            )
            timer.start()

    loop.Loop._add = added


def child(output_dir, options, point):
    """Runs until it is killed, or to the end; returns the wait status.

    Args:
        output_dir: of the run.
        options: of toy_run.
        point: the number of an operation on files, "inside" a save, a step and
            the seconds after it, or None, which lets it live.
    """
    pid = os.fork()
    if pid == 0:
        if isinstance(point, int):
            die_before_operation(point)
        elif point == "inside":
            die_inside_a_save()
        elif point is not None:
            die_after(*point)
        try:
            toy_run.run(output_dir, options)
        finally:
            sys.stdout.flush()
            os._exit(0 if sys.exc_info()[0] is None else 1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main():
    """Trains DIRECTORY/undisturbed and /killed; notes all exit codes."""
    flags.FLAGS.mark_as_parsed()
    directory, options, points = sys.argv[1:]
    options = json.loads(options)
    codes = [child(os.path.join(directory, "undisturbed"), options, None)]
    for point in (*json.loads(points), None):
        codes.append(child(os.path.join(directory, "killed"), options, point))
    with open(os.path.join(directory, "kills.json"), "w") as file:
        json.dump(codes, file)


if __name__ == "__main__":
    main()
