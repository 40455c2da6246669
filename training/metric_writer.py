"""Writes the metrics of a run: console, TensorBoard and metrics.jsonl.

One JSON object a line, e.g.

    {"step": 100, "train/loss": 9.1, ..., "train/examples_per_second": 7.2}

A resumed run drops the lines and the events after the step that it resumes
from, so that, apart from TIMINGS, the file equals that of an uninterrupted run.
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
# TensorBoard reads all files with this in their names, in order.
_EVENTS = "events.out.tfevents."
_HPARAMS = f"{_EVENTS}hparams"  # Sorts behind those with times.
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
        num_steps: int | None = None,
        is_chief: bool = True,
        evaluates_again: bool = False,
    ):
        """Opens the sinks.

        Args:
            output_dir: where metrics.jsonl and the TensorBoard events go.
            first_step: the step that the run resumes from.
            num_steps: the last step, as planned now; see `plan`.
            is_chief: whether this process writes.
            evaluates_again: whether the evaluation of first_step will be
                written again; its earlier line is removed as well.
        """
        self._path = os.path.join(output_dir, METRICS)
        self._bar = None
        self._events: _EventFile | None = None  # The chief's.
        self._first_line: tuple[int, float] | None = None  # Its step and time.
        self._shown_at = -math.inf  # Time of the last line on the console.
        self._heard_at: float | None = None  # The same, or of the first step.
        self._num_steps = num_steps
        if not is_chief:
            return
        tf.io.gfile.makedirs(output_dir)
        _drop_lines_after(self._path, first_step, evaluates_again)
        _drop_events_after(output_dir, first_step, evaluates_again)
        self._samples_path = os.path.join(output_dir, SAMPLES)
        last = first_step - 1 if evaluates_again else first_step
        _drop_lines_after(self._samples_path, last)
        # Names sort by time: TensorBoard does not go back to an earlier one.
        unique = f"{time.time():.6f}.{socket.gethostname()}.{os.getpid()}"
        self._events = _EventFile(os.path.join(output_dir, _EVENTS + unique))
        if num_steps and sys.stderr.isatty():
            self._bar = progress.bar(
                total=num_steps, initial=first_step, unit="step"
            )

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Writes one line everywhere."""
        if self._events is None:
            return
        numbers = {name: float(value) for name, value in values.items()}
        line, now = self._line(step, numbers), time.monotonic()
        is_training = "train/learning_rate" in numbers
        is_recent = now - self._shown_at < _SECONDS_BETWEEN_LINES
        if not (is_training and is_recent) or step == self._num_steps:
            self._shown_at = self._heard_at = now
            logging.info("%s", line)
            if self._bar:
                self._bar.refresh()
        _append(self._path, {"step": step, **numbers})
        self._events.write(step, _scalars(numbers))

    def _line(self, step: int, numbers: Mapping[str, float]) -> str:
        """Returns the line for the console; see metrics.jsonl for the rest."""
        held_out = {
            name.removeprefix("eval/"): value
            for name, value in numbers.items()
            if name.startswith("eval/")
        }
        if held_out:
            return f"step {step:,}, held out: {in_words(held_out)}"
        total = self._num_steps or 0
        parts = [f"step {step:,}" + (f" of {total:,}" if total else "")]
        for name, label in _SHOWN.items():
            if name in numbers:
                parts.append(f"{label} {_short(numbers[name])}")
                if label == "rate" and not numbers[name]:
                    parts[-1] += " (rises from the next step on)"
        seconds = numbers.get("train/seconds_per_step")
        if self._first_line is None:
            self._first_line = (step, time.monotonic())
        else:  # With the time of evaluations.
            first, started = self._first_line
            elapsed = time.monotonic() - started
            seconds = elapsed / (step - first) if step > first else None
        if seconds and seconds * (total - step) > _MIN_SECONDS:
            left = progress.duration(seconds * (total - step))
            parts.append(f"{left} left")
        return ", ".join(parts)

    def write_samples(
        self, step: int, samples: Sequence[Mapping[str, Any]]
    ) -> None:
        """Writes predictions of examples to TensorBoard and samples.jsonl.

        Args:
            step: training step of the model.
            samples: JSON values; "text" is the Markdown for TensorBoard.
        """
        if self._events is None or not samples:
            return
        line = {"step": step, "samples": list(samples)}
        _append(self._samples_path, line)
        text = "\n\n".join(sample["text"] for sample in samples)
        self._events.write(step, [_value("text", "eval/samples", text)])

    def flush(self) -> None:
        """Forces what has been written to this machine's disk."""
        if self._events is None or file_system.is_remote(self._path):
            return
        for path in (self._path, self._samples_path, self._events.path):
            atomic.flush(path)

    def begin_phase(self) -> None:
        """Estimates the time that is left from the next steps only."""
        self._first_line = self._heard_at = None

    def plan(self, num_steps: int) -> None:
        """Moves the last step, which a run of a given time plans anew."""
        self._num_steps = num_steps
        if self._bar:
            self._bar.total = num_steps

    def progress(self, step: int) -> None:
        """Moves the progress bar; without one, logs a line in a long silence.

        The first lines of metrics.jsonl are minutes apart if a step is slow.
        """
        if self._bar:
            self._bar.update(step - self._bar.n)
        elif self._events is not None:
            now = time.monotonic()
            if self._heard_at is None:  # The first step has compiled.
                self._heard_at, self._first_line = now, (step, now)
            elif now - self._heard_at >= _SECONDS_OF_SILENCE:
                self._heard_at = now
                logging.info("%s", self._line(step, {}))

    def leave_out(self, steps: int, seconds: float) -> None:
        """Estimates the time that is left without steps that have compiled.

        Args:
            steps: the number of these steps; `progress` counts them next.
            seconds: their time.
        """
        if self._first_line is not None:
            first, started = self._first_line
            self._first_line = first + steps, started + seconds
        if self._bar:
            progress.leave_out(self._bar, steps, seconds)

    def close(self) -> None:
        """Closes the sinks."""
        if self._bar:
            self._bar.close()
        if self._events:
            self._events.close()


