"""Proves what a run writes of its metrics to the console and to files.

python -m pytest tests/training/metric_writer_test.py
"""

import json

from absl import logging

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


def test_hyperparameters_are_events_of_tensorboard(tmp_path):
    metric_writer.write_hyperparameters(
        str(tmp_path), {"learning_rate": 1e-4}, {"score": 0.5}
    )
    (events,) = tmp_path.glob("events.out.tfevents.*")
    data = events.read_bytes()
    assert b"learning_rate" in data and b"result/score" in data


def test_the_console_shows_six_held_out_metrics_at_most(tmp_path, caplog):
    writer = metric_writer.MetricWriter(str(tmp_path))
    values = {f"eval/f1_{i}": 0.5 for i in range(20)}
    with caplog.at_level(logging.INFO):
        writer.write(7, values | {"eval/score": 0.25, "eval/loss": 1.0})
    assert caplog.messages == [
        "step 7, held out: score 0.25, loss 1, f1_0 0.5, f1_1 0.5, f1_2 0.5, "
        "f1_3 0.5"
    ]
