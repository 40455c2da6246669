"""Proves that the table of choices shows the scores that there are.

python -m pytest tests/tasks/ner/feature_results_test.py
"""

import json

import pytest

from foundation import stamp
from jobs import grid, run_config
from tasks.ner import feature_results

SPANS = {"f1": 0.25, "precision": 0.5, "recall": 0.125, "accuracy": 0.9}
PLAIN = {"accuracy": 0.75, "f1_macro": 0.5, "score": 0.75, "loss": 1.5}


def result_of(values, failed=""):
    result = feature_results.Result.trained(3, 17.2, stamp.Stamp(), failed)
    for split, scores in values.items():
        result = result.add(split, scores, stamp.Stamp())
    return result


def table(folder, *values, **axes):
    axes = run_config.Grid(**axes)
    runs = grid.plan(axes, 1, str(folder / "features/last"))
    results = dict(zip(runs, map(result_of, values), strict=True))
    return write(folder, results)


def write(folder, results):
    text = feature_results.write_table(
        str(folder), {"last": results}, ("dev", "test")
    )
    assert (folder / "feature_results.txt").read_text() == text + "\n"
    return [line.split("  ") for line in text.splitlines()]


def cells(rows):
    return [[cell.strip() for cell in row if cell.strip()] for row in rows]


def test_entities_have_precision_recall_and_f1(tmp_path):
    assert cells(table(tmp_path, {"dev": SPANS, "test": {}})) == [
        ["features", "dev precision", "dev recall", "dev f1", "seconds"],
        ["last", "50.00", "12.50", "25.00", "17"],
    ]


def test_plain_tags_have_their_accuracy_and_macro_f1(tmp_path):
    found = cells(table(tmp_path, {"dev": PLAIN, "test": PLAIN}))
    names = ["dev accuracy", "dev f1_macro", "test accuracy", "test f1_macro"]
    assert found == [
        ["features", *names, "seconds"],
        ["last", "75.00", "50.00", "75.00", "50.00", "17"],
    ]


def spans(f1):
    scores = {"precision": f1, "recall": f1, "f1": f1, "score": f1}
    return {"dev": scores, "test": {}}


def test_several_runs_have_means_and_the_best_rate_is_the_choices(tmp_path):
    values = list(map(spans, (0.5, 0.25, 0.75, 0.5)))
    rates = {"learning_rate": (1e-3, 5e-4), "num_seeds": 2}
    found = cells(table(tmp_path, *values, **rates))
    assert found[0][:3] == ["features", "learning rate", "seed"]
    assert [row[1:4] for row in found[1:]] == [
        ["0.001", "1", "50.00"],
        ["0.001", "2", "25.00"],
        ["0.001", "mean", "37.50"],
        ["0.001", "std", "17.68"],
        ["0.0005", "1", "75.00"],
        ["0.0005", "2", "50.00"],
        ["0.0005", "mean", "62.50"],
        ["0.0005", "std", "17.68"],
    ]
    record = json.loads((tmp_path / "feature_results.json").read_text())["last"]
    assert record["values"] == {"dev": spans(0.625)["dev"], "test": {}}
    runs = [(x["learning_rate"], x["random_seed"]) for x in record["runs"]]
    assert runs == [(1e-3, 1), (1e-3, 2), (5e-4, 1), (5e-4, 2)]


def test_a_run_that_diverged_is_shown_and_not_counted(tmp_path):
    axes = run_config.Grid(num_seeds=3)
    first, second, third = grid.plan(axes, 1, str(tmp_path))
    results = {
        first: result_of(spans(0.5)),
        second: result_of({}, "the loss is nan"),
        third: result_of(spans(0.25)),
    }
    found = cells(write(tmp_path, results))
    assert found[2][-1] == "diverged at step 3"
    assert found[4][2:4] == ["mean", "37.50"]
    record = json.loads((tmp_path / "feature_results.json").read_text())["last"]
    assert record["values"]["dev"]["f1"] == pytest.approx(0.375)
    assert record["runs"][1]["failed"] == "the loss is nan"
