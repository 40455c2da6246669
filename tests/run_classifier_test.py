"""Proves run_classifier.py in small: train, evaluate, predict, bad input.

python -m pytest tests/run_classifier_test.py
"""

import csv
import json
import random
import zipfile

import numpy as np
import pytest
import tiny_runs

import run_classifier
from modeling import model_directory, models
from tasks import model_files

GOOD, BAD = ["good", "fine", "nice"], ["bad", "poor", "sad"]
FILLING = [f"w{i}" for i in range(20)]
WORDS = tiny_runs.SPECIAL + GOOD + BAD + FILLING


def sentences(seed, count):
    """Texts of very different lengths, and whether each has a good word."""
    rng = random.Random(seed)
    for _ in range(count):
        label = rng.randrange(2)
        words = rng.choices(FILLING, k=rng.choice([1, 2, 3, 10, 25]))
        words.insert(0, rng.choice(GOOD if label else BAD))
        yield " ".join(words), label


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A tiny encoder with its vocabulary, and data in several forms."""
    place = tmp_path_factory.mktemp("data")
    tiny_runs.save_encoder(place / "encoder", WORDS)
    for name, seed, count in (("train", 1, 203), ("dev", 2, 41)):
        rows = list(sentences(seed, count))
        with open(place / f"{name}.csv", "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["id", "review", "verdict"])
            for i, (text, label) in enumerate(rows):
                writer.writerow([f"{name}{i}", text, ["no", "yes"][label]])
        lines = [f"{text}\t{label}\n" for text, label in rows]
        (place / f"{name}.tsv").write_text("sentence\tlabel\n" + "".join(lines))
    lines = [f"{i}\t{text}\n" for i, (text, _) in enumerate(sentences(3, 9))]
    (place / "test.tsv").write_text("index\tsentence\n" + "".join(lines))
    return place


def run(place, name, *switches, **flags):
    """Calls the runner as a command line would."""
    flags = {
        "init_checkpoint": place / "encoder",
        "output_dir": place / name,
        "max_seq_length": 32,
        "learning_rate": 5e-3,
        "save_checkpoints_steps": 1000,
        "precision": "float32",
        "num_train_epochs": 6,
    } | flags
    tiny_runs.run(
        run_classifier, run_classifier.ClassifierConfig, *switches, **flags
    )
    return place / name


def run_csv(place, name, *switches, **flags):
    own = {
        "task_name": "csv",
        "train_file": place / "train.csv",
        "dev_file": place / "dev.csv",
        "text_column": "review",
        "label_column": "verdict",
    }
    return run(place, name, *switches, **(own | flags))


@pytest.fixture(scope="module")
def sst(place):
    """A run of SST-2's files from start to end."""
    return run(
        place,
        "sst",
        "--do_train",
        "--do_eval=true",
        "--do_predict",
        "True",
        task_name="SST-2",
        data_dir=place,
        glue_submission=place / "glue",
    )


def test_it_learns_and_writes_the_released_keys(sst):
    values = tiny_runs.eval_results(sst)
    assert values["eval_accuracy"] > 0.9
    assert values["global_step"] == int(203 / 32 * 6)
    assert {"eval_loss", "loss"} <= set(values)


def test_predictions_come_as_released_and_by_name(sst):
    rows = (sst / "test_results.tsv").read_text().splitlines()
    shares = np.array([row.split("\t") for row in rows], float)
    assert shares.shape == (9, 2)
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    header, *rows = (sst / "predictions.tsv").read_text().splitlines()
    assert header == "id\tlabel\t0\t1"
    truth = [str(label) for _, label in sentences(3, 9)]
    predicted = [row.split("\t")[1] for row in rows]
    assert [row.split("\t")[0] for row in rows] == [str(i) for i in range(9)]
    assert sum(p == t for p, t in zip(predicted, truth, strict=True)) >= 8
    glue = (sst.parent / "glue" / "SST-2.tsv").read_text().splitlines()
    assert glue[0] == "index\tprediction"
    assert [row.split("\t")[1] for row in glue[1:]] == predicted


