"""Proves run_classifier.py in small: train, evaluate, predict, bad input.

python -m pytest tests/run_classifier_test.py
"""

import json
import random

import classifier_runs
import numpy as np
import pytest
import tiny_runs

from jobs import finetuning
from modeling import models
from tasks.classification.task import ClassificationTask
from weights import model_directory, pretrained


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    classifier_runs.make_data(root)
    words = classifier_runs.WORDS
    tiny_runs.save_encoder(root / "deep", words, num_hidden_layers=2)
    return root


@pytest.fixture(scope="module")
def sst(root):
    """A run of SST-2's files from start to end, with two layers."""
    return classifier_runs.run(
        root,
        "sst",
        "--do_train",
        "--do_eval=true",
        "--do_predict",
        "True",
        task_name="SST-2",
        data_dir=root,
        init_checkpoint=root / "deep",
        glue_submission=root / "glue",
    )


def test_it_learns_and_writes_the_released_keys(sst):
    values = tiny_runs.eval_results(sst)
    assert values["eval_accuracy"] > 0.9
    assert values["global_step"] == int(203 / 32 * 6)
    assert "eval_loss" in values


def test_predictions_come_as_released_and_by_name(sst):
    rows = (sst / "test_results.tsv").read_text().splitlines()
    probabilities = np.array([row.split("\t") for row in rows], float)
    assert probabilities.shape == (9, 2)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    header, *rows = (sst / "predictions.tsv").read_text().splitlines()
    assert header == "id\tlabel\t0\t1"
    truth = [str(label) for _, label in classifier_runs.sentences(3, 9)]
    predicted = [row.split("\t")[1] for row in rows]
    assert [row.split("\t")[0] for row in rows] == [str(i) for i in range(9)]
    assert sum(p == t for p, t in zip(predicted, truth, strict=True)) >= 8
    glue = (sst.parent / "glue" / "SST-2.tsv").read_text().splitlines()
    assert glue[0] == "index\tprediction"
    assert [row.split("\t")[1] for row in glue[1:]] == predicted


def test_a_model_directory_with_card_and_report_is_left(sst):
    assert model_directory.read_settings(str(sst)).labels == ["0", "1"]
    assert model_directory.read_settings(str(sst)).attention == "bidirectional"
    assert model_directory.read_settings(str(sst)).bilstm_size == 0
    assert (sst / "vocab.txt").exists()
    card = (sst / "README.md").read_text()
    assert "203 examples of train.tsv, SHA-256" in card
    assert "eval_accuracy" in card
    page = (sst / "report.html").read_text()
    for heading in ("Learning curves", "Confusions", "By length", "Worst"):
        assert heading in page
    assert (sst / "train.tf_record").exists()
    assert (sst / "eval.tf_record").exists()
    assert not list(sst.glob("*.incomplete"))


def test_a_finished_run_is_not_trained_again(sst, root):
    before = (sst / "metrics.jsonl").read_bytes()
    values = tiny_runs.eval_results(sst)
    classifier_runs.run(
        root,
        "sst",
        "--do_train",
        "--do_eval",
        task_name="sst2",
        data_dir=root,
        init_checkpoint=root / "deep",
    )
    assert (sst / "metrics.jsonl").read_bytes() == before
    assert tiny_runs.eval_results(sst) == values


def test_the_model_directory_gives_the_same_elsewhere(sst, root):
    """Neither batch size nor grouping changes what comes out."""
    other = classifier_runs.run(
        root,
        "other",
        "--do_predict",
        "--do_eval",
        task_name="SST-2",
        data_dir=root,
        init_checkpoint=sst,
        eval_batch_size=5,
        predict_batch_size=4,
        group_by_length=False,
    )
    ours = np.loadtxt(sst / "test_results.tsv")
    theirs = np.loadtxt(other / "test_results.tsv")
    np.testing.assert_allclose(theirs, ours, rtol=1e-5)
    values = tiny_runs.eval_results(sst)
    for name, value in tiny_runs.eval_results(other).items():
        if name != "global_step":
            assert value == pytest.approx(values[name], rel=1e-5), name


