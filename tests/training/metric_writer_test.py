"""Proves what a run writes of its metrics to the console and to files.

python -m pytest tests/training/metric_writer_test.py
"""

import errno
import json
import os

import full_disk
import numpy as np
import pytest
import tensorflow as tf
from absl import logging
from tensorboard.backend.event_processing import event_accumulator
from tensorboard.plugins.hparams import plugin_data_pb2

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


def test_the_console_shows_a_line_now_and_then(tmp_path, caplog, monkeypatch):
    now = 0.0
    monkeypatch.setattr(metric_writer.time, "monotonic", lambda: now)
    writer = metric_writer.MetricWriter(str(tmp_path), num_steps=20)
    with caplog.at_level(logging.INFO):
        for step in range(1, 21):
            writer.write(step, VALUES | {"train/learning_rate": step - 1})
            now += 1.5
    writer.close()
    shown = [line.partition(" of")[0] for line in caplog.messages]
    assert shown == [
        "step 1",
        "step 5",
        "step 9",
        "step 13",
        "step 17",
        "step 20",
    ]
    assert "rate 0 (rises from the next step on)" in caplog.messages[0]
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 20


def test_a_run_of_slow_steps_is_not_silent(tmp_path, caplog, monkeypatch):
    now = 0.0
    monkeypatch.setattr(metric_writer.time, "monotonic", lambda: now)
    writer = metric_writer.MetricWriter(str(tmp_path), num_steps=1000)
    with caplog.at_level(logging.INFO):
        for step in range(1, 12):
            writer.progress(step)
            if step == 8:
                writer.write(step, VALUES)
            now += 9.0
    writer.close()
    shown = [line.partition(", ")[::2] for line in caplog.messages]
    assert [step for step, _ in shown] == [
        "step 4 of 1,000",
        "step 7 of 1,000",
        "step 8 of 1,000",
        "step 11 of 1,000",
    ]
    assert shown[0][1] == "2.5 hours left"
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 1


def test_the_time_left_is_that_of_steps_that_do_not_compile(
    tmp_path, caplog, monkeypatch
):
    now = 0.0
    monkeypatch.setattr(metric_writer.time, "monotonic", lambda: now)
    writer = metric_writer.MetricWriter(str(tmp_path), num_steps=1000)
    with caplog.at_level(logging.INFO):
        for step in range(1, 26):
            seconds = 60.0 if step < 4 else 2.0
            now += seconds
            if step < 4:
                writer.leave_out(1, seconds)
            writer.progress(step)
    writer.close()
    assert caplog.messages == [
        "step 2 of 1,000",
        "step 3 of 1,000",
        "step 13 of 1,000, 33 minutes left",
        "step 23 of 1,000, 33 minutes left",
    ]


def test_a_run_of_a_given_time_shows_the_steps_that_are_planned(
    tmp_path, caplog, monkeypatch
):
    now = 0.0
    monkeypatch.setattr(metric_writer.time, "monotonic", lambda: now)
    writer = metric_writer.MetricWriter(str(tmp_path), num_steps=1_000_000)
    with caplog.at_level(logging.INFO):
        for step in range(1, 29):
            writer.plan(500 if step < 14 else 26)
            writer.progress(step)
            now += 2.0
        writer.write(26, VALUES)
    writer.close()
    assert caplog.messages == [
        "step 11 of 500, 16 minutes left",
        "step 21 of 26, 10 seconds left",
        "step 26 of 26, loss 2.5, rate 0.0001, examples/s 10",
    ]


def test_the_time_left_is_that_of_the_phase(tmp_path, caplog, monkeypatch):
    now = 0.0
    monkeypatch.setattr(metric_writer.time, "monotonic", lambda: now)
    writer = metric_writer.MetricWriter(str(tmp_path), num_steps=100)
    with caplog.at_level(logging.INFO):
        for step in range(1, 61):
            if step == 31:
                writer.begin_phase()
            now += 1.0 if step < 31 else 5.0
            writer.progress(step)
    writer.close()
    assert caplog.messages == [
        "step 21 of 100, 79 seconds left",
        *(
            f"step {step} of 100, {5 * (100 - step) / 60:.0f} minutes left"
            for step in range(35, 60, 4)
        ),
    ]