def test_a_model_directory_with_card_and_report_is_left(sst):
    assert model_directory.read_labels(str(sst)) == ["0", "1"]
    assert (sst / "vocab.txt").exists()
    card = (sst / "README.md").read_text()
    assert "203 examples of train.tsv, SHA-256" in card
    assert "eval_accuracy" in card
    page = (sst / "report.html").read_text()
    for heading in ("Learning curves", "Confusions", "By length", "Worst"):
        assert heading in page
    assert (sst / "train.tf_record").exists()
    assert (sst / "eval.tf_record").exists()
    assert (sst / "predict.tf_record").exists()


def test_a_finished_run_is_not_trained_again(sst, place):
    before = (sst / "metrics.jsonl").read_bytes()
    values = tiny_runs.eval_results(sst)
    run(
        place,
        "sst",
        "--do_train",
        "--do_eval",
        task_name="sst2",
        data_dir=place,
    )
    assert (sst / "metrics.jsonl").read_bytes() == before
    assert tiny_runs.eval_results(sst) == values


def test_the_model_directory_predicts_the_same_elsewhere(sst, place):
    other = run(
        place,
        "other",
        "--do_predict",
        "--do_eval",
        task_name="SST-2",
        data_dir=place,
        init_checkpoint=sst,
    )
    ours = np.loadtxt(sst / "test_results.tsv")
    theirs = np.loadtxt(other / "test_results.tsv")
    np.testing.assert_allclose(theirs, ours, rtol=1e-5)
    accuracy = tiny_runs.eval_results(sst)["eval_accuracy"]
    assert tiny_runs.eval_results(other)["eval_accuracy"] == accuracy


def test_neither_batch_size_nor_grouping_changes_an_evaluation(sst, place):
    values = tiny_runs.eval_results(sst)
    for i, flags in enumerate(
        ({"eval_batch_size": 5}, {"group_by_length": False})
    ):
        other = run(
            place,
            f"grouping{i}",
            "--do_eval",
            task_name="SST-2",
            data_dir=place,
            init_checkpoint=sst,
            **flags,
        )
        for name, value in tiny_runs.eval_results(other).items():
            if name != "global_step":
                assert value == pytest.approx(values[name], rel=1e-5), name


def test_an_own_table_finds_its_labels_and_predicts_without_them(place):
    folder = run_csv(place, "own", "--do_train", "--do_eval")
    assert model_directory.read_labels(str(folder)) == ["no", "yes"]
    values = tiny_runs.eval_results(folder)
    assert values["eval_accuracy"] > 0.9
    assert "eval_f1_macro" in values
    (place / "new.csv").write_text("id,review\nfirst,good w1\nsecond,bad w2\n")
    run_csv(
        place,
        "own",
        "--do_predict",
        train_file=None,
        dev_file=None,
        init_checkpoint=None,
        test_file=place / "new.csv",
        id_column="id",
    )
    rows = (folder / "predictions.tsv").read_text().splitlines()
    assert rows[0] == "id\tlabel\tno\tyes"
    assert [row.split("\t")[:2] for row in rows[1:]] == [
        ["first", "yes"],
        ["second", "no"],
    ]


@pytest.mark.parametrize("kind", ["regression", "multi_label"])
def test_values_and_several_labels(place, kind):
    for name, seed, count in (("train", 1, 203), ("dev", 2, 41)):
        with open(place / f"{kind}.{name}.jsonl", "w") as file:
            for text, label in sentences(seed, count):
                several = [["b"], ["a", "b"]][label]
                given = several if kind == "multi_label" else label * 2 - 0.5
                file.write(json.dumps({"text": text, "label": given}) + "\n")
    folder = run(
        place,
        kind,
        "--do_train",
        "--do_eval",
        "--do_predict",
        task_name="jsonl",
        problem_type=kind,
        train_file=place / f"{kind}.train.jsonl",
        dev_file=place / f"{kind}.dev.jsonl",
        test_file=place / f"{kind}.dev.jsonl",
    )
    values = tiny_runs.eval_results(folder)
    best = "eval_pearson" if kind == "regression" else "eval_f1_micro"
    assert values[best] > 0.8
    rows = (folder / "predictions.tsv").read_text().splitlines()
    header = "id\tlabel" + ("\ta\tb" if kind == "multi_label" else "")
    assert rows[0] == header
    stored = model_directory.read_problem_type(str(folder))
    assert stored.startswith(kind)


