"""Proves the model card after a grid, and after an evaluation of its model.

python -m pytest tests/run_classifier_card_test.py
"""

import json
import logging
import re

import classifier_runs
import numpy as np
import pytest
import tiny_runs

from training import loop

GRID = {
    "learning_rate": "1e-2,5e-3",
    "num_train_epochs": 1,
    "max_seq_length": 16,
}
FAILED = "runs/lr0.01_seed12345"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    classifier_runs.make_data(root)
    return root


@pytest.fixture(scope="module")
def trained(root):
    """A grid whose first run diverges; nothing is evaluated by itself."""
    add = loop.Loop._add

    def add_nan(self, results):
        if FAILED in self.saver._directory:
            sums = np.full_like(results.sums, np.nan)
            results = results._replace(sums=sums)
        add(self, results)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop.Loop, "_add", add_nan)
        return classifier_runs.run_csv(root, "grid", "--do_train", **GRID)


def read(path):
    return json.loads(path.read_text())


def card(folder):
    """Returns the rows of the card's tables, and the seconds of training."""
    text = (folder / "README.md").read_text()
    rows = dict(re.findall(r"^\| (\S+) \| (.*) \|$", text, re.M))
    return rows, float(re.search(r"took (\d+) seconds", text)[1])


def test_a_grid_continues_without_a_run_that_diverges(root, trained, caplog):
    record = read(trained / "grid_results.json")
    (kept,), (failed,) = record["runs"], record["failed"]
    assert kept["learning_rate"] == 5e-3
    assert failed["learning_rate"] == 1e-2 and failed["step"] == 0
    assert failed["failed"].startswith("step 0: the loss is nan")
    text = (trained / "grid_results.txt").read_text()
    assert "diverged at step 0" in text
    assert not list((trained / FAILED).glob("model.ckpt-*"))
    rows, seconds = card(trained)
    assert float(rows["eval_accuracy"]) == pytest.approx(
        kept["accuracy"], rel=1e-5
    )
    assert "41 examples of dev.csv" in rows["dev"]
    all_seconds = [
        read(path)["seconds"] for path in trained.glob("runs/*/result.json")
    ]
    assert seconds == pytest.approx(sum(all_seconds), abs=0.51)
    # Started again, it takes over what has failed as what has ended.
    before = read(trained / FAILED / "result.json")
    with caplog.at_level(logging.INFO):
        classifier_runs.run_csv(root, "grid", "--do_train", **GRID)
    assert ", loss " not in caplog.text
    assert read(trained / FAILED / "result.json") == before
    assert read(trained / "grid_results.json") == record
    assert card(trained)[0]["eval_accuracy"] == rows["eval_accuracy"]


def test_an_evaluation_is_added_to_the_card_but_its_flags_are_not(
    root, trained
):
    flags = read(trained / "run_config.json")
    other = root / "other.csv"
    header, *lines = (root / "dev.csv").read_text().splitlines()
    other.write_text("\n".join([header, *lines[:11]]) + "\n")
    classifier_runs.run_csv(
        root,
        "grid",
        "--do_eval",
        init_checkpoint=None,
        train_file=None,
        dev_file=other,
        learning_rate=None,
        max_seq_length=16,
    )
    assert read(trained / "run_config.json") == flags
    assert flags["learning_rate"] == "0.01,0.005"
    rows, _ = card(trained)
    assert "11 examples of other.csv" in rows["other"]
    assert "41 examples of dev.csv" in rows["dev"]
    assert "203 examples of train.csv" in rows["train"]
    values = tiny_runs.eval_results(trained)
    assert float(rows["other_eval_loss"]) == pytest.approx(
        values["eval_loss"], rel=1e-5
    )
    page = (trained / "report.html").read_text()
    flags_table = page[page.index("<h2>Training") : page.index("<h2>Flags")]
    assert flags["learning_rate"] in flags_table
    assert "diverged at step 0" in page and "<svg" in page
    # Files of another set are kept under its name.
    classifier_runs.run_csv(
        root, "grid", "--do_eval", learning_rate=None, max_seq_length=16
    )
    assert read(trained / "eval_results_other.json") == values
    assert (trained / "report_other.html").read_text() == page
    assert tiny_runs.eval_results(trained) != values
