"""Proves what a run writes of its metrics to the console and to files.

python -m pytest tests/training/metric_writer_test.py
"""

import errno
import json

import full_disk
import pytest
import tensorflow as tf
from absl import logging
from tensorboard.backend.event_processing import plugin_event_accumulator

from foundation import errors
from training import metric_writer

VALUES = {
    "train/loss": 2.5,
    "train/grad_norm": 1.0,
    "train/learning_rate": 1e-4,
    "train/seconds_per_step": 3.0,
    "train/examples_per_second": 10.0,
}


def test_the_console_shows_few_metrics_and_the_file_all(tmp_path, caplog):
    writer = metric_writer.MetricWriter(str(tmp_path), num_steps=1146)
    with caplog.at_level(logging.INFO):
        writer.write(1100, VALUES)
        writer.write(1100, {"eval/loss": 3.0, "eval/accuracy": 0.25})
        writer.write(1146, VALUES)
    writer.close()
    assert caplog.messages == [
        "step 1,100 of 1,146, loss 2.5, rate 0.0001, examples/s 10, "
        "2 minutes left",
        "step 1,100, held out: loss 3, accuracy 0.25",
        "step 1,146 of 1,146, loss 2.5, rate 0.0001, examples/s 10",
    ]
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert json.loads(lines[0]) == {"step": 1100, **VALUES}


def test_a_resumed_run_drops_later_samples(tmp_path):
    path = tmp_path / metric_writer.SAMPLES
    writer = metric_writer.MetricWriter(str(tmp_path))
    for step in (5, 10, 15):
        writer.write_samples(step, [{"text": f"at {step}"}])
    writer.close()
    for evaluates_again, kept in ((False, [5, 10]), (True, [5])):
        metric_writer.MetricWriter(
            str(tmp_path), first_step=10, evaluates_again=evaluates_again
        ).close()
        lines = map(json.loads, path.read_text().splitlines())
        assert [line["step"] for line in lines] == kept


def in_tensorboard(folder):
    """Returns what TensorBoard reads in a folder."""
    found = plugin_event_accumulator.EventAccumulator(str(folder))
    return found.Reload()


def test_tensorboard_reads_metrics_and_samples_in_order(tmp_path):
    for first in (0, 2):  # A run that is resumed after the second step.
        writer = metric_writer.MetricWriter(str(tmp_path), first_step=first)
        for step in range(first + 1, first + 4):
            writer.write(step, {"train/loss": step / 4, "train/lr": 0.5})
        writer.write_samples(step, [{"text": "**A**"}, {"text": "B"}])
        writer.close()
        if not first:  # A kill cuts the last event off.
            (path,) = tmp_path.glob("events.*")
            path.write_bytes(path.read_bytes()[:-5])
    shown = in_tensorboard(tmp_path)
    losses = [
        (event.step, float(tf.make_ndarray(event.tensor_proto)))
        for event in shown.Tensors("train/loss")
    ]
    assert losses == [(step, step / 4) for step in range(1, 6)]
    assert set(shown.PluginTagToContent("scalars")) == {
        "train/loss",
        "train/lr",
    }
    assert list(shown.PluginTagToContent("text")) == ["eval/samples"]
    (sample,) = shown.Tensors("eval/samples")
    assert sample.step == 5
    assert tf.make_ndarray(sample.tensor_proto) == b"**A**\n\nB"


@pytest.mark.parametrize("pattern", ["metrics.jsonl", "events.*"])
def test_a_failed_write_is_an_error_that_names_the_file(tmp_path, pattern):
    writer = metric_writer.MetricWriter(str(tmp_path))
    writer.write(1, {"train/loss": 1.0})
    (path,) = tmp_path.glob(pattern)
    with (
        full_disk.longest_file(path.stat().st_size),
        pytest.raises(Exception) as caught,
    ):
        writer.write(2, {"train/loss": 1.0})
    assert errors.system_number(caught.value) == errno.EFBIG
    assert str(path) in str(caught.value)