def test_multiple_choice_in_swags_columns(place):
    rng = random.Random(5)
    head = ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,"
    head += "ending0,ending1,ending2,ending3,label\n"
    for name, count in (("train", 300), ("val", 40)):
        with open(place / f"{name}.csv.swag", "w") as file:
            file.write(head)
            for i in range(count):
                label = rng.randrange(4)
                ends = [f"{rng.choice(BAD)} w{rng.randrange(20)}"] * 4
                ends[label] = f"{rng.choice(GOOD)} w{rng.randrange(20)}"
                cells = [i, "v", 0, "x", "w1 w2", "w3", "gold", *ends, label]
                file.write(",".join(map(str, cells)) + "\n")
    folder = run(
        place,
        "swag",
        "--do_train",
        "--do_eval",
        "--do_predict",
        task_name="swag",
        train_file=place / "train.csv.swag",
        dev_file=place / "val.csv.swag",
        test_file=place / "val.csv.swag",
    )
    assert tiny_runs.eval_results(folder)["eval_accuracy"] > 0.6
    assert np.loadtxt(folder / "test_results.tsv").shape == (40, 4)
    rows = (folder / "swag_submission.csv").read_text().splitlines()
    assert rows[0] == "id,pred"
    assert len(rows) == 41


def test_a_grid_reports_every_run_and_goes_on_where_it_was(place, capsys):
    flags = {"learning_rate": "1e-6,5e-3", "num_seeds": 2}
    flags["num_train_epochs"] = 3
    folder = run_csv(place, "grid", "--do_train", "--do_eval", **flags)
    record = json.loads((folder / "grid_results.json").read_text())
    assert len(record["runs"]) == 4
    assert "0.005" in record["best"]
    scores = [r["accuracy"] for r in record["runs"]]
    found = record["summary"]["accuracy"]
    assert found["mean"] == pytest.approx(np.mean(scores))
    assert found["median"] == pytest.approx(np.median(scores))
    assert found["std"] == pytest.approx(np.std(scores, ddof=1))
    assert found["best"] == max(scores)
    assert tiny_runs.eval_results(folder)["eval_accuracy"] == pytest.approx(
        max(scores)
    )
    assert "median" in capsys.readouterr().out
    # As if it had been interrupted before the last run.
    last = folder / "runs" / "lr0.005_seed12346" / "result.json"
    kept = {p: p.read_bytes() for p in folder.glob("runs/*/result.json")}
    last.unlink()
    run_csv(place, "grid", "--do_train", "--do_eval", **flags)
    again = json.loads((folder / "grid_results.json").read_text())
    assert again["runs"] == record["runs"]
    for path, text in kept.items():
        assert (path.read_bytes() == text) or path == last


def test_training_ends_early_and_keeps_the_best(place):
    folder = run_csv(
        place,
        "early",
        "--do_train",
        "--do_eval",
        "--bias_correction",
        eval_every_steps=3,
        early_stopping_patience=2,
        num_train_epochs=40,
        layer_decay=0.9,
        reinit_layers=1,
        learning_rate=5e-3,
    )
    lines = [
        json.loads(line)
        for line in (folder / "metrics.jsonl").read_text().splitlines()
    ]
    scores = {x["step"]: x["eval/score"] for x in lines if "eval/score" in x}
    best = max(scores, key=lambda step: (scores[step], -step))
    values = tiny_runs.eval_results(folder)
    assert max(scores) == best + 6
    assert max(scores) < 203 * 40 // 32
    assert values["global_step"] == best
    assert values["eval_accuracy"] == pytest.approx(
        next(
            x["eval/accuracy"]
            for x in lines
            if x["step"] == best and "eval/accuracy" in x
        )
    )