@pytest.mark.parametrize("kind", ["regression", "multi_label"])
def test_values_and_several_labels(root, kind):
    for name, seed, count in (("train", 1, 203), ("dev", 2, 41)):
        with open(root / f"{kind}.{name}.jsonl", "w") as file:
            for text, label in classifier_runs.sentences(seed, count):
                several = [["b"], ["a", "b"]][label]
                given = several if kind == "multi_label" else label * 2 - 0.5
                file.write(json.dumps({"text": text, "label": given}) + "\n")
    folder = classifier_runs.run(
        root,
        kind,
        "--do_train",
        "--do_eval",
        "--do_predict",
        task_name="jsonl",
        problem_type=kind,
        train_file=root / f"{kind}.train.jsonl",
        dev_file=root / f"{kind}.dev.jsonl",
        test_file=root / f"{kind}.dev.jsonl",
        num_train_epochs=12,
    )
    values = tiny_runs.eval_results(folder)
    best = "eval_pearson" if kind == "regression" else "eval_f1_micro"
    assert values[best] > 0.8
    rows = (folder / "predictions.tsv").read_text().splitlines()
    header = "id\tlabel" + ("\ta\tb" if kind == "multi_label" else "")
    assert rows[0] == header + "\ttext"
    texts = [text for text, _ in classifier_runs.sentences(2, 41)]
    assert [row.split("\t")[-1] for row in rows[1:]] == texts
    stored = model_directory.read_settings(str(folder)).problem_type
    assert stored.startswith(kind)
    # The model knows what it is.
    again = classifier_runs.run(
        root,
        f"{kind}_again",
        "--do_predict",
        task_name="jsonl",
        init_checkpoint=folder,
        test_file=root / f"{kind}.dev.jsonl",
    )
    assert (again / "predictions.tsv").read_text().splitlines() == rows


def test_a_test_set_with_labels_gets_metrics(sst, root):
    """In files and in the model card; one without labels gets none."""
    assert not (sst / "scores_test.txt").exists()
    dev = tiny_runs.eval_results(sst)
    folder = classifier_runs.run(
        root,
        "scored",
        "--do_predict",
        task_name="SST-2",
        init_checkpoint=sst,
        test_file=root / "dev.tsv",
    )
    lines = (folder / "scores_test.txt").read_text().splitlines()
    values = dict(line.split(" = ") for line in lines)
    for name in ("accuracy", "loss"):
        expected = pytest.approx(dev[f"eval_{name}"], rel=1e-5)
        assert float(values[f"test_{name}"]) == expected
    rows = (folder / "predictions.tsv").read_text().splitlines()
    assert len(rows) == 1 + 41


def test_one_table_is_enough(root, caplog, capsys):
    """A part of it is held out, evaluated after every epoch and later on."""
    flags = {"dev_file": None, "dev_fraction": 0.2, "train_batch_size": 16}
    caplog.set_level("INFO", logger="absl")
    folder = classifier_runs.run_csv(
        root,
        "held_out",
        "--do_train",
        "--do_eval",
        num_train_epochs=2,
        random_seed=3,
        class_weights="balanced",
        **flags,
    )
    assert "weights of the classes: no " in caplog.text
    values = tiny_runs.eval_results(folder)
    assert values["global_step"] == int(162 / 16 * 2)
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    steps = [x["step"] for x in map(json.loads, lines) if "eval/loss" in x]
    assert steps == [11, 20]
    assert not (folder / "best").exists()
    card = (folder / "README.md").read_text()
    assert "162 examples of train.csv (divided by --dev_fraction=0.2" in card
    assert "41 examples of train.csv" in card
    assert "By label, dev:" in card and "the most frequent label" in card
    # The division is that of the training, whatever the seed of a command.
    again = classifier_runs.run_csv(
        root, "held_out_again", "--do_eval", init_checkpoint=folder, **flags
    )
    found = tiny_runs.eval_results(again)["eval_loss"]
    assert found == pytest.approx(values["eval_loss"], rel=1e-5)
    _refuse_other_divisions(root, folder, flags, capsys)
    # The results of another set do not look like those of the training set.
    before = (folder / "eval_results.txt").read_text()
    classifier_runs.run_csv(root, "held_out", "--do_eval")
    assert (folder / "eval_results_train_dev.txt").read_text() == before


