"""Makes sure that all workers write to and read from one folder.

The chief leaves a file there whose name nobody can guess, tells all workers the
name, and removes it when each has looked for it.
"""

import os
import secrets
from collections.abc import Callable

import tensorflow as tf

import errors
from training import strategy as strategies


def check(strategy: tf.distribute.Strategy, output_dir: str) -> None:
    """Refuses workers that do not find what the chief writes.

    Every worker must call it; all come to the same verdict, so that none goes
    on and waits for those that have ended.

    Raises:
        InputError: at least one worker has another folder of this name.
        OpError: this worker's folder cannot be made or written to.
    """
    if not strategies.is_multi_worker(strategy):
        return
    is_chief = strategies.is_chief(strategy)
    token = secrets.randbits(40) if is_chief else 0  # Exact as a float64.
    problem = _attempt(_enter, output_dir, token)
    token = int(_mean(strategy, token, is_chief))
    problem = problem or _attempt(_look, output_dir, token)
    is_refused = _mean(strategy, problem is not None, True) > 0
    if is_chief:
        _attempt(tf.io.gfile.remove, _path(output_dir, token))
    if is_refused:
        raise problem or _refusal(output_dir)


def _enter(output_dir: str, token: int) -> None:
    """Makes the folder, and leaves the chief's file there.

    Every worker makes it: NFS remembers for a while that something has not been
    there, unless one tries to make it.
    """
    tf.io.gfile.makedirs(output_dir)
    if token:
        with tf.io.gfile.GFile(_path(output_dir, token), "w") as file:
            file.write("Left by a run that begins; may be removed.\n")


def _look(output_dir: str, token: int) -> None:
    if not tf.io.gfile.exists(_path(output_dir, token)):
        raise _refusal(output_dir)


def _path(output_dir: str, token: int) -> str:
    return os.path.join(output_dir, f".shared_folder.{token:010x}")


def _refusal(output_dir: str) -> errors.InputError:
    return errors.InputError(
        f"--output_dir={output_dir}: not every worker finds there what the "
        "chief has just written: give all workers the same shared folder"
    )


def _attempt(action: Callable[..., None], *arguments) -> Exception | None:
    """Returns what went wrong, to be raised when all workers know of it."""
    try:
        action(*arguments)
    except (tf.errors.OpError, errors.InputError) as error:
        return error
    return None


def _mean(
    strategy: tf.distribute.Strategy, value: float, weight: float
) -> float:
    """Returns the weighted mean of what the workers have."""
    row = tf.constant([value * weight, weight], tf.float64)
    total, weights = strategies.sum_over_replicas(strategy, row).numpy()
    return total / weights
