"""Proves what is refused before training, trained again, and kept of it.

python -m pytest tests/jobs/finetuning_test.py
"""

import os
import types

import pytest

import run_classifier
import run_ner
import run_squad
from foundation import config_flags, errors, stamp
from jobs import assembly, finetuning, grid, run_directory
from training import strategy

CLASSIFIER = run_classifier.ClassifierConfig
NER, SQUAD = run_ner.NerConfig, run_squad.SquadConfig
AXES = ["learning_rate", "random_seed", "train_batch_size", "num_train_epochs"]


@pytest.mark.parametrize(
    ("kind", "flags", "refused"),
    [
        (CLASSIFIER, "--task_name=csv --do_predict --test_file=-", "test_file"),
        (CLASSIFIER, "--task_name=csv --do_train --test_file=-", None),
        (CLASSIFIER, "--task_name=csv --do_predict --test_file=a", None),
        (NER, "--do_predict --text_file=-", "text_file"),
        (NER, "--do_predict --text_file=a", None),
        (NER, "--interactive", "interactive"),
        (SQUAD, "--interactive", "interactive"),
        (SQUAD, "--question=Who? --context=I.", None),
    ],
)
def test_several_workers_refuse_standard_input_before_training(
    monkeypatch, tmp_path, kind, flags, refused
):
    argv = ["command", f"--output_dir={tmp_path}", *flags.split()]
    config = config_flags.parse(kind, argv)
    begun = []
    monkeypatch.setattr(assembly, "make_strategy", lambda *_: None)
    monkeypatch.setattr(assembly, "check_batch_sizes", lambda *_, **__: None)
    monkeypatch.setattr(strategy, "is_multi_worker", lambda _: True)
    monkeypatch.setattr(strategy, "is_chief", lambda _: True)
    monkeypatch.setattr(
        finetuning.run_directory, "begin", lambda *_, **__: begun.append(1)
    )
    start = types.SimpleNamespace(config=None)
    if refused is None:
        finetuning.open_strategy(config, start)
        assert begun == [1]
        return
    with pytest.raises(errors.InputError, match=rf"^--{refused}: standard inp"):
        finetuning.open_strategy(config, start)
    assert not begun


def train_grid(monkeypatch, folder, rates, sizes):
    """Trains a grid whose lowest rate is best; returns the trained runs."""
    trained = []

    def train_run(job, run, results, writer):
        trained.append(run.name)
        finished = {"step": 5, "seconds": 1.0, "settings": {}}
        finished["values"] = {grid.SCORE: 1 - run.learning_rate}
        if results.add(run, finished):
            results.keep(run)
            (folder / "model.safetensors").touch()
        run.finish(finished)
        return types.SimpleNamespace(assign=lambda weights: None)

    monkeypatch.setattr(finetuning, "_train_run", train_run)
    monkeypatch.setattr(assembly, "write_run_config", lambda *_: None)
    config = types.SimpleNamespace(
        learning_rates=rates,
        seeds=[1],
        output_dir=str(folder),
        axis=lambda name: sizes if name == "train_batch_size" else [3.0],
        is_grid=True,
        random_seed=1,
    )
    for run in grid.plan(rates, [1], str(folder), batch_sizes=sizes):
        os.makedirs(run.directory, exist_ok=True)
    job = types.SimpleNamespace(
        config=config,
        settings=stamp.flags("result", dict.fromkeys(AXES)),
        strategy=None,
        is_chief=False,
        build=lambda seed: types.SimpleNamespace(assign=lambda weights: None),
    )
    finetuning.train_grid(job, grid.Results(str(folder)), None)
    return trained


def test_the_model_of_a_grid_with_more_axes_is_not_taken_for_ones_own(
    monkeypatch, tmp_path
):
    small = [5e-5, 3e-5], [16]
    assert len(train_grid(monkeypatch, tmp_path, *small)) == 2
    assert train_grid(monkeypatch, tmp_path, *small) == []
    assert len(train_grid(monkeypatch, tmp_path, small[0], [16, 64])) == 4
    again = train_grid(monkeypatch, tmp_path, *small)
    assert again == ["learning rate 3e-05, seed 1"]


def test_the_best_model_has_the_flags_of_its_training(tmp_path):
    flags = "--task_name=mrpc --do_train --max_seq_length=64"
    argv = ["command", f"--output_dir={tmp_path}", *flags.split()]
    job = types.SimpleNamespace(
        config=config_flags.parse(CLASSIFIER, argv), is_chief=True
    )
    task_model = finetuning.TaskModel(job=job, model=None, predictor=None)
    writer = types.SimpleNamespace(write_model=lambda model, directory: None)
    task_model._write_best(writer, str(tmp_path / "best"))
    found = run_directory.training_flags(str(tmp_path / "best"))
    assert (found["task_name"], found["max_seq_length"]) == ("mrpc", 64)
