"""Proves what the files of predictions and the submissions contain.

python -m pytest tests/tasks/classification/sentence_outputs_test.py
"""

import csv
import dataclasses
import zipfile

import numpy as np
import pytest
from classifier_runs import read_split

from data import examples
from foundation import errors
from jobs import streaming
from tasks.classification import sentence_outputs, sentence_tasks, settings
from weights import task_files

_NLI = ["contradiction", "entailment", "neutral"]
_TWO_WAY = ["entailment", "not_entailment"]
_BINARY = ["0", "1"]
# GLUE's name of each file, and what it may say in the order of the classes.
SUBMISSIONS = {
    ("cola", "test"): ("CoLA.tsv", _BINARY),
    ("sst-2", "test"): ("SST-2.tsv", _BINARY),
    ("mrpc", "test"): ("MRPC.tsv", _BINARY),
    ("sts-b", "test"): ("STS-B.tsv", ["0.000", "1.235", "5.000"]),
    ("qqp", "test"): ("QQP.tsv", _BINARY),
    ("mnli", "test"): ("MNLI-m.tsv", _NLI),
    ("mnli", "test_mismatched"): ("MNLI-mm.tsv", _NLI),
    ("qnli", "test"): ("QNLI.tsv", _TWO_WAY),
    ("rte", "test"): ("RTE.tsv", _TWO_WAY),
    ("wnli", "test"): ("WNLI.tsv", _BINARY),
    ("ax", "test"): ("AX.tsv", _NLI),
}


def texts(count, guids=None, labels=None, path="test.tsv"):
    guids = guids or [str(i) for i in range(count)]
    labels = labels or [None] * count
    rows = [
        examples.Example(path, 2 + i, guids[i], "x", (), labels[i])
        for i in range(count)
    ]
    return examples.Examples(lambda: rows, path)


def task_of(name, test_set, **changes):
    """Opens a task of GLUE with another test set."""
    task = sentence_tasks.open_task(name, settings.Files())
    return dataclasses.replace(task, read=lambda split: test_set, **changes)


def write(folder, task, split, logits, *, majority=None, glue=None):
    """Writes the predictions of a set in blocks of two, with given logits."""
    logits = np.asarray(logits, np.float32)
    blocks = streaming.Blocks(f"{folder}.incomplete", {})

    class Stream:
        """Looks up the logits of each example."""

        block_items, total, unit = 2, None, "rows"

        def read(self):
            return task.read(split)

        def key(self, item):
            return item.key

        def rows_of(self, item):
            return 1

        def encode(self, items):
            return [example.line - 2 for example in items]

        def predict(self, encoded):
            return logits[encoded]

        def parts(self, items, encoded, predicted):
            assert len(items) == len(encoded) == len(predicted)
            return sentence_outputs.prediction_parts(
                task, items, predicted, majority=majority
            )

        def end(self):
            pass

    streaming.run(Stream(), blocks)
    sentence_outputs.write_predictions(blocks, task, split, str(folder), glue)
    blocks.remove()


def write_glue(folder, name, split, **options):
    """Writes a test set whose example i is of class i."""
    found = SUBMISSIONS[name, split][1]
    logits = np.eye(len(found))
    if name == "sts-b":
        logits = [[-1.0], [1.2346], [6.0]]
    guids = [str(10 * i) for i in range(len(found))]
    task = task_of(name, texts(len(found), guids))
    run = folder.with_name("run")
    write(run, task, split, logits, glue=str(folder), **options)


@pytest.mark.parametrize(
    ("name", "split"), SUBMISSIONS, ids=["-".join(key) for key in SUBMISSIONS]
)
def test_every_submission_has_its_header_and_its_labels(tmp_path, name, split):
    write_glue(tmp_path / "glue", name, split)
    file, found = SUBMISSIONS[name, split]
    assert [path.name for path in (tmp_path / "glue").iterdir()] == [file]
    rows = [f"{10 * i}\t{label}\n" for i, label in enumerate(found)]
    text = (tmp_path / "glue" / file).read_text()
    assert text == "index\tprediction\n" + "".join(rows)


def test_a_mismatched_set_is_known_by_its_file(tmp_path):
    task = task_of("mnli", texts(3, path="MNLI/test_mismatched.tsv"))
    write(tmp_path / "run", task, "test", np.eye(3), glue=str(tmp_path / "g"))
    assert [path.name for path in (tmp_path / "g").iterdir()] == ["MNLI-mm.tsv"]


def test_no_submission_is_forgotten(tmp_path):
    expected = sorted(file for file, _ in SUBMISSIONS.values())
    assert sentence_outputs.submission_files() == expected
    folder = tmp_path / "glue"
    for name, split in SUBMISSIONS:
        assert not (folder / "submission.zip").exists()
        write_glue(folder, name, split)
    with zipfile.ZipFile(folder / "submission.zip") as file:
        assert sorted(file.namelist()) == expected
        for name in expected:
            assert file.read(name) == (folder / name).read_bytes()


def test_labels_are_in_the_order_of_the_models_outputs(tmp_path):
    order = ["neutral", "contradiction", "entailment"]
    task = task_of("mnli", texts(3), labels=order)
    write(tmp_path / "run", task, "test", np.eye(3), glue=str(tmp_path))
    rows = (tmp_path / "MNLI-m.tsv").read_text().splitlines()[1:]
    assert [row.split("\t")[1] for row in rows] == order