def test_metrics_are_shown_in_words():
    values = {"accuracy": 0.5, "f1_macro": 0.25, "score": 0.375, "loss": 1.0}
    assert metric_writer.in_words(values | {"global_step": 7}) == (
        "loss 1, accuracy 0.5, macro F1 0.25"
    )
    values = {"score": 0.5, "loss": 1.0}
    assert metric_writer.in_words(values) == "score 0.5, loss 1"
    values = {"masked_lm_accuracy": 0.5, "score": 0.5}
    assert metric_writer.in_words(values) == "masked-LM accuracy 0.5"
    values = {"recall": 0.5, "f1": 0.25, "recall_PER": 1.0, "f1_PER": 1.0}
    assert metric_writer.in_words(values) == "recall 0.5, F1 0.25"


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


def test_events_are_dropped_in_a_folder_with_brackets(tmp_path):
    folder = tmp_path / "run[1]"
    first = metric_writer.MetricWriter(str(folder))
    for step in (1, 2, 3):
        first.write(step, {"train/loss": 1.0})
    first.flush()
    first.close()
    metric_writer.MetricWriter(str(folder), first_step=2).close()
    steps = {
        event.step
        for path in folder.glob("events*")
        for event in tf.compat.v1.train.summary_iterator(str(path))
    }
    assert steps == {0, 1, 2}


def in_tensorboard(folder):
    """Returns what TensorBoard reads in a folder."""
    found = event_accumulator.EventAccumulator(str(folder))
    return found.Reload()


def test_tensorboard_reads_metrics_and_samples_in_order(tmp_path):
    for first in (0, 2):  # A run that is resumed after the second step.
        writer = metric_writer.MetricWriter(str(tmp_path), first_step=first)
        for step in range(first + 1, first + 4):
            writer.write(step, {"train/loss": step / 4, "train/lr": 0.5})
        writer.write_samples(step, [{"text": "**A**"}, {"text": "B"}])
        writer.close()
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


def test_a_failed_write_of_hyperparameters_leaves_the_earlier_file(tmp_path):
    def write(score):
        metric_writer.write_hyperparameters(
            str(tmp_path), {"seed": 1}, {"score": score}, 7
        )

    def score():
        (event,) = in_tensorboard(tmp_path).Tensors("result/score")
        return float(tf.make_ndarray(event.tensor_proto))

    write(0.5)
    (path,) = tmp_path.glob("*")
    with (
        full_disk.longest_file(path.stat().st_size - 9),
        pytest.raises(OSError) as found,
    ):
        write(0.25)
    assert found.value.errno == errno.EFBIG and found.value.filename == str(
        path
    )
    assert score() == 0.5 and os.listdir(tmp_path) == [path.name]
    write(0.25)
    assert score() == 0.25


def test_hyperparameters_are_events_of_tensorboard(tmp_path):
    folder = tmp_path / "lr0.0001"
    metric_writer.MetricWriter(str(folder)).close()
    metric_writer.write_hyperparameters(
        str(folder), {"learning_rate": 1e-4}, {"score": 0.5, "f1": 0.25}, 7
    )
    read = in_tensorboard(folder)
    for tag, value in (("result/score", 0.5), ("result/f1", 0.25)):
        (event,) = read.Tensors(tag)
        assert event.step == 7
        assert tf.make_ndarray(event.tensor_proto) == np.float32(value)
    contents = read.PluginTagToContent("hparams")

    def content(tag):
        found = contents[f"_hparams_/{tag}"]
        return plugin_data_pb2.HParamsPluginData.FromString(found)

    shown = content("experiment").experiment
    assert [x.name.tag for x in shown.metric_infos] == [
        "result/score",
        "result/f1",
    ]
    assert [x.display_name for x in shown.metric_infos] == ["score", "f1"]
    started = content("session_start_info").session_start_info
    assert started.group_name == "lr0.0001"
    assert started.hparams["learning_rate"].number_value == 1e-4


def test_the_console_shows_six_held_out_metrics_at_most(tmp_path, caplog):
    writer = metric_writer.MetricWriter(str(tmp_path))
    values = {f"eval/f1_{i}": 0.5 for i in range(20)}
    with caplog.at_level(logging.INFO):
        writer.write(7, values | {"eval/score": 0.25, "eval/loss": 1.0})
    assert caplog.messages == [
        "step 7, held out: loss 1, F1 0 0.5, F1 1 0.5, F1 2 0.5, F1 3 0.5, "
        "F1 4 0.5"
    ]
