"""Proves what a grid tells of its runs, of those that failed as well.

python -m pytest tests/jobs/grid_test.py
"""

import json
import os
import pathlib

import numpy as np
import pytest

from foundation import errors, stamp
from jobs import grid, run_config

REASON = "step 12: the loss is nan"


def ended(score, step=30, seconds=2.0):
    values = {"accuracy": score, "score": score, "loss": 1 - score}
    return {"step": step, "seconds": seconds, "values": values}


def failed(step=12):
    return {"step": step, "seconds": 1.0, "values": {}, "failed": REASON}


def plan(output_dir, *, first_seed=1, **axes):
    return grid.plan(run_config.Grid(**axes), first_seed, output_dir)


@pytest.fixture
def runs(tmp_path):
    """Two rates with two seeds each; folders as training makes them."""
    runs = plan(str(tmp_path), learning_rate=(5e-5, 3e-5), num_seeds=2)
    for run in runs:
        (tmp_path / "runs" / run.directory.split("/")[-1]).mkdir(parents=True)
    return runs


def fill(folder, runs, ends):
    results = grid.Results(str(folder))
    for run, done in zip(runs, ends, strict=True):
        run.finish(done)
        if results.add(run, done):
            results.keep(run)
    return results


def fill_new(folder, runs, ends):
    for run in runs:
        os.makedirs(run.directory, exist_ok=True)
    return fill(folder, runs, ends)


def read(path):
    return json.loads(path.read_text())


def common(**flags):
    """The settings of all runs: those of a command, then others."""
    axes = ("learning_rate", "random_seed", "train_batch_size")
    found = stamp.flags("result", dict.fromkeys((*axes, "num_train_epochs")))
    return found | stamp.flags("result", flags, is_path=True)