def _refuse_other_divisions(root, folder, flags, capsys):
    """Another one could hold out what the model in `folder` was trained on."""

    def refused(*switches, **other):
        with pytest.raises(SystemExit) as ended:
            classifier_runs.run_csv(root, "refused", *switches, **flags | other)
        assert ended.value.code == 2
        return capsys.readouterr().err.splitlines()[-1]

    changed = root / "changed.csv"
    rows = (root / "train.csv").read_text()
    changed.write_text(rows + "train999,good w1 w2 w3,yes\n")
    data = {"init_checkpoint": folder, "train_file": changed}
    predict = ["--do_predict", "--predict_dev"]
    for switches in (["--do_eval"], predict):
        test = changed if switches is predict else None
        line = refused(*switches, **data, test_file=test)
        assert line.count("--train_file had other contents") == 1
        assert str(folder) in line and "--dev_file" in line
    line = refused("--do_eval", init_checkpoint=folder, dev_fraction=0.3)
    assert "--dev_fraction was 0.2, is 0.3" in line
    line = refused("--do_train", "--do_eval", output_dir=folder, **data)
    assert "--train_file had other contents" in line
    killed = tiny_runs.killed(folder, root / "killed")
    line = refused("--do_eval", output_dir=killed, train_file=changed)
    assert "--train_file had other contents" in line and str(killed) in line
    # What earlier versions have stored: the digest of the part to train on.
    result = json.loads((folder / "result.json").read_text())
    assert result["settings"].pop("train_file contents")
    (folder / "result.json").write_text(json.dumps(result))
    same = {"init_checkpoint": folder}
    classifier_runs.run_csv(root, "as_before", "--do_eval", **flags | same)
    changed.write_text(rows.replace("train", "").replace(" w1", " w2"))
    assert "--train_file had other contents" in refused("--do_eval", **data)


def test_a_trained_model_remembers_its_task(sst, root, capsys):
    """Flags that this task does not have are refused."""
    flags = {"init_checkpoint": sst, "test_file": root / "test.tsv"}
    folder = classifier_runs.run(root, "same_task", "--do_predict", **flags)
    ours = (sst / "test_results.tsv").read_text()
    assert (folder / "test_results.tsv").read_text() == ours
    for init_checkpoint, text_column, message in (
        (sst, "review", "--text_column is not for --task_name="),
        (root / "encoder", None, "--task_name is required"),
    ):
        with pytest.raises(SystemExit):
            classifier_runs.run(
                root,
                "refused",
                "--do_predict",
                init_checkpoint=init_checkpoint,
                test_file=root / "test.tsv",
                text_column=text_column,
            )
        assert message in capsys.readouterr().err.splitlines()[-1]


def test_predictions_of_another_set_are_kept(sst, root):
    """Under a name with the set that they belong to."""
    flags = {"task_name": "SST-2", "init_checkpoint": sst}
    for name in ("dev", "test", "test"):
        folder = classifier_runs.run(
            root,
            "two_sets",
            "--do_predict",
            test_file=root / f"{name}.tsv",
            **flags,
        )
    names = {x.name for x in folder.iterdir() if x.suffix in (".tsv", ".txt")}
    assert names == {
        "predictions.tsv",
        "predictions_dev.tsv",
        "scores_test_dev.txt",
        "test_results.tsv",
        "test_results_dev.tsv",
    }
    assert len((folder / "predictions_dev.tsv").read_text().splitlines()) == 42
    assert len((folder / "predictions.tsv").read_text().splitlines()) == 10


