"""Proves run_classifier.py --do_predict on streams of rows.

python -m pytest tests/run_classifier_stream_test.py
"""

import bz2
import csv
import gzip
import json
import os
import signal
import subprocess
import sys
import time

import classifier_runs
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import tiny_runs

from jobs import streaming, task_model
from weights import model_directory

COUNT = 50
ROWS = [
    {"id": f"r{i}", "review": text, "verdict": ["no", "yes"][label]}
    for i, (text, label) in enumerate(classifier_runs.sentences(7, COUNT))
]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A tiny classifier, and the table as one .csv file."""
    root = tmp_path_factory.mktemp("data")
    classifier_runs.make_data(root)
    classifier_runs.run_csv(
        root, "model", "--do_train", num_train_epochs=1, dev_file=None
    )
    write_csv(root / "rows.csv", ROWS)
    return root


def write_csv(path, rows):
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, ["id", "review", "verdict"])
        writer.writeheader()
        writer.writerows(rows)


def predict(root, name, test_file, *switches, **flags):
    """Predicts a table; returns the output directory."""
    flags = {
        "init_checkpoint": root / "model",
        "train_file": None,
        "test_file": test_file,
        "id_column": "id",
    } | flags
    return classifier_runs.run_csv(
        root, name, "--do_predict", *switches, **flags
    )


def test_a_trained_model_remembers_its_columns(root, at_once, caplog):
    with caplog.at_level("INFO"):
        path = predict(
            root,
            "remembered",
            root / "rows.csv",
            text_column=None,
            label_column=None,
        )
    line = (
        "as the model was trained: --text_column=review --label_column=verdict"
    )
    assert line in caplog.messages
    assert outputs(path) == outputs(at_once)
    flags = json.loads((path / "run_config.json").read_text())
    assert flags["label_column"] == "verdict"


def outputs(folder):
    names = ("predictions.tsv", "test_results.tsv", "scores_test.txt")
    return {name: (folder / name).read_bytes() for name in names}


@pytest.fixture(scope="module")
def at_once(root):
    """The predictions of all rows in one block."""
    return predict(root, "at_once", root / "rows.csv")


def test_blocks_give_the_predictions_of_the_set(root, at_once, monkeypatch):
    monkeypatch.setattr(streaming, "BLOCK_ITEMS", 16)
    folder = predict(root, "blocks", root / "rows.csv")
    rows = (folder / "predictions.tsv").read_text().splitlines()
    assert [row.split("\t")[0] for row in rows[1:]] == [x["id"] for x in ROWS]
    np.testing.assert_allclose(
        np.loadtxt(folder / "test_results.tsv"),
        np.loadtxt(at_once / "test_results.tsv"),
        rtol=1e-5,
    )
    scores = (folder / "scores_test.txt").read_text()
    assert "test_accuracy" in scores
    assert not list(folder.glob("*.incomplete"))


def test_an_interrupted_prediction_continues(root, monkeypatch):
    """With the same bytes as one that was never interrupted."""
    monkeypatch.setattr(streaming, "BLOCK_ITEMS", 16)
    calm = predict(root, "calm", root / "rows.csv")
    predict_block = task_model.TaskModel.predict
    sizes = []

    def count(self, features, batch_size):
        if len(sizes) == 2:
            raise KeyboardInterrupt
        sizes.append(len(features))
        return predict_block(self, features, batch_size)

    monkeypatch.setattr(task_model.TaskModel, "predict", count)
    with pytest.raises(SystemExit, match="130"):
        predict(root, "cut", root / "rows.csv")
    sizes[:] = [0]  # One more call is allowed.
    with pytest.raises(SystemExit, match="130"):
        predict(root, "cut", root / "rows.csv")
    assert not (root / "cut" / "predictions.tsv").exists()
    monkeypatch.setattr(task_model.TaskModel, "predict", predict_block)
    folder = predict(root, "cut", root / "rows.csv")
    assert outputs(folder) == outputs(calm)


def test_an_interrupted_prediction_is_not_continued_by_another(
    root, monkeypatch, capsys
):
    def fail(self, features, batch_size):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(task_model.TaskModel, "predict", fail)
        with pytest.raises(SystemExit, match="130"):
            predict(root, "other", root / "rows.csv")
    with pytest.raises(SystemExit):
        predict(root, "other", root / "rows.csv", predict_batch_size=4)
    error = capsys.readouterr().err.splitlines()[-1]
    message = "predict_test.incomplete contains an unfinished prediction"
    assert f"other/{message}" in error
    assert "predict_batch_size was 8, is 4" in error


def write_forms(folder):
    """Writes the rows in several files of each form, some compressed."""
    for form in ("csv", "tsv", "jsonl", "parquet"):
        (folder / form).mkdir()
        (folder / form / ".hidden.csv").write_text("x")
        (folder / form / "notes.md").write_text("x")
    write_csv(folder / "csv" / "1.csv", ROWS[:20])
    write_csv(folder / "csv" / "2", ROWS[20:])
    data = (folder / "csv" / "2").read_bytes()
    (folder / "csv" / "2").unlink()
    (folder / "csv" / "2.csv.gz").write_bytes(gzip.compress(data))
    for name, rows in (("1.tsv", ROWS[:7]), ("2.tsv.zst", ROWS[7:])):
        lines = ["\t".join(ROWS[0]), *("\t".join(x.values()) for x in rows)]
        data = "\n".join(lines).encode()
        if name.endswith(".zst"):
            data = pa.Codec("zstd").compress(data, asbytes=True)
        (folder / "tsv" / name).write_bytes(data)
    for name, rows in (("1.jsonl", ROWS[:7]), ("2.jsonl.bz2", ROWS[7:])):
        data = "".join(json.dumps(x) + "\n" for x in rows).encode()
        is_plain = name.endswith("jsonl")
        data = data if is_plain else bz2.compress(data)
        (folder / "jsonl" / name).write_bytes(data)
    for name, rows in (("1.parquet", ROWS[:7]), ("2.parquet", ROWS[7:])):
        table = pa.Table.from_pylist(rows)
        pa.parquet.write_table(table, folder / "parquet" / name)


def test_all_forms_in_folders_and_patterns_are_the_same_set(
    root, at_once, tmp_path
):
    write_forms(tmp_path)
    for form in ("csv", "tsv", "jsonl", "parquet"):
        given = tmp_path / form
        if form == "csv":
            given = f"{given}/[12]*"
        folder = predict(root, f"of_{form}", given, task_name=form)
        assert outputs(folder) == outputs(at_once), form


def test_lines_of_standard_input_go_to_standard_output(
    root, at_once, repository
):
    """And nothing else does."""
    command = [
        sys.executable,
        repository / "run_classifier.py",
        "--task_name=csv",
        "--do_predict",
        "--test_file=-",
        f"--output_dir={root / 'model'}",
        "--max_seq_length=32",
        "--precision=float32",
    ]
    lines = "".join(row["review"] + "\n" for row in ROWS)
    found = subprocess.run(
        command, input=lines, capture_output=True, text=True, check=True
    )
    expected = (at_once / "predictions.tsv").read_text().replace("\nr", "\n")
    # The texts are only in the file.
    rows = [line.rpartition("\t")[0] for line in expected.splitlines()]
    assert found.stdout.splitlines() == rows


def test_pairs_are_refused_by_a_model_of_single_texts(root, capsys):
    with pytest.raises(SystemExit):
        predict(root, "pairs", root / "rows.csv", text_pair_column="id")
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.endswith(
        f"=id: the model in {root}/model was trained on single texts"
    )


def test_predictions_of_the_dev_set_stay_beside_those_of_the_test_set(
    root, at_once
):
    folder = predict(
        root,
        "with_dev",
        root / "rows.csv",
        "--predict_dev",
        dev_file=root / "dev.csv",
    )
    assert outputs(folder) == outputs(at_once)
    rows = (folder / "predictions_dev.tsv").read_text().splitlines()
    assert [row.split("\t")[0] for row in rows[1:]] == [
        f"dev{i}" for i in range(41)
    ]
    assert (folder / "test_results_dev.tsv").exists()


def test_a_set_without_rows_is_refused_before_the_model_is_built(
    root, tmp_path, capsys
):
    (tmp_path / "a.csv").write_text("id,review\n")
    (tmp_path / "b.csv").write_text("id,review\n")
    for name, message in (("", "has no examples"), ("x*", "no file there")):
        with pytest.raises(SystemExit):
            predict(root, "empty", f"{tmp_path}/{name}")
        assert message in capsys.readouterr().err.splitlines()[-1]


def test_what_the_vocabulary_does_not_have_is_logged_once(
    root, tmp_path, caplog
):
    rows = [
        {"id": i, "review": "\u092b\u093f \u0939", "verdict": "no"}
        for i in "ab"
    ]
    write_csv(tmp_path / "hindi.csv", rows)
    with caplog.at_level("WARNING", logger="absl"):
        predict(root, "hindi", tmp_path / "hindi.csv")
    lines = [
        x.getMessage() for x in caplog.records if "[UNK]" in x.getMessage()
    ]
    assert len(lines) == 1
    assert lines[0].startswith(f"{tmp_path}/hindi.csv: 100 % of its tokens are")
    assert lines[0].endswith("'\u092b\u093f', '\u0939'")


@pytest.mark.all
def test_a_killed_command_continues(root, repository, tmp_path):
    """A process that ends by SIGKILL, with real blocks."""
    write_csv(tmp_path / "rows.csv", ROWS * 300)

    def command(name):
        return [
            sys.executable,
            repository / "run_classifier.py",
            "--task_name=csv",
            "--do_predict",
            f"--test_file={tmp_path / 'rows.csv'}",
            "--text_column=review",
            "--label_column=verdict",
            f"--init_checkpoint={root / 'model'}",
            f"--output_dir={tmp_path / name}",
            "--max_seq_length=32",
        ]

    subprocess.run(command("calm"), check=True)
    process = subprocess.Popen(command("cut"))
    work = tmp_path / "cut" / "predict_test.incomplete"
    while not (work / "block-0000001").exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "cut" / "predictions.tsv").exists()
    result = subprocess.run(
        command("cut"), check=True, capture_output=True, text=True
    )
    assert "by an earlier run" in result.stderr
    assert outputs(tmp_path / "cut") == outputs(tmp_path / "calm")


def test_a_question_answering_model_is_not_a_classifier(root, capsys):
    """The message names what is wrong, and not a flag that would not help."""
    folder = tiny_runs.save_encoder(root / "squad", classifier_runs.WORDS)
    path = os.path.join(folder, model_directory.CONFIG)
    with open(path) as file:
        config = json.load(file)
    config["architectures"] = ["BertForQuestionAnswering"]
    with open(path, "w") as file:
        json.dump(config, file)
    with pytest.raises(SystemExit):
        predict(root, "wrong", root / "rows.csv", init_checkpoint=folder)
    error = capsys.readouterr().err.splitlines()[-1]
    assert "is not a classifier" in error
