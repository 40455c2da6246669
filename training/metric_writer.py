"""Writes the metrics of a run: console, TensorBoard and metrics.jsonl.

One JSON object a line, e.g.

    {"step": 100, "train/loss": 9.1, ..., "train/examples_per_second": 7.2}

A resumed run drops the lines after the step that it resumes from, so that,
apart from TIMINGS, the file equals that of an uninterrupted run. TensorBoard
drops the later events when it reads that a session has started again.
"""

import json
import math
import os
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from foundation import atomic, file_system, progress

TIMINGS = (
    "train/examples_per_second",
    "train/model_flops_utilization",
    "train/seconds_per_step",
    "train/tokens_per_second",
)
METRICS = "metrics.jsonl"
SAMPLES = "samples.jsonl"
_MIN_SECONDS = 2.0  # Less remaining time is not shown.
_SECONDS_BETWEEN_LINES = 5.0  # On the console.
_SECONDS_OF_SILENCE = 20.0  # Then a line shows the step alone.
_MAX_SHOWN = 6  # Held-out metrics on the console.
# The metrics of training that the console shows, and their names there.
_SHOWN = {
    "train/loss": "loss",
    "train/learning_rate": "rate",
    "train/examples_per_second": "examples/s",
    "train/skipped_steps": "skipped steps",
}
# Parts of metrics' names, and what the console shows instead.
_WORDS = {
    "f1_macro": "macro F1",
    "f1_micro": "micro F1",
    "f1": "F1",
    "masked_lm": "masked-LM",
    "next_sentence": "next-sentence",
    "matthews": "Matthews",
    "mrr": "MRR",
    "pearson": "Pearson",
    "spearman": "Spearman",
    "HasAns": "answerable",
    "NoAns": "unanswerable",
    "_": " ",
}


class MetricWriter:
    """Writes metrics by step, on the chief only."""

    def __init__(
        self,
        output_dir: str,
        *,
        first_step: int = 0,
        num_steps: int = 0,
        is_chief: bool = True,
        evaluates_again: bool = False,
    ):
        """Opens the files.

        Args:
            output_dir: where metrics.jsonl and the TensorBoard events go.
            first_step: the step that the run resumes from.
            num_steps: the last step; 0 if it is not known.
            is_chief: whether this process writes.
            evaluates_again: whether the evaluation of first_step will be
                written again; its earlier line is removed as well.
        """
        self._is_chief, self._num_steps = is_chief, num_steps
        if not is_chief:
            return
        # TensorBoard reads all files with this beginning, in their order.
        name = (
            f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}."
            f"{os.getpid()}"
        )
        names = METRICS, SAMPLES, name
        self._paths = [os.path.join(output_dir, name) for name in names]
        tf.io.gfile.makedirs(output_dir)
        for path in self._paths[:2]:
            _drop_lines_after(path, first_step, evaluates_again)
        with file_system.naming(self._paths[2]):
            # TensorFlow's own writer of events does not report a failed write.
            self._events = tf.io.TFRecordWriter(self._paths[2])
        self._write_event(file_version="brain.Event:2")
        start = tf.compat.v1.SessionLog(status=tf.compat.v1.SessionLog.START)
        self._write_event(step=first_step + 1, session_log=start)
        self._shown_at = -math.inf  # Time of the last line of metrics.
        self._heard_at = time.monotonic()  # The same, or of the first step.
        self._seconds_per_step = 0.0
        self._bar = None
        if num_steps and sys.stderr.isatty():
            self._bar = progress.bar(
                total=num_steps, initial=first_step, unit="step"
            )

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Writes one line everywhere."""
        if not self._is_chief:
            return
        numbers = {name: float(value) for name, value in values.items()}
        self._seconds_per_step = numbers.get(
            "train/seconds_per_step", self._seconds_per_step
        )
        now, is_training = time.monotonic(), "train/learning_rate" in numbers
        is_recent = now - self._shown_at < _SECONDS_BETWEEN_LINES
        if not (is_training and is_recent) or step == self._num_steps:
            self._shown_at = self._heard_at = now
            logging.info("%s", self._line(step, numbers))
        _append(self._paths[0], {"step": step, **numbers})
        summary = [
            _value("scalars", name, np.float32(x))
            for name, x in numbers.items()
        ]
        self._write_event(
            step=step, summary=tf.compat.v1.Summary(value=summary)
        )

    def _line(self, step: int, numbers: Mapping[str, float]) -> str:
        """Returns the line for the console; see metrics.jsonl for the rest."""
        held_out = {
            name.removeprefix("eval/"): value
            for name, value in numbers.items()
            if name.startswith("eval/")
        }
        if held_out:
            return f"step {step:,}, held out: {in_words(held_out)}"
        total = self._num_steps
        parts = [f"step {step:,}" + (f" of {total:,}" if total else "")]
        parts += [
            f"{label} {_short(numbers[name])}"
            for name, label in _SHOWN.items()
            if name in numbers
        ]
        left = self._seconds_per_step * (total - step)
        if left > _MIN_SECONDS:
            parts.append(f"{progress.duration(left)} left")
        return ", ".join(parts)

    def write_samples(
        self, step: int, samples: Sequence[Mapping[str, Any]]
    ) -> None:
        """Writes predictions of examples to TensorBoard and samples.jsonl.

        Args:
            step: training step of the model.
            samples: JSON values; "text" is the Markdown for TensorBoard.
        """
        if not (self._is_chief and samples):
            return
        _append(self._paths[1], {"step": step, "samples": list(samples)})
        text = "\n\n".join(sample["text"] for sample in samples)
        summary = [_value("text", "eval/samples", text)]
        self._write_event(
            step=step, summary=tf.compat.v1.Summary(value=summary)
        )

    def _write_event(self, **fields: Any) -> None:
        event = tf.compat.v1.Event(wall_time=time.time(), **fields)
        with file_system.naming(self._paths[2]):
            self._events.write(event.SerializeToString())
            self._events.flush()

    def progress(self, step: int) -> None:
        """Moves the progress bar; without one, logs a line in a long silence.

        The first lines of metrics.jsonl are minutes apart if a step is slow.
        """
        if not self._is_chief:
            return
        if self._bar:
            self._bar.update(step - self._bar.n)
        elif time.monotonic() - self._heard_at >= _SECONDS_OF_SILENCE:
            self._heard_at = time.monotonic()
            logging.info("%s", self._line(step, {}))

    def flush(self) -> None:
        """Forces what has been written to this machine's disk."""
        if self._is_chief and not file_system.is_remote(self._paths[0]):
            for path in filter(file_system.exists, self._paths):
                atomic.flush(path)

    def close(self) -> None:
        """Closes the files."""
        if not self._is_chief:
            return
        if self._bar:
            self._bar.close()
        with file_system.naming(self._paths[2]):
            self._events.close()