@pytest.mark.parametrize("bilstm_size", [None, 16])
def test_a_left_to_right_model_learns_and_is_kept(place, bilstm_size):
    start = place / f"ltr_{bilstm_size}"
    tiny_runs.save_encoder(start, WORDS, attention="left_to_right")
    folder = run_csv(
        place,
        f"{start.name}_run",
        "--do_train",
        "--do_eval",
        init_checkpoint=start,
        bilstm_size=bilstm_size,
    )
    assert model_directory.read_attention(str(folder)) == "left_to_right"
    assert model_directory.read_bilstm_size(str(folder)) == (bilstm_size or 0)
    found = tiny_runs.eval_results(folder)
    assert found["eval_accuracy"] > 0.8
    again = run_csv(
        place, f"{start.name}_eval", "--do_eval", init_checkpoint=folder
    )
    assert tiny_runs.eval_results(again)["eval_loss"] == found["eval_loss"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"task_name": "nonsense"}, "--task_name=nonsense: none of: cola"),
        ({"learning_rate": "5e-5,x"}, "'x' is no number between 0 and 1"),
        ({"text_column": "text"}, "no column 'text'"),
        ({"dev_file": "nowhere.csv"}, "nowhere.csv: no such file"),
        ({"dev_file": None}, "--dev_file is required"),
        ({"max_seq_length": 64}, "--max_seq_length=64: the model has only 48"),
        ({"init_checkpoint": None}, "--bert_config_file is required"),
        ({"train_batch_size": 2000}, "203 examples in 6 epoch(s)"),
        ({"reinit_layers": 3}, "--reinit_layers=3: the model has 2 layers"),
        ({"early_stopping_patience": 1}, "needs --eval_every_steps"),
    ],
)
def test_what_the_user_can_mend_ends_in_one_line(place, capsys, flags, message):
    with pytest.raises(SystemExit) as caught:
        run_csv(place, "bad", "--do_train", "--do_eval", **flags)
    assert caught.value.code == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert message in error


def test_a_label_that_training_never_saw_is_named(place, capsys):
    path = place / "odd.csv"
    path.write_text("review,verdict\ngood,yes\nbad,perhaps\n")
    with pytest.raises(SystemExit):
        run_csv(place, "bad", "--do_train", "--do_eval", dev_file=path)
    error = capsys.readouterr().err.splitlines()[-1]
    assert f"{path}:3: label 'perhaps' is none of: no, yes" in error


def test_submission_is_zipped_when_all_tasks_are_there(tmp_path):
    from data import examples, glue
    from tasks import sentence_predictions

    texts = examples.Examples(
        path="t", lines=[2, 3], guids=["0", "1"], first=["a", "b"]
    )
    for name, task in glue.TASKS.items():
        if task.submission is None:
            continue
        assert not (tmp_path / "submission.zip").exists()
        classes = len(task.labels) or 1
        logits = np.arange(2 * classes, dtype=np.float32).reshape(2, classes)
        for split in ("test", *(["test_mismatched"] if name == "mnli" else [])):
            sentence_predictions.write_glue(
                str(tmp_path), name, split, texts=texts, logits=logits * 4
            )
    with zipfile.ZipFile(tmp_path / "submission.zip") as file:
        assert sorted(file.namelist()) == sorted(
            "AX.tsv CoLA.tsv MNLI-m.tsv MNLI-mm.tsv MRPC.tsv QNLI.tsv QQP.tsv "
            "RTE.tsv SST-2.tsv STS-B.tsv WNLI.tsv".split()
        )
        scores = file.read("STS-B.tsv").decode()
        assert scores == "index\tprediction\n0\t0.000\n1\t4.000\n"
        inference = file.read("MNLI-mm.tsv").decode().splitlines()
        assert inference[1] == "0\tneutral"


def test_the_files_of_a_run_load_as_a_model(sst):
    model = models.ClassificationModel(
        model_directory.read_config(str(sst)), num_classes=2
    )
    model_files.warm_start(model, str(sst))
    report = model_directory.load_weights(model, str(sst))
    assert not report.initialized
    assert not report.left_over
