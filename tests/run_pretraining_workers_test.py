"""Proves that workers without one shared folder end, all with one line.

python -m pytest tests/run_pretraining_workers_test.py
"""

import clusters
import pretraining_runs
import pytest


def start_two(tmp_path, monkeypatch, *changes):
    pretraining_runs.write_inputs(tmp_path)
    processes = []
    for text, changed in zip(clusters.tf_configs(2), changes, strict=True):
        monkeypatch.setenv("TF_CONFIG", text)
        process = pretraining_runs.start(
            tmp_path,
            bert_config_file="config.json",
            input_file="16-*.tfrecord",
            max_seq_length=16,
            max_predictions_per_seq=3,
            do_train=True,
            **changed,
        )
        processes.append(process)
    return [pretraining_runs.finish(process) for process in processes]


@pytest.mark.all
def test_workers_with_folders_of_their_own_are_refused(tmp_path, monkeypatch):
    changes = [{"output_dir": f"out{index}"} for index in range(2)]
    found = start_two(tmp_path, monkeypatch, *changes)
    for index, (code, err) in enumerate(found):
        assert code == 2, err[-3000:]
        assert (
            f"run_pretraining.py: --output_dir=out{index}: not every worker "
            "finds there what the chief has just written: give all workers "
            "the same shared folder"
        ) in err.splitlines()
        assert not list((tmp_path / f"out{index}").iterdir())