def test_scores_stay_those_of_the_set_that_had_labels(sst, root):
    """Also if the same texts come again with labels that are unknown."""
    text = (root / "dev.tsv").read_text()
    relabeled = text.replace("\t1\n", "\tgood\n").replace("\t0\n", "\tbad\n")
    (root / "relabeled.tsv").write_text(relabeled)
    scores = {}
    for name in ("dev", "relabeled", "dev"):
        folder = classifier_runs.run(
            root,
            "relabeled_set",
            "--do_predict",
            task_name="SST-2",
            init_checkpoint=sst,
            test_file=root / f"{name}.tsv",
        )
        files = {x.name for x in folder.glob("scores_test*")}
        scores[name] = scores.get(name, []) + [files]
    assert scores["relabeled"] == [{"scores_test_dev.txt"}]
    first, last = scores["dev"]
    assert first == {"scores_test.txt"}
    assert last == {"scores_test.txt", "scores_test_dev.txt"}


def test_a_table_is_not_predicted_by_a_model_without_labels(root, capsys):
    with pytest.raises(SystemExit) as caught:
        classifier_runs.run_csv(
            root,
            "bare",
            "--do_predict",
            train_file=None,
            test_file=root / "dev.csv",
        )
    assert caught.value.code == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert "so it is not a classifier" in error


def test_multiple_choice_in_swags_columns(root):
    rng = random.Random(5)
    head = ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,"
    head += "ending0,ending1,ending2,ending3,label\n"
    for name, count in (("train", 300), ("val", 40)):
        with open(root / f"{name}.csv.swag", "w") as file:
            file.write(head)
            for i in range(count):
                label = rng.randrange(4)
                ends = [
                    f"{rng.choice(classifier_runs.BAD)} w{rng.randrange(20)}"
                ] * 4
                ends[label] = (
                    f"{rng.choice(classifier_runs.GOOD)} w{rng.randrange(20)}"
                )
                cells = [i, "v", 0, "x", "w1 w2", "w3", "gold", *ends, label]
                file.write(",".join(map(str, cells)) + "\n")
    folder = classifier_runs.run(
        root,
        "swag",
        "--do_train",
        "--do_eval",
        "--do_predict",
        task_name="swag",
        train_file=root / "train.csv.swag",
        dev_file=root / "val.csv.swag",
        test_file=root / "val.csv.swag",
    )
    assert tiny_runs.eval_results(folder)["eval_accuracy"] > 0.6
    assert np.loadtxt(folder / "test_results.tsv").shape == (40, 4)
    rows = (folder / "swag_submission.csv").read_text().splitlines()
    assert rows[0] == "id,pred"
    assert len(rows) == 41


def test_a_left_to_right_model_learns_and_is_kept(root):
    """With a BiLSTM under its head, as in the paper."""
    start = tiny_runs.save_encoder(
        root / "ltr", classifier_runs.WORDS, attention="left_to_right"
    )
    modes = ("--do_train", "--do_eval")
    flags = {"init_checkpoint": start, "bilstm_size": 16}
    folder = classifier_runs.run_csv(root, "ltr_run", *modes, **flags)
    assert (
        model_directory.read_settings(str(folder)).attention == "left_to_right"
    )
    assert model_directory.read_settings(str(folder)).bilstm_size == 16
    found = tiny_runs.eval_results(folder)
    assert found["eval_accuracy"] > 0.8
    again = classifier_runs.run_csv(
        root, "ltr_eval", "--do_eval", init_checkpoint=folder
    )
    assert tiny_runs.eval_results(again)["eval_loss"] == found["eval_loss"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"task_name": "nonsense"}, "--task_name=nonsense: is none of cola"),
        ({"learning_rate": "5e-5,x"}, "--learning_rate=5e-5,x: 'x' is not a"),
        ({"text_column": "text"}, "no column 'text'"),
        ({"dev_file": "nowhere.csv"}, "nowhere.csv: no such file"),
        ({"dev_file": None}, "--dev_file is required"),
        ({"class_weights": "1,2,3"}, "3 weights, but the labels are no, yes"),
        ({"max_seq_length": 64}, "--max_seq_length=64: the model has only 48"),
        ({"init_checkpoint": None}, "neither --init_checkpoint nor --bert_co"),
        ({"train_batch_size": 2000}, "203 examples in 6 epoch(s)"),
        ({"reinit_layers": 3}, "--reinit_layers=3: the model has 1 layers"),
        ({"early_stopping_patience": 1}, "needs --eval_every_steps"),
    ],
)
def test_errors_of_the_user_end_in_one_line(root, capsys, flags, message):
    with pytest.raises(SystemExit) as caught:
        classifier_runs.run_csv(root, "bad", "--do_train", "--do_eval", **flags)
    assert caught.value.code == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert message in error


