"""Proves that workers without one shared folder end, all with one line.

python -m pytest tests/run_pretraining_workers_test.py
"""

import clusters
import pretraining_runs
import pytest
import tensorflow as tf

from training import strategy as strategy_lib


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


@pytest.mark.slow
def test_workers_with_different_precisions_are_refused(tmp_path, monkeypatch):
    """As "auto" gives machines of different kinds."""
    out = {"output_dir": "out"}
    changes = [out | {"precision": x} for x in ("bfloat16", "float32")]
    for code, err in start_two(tmp_path, monkeypatch, *changes):
        assert code == 2, err[-3000:]
        assert "--precision: some workers compute in another" in err


@pytest.mark.slow
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


class Worker:
    """One of two workers; the other finds what the test prepares."""

    def __init__(self, monkeypatch, folder, *, is_chief, other_is_refused):
        """Replaces the real workers."""
        self.folder = folder
        self.is_chief = is_chief
        self.other_is_refused = other_is_refused
        self.calls = 0
        for name in ("is_multi_worker", "is_chief", "sum_over_replicas"):
            monkeypatch.setattr(strategy_lib, name, getattr(self, f"_{name}"))

    def _is_multi_worker(self, strategy):
        return True

    def _is_chief(self, strategy):
        return self.is_chief

    def _sum_over_replicas(self, strategy, values):
        self.calls += 1
        other = [float(self.other_is_refused), 1.0]
        if self.calls == 1:
            other = [0.0, 0.0] if self.is_chief else [7.0, 1.0]
        return values + tf.constant(other, tf.float64)


@pytest.mark.parametrize("is_chief", [True, False])
def test_a_shared_folder_is_accepted(tmp_path, monkeypatch, is_chief):
    if not is_chief:
        (tmp_path / ".shared_folder.0000000007").touch()
    worker = Worker(
        monkeypatch, tmp_path, is_chief=is_chief, other_is_refused=False
    )
    strategy_lib.check_shared_folder(None, str(tmp_path))
    assert worker.calls == 2
    # The chief's is gone; that of another is not this worker's to remove.
    assert len(list(tmp_path.iterdir())) == (not is_chief)


def test_a_worker_whose_folder_cannot_be_made_says_so_when_all_know(
    tmp_path, monkeypatch
):
    (tmp_path / "file").touch()
    worker = Worker(monkeypatch, tmp_path, is_chief=True, other_is_refused=True)
    with pytest.raises(tf.errors.OpError, match="file"):
        strategy_lib.check_shared_folder(
            None, str(tmp_path / "file" / "folder")
        )
    assert worker.calls == 2