def test_one_start_may_be_written_in_several_ways(tmp_path, runs, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runs[0].begin(common(init_checkpoint="bert", vocab_file=None))
    begun = runs[0].begun()
    runs[0].check(begun, common(init_checkpoint=f"{tmp_path}/bert/"))
    with pytest.raises(errors.InputError, match="bert, is .*other: "):
        runs[0].check(begun, common(init_checkpoint="other"))


def test_a_result_that_was_cut_off_is_named(runs):
    path = f"{runs[0].directory}/result.json"
    pathlib.Path(path).write_text('{"step": 3')
    with pytest.raises(errors.InputError, match=f"{path}:1: malformed JSON"):
        runs[0].result()


def test_nothing_is_worse_than_a_score_that_is_no_number(runs):
    nan = {"score": float("nan")}
    assert grid.best_run({runs[0]: nan, runs[1]: {"score": 0.9}}) == runs[1]
    assert grid.best_run({runs[0]: {"score": -0.5}, runs[1]: nan}) == runs[0]


def test_failed_runs_are_named_and_not_counted(tmp_path, runs):
    results = fill(tmp_path, runs, [failed(), ended(0.5), failed(), failed()])
    assert results.best_run == runs[1]
    assert len(results) == 4 and all(run in results for run in runs)
    assert results.seconds == 5.0
    lines = [line.split() for line in results.write().splitlines()]
    assert lines[1][:3] == ["5e-05", "2", "0.5000"]
    assert ["5e-05", "1", *"diverged at step 12".split()] in lines
    assert len(lines) == 1 + 4
    record = read(tmp_path / "grid_results.json")
    assert [run["random_seed"] for run in record["runs"]] == [2]
    assert record["summary"]["score"]["std"] == 0
    assert record["failed"] == [
        {**run.settings, "step": 12, "failed": REASON}
        for run in (runs[0], *runs[2:])
    ]
    later = grid.Results(str(tmp_path))
    later.read()
    assert later.table() == results.table()
    assert later.seconds is None


def test_metrics_that_some_runs_lack_are_left_out(tmp_path, runs):
    ends = [ended(0.5), ended(0.75), ended(0.25), ended(0.5)]
    ends[1]["values"]["f1_RARE"] = 0.0
    results = fill(tmp_path, runs, ends)
    header, rows = results.table()
    assert header == ["learning rate", "seed", "accuracy", "score", "loss"]
    assert len(rows) == 4 + 3 * 4
    results.write()
    summary = read(tmp_path / "grid_results.json")["summary"]
    assert set(summary) == {"accuracy", "score", "loss"}


def test_the_first_failure_is_told_where_there_is_nothing_else(tmp_path, runs):
    results = fill(tmp_path, runs[:2], [failed(), failed(step=5)])
    with pytest.raises(errors.InputError) as caught:
        results.check()
    assert str(caught.value) == f"learning rate 5e-05, seed 1: {REASON}"
    results.add(runs[2], ended(0.5))
    results.check()
    results.check(runs[2])
    with pytest.raises(errors.InputError, match="seed 2: step 12"):
        results.check(runs[1])


@pytest.mark.parametrize(
    ("scores", "saved", "next_run"),
    [
        ([None, None, None, None], [], 0),
        ([0.5, None, None, None], [0], 1),
        # A run that has failed is not trained again.
        ([0.5, "failed", None, None], [0], 2),
        ([0.5, "failed", 0.9, None], [2], 3),
        # The best run of all comes again if another model was saved.
        ([0.5, None, 0.9, 0.7], [0], 1),
        ([0.5, 0.6, 0.9, 0.7], [0], 2),
        ([0.5, 0.6, 0.9, 0.7], [], 2),
        ([0.5, 0.6, 0.9, 0.7], [2], None),
        # Of equal ones the first.
        ([0.5, 0.9, 0.9, 0.7], [2], 1),
        # Early versions did not record which model is saved.
        ([0.5, 0.6, 0.9, 0.7], [0, 1, 2, 3], None),
        (["failed", "failed", 0.9, "failed"], [], 2),
    ],
)
def test_the_run_that_a_grid_trains_next(
    tmp_path, runs, scores, saved, next_run
):
    results = grid.Results(str(tmp_path))
    for run, score in zip(runs, scores, strict=True):
        if score is not None:
            end = failed() if score == "failed" else ended(score)
            results.add(run, end)
    expected = None if next_run is None else runs[next_run]
    assert grid.next_run(runs, results, {runs[i] for i in saved}) == expected


def test_a_grid_whose_runs_have_all_failed_trains_none_again(tmp_path, runs):
    results = fill(tmp_path, runs, [failed() for _ in runs])
    with pytest.raises(errors.InputError, match=REASON):
        grid.next_run(runs, results, set())


def test_the_saved_model_is_that_of_the_record(tmp_path, runs):
    results = fill(tmp_path, runs, map(ended, (0.5, 0.9, 0.1, 0.2)))
    assert results.saved_runs() == {runs[1]}
    (tmp_path / "kept.json").unlink()
    assert results.saved_runs() == set(runs)


def test_the_model_of_a_grid_with_more_axes_is_not_taken_for_ones_own(
    tmp_path,
):
    axes = {"learning_rate": (5e-5, 3e-5), "num_seeds": 1}
    small = plan(str(tmp_path), train_batch_size=(16,), **axes)
    results = fill_new(tmp_path, small, map(ended, (0.5, 0.9)))
    assert grid.next_run(small, results, results.saved_runs()) is None
    large = plan(str(tmp_path), train_batch_size=(16, 64), **axes)
    fill_new(tmp_path, large, map(ended, (0.5, 0.6, 0.9, 0.8)))
    assert results.saved_runs() == set()
    assert grid.next_run(small, results, set()) == small[1]


def test_a_grid_is_shown_of_the_model_that_was_kept_only(tmp_path, runs):
    results = fill(tmp_path, runs, map(ended, (0.5, 0.9, 0.1, 0.2)))
    results.write()
    later = grid.Results(str(tmp_path))
    later.read()
    assert later.metrics_dir == runs[1].directory and later.table()
    # Another grid was begun in the folder, and has kept another model.
    results.keep(runs[0])
    later = grid.Results(str(tmp_path))
    later.read()
    assert later.metrics_dir == str(tmp_path) and later.table() is None


def test_a_single_run_removes_what_a_grid_has_left(tmp_path, runs):
    fill(tmp_path, runs, map(ended, (0.5, 0.9, 0.1, 0.2))).write()
    assert (tmp_path / "grid_results.txt").exists()
    single = plan(str(tmp_path), first_seed=2)
    fill(tmp_path, single, [ended(0.9)])
    assert not list(tmp_path.glob("grid_results.*"))
    assert read(tmp_path / "kept.json")["step"] == 30


def test_the_settings_of_the_kept_run_are_found(tmp_path, runs):
    assert grid.settings_of_kept(str(tmp_path)) == {}
    ends = [
        {**ended(score), "settings": {**run.settings, "number": i}}
        for i, (run, score) in enumerate(zip(runs, (1, 3, 2, 0), strict=True))
    ]
    fill(tmp_path, runs, ends)
    assert grid.settings_of_kept(str(tmp_path))["number"] == 1
    single = plan(str(tmp_path), first_seed=9)
    alone = {**ended(0.5), "settings": {**single[0].settings, "number": 7}}
    fill(tmp_path, single, [alone])
    assert grid.settings_of_kept(str(tmp_path))["number"] == 7
    # result.json is of another run than the one that is kept.
    single[0].finish({**alone, "step": 31})
    assert grid.settings_of_kept(str(tmp_path)) == {}


def test_batch_sizes_and_epochs_are_axes_of_a_grid(tmp_path):
    runs = plan(
        str(tmp_path),
        num_seeds=2,
        train_batch_size=(16, 32),
        num_train_epochs=(2.0, 3.0),
    )
    for run in runs:
        run.begin(common())
    names = [os.path.basename(run.directory) for run in runs]
    assert len(set(names)) == 8
    assert names[0] == "lr5e-05_seed1_batch16_epochs2"
    assert runs[0].name == "learning rate 5e-05, batch 16, 2 epochs, seed 1"
    assert runs[-1].settings == {
        "learning_rate": 5e-5,
        "random_seed": 2,
        "train_batch_size": 32,
        "num_train_epochs": 3.0,
    }
    results = fill(tmp_path, runs, map(ended, np.arange(8) / 8))
    header, rows = results.table()
    assert header[:2] == ["learning rate", "seed"]
    groups = {row[0] for row in rows}
    assert groups == {run.group for run in runs} | {"all"}
    results.write()
    later = grid.Results(str(tmp_path))
    later.read()
    assert later.best_run == runs[-1] and later.table() == (header, rows)


def test_an_axis_with_one_value_changes_no_name():
    one = plan("out", num_seeds=2, train_batch_size=(16,))
    other = plan("out", num_seeds=2, num_train_epochs=(2.0,))
    assert [x.directory for x in one] == [x.directory for x in other]
    assert [x.settings for x in one] == [x.settings for x in other]