def test_an_encoder_that_was_never_trained_for_it_is_refused(root, capsys):
    with pytest.raises(SystemExit) as caught:
        classifier_runs.run_csv(root, "bare", "--do_eval")
    assert caught.value.code == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert "has not been trained for this task: output_weights" in error


def test_pairs_for_a_model_of_single_texts_are_refused(root, capsys):
    single = tiny_runs.save_encoder(
        root / "single", classifier_runs.WORDS, type_vocab_size=1
    )
    path = root / "pairs.csv"
    path.write_text("review,other,verdict\ngood,w1,yes\nbad,w2,no\n")
    with pytest.raises(SystemExit):
        classifier_runs.run_csv(
            root,
            "of_single",
            "--do_train",
            init_checkpoint=single,
            train_file=path,
            dev_file=None,
            text_pair_column="other",
            train_batch_size=2,
        )
    error = capsys.readouterr().err.splitlines()[-1]
    assert "type_vocab_size of the model is 1" in error


def test_a_label_that_training_never_saw_is_named(root, capsys):
    path = root / "odd.csv"
    path.write_text("review,verdict\ngood,yes\nbad,perhaps\n")
    with pytest.raises(SystemExit):
        classifier_runs.run_csv(
            root, "bad", "--do_train", "--do_eval", dev_file=path
        )
    error = capsys.readouterr().err.splitlines()[-1]
    assert f"{path}:3: label 'perhaps' is none of: no, yes" in error


def test_the_files_of_a_run_load_as_a_model(sst):
    model = models.ClassificationModel(
        model_directory.read_config(str(sst)), num_classes=2
    )
    report = pretrained.assign(model, str(sst))
    assert not report.initialized
    assert not report.left_over


@pytest.mark.parametrize("patience", [0, 1])
def test_the_same_weights_are_evaluated_once(root, monkeypatch, patience):
    """Of the last step, or of the best step with early stopping."""
    monkeypatch.setattr(finetuning, "_FEW_TOKENS", 0)
    evaluate, calls = ClassificationTask.evaluate, []

    def count(*args):
        calls.append(args)
        return evaluate(*args)

    monkeypatch.setattr(ClassificationTask, "evaluate", count)
    flags = {"num_train_epochs": 2, "eval_every_steps": 3}
    flags |= {"early_stopping_patience": patience}
    name = f"once{patience}"
    switches = "--do_train", "--do_eval"
    folder = classifier_runs.run_csv(root, name, *switches, **flags)
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    assert len(calls) == sum('"eval/' in line for line in lines) > 1
    found = tiny_runs.eval_results(folder)
    # The same as of another process, which has only the weights.
    classifier_runs.run_csv(root, name, "--do_eval", train_file=None)
    assert tiny_runs.eval_results(folder) == found
    for file in ("result.json", "kept.json", "model.safetensors"):
        (folder / file).unlink()
    classifier_runs.run_csv(root, name, *switches, **flags)
    assert tiny_runs.eval_results(folder) == found
