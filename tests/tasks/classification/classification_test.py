"""Proves scores, rates and grids against values that are computed otherwise.

python -m pytest tests/tasks/classification/classification_test.py
"""

import dataclasses

import keras
import numpy as np
import pytest
import sklearn.metrics
import sklearn.utils.class_weight

from data import examples
from jobs import assembly, grid, run_config
from tasks.classification import (
    metrics,
    objective,
    outcomes,
    sentence_tasks,
    settings,
)

RNG = np.random.default_rng(1)
LOGITS = RNG.normal(size=(50, 3)).astype(np.float32)
CLASSES = RNG.integers(0, 3, (50, 1))
SEVERAL = RNG.integers(0, 2, (50, 3))
VALUES = RNG.normal(size=(50, 1)).astype(np.float32)
KINDS = {
    examples.CLASSIFICATION: (LOGITS, CLASSES),
    examples.MULTI_LABEL: (LOGITS, SEVERAL),
    examples.REGRESSION: (LOGITS[:, :1], VALUES),
}


def test_the_early_checks_know_the_tasks_of_multiple_choice():
    found = [
        name
        for name, spec in sentence_tasks.TASKS.items()
        if spec.kind == examples.MULTIPLE_CHOICE
    ]
    assert sorted(found) == sorted(settings.MULTIPLE_CHOICE)


@pytest.mark.parametrize("kind", KINDS)
def test_the_reported_loss_is_the_loss_that_is_trained_on(kind):
    logits, labels = KINDS[kind]
    task = objective.ClassificationObjective(
        config=None, kind=kind, labels=("a", "b", "c")
    )

    def model(features, dropout_seed):
        return keras.ops.convert_to_tensor(logits)

    dtype = np.float32 if kind == examples.REGRESSION else np.int32
    features = {
        "input_ids": np.zeros((50, 4), np.int32),
        "label_ids": labels.astype(dtype),
    }
    (loss,) = task.forward(model, features)[0].values()
    (weight,) = task.loss_weights(features).values()
    ours = objective.example_losses(kind, logits, labels).mean()
    assert float(loss.sum) / float(weight) == pytest.approx(ours, rel=1e-5)


@pytest.mark.parametrize("weights", [[1, 2.5, 0.5], "balanced"])
def test_classes_are_weighted_as_in_scikit_learn(weights):
    kind = examples.CLASSIFICATION
    expected = weights
    if weights == "balanced":
        weights = objective.balanced_weights(CLASSES, 3)
        expected = sklearn.utils.class_weight.compute_class_weight(
            "balanced", classes=np.arange(3), y=CLASSES[:, 0]
        )
        np.testing.assert_allclose(weights, expected)
        assert objective.balanced_weights(CLASSES, 4)[3] == 1.0
    task = objective.ClassificationObjective(
        config=None, kind=kind, labels=("a", "b", "c"), class_weights=weights
    )

    def model(features, dropout_seed):
        return keras.ops.convert_to_tensor(LOGITS)

    features = {"label_ids": CLASSES.astype(np.int32)}
    (loss,) = task.forward(model, features)[0].values()
    (weight,) = task.loss_weights(features).values()
    assert float(weight) == pytest.approx(float(loss.weight))
    log_loss = sklearn.metrics.log_loss(
        CLASSES[:, 0],
        outcomes.probabilities(kind, LOGITS),
        sample_weight=np.array(expected)[CLASSES[:, 0]],
    )
    assert float(loss.sum) / float(weight) == pytest.approx(log_loss, rel=1e-5)


def test_losses_and_probabilities_are_scikit_learns():
    probabilities = outcomes.probabilities(examples.CLASSIFICATION, LOGITS)
    loss = objective.example_losses(
        examples.CLASSIFICATION, LOGITS, CLASSES
    ).mean()
    expected = sklearn.metrics.log_loss(CLASSES[:, 0], probabilities)
    assert loss == pytest.approx(expected)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)


def test_the_score_is_the_mean_of_what_runs_are_selected_by():
    names = ("accuracy", "f1_macro")
    values = objective.evaluate(examples.CLASSIFICATION, names, LOGITS, CLASSES)
    mean = (values["accuracy"] + values["f1_macro"]) / 2
    assert values["score"] == pytest.approx(mean)
    values = objective.evaluate(
        examples.CLASSIFICATION, names, LOGITS, CLASSES, selected_by=names[:1]
    )
    assert values["score"] == values["accuracy"]