def _value(plugin: str, tag: str, value: Any) -> Any:
    """Returns what one of TensorBoard's plugins shows, as tf.summary does."""
    shown = tf.compat.v1.Summary.Value(
        tag=tag, tensor=tf.make_tensor_proto(value)
    )
    shown.metadata.plugin_data.plugin_name = plugin
    return shown


def in_words(values: Mapping[str, float]) -> str:
    """Returns the most important metrics for the console, in plain words.

        {"f1_macro": 0.5, "loss": 1.25} -> "loss 1.25, macro F1 0.5"

    Details such as f1_PER beside f1 are left out, and the score by which runs
    are compared, which is another metric or the mean of several.
    """
    shown = {
        name: value
        for name, value in values.items()
        if name != "global_step"
        and not any(name.startswith(f"{other}_") for other in values)
    }
    if not shown.keys() <= {"score", "loss"}:
        shown.pop("score", None)
    first = sorted(shown, key=lambda name: name not in ("loss", "score"))
    return ", ".join(
        f"{name_in_words(name)} {_short(shown[name])}"
        for name in first[:_MAX_SHOWN]
    )


def name_in_words(metric: str) -> str:
    """Returns the name of a metric for people, as "macro F1" for f1_macro."""
    for part, word in _WORDS.items():
        metric = metric.replace(part, word)
    return metric


def _short(value: float) -> str:
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"


def _append(path: str, value: Any) -> None:
    """Appends a JSON value to a file of lines."""
    with file_system.naming(path), tf.io.gfile.GFile(path, "a") as file:
        file.write(json.dumps(value) + "\n")


def _drop_lines_after(path: str, last: int, evaluates_again: bool) -> None:
    """Drops lines of later steps, and one that a kill has cut off.

    What an evaluation has written at the last step goes, too, if it is made
    again: lines without the metrics of training.
    """
    if not file_system.exists(path):
        return
    with tf.io.gfile.GFile(path) as file:
        lines = file.read().splitlines()
    kept = []
    for line in lines:
        try:
            values = json.loads(line)
        except ValueError:
            break
        is_repeated = evaluates_again and "train/learning_rate" not in values
        if values["step"] <= last - is_repeated:
            kept.append(line)
    if kept != lines:
        atomic.write_text(path, "".join(f"{line}\n" for line in kept))