def test_swags_file_of_each_set_is_kept(tmp_path):
    task = task_of("swag", texts(2))
    for split, answer in (("test", 1), ("dev", 3)):
        write(tmp_path, task, split, np.eye(4)[[answer, answer]])
        suffix = "" if split == "test" else "_dev"
        text = (tmp_path / f"swag_submission{suffix}.csv").read_text()
        assert text == f"id,pred\n0,{answer}\n1,{answer}\n"
    sets = (tmp_path / "predicted_sets.json").read_text()
    assert "swag_submission_dev.csv" in sets and "scores_test_dev" not in sets


def test_xnli_has_no_submission(tmp_path):
    task = task_of("xnli", texts(1))
    write(tmp_path / "run", task, "test", np.eye(1, 3), glue=str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_wnli_can_be_answered_by_its_majority(tmp_path):
    train = texts(5, labels=["1", "0", "0", "1", "0"])
    majority = sentence_outputs.majority_label(train)
    write_glue(tmp_path / "glue", "wnli", "test", majority=majority)
    text = (tmp_path / "glue" / "WNLI.tsv").read_text()
    assert text == "index\tprediction\n0\t0\n10\t0\n"


@pytest.mark.parametrize("labels", [["1", "0"], ["0", "1"]], ids=str)
def test_of_equal_labels_the_majority_is_the_first(labels):
    found = sentence_outputs.majority_label(texts(2, labels=labels))
    assert found == "0"


def test_the_majority_of_wnli_is_not_entailed(shared_data):
    train = read_split("wnli", "train", str(shared_data / "glue"))
    assert train.labels.count("0") == 323
    assert sentence_outputs.majority_label(train) == "0"


@pytest.mark.parametrize(
    ("name", "file", "found"),
    [
        ("mrpc", None, ["nyu-mll/glue"]),
        ("mrpc", "my/train.tsv", []),
        ("xnli", None, ["facebook/xnli"]),
        ("csv", "train.tsv", []),
    ],
)
def test_a_card_names_a_released_training_set_only(name, file, found):
    assert sentence_outputs.on_the_hub(name, file) == found


def written(folder, kind, labels, logits, guids=None):
    task = sentence_tasks.SentenceTask(
        name="csv",
        kind=kind,
        metrics=(),
        labels=labels,
        read=lambda split: texts(len(logits), guids),
    )
    write(folder, task, "test", logits)
    with open(folder / "predictions.tsv", newline="") as file:
        return list(csv.reader(file, delimiter="\t", strict=True))


def test_ids_and_labels_come_back_whatever_they_hold(tmp_path):
    guids = ["a\tb", "c\nd", "e\rf", 'g "h"', ' "', "\r\n", ""]
    labels = ["yes\tor", "no\nway"]
    logits = [[1, 0], [0, 1]] * 3 + [[1, 0]]
    rows = written(tmp_path, examples.CLASSIFICATION, labels, logits, guids)
    assert rows[0] == ["id", "label", *labels]
    assert [row[0] for row in rows[1:]] == guids
    assert [row[1] for row in rows[1:]] == (labels * 4)[:7]
    for line in (tmp_path / "test_results.tsv").read_text().splitlines():
        assert sum(map(float, line.split("\t"))) == pytest.approx(1)


def test_predictions_need_no_quotes_where_nothing_is_odd(tmp_path):
    written(tmp_path, examples.CLASSIFICATION, ["a", "b, c"], [[0, 0]])
    text = (tmp_path / "predictions.tsv").read_text()
    assert text == "id\tlabel\ta\tb, c\n0\ta\t0.500000\t0.500000\n"
    assert (tmp_path / "test_results.tsv").read_text() == "0.5\t0.5\n"


def test_kept_columns_follow_the_probabilities(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('text,label,n\n"a\tb",x,1\n')
    files = settings.Files(test_file=str(path))
    columns = settings.Columns(keep_columns="label,text,n")
    known = task_files.ModelClasses(labels=["x", "y"], problem_type=None)
    task = sentence_tasks.open_task("csv", files, columns, known=known)
    write(tmp_path, task, "test", [[0, 0]])
    with open(tmp_path / "predictions.tsv", newline="") as file:
        head, row = csv.reader(file, delimiter="\t")
    assert head == ["id", "label", "x", "y", "label (given)", "text", "n"]
    assert row == ["0", "x", "0.500000", "0.500000", "x", "a\tb", "1"]
    bad = settings.Columns(keep_columns="date")
    with pytest.raises(errors.InputError, match="'date'.*--keep_columns"):
        task = sentence_tasks.open_task("csv", files, bad, known=known)
        task.read("test")
    for given, kept in ((None, ["text"]), ("none", []), ("a, b", ["a", "b"])):
        assert settings.Columns(keep_columns=given).kept == kept


def test_values_and_several_labels_are_written_in_words(tmp_path):
    rows = written(tmp_path, examples.REGRESSION, [], [[-1.0], [2.5]])
    assert rows == [["id", "label"], ["0", "-1.0000"], ["1", "2.5000"]]
    logits = [[9, -9, 9], [-9, -9, -9]]
    rows = written(tmp_path, examples.MULTI_LABEL, ["a", "b", "c"], logits)
    assert [row[:2] for row in rows[1:]] == [["0", "a,c"], ["1", ""]]
