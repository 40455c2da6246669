"""Proves that the table of choices shows the scores that there are.

python -m pytest tests/tasks/ner/feature_results_test.py
"""

from foundation import stamp
from tasks.ner import feature_based

SPANS = {"f1": 0.25, "precision": 0.5, "recall": 0.125, "accuracy": 0.9}
PLAIN = {"accuracy": 0.75, "f1_macro": 0.5, "score": 0.75, "loss": 1.5}


def table(folder, values):
    result = feature_based.trained(3, 17.2, stamp.Stamp())
    for split, scores in values.items():
        result = result.add(split, scores, stamp.Stamp())
    text = feature_based.write_table(
        str(folder), {"last": result}, ("dev", "test")
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
