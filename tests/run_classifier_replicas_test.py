"""Fine-tuning on two replicas: the update and the predictions of one.

python -m pytest tests/run_classifier_replicas_test.py
"""

import classifier_runs
import numpy as np
import pytest
import replica_runs

import run_classifier


def run(root, **flags):
    """Trains and predicts; returns both runs' results and the notices."""
    common = {
        "task_name": "csv",
        "train_file": root / "train.csv",
        "test_file": root / "dev.csv",
        "text_column": "review",
        "label_column": "verdict",
        "init_checkpoint": root / "encoder",
        "max_seq_length": 32,
        "learning_rate": 5e-3,
        "precision": "float32",
        # 41 examples: the last batch is filled up, on one replica wholly.
        "predict_batch_size": 8,
    }
    notices = replica_runs.run(
        run_classifier,
        run_classifier.ClassifierFlags,
        root,
        "--do_train",
        "--do_predict",
        **common | flags,
    )
    expected, found = (
        np.loadtxt(root / name / "test_results.tsv") for name in ("one", "two")
    )
    assert expected.shape == (41, 2)
    return expected, found, notices


@pytest.mark.all
def test_two_replicas_train_and_predict_as_one(tmp_path):
    classifier_runs.make_data(tmp_path, dropout=0.0, num_hidden_layers=2)
    expected, found, notices = run(tmp_path)
    assert expected[:, 0].std() > 0.05  # It has learned to tell them apart.
    np.testing.assert_allclose(found, expected, atol=1e-5)
    # tf.distribute would say one line for each collective operation.
    assert "INFO" not in notices and "all_reduce" not in notices


def teacher_logits(folder):
    """Returns the teacher's outputs, float [N, 2]."""
    (path,) = folder.glob("train_teacher-*.npz")
    return np.load(path)["logits"]


@pytest.mark.all
def test_two_replicas_train_a_student_as_one(tmp_path):
    classifier_runs.make_data(tmp_path, dropout=0.0, num_hidden_layers=2)
    teacher = classifier_runs.run_csv(
        tmp_path, "teacher", "--do_train", dev_file=None
    )
    expected, found, _ = run(tmp_path, teacher_dir=teacher, num_train_epochs=5)
    assert expected[:, 0].std() > 0.05
    np.testing.assert_allclose(found, expected, atol=1e-5)
    expected, found = (teacher_logits(tmp_path / x) for x in ("one", "two"))
    assert np.shape(expected) == (203, 2)
    np.testing.assert_allclose(found, expected, atol=1e-5)