def test_f1_is_that_of_label_1_wherever_the_model_has_it():
    draw = np.random.default_rng(1)
    logits, truth = draw.normal(size=(40, 2)), draw.integers(0, 2, (40, 1))
    task = sentence_tasks.SentenceTask(
        name="mrpc",
        kind=examples.CLASSIFICATION,
        metrics=("f1", "accuracy"),
        labels=("0", "1"),
        read=None,
    )
    turned = dataclasses.replace(task, labels=("1", "0"))
    values = [
        objective.evaluate(
            task.kind, task.metrics, *given, positive=given_task.positive
        )
        for given_task, given in (
            (task, (logits, truth)),
            (turned, (logits[:, ::-1], 1 - truth)),
        )
    ]
    assert values[0] == pytest.approx(values[1])
    other = objective.evaluate(task.kind, task.metrics, -logits, 1 - truth)
    assert values[0]["f1"] != pytest.approx(other["f1"])


@pytest.mark.parametrize("name", ["CoLA", "STS-B", "csv"])
def test_larger_scores_are_better_ones(name):
    """Errors have no part in it; CoLA is ranked by Matthews' alone."""
    data = settings.Files(data_dir="d")
    task = sentence_tasks.open_task(name, data, problem_type="regression")
    chosen = task.selected_by or task.metrics
    assert "mean_squared_error" not in chosen
    if name == "CoLA":
        assert list(chosen) == ["matthews_correlation"]


def test_f1_of_several_labels_counts_what_is_there():
    truth, found = np.array([[0], [1], [0]]), np.array([[0], [0], [0]])
    assert metrics.f1_micro(found, truth) == 0.0
    assert metrics.f1_macro(found, truth) == 0.0
    truth = np.array([[0, 1], [1, 1], [0, 1]])
    found = np.array([[0, 1], [0, 1], [0, 1]])
    assert metrics.f1_micro(found, truth) == pytest.approx(6 / 7)
    assert metrics.f1_macro(found, truth) == pytest.approx(0.5)


def test_rates_fall_from_the_head_to_the_embeddings():
    expected = {
        "bert/encoder/layer_11/output/dense/kernel": 0.9,
        "bert/encoder/layer_0/output/dense/kernel": 0.9**12,
        "bert/embeddings/LayerNorm/gamma": 0.9**13,
    }
    head = ["output_weights", "bert/pooler/dense/kernel"]
    factors = assembly.layer_factors([*head, *expected], 12, 0.9)
    assert factors == pytest.approx(expected)


def test_a_grid_of_one_is_the_run_itself():
    (run,) = grid.plan(run_config.Grid(), 7, "out")
    assert run.directory == "out"
    axes = run_config.Grid(learning_rate=(5e-5, 3e-5), num_seeds=2)
    runs = grid.plan(axes, 1, "out")
    assert [run.directory for run in runs] == [
        "out/runs/lr5e-05_seed1",
        "out/runs/lr5e-05_seed2",
        "out/runs/lr3e-05_seed1",
        "out/runs/lr3e-05_seed2",
    ]


def test_a_summary_by_hand():
    runs = grid.plan(run_config.Grid(num_seeds=3), 1, "out")
    scores = dict(zip(runs, (0.5, 0.9, 0.7), strict=True))
    results = {run: {"score": x, "loss": 1 - x} for run, x in scores.items()}
    assert grid.best_run(results) == runs[1]
    found = grid.summarize(results)
    assert found["score"]["best"] == 0.9
    assert found["score"]["mean"] == pytest.approx(0.7)
    assert found["score"]["median"] == 0.7
    assert found["score"]["std"] == pytest.approx(0.2)
    assert found["loss"]["best"] == pytest.approx(0.1)
    table = grid.Results("out")
    for run, values in results.items():
        table.add(run, {"values": values})
    header, rows = table.table()
    assert header == ["learning rate", "seed", "score", "loss"]
    assert len(rows) == 3 + 4
