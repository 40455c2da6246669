"""Fine-tuning on two replicas: the update and the predictions of one.

The two in a process of their own, since a process divides its processor once.
"""

import os
import pathlib
import subprocess
import sys

import classifier_runs
import numpy as np
import pytest
import tiny_runs

import run_classifier

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODES = ("--do_train", "--do_predict")


def flags(root, name, **others):
    return {
        "task_name": "csv",
        "train_file": root / "train.csv",
        "test_file": root / "dev.csv",
        "text_column": "review",
        "label_column": "verdict",
        "init_checkpoint": root / "encoder",
        "output_dir": root / name,
        "max_seq_length": 32,
        "learning_rate": 5e-3,
        "precision": "float32",
        # 41 examples: the last batch is filled up, on one replica wholly.
        "predict_batch_size": 8,
        **others,
    }


@pytest.mark.slow
def test_two_replicas_train_and_predict_as_one(tmp_path):
    classifier_runs.make_data(tmp_path, dropout=0.0, num_hidden_layers=2)
    given = flags(tmp_path, "two", strategy="mirrored", num_replicas=2)
    process = subprocess.Popen(
        [
            sys.executable,
            str(ROOT / "run_classifier.py"),
            *(f"--{key}={value}" for key, value in given.items()),
            *MODES,
        ],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    kind = run_classifier.ClassifierConfig
    tiny_runs.run(run_classifier, kind, *MODES, **flags(tmp_path, "one"))
    _, notices = process.communicate(timeout=300)
    assert process.returncode == 0, notices[-3000:]
    expected, found = (
        np.loadtxt(tmp_path / name / "test_results.tsv")
        for name in ("one", "two")
    )
    assert "2 replica(s)" in notices
    assert expected.shape == (41, 2)
    assert expected[:, 0].std() > 0.05  # It has learned to tell them apart.
    np.testing.assert_allclose(found, expected, atol=1e-5)
    # tf.distribute would say one line for each collective operation.
    assert "INFO" not in notices and "all_reduce" not in notices
