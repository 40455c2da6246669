"""Proves what the loop does at the edges of a run, in one process.

pytest tests/training/loop_test.py
"""

import itertools
import json
import types

import numpy as np
import pytest
import tensorflow as tf
import toy_run
from absl import logging

from foundation import errors
from training import loop, metric_writer, optimizers, precision, step

QUICK = {"steps": 6, "log_every": 3, "save_every": 3}


def metrics(directory):
    lines = (directory / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_every_weight_moves_in_one_step(tmp_path):
    go, model, optimizer = toy_run.make({**QUICK, "steps": 1})
    before = toy_run.weights(model, optimizer)
    go(str(tmp_path))
    for name, value in toy_run.weights(model, optimizer).items():
        # The norm's gain and bias start at values without decay.
        assert not np.array_equal(value, before[name]), name


def test_loss_falls_and_every_interval_is_written(tmp_path):
    go, *_ = toy_run.make({"steps": 40, "log_every": 8, "peak": 0.03})
    assert go(str(tmp_path)) == 0
    lines = metrics(tmp_path)
    assert [line["step"] for line in lines] == [8, 16, 24, 32, 40]
    assert lines[-1]["train/loss"] < lines[0]["train/loss"] / 2
    assert list(tmp_path.glob("events.out.tfevents.*"))


def test_a_finished_run_says_so_and_stays_as_it_is(tmp_path, monkeypatch):
    go, model, optimizer = toy_run.make(QUICK)
    go(str(tmp_path))
    before = toy_run.weights(model, optimizer)
    said = []
    monkeypatch.setattr(logging, "info", lambda *args: said.append(args[0]))
    go, model, optimizer = toy_run.make(QUICK)
    assert go(str(tmp_path)) == 6
    assert any(text.startswith("already finished") for text in said)
    after = toy_run.weights(model, optimizer)
    assert toy_run.digest(after) == toy_run.digest(before)
    assert len(metrics(tmp_path)) == 2


def test_another_model_in_output_dir_is_refused_in_one_line(tmp_path):
    go, *_ = toy_run.make(QUICK)
    go(str(tmp_path))
    go, *_ = toy_run.make({**QUICK, "width": 4})
    with pytest.raises(errors.InputError, match="holds another model") as e:
        go(str(tmp_path))
    assert "\n" not in str(e.value) and "[23, 8] there" in str(e.value)


def test_a_loss_that_is_not_finite_names_the_step(tmp_path):
    go, *_ = toy_run.make({**QUICK, "steps": 20, "poison": 8})
    with pytest.raises(loop.Diverged, match="step 8: the loss is nan") as e:
        go(str(tmp_path))
    assert str(e.value).endswith("or look at record 64")
    assert "checkpoint" in str(e.value) and "checkpoint" not in e.value.reason
    assert e.value.step == 8
    assert e.value.seconds > loop.training_seconds(str(tmp_path)) > 0
    assert not (tmp_path / "model.ckpt-9.index").exists()
    assert (tmp_path / "model.ckpt-6.index").exists()


def test_the_records_of_a_bad_loss_are_counted_from_the_phase_on(tmp_path):
    phases = [[6, 6], [9, 6]]
    go, *_ = toy_run.make({**QUICK, "phases": phases, "poison": 8})
    with pytest.raises(
        errors.InputError, match="step 14: the loss is nan"
    ) as e:
        go(str(tmp_path))
    assert str(e.value).endswith("or look at record 64")


def test_checkpoints_are_tf1_files_and_old_ones_are_removed(tmp_path):
    go, model, _ = toy_run.make({**QUICK, "steps": 20, "save_every": 2})
    go(str(tmp_path))
    kept = sorted(p.name for p in tmp_path.glob("*.index"))
    assert kept == [f"model.ckpt-{s}.index" for s in (12, 14, 16, 18, 20)]
    latest = tf.train.latest_checkpoint(str(tmp_path))
    names = {name for name, _ in tf.train.list_variables(latest)}
    assert {v.path for v in model.variables} <= names
    assert f"{model.trainable_variables[0].path}/adam_m" in names
    assert tf.train.load_variable(latest, "global_step") == 20


def test_restore_model_loads_weights_without_the_optimizer(tmp_path):
    go, model, _ = toy_run.make(QUICK)
    go(str(tmp_path))
    fresh = toy_run.Model()
    assert loop.restore_model(fresh, str(tmp_path)) == 6
    for a, b in zip(model.variables, fresh.variables, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
    assert loop.restore_model(fresh, str(tmp_path / "nothing")) is None


def test_phases_of_other_lengths_are_one_run(tmp_path):
    """The second one begins its own data at its own beginning."""
    complete, stopped = tmp_path / "complete", tmp_path / "stopped"
    options = {**QUICK, "steps": 7, "phases": [[4, 6], [3, 9]]}
    go, model, optimizer = toy_run.make(options)
    assert go(str(complete)) == 0
    expected = toy_run.digest(toy_run.weights(model, optimizer))
    assert [line["step"] for line in metrics(complete)] == [3, 4, 6, 7]
    # Cut off in the first phase, then in the second.
    for end, first in ((3, 0), (6, 3), (7, 6)):
        phases = [[min(end, 4), 6], [max(end - 4, 0), 9]]
        go, model, optimizer = toy_run.make({**options, "phases": phases})
        assert go(str(stopped)) == first
    assert toy_run.digest(toy_run.weights(model, optimizer)) == expected


def test_changed_settings_are_named_and_changed_data_is_refused(
    tmp_path, monkeypatch
):
    settings = {"train_batch_size": 8, "learning_rate": 0.1}
    go, *_ = toy_run.make({**QUICK, "settings": settings})
    go(str(tmp_path))
    said = []
    monkeypatch.setattr(logging, "warning", lambda *args: said.append(args))
    changed = {**settings, "learning_rate": 0.2}
    go, *_ = toy_run.make({**QUICK, "steps": 8, "settings": changed})
    assert go(str(tmp_path)) == 6
    assert "--learning_rate was 0.1, is 0.2" in said[0][1]
    changed = {**settings, "train_batch_size": 16}
    go, *_ = toy_run.make({**QUICK, "steps": 9, "settings": changed})
    with pytest.raises(errors.InputError, match="--train_batch_size was 8, is"):
        go(str(tmp_path))


def test_a_run_that_stopped_early_goes_on_with_more_patience(
    tmp_path, monkeypatch
):
    def evaluate(*args):
        return {"loss": 1.0}

    monkeypatch.setattr(toy_run.inference.Evaluator, "__call__", evaluate)
    options = {"steps": 20, "eval_every": 2, "save_every": 3}
    for patience, first, last in (2, 0, 6), (2, 6, 6), (4, 6, 10), (3, 10, 10):
        go, *_ = toy_run.make({**options, "patience": patience})
        assert go(str(tmp_path)) == first
        assert metrics(tmp_path)[-1]["step"] == last
    (index,) = (tmp_path / "best").glob("*.index")
    assert index.name == "model.ckpt-2.index"


def test_the_first_call_of_a_process_is_not_part_of_the_speed(
    tmp_path, monkeypatch
):
    """It compiles: here it takes 100 seconds, every other one 0.01."""
    ticks = itertools.chain([0.0, 0.0, 100.0], itertools.count(100.0, 0.01))
    times = types.SimpleNamespace(monotonic=lambda: next(ticks))
    monkeypatch.setattr(loop, "time", times)
    go, *_ = toy_run.make({"steps": 3, "log_every": 1})
    go(str(tmp_path))
    first, *others = metrics(tmp_path)
    assert not set(first) & set(metric_writer.TIMINGS)
    for line in others:
        assert line["train/seconds_per_step"] == pytest.approx(0.01)
        assert line["train/examples_per_second"] == pytest.approx(800.0)


def test_several_workers_agree_on_the_mean_pace(monkeypatch):
    """A sum would make 32 replicas call 32 times too few steps at once."""
    workers = types.SimpleNamespace(
        is_multi_worker=lambda strategy: True,
        sum_over_replicas=lambda strategy, values: 32.0 * values,
    )
    monkeypatch.setattr(loop, "strategies", workers)
    preempted = types.SimpleNamespace(signal=0)
    state = types.SimpleNamespace(strategy=None, preempted=preempted)
    assert loop.Loop._agree(state, 0.5, 8.0) == (0, 0.5, 8.0)
    preempted.signal = 2
    assert loop.Loop._agree(state)[0] == 2


@pytest.mark.parametrize(
    ("found", "passes"), [([100, 100, 100], True), ([0, 100, 200], False)]
)
def test_workers_that_find_different_steps_are_refused(
    monkeypatch, found, passes
):
    """Also by the worker whose step is the mean of all."""
    workers = types.SimpleNamespace(
        is_multi_worker=lambda strategy: True,
        gather_over_replicas=lambda strategy, value: tf.constant(found),
    )
    monkeypatch.setattr(loop, "strategies", workers)
    if passes:
        loop._check_same_step(100, None, "out")
        return
    with pytest.raises(errors.InputError, match="finds step 100 there, others"):
        loop._check_same_step(100, None, "out")


def test_a_run_ends_in_the_time_given(tmp_path, monkeypatch):
    # A clock that does not depend on the machine: a call of 20 steps, which
    # reads it twice, takes 20 ms.
    ticks = itertools.count()
    clock = types.SimpleNamespace(monotonic=lambda: 0.01 * next(ticks))
    monkeypatch.setattr(loop, "time", clock)
    options = {"steps": 10**6, "log_every": 20, "max_seconds": 2.0}
    go, *_ = toy_run.make(options)
    go(str(tmp_path / "run"))
    lines = metrics(tmp_path / "run")
    rates = [line["train/learning_rate"] for line in lines]
    assert lines[-1]["step"] == pytest.approx(20 * 2.0 / 0.02, rel=0.1)
    assert max(rates) > 0.9 * toy_run.DEFAULTS["peak"]
    assert rates[-1] < 0.2 * toy_run.DEFAULTS["peak"]
    go, *_ = toy_run.make(options)
    assert go(str(tmp_path / "run")) == lines[-1]["step"], "finished"


def test_going_back_to_an_earlier_checkpoint_is_obeyed(tmp_path):
    go, *_ = toy_run.make(QUICK)
    go(str(tmp_path))
    text = (tmp_path / "checkpoint").read_text()
    (tmp_path / "checkpoint").write_text(text.replace("-6", "-3"))
    seconds = loop.training_seconds(str(tmp_path))
    go, *_ = toy_run.make(QUICK)
    assert go(str(tmp_path)) == 3
    # What the first process took until step 3 is counted.
    assert loop.training_seconds(str(tmp_path)) > seconds > 0


def test_the_best_checkpoint_by_held_out_loss_is_kept(tmp_path):
    options = {**QUICK, "steps": 9, "eval_every": 3, "peak": 0.03}
    go, model, _ = toy_run.make(options)
    go(str(tmp_path))
    held_out = {
        line["step"]: line["eval/loss"]
        for line in metrics(tmp_path)
        if "eval/loss" in line
    }
    assert set(held_out) == {3, 6, 9}
    best = min(held_out, key=held_out.get)
    (index,) = (tmp_path / "best").glob("*.index")
    assert index.name == f"model.ckpt-{best}.index"
    names = dict(tf.train.list_variables(str(index.with_suffix(""))))
    weights = {v.path for v in model.variables}
    assert names.keys() == weights | {"global_step", "training_state"}


def test_float16_trains_and_reports_skipped_steps(tmp_path):
    go, model, optimizer = toy_run.make({**QUICK, "precision": "float16"})
    go(str(tmp_path))
    plain = metrics(tmp_path)[-1]
    assert plain["train/skipped_steps"] == 0
    assert np.isfinite(plain["train/loss"])


def make_scaled_step(initial, max_skipped=50):
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    with strategy.scope():
        model = toy_run.Model()
        optimizer = optimizers.Optimizer(
            optimizers.AdamW(),
            model.trainable_variables,
            optimizers.WarmupDecay(peak=0.01, num_train_steps=100),
        )
        scale = precision.LossScale(
            initial=initial, growth_steps=2, max_skipped=max_skipped
        )
    run = step.TrainStep(
        step.Learner(toy_run.Task(), model, optimizer, scale),
        strategy=strategy,
        seed=1,
    )
    make_batches = toy_run.batches(8)
    batches = loop.feed.distribute(strategy, make_batches)
    return run, iter(batches), model, optimizer, scale


def test_the_loss_scale_halves_on_overflow_and_doubles_after_good_steps():
    run, batches, model, optimizer, scale = make_scaled_step(2.0**127)
    before = toy_run.weights(model, optimizer)
    results = run(batches, 0, 1)
    assert not results.is_applied[0]
    after = toy_run.weights(model, optimizer)
    assert toy_run.digest(after) == toy_run.digest(before)
    assert scale.state.numpy().tolist() == [2.0**126, 0, 1, 1]
    scale.state.assign([1024.0, 0, 1, 1])
    assert run(batches, 1, 2).is_applied.all()
    assert scale.state.numpy().tolist() == [2048.0, 0, 0, 1]


def test_the_loss_scale_stays_at_one_whatever_overflows():
    *_, scale = make_scaled_step(1.5)
    for skipped in (1, 2):
        scale.update(tf.constant(False))
        assert scale.state.numpy().tolist() == [1.0, 0, skipped, skipped]


def test_too_many_skipped_steps_stop_the_run():
    run, batches, *_, scale = make_scaled_step(float("inf"), max_skipped=2)
    run(batches, 0, 1)
    assert scale.check(1) == 1
    run(batches, 1, 1)
    with pytest.raises(errors.InputError, match="2 steps in a row"):
        scale.check(2)


def test_the_complete_step_compiles_with_xla_to_the_same_numbers():
    """Static shapes and no host operations: what a TPU needs."""
    rows = []
    for jit_compile in (False, True):
        strategy = tf.distribute.OneDeviceStrategy("CPU:0")
        with strategy.scope():
            # XLA's random numbers are others: no dropout here.
            model = toy_run.Model()
            optimizer = optimizers.Optimizer(
                optimizers.AdamW(),
                model.trainable_variables,
                optimizers.WarmupDecay(peak=0.01, num_train_steps=100),
            )
        run = step.TrainStep(
            step.Learner(toy_run.Task(), model, optimizer),
            strategy=strategy,
            seed=1,
        )
        compiled = tf.function(
            lambda f, s, run=run, strategy=strategy: strategy.run(
                run.replica_step, args=(f, s)
            ),
            jit_compile=jit_compile,
        )
        batches = loop.feed.distribute(
            strategy, toy_run.batches(8), num_accumulation_steps=2
        )
        for i, features in zip(range(4), batches, strict=False):
            row, norm, _ = compiled(features, tf.constant(i, tf.int64))
            rows.append([*row.numpy()[0], norm.numpy()])
    np.testing.assert_allclose(rows[:4], rows[4:], rtol=1e-4, atol=1e-5)


def test_dropout_seeds_differ_by_each_of_their_keys():
    def seed(*words):
        first, *rest = words
        return tuple(step.dropout_seed(first, *map(tf.constant, rest)).numpy())

    keys = [
        (s, k, r, m)
        for s in (0, 1, 12345)
        for k in (0, 1, 2**31 + 1)
        for r in (0, 1)
        for m in (0, 1)
    ]
    assert len({seed(*key) for key in keys}) == len(keys)
    assert seed(1, 2, 3, 4) == SEED_1234


SEED_1234 = (602282101, 986117173)