def write_hyperparameters(
    directory: str,
    values: Mapping[str, Any],
    metrics: Mapping[str, float],
    step: int,
) -> None:
    """Writes the settings and the metrics of a run for TensorBoard's HParams.

    Args:
        directory: directory of the run's other events; its name is the run's
            name. What an earlier call has written there is replaced.
        values: the settings in which runs differ.
        metrics: metrics of the trained model, in the order of the columns.
        step: training step of the trained model.
    """
    from tensorboard.plugins.hparams import api  # Only grids need it.

    tags = {f"result/{name}": name for name in metrics}
    columns = [api.Metric(tag, display_name=tags[tag]) for tag in tags]
    summaries = (
        # Without this, HParams shows the metrics of training first.
        api.hparams_config_pb([api.HParam(name) for name in values], columns),
        api.hparams_pb(
            dict(values), trial_id=os.path.basename(os.path.normpath(directory))
        ),
    )
    shown = _scalars({tag: metrics[name] for tag, name in tags.items()})
    for summary in summaries:
        data = summary.SerializeToString()  # Of a class of TensorBoard's own.
        shown += tf.compat.v1.Summary.FromString(data).value
    tf.io.gfile.makedirs(directory)
    path = os.path.join(directory, _HPARAMS)
    with atomic.replacing(path) as temporary:
        events = _EventFile(temporary)
        events.write(step, shown)
        events.close()


class _EventFile:
    """A new file of TensorBoard's events: TFRecords of Event.

    TensorFlow's own writer of events does not report a failed write.
    """

    def __init__(self, path: str):
        """Opens the file."""
        self.path = path
        with file_system.naming(path):
            self._file = tf.io.TFRecordWriter(path)
        self._write(file_version="brain.Event:2")  # What TensorBoard expects.

    def write(self, step: int, values: Sequence[Any]) -> None:
        """Writes values of tf.compat.v1.Summary, to the file itself."""
        self._write(step=step, summary=tf.compat.v1.Summary(value=values))

    def _write(self, **fields: Any) -> None:
        event = tf.compat.v1.Event(wall_time=time.time(), **fields)
        with file_system.naming(self.path):
            self._file.write(event.SerializeToString())
            self._file.flush()

    def close(self) -> None:
        """Closes the file."""
        with file_system.naming(self.path):
            self._file.close()


def _scalars(values: Mapping[str, float]) -> list[Any]:
    """Returns metrics as values of a summary."""
    return [
        _value("scalars", name, np.float32(value))
        for name, value in values.items()
    ]


def _value(plugin: str, tag: str, value: Any) -> Any:
    """Returns what one of TensorBoard's plugins shows, as tf.summary does."""
    found = tf.compat.v1.Summary.Value(
        tag=tag, tensor=tf.make_tensor_proto(value)
    )
    found.metadata.plugin_data.plugin_name = plugin
    return found


def has_begun(output_dir: str) -> bool:
    """Returns whether a run has opened its files of metrics there."""
    return tf.io.gfile.isdir(output_dir) and bool(_event_files(output_dir))


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


def _drop_lines_after(
    path: str, last: int, evaluates_again: bool = False
) -> None:
    if not file_system.exists(path):
        return
    with tf.io.gfile.GFile(path) as file:
        lines = file.read().splitlines()

    def is_kept(line: str) -> bool:
        is_repeated = evaluates_again and '"eval/' in line
        return _step_of(line) <= last - is_repeated

    kept_lines = [line for line in lines if is_kept(line)]
    if kept_lines != lines:
        atomic.write_text(path, "".join(f"{line}\n" for line in kept_lines))


def _event_files(folder: str) -> list[str]:
    names = tf.io.gfile.listdir(folder)  # A glob would read brackets in names.
    return [
        os.path.join(folder, name)
        for name in sorted(names)
        if name.startswith(_EVENTS)
    ]


def _drop_events_after(folder: str, last: int, evaluates_again: bool) -> None:
    """Drops TensorBoard's events, also those that a kill has cut off."""
    for path in _event_files(folder):
        kept_records, is_complete = [], True
        records = tf.data.TFRecordDataset(path, buffer_size=1 << 18)
        try:
            for record in records.as_numpy_iterator():
                event = tf.compat.v1.Event.FromString(record)
                tags = [value.tag for value in event.summary.value]
                is_repeated = evaluates_again and any(
                    "eval/" in tag for tag in tags
                )
                if event.step <= last - is_repeated:
                    kept_records.append(record)
                else:
                    is_complete = False
        except tf.errors.DataLossError:
            is_complete = False
        if is_complete:
            continue
        with (
            atomic.replacing(path) as temporary,
            tf.io.TFRecordWriter(temporary) as file,
        ):
            for record in kept_records:
                file.write(record)


def _step_of(line: str) -> float:
    """Returns the step of a line; a line cut off by a kill counts as late."""
    try:
        return json.loads(line)["step"]
    except (ValueError, KeyError, TypeError):
        return float("inf")
