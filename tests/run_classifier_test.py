"""Tests of run_classifier.py in small: train, evaluate, predict, grids.

python -m pytest tests/run_classifier_test.py
"""

import csv
import json
import random
import shutil

import classifier_runs
import numpy as np
import pytest
import safetensors.numpy
import tiny_runs

from modeling import models
from training import loop
from weights import model_directory, pretrained

TRAIN = ("--do_train", "--do_eval")
LEARNS = {"learning_rate": 2e-3, "num_train_epochs": 12}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    classifier_runs.make_data(root)
    still = {"hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0}
    words = classifier_runs.WORDS
    tiny_runs.save_encoder(root / "without_dropout", words, **still)
    return root


@pytest.fixture(scope="module")
def sst(root):
    """A run of SST-2's files from start to end."""
    return classifier_runs.run(
        root,
        "sst",
        "--do_train",
        "--do_eval=true",
        "--do_predict",
        task_name="SST-2",
        data_dir=root,
        init_checkpoint=root / "without_dropout",
        **LEARNS,
        glue_submission=root / "glue",
        keep_checkpoint_max=5,
    )


def journal(folder):
    return json.loads((folder / "run.json").read_text())


def refusal(capsys, run, *arguments, **flags):
    """Returns the line with which a command ends, and checks its code."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as caught:
        run(*arguments, **flags)
    assert caught.value.code == 2
    return capsys.readouterr().err.splitlines()[-1]


def test_it_learns_and_writes_the_released_files(sst):
    values = tiny_runs.eval_results(sst)
    assert values["eval_accuracy"] > 0.9
    assert values["global_step"] == int(203 / 32 * 12)
    assert "eval_loss" in values
    probabilities = np.loadtxt(sst / "test_results.tsv")
    assert probabilities.shape == (9, 2)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    header, *rows = (sst / "predictions.tsv").read_text().splitlines()
    assert header == "id\tlabel\t0\t1"
    truth = [str(label) for _, label in classifier_runs.sentences(3, 9)]
    cells = [row.split("\t") for row in rows]
    assert [x[0] for x in cells] == [str(i) for i in range(9)]
    predicted = [x[1] for x in cells]
    assert sum(p == t for p, t in zip(predicted, truth, strict=True)) >= 8
    glue = (sst.parent / "glue" / "SST-2.tsv").read_text().splitlines()
    assert glue[0] == "index\tprediction"
    assert [row.split("\t")[1] for row in glue[1:]] == predicted
    assert not (sst / "scores_test.txt").exists()


def test_a_model_directory_with_card_and_report_is_left(sst):
    settings = model_directory.read_settings(str(sst))
    assert settings.labels == ["0", "1"]
    assert (settings.attention, settings.bilstm_size) == ("bidirectional", 0)
    card = (sst / "README.md").read_text()
    for part in ("203 examples of train.tsv", "| accuracy | ", "Always"):
        assert part in card
    assert "nyu-mll/glue" in card and "pipeline_tag: text-c" in card
    page = (sst / "report.html").read_text()
    for part in (
        *("Learning curves", "Confusions", "By label", "Worst", "<svg"),
        "The score is accuracy.",
    ):
        assert part in page
    names = {path.name for path in sst.iterdir()}
    assert names >= {"train.tf_record", "eval.tf_record", "vocab.txt"}
    assert not [x for x in names if "incomplete" in x or "blocks" in x]
    only_ours = {"run.json", ".training.lock", "checkpoint"}
    only_ours |= {"train.tf_record.json", "eval.tf_record.json"}
    assert {x for x in names if x.endswith(".json")} - only_ours == {
        *("bert_config.json", "config.json", "tokenizer_config.json")
    }
    model = models.ClassificationModel(
        model_directory.read_config(str(sst)), num_classes=2
    )
    report = pretrained.assign(model, str(sst))
    assert not report.initialized and not report.left_over


def test_a_finished_run_is_not_trained_again(sst, root):
    before = (sst / "metrics.jsonl").read_bytes()
    values = tiny_runs.eval_results(sst)
    classifier_runs.run(
        root,
        "sst",
        *TRAIN,
        task_name="sst2",
        data_dir=root,
        init_checkpoint=root / "without_dropout",
        **LEARNS,
        keep_checkpoint_max=5,
    )
    assert (sst / "metrics.jsonl").read_bytes() == before
    assert tiny_runs.eval_results(sst) == values


def test_the_model_directory_gives_the_same_elsewhere(sst, root):
    """With the flags of its training, whatever the size of a batch."""
    other = classifier_runs.run(
        root,
        "other",
        "--do_predict",
        "--do_eval",
        init_checkpoint=sst,
        eval_batch_size=5,
        predict_batch_size=4,
    )
    np.testing.assert_allclose(
        np.loadtxt(other / "test_results.tsv"),
        np.loadtxt(sst / "test_results.tsv"),
        rtol=1e-5,
    )
    values = tiny_runs.eval_results(sst)
    for name, value in tiny_runs.eval_results(other).items():
        assert value == pytest.approx(values[name], rel=1e-5), name
    assert not (other / "README.md").exists()  # The model is not there.


@pytest.mark.parametrize("kind", ["regression", "multi_label"])
def test_values_and_several_labels(root, kind):
    for name, seed, count in (("train", 1, 203), ("dev", 2, 41)):
        with open(root / f"{kind}.{name}.jsonl", "w") as file:
            for text, label in classifier_runs.sentences(seed, count):
                several = [["b"], ["a", "c"]][label]
                given = several if kind == "multi_label" else label * 2 - 0.5
                file.write(json.dumps({"text": text, "label": given}) + "\n")
    dev = root / f"{kind}.dev.jsonl"
    folder = classifier_runs.run(
        root,
        kind,
        *TRAIN,
        "--do_predict",
        task_name="jsonl",
        problem_type=kind,
        train_file=root / f"{kind}.train.jsonl",
        dev_file=dev,
        test_file=dev,
        init_checkpoint=root / "without_dropout",
        **LEARNS,
    )
    values = tiny_runs.eval_results(folder)
    best = "eval_pearson" if kind == "regression" else "eval_f1_micro"
    assert values[best] > 0.9
    rows = (folder / "predictions.tsv").read_text().splitlines()
    header = "id\tlabel" + ("\ta\tb\tc" if kind == "multi_label" else "")
    assert rows[0] == header + "\ttext"
    texts = [text for text, _ in classifier_runs.sentences(2, 41)]
    assert [row.split("\t")[-1] for row in rows[1:]] == texts
    scores = (folder / "scores_test.txt").read_text()
    assert f"test_{best.removeprefix('eval_')} = " in scores
    # The model knows what it is.
    again = classifier_runs.run(
        root,
        f"{kind}_again",
        "--do_predict",
        task_name="jsonl",
        init_checkpoint=folder,
        test_file=dev,
    )
    assert (again / "predictions.tsv").read_text().splitlines() == rows


def test_one_table_is_enough(root, capsys, caplog):
    """A part of it is held out, evaluated after every epoch and later on."""
    flags = {"dev_file": None, "dev_fraction": 0.2, "train_batch_size": 16}
    folder = classifier_runs.run_csv(
        root,
        "held_out",
        *TRAIN,
        num_train_epochs=2,
        random_seed=3,
        class_weights="balanced",
        keep_checkpoint_max=2,
        **flags,
    )
    values = tiny_runs.eval_results(folder)
    assert values["global_step"] == int(162 / 16 * 2)
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    steps = [x["step"] for x in map(json.loads, lines) if "eval/loss" in x]
    assert steps == [11, 20]
    assert (folder / "model.ckpt-11.index").exists()
    assert "  Always predicting" in caplog.text
    assert not (folder / "best").exists()
    sets = journal(folder)["sets"]
    assert [sets[x]["examples"] for x in ("train", "dev")] == [162, 41]
    # The division is that of the training, whatever the seed of a command.
    own = {"train_file": None, "dev_file": None, "init_checkpoint": folder}
    again = classifier_runs.run_csv(root, "held_out_again", "--do_eval", **own)
    found = tiny_runs.eval_results(again)["eval_loss"]
    assert found == pytest.approx(values["eval_loss"], rel=1e-5)
    # Another one could hold out what the model was trained on.
    changed = root / "changed.csv"
    rows = (root / "train.csv").read_text()
    changed.write_text(rows + "train999,good w1 w2 w3,yes\n")
    other = own | {"train_file": changed}
    run = classifier_runs.run_csv
    line = refusal(capsys, run, root, "no", "--do_eval", **other)
    assert "--dev_file" in line and "divided otherwise" in line


def test_multiple_choice_in_swags_columns(root):
    rng = random.Random(5)
    head = ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,"
    head += "ending0,ending1,ending2,ending3,label\n"
    for name, count in (("train", 300), ("val", 40)):
        with open(root / f"{name}.csv.swag", "w") as file:
            file.write(head)
            for i in range(count):
                label = rng.randrange(4)
                bad, good = classifier_runs.BAD, classifier_runs.GOOD
                ends = [f"{rng.choice(bad)} w{rng.randrange(20)}"] * 4
                ends[label] = f"{rng.choice(good)} w{rng.randrange(20)}"
                cells = [i, "v", 0, "x", "w1 w2", "w3", "gold", *ends, label]
                file.write(",".join(map(str, cells)) + "\n")
    folder = classifier_runs.run(
        root,
        "swag",
        *TRAIN,
        "--do_predict",
        task_name="swag",
        train_file=root / "train.csv.swag",
        dev_file=root / "val.csv.swag",
        test_file=root / "val.csv.swag",
    )
    assert tiny_runs.eval_results(folder)["eval_accuracy"] > 0.6
    results = np.loadtxt(folder / "test_results.tsv")
    assert results.shape == (40, 4)
    rows = (folder / "swag_submission.csv").read_text().splitlines()
    assert rows[0] == "id,pred"
    best = [f"{i},{x}" for i, x in enumerate(results.argmax(axis=1))]
    assert rows[1:] == best


@pytest.mark.all
def test_a_left_to_right_model_learns_and_is_kept(root):
    """With a BiLSTM under its head, as in the paper."""
    start = tiny_runs.save_encoder(
        root / "ltr", classifier_runs.WORDS, attention="left_to_right"
    )
    flags = {"init_checkpoint": start, "bilstm_size": 8}
    flags["num_train_epochs"] = 4
    folder = classifier_runs.run_csv(root, "ltr_run", *TRAIN, **flags)
    settings = model_directory.read_settings(str(folder))
    assert (settings.attention, settings.bilstm_size) == ("left_to_right", 8)
    found = tiny_runs.eval_results(folder)
    assert found["eval_accuracy"] > 0.8
    again = classifier_runs.run_csv(
        root, "ltr_eval", "--do_eval", init_checkpoint=folder
    )
    assert tiny_runs.eval_results(again)["eval_loss"] == found["eval_loss"]


def documents(seed, count):
    """Yields long texts with four telling words behind the first window."""
    rng = random.Random(seed)
    for _ in range(count):
        label = rng.randrange(2)
        words = rng.choices(classifier_runs.FILLING, k=rng.randrange(14, 26))
        telling = classifier_runs.GOOD if label else classifier_runs.BAD
        start = rng.randrange(8, len(words))
        words[start:start] = rng.choices(telling, k=4)
        yield " ".join(words), ["no", "yes"][label]


@pytest.mark.all
def test_windows_learn_what_is_behind_the_first(root):
    for name, seed, count in (("long", 1, 600), ("long_dev", 2, 60)):
        with open(root / f"{name}.csv", "w", newline="") as file:
            rows = [("review", "verdict"), *documents(seed, count)]
            csv.writer(file).writerows(rows)
    flags = {
        "init_checkpoint": root / "without_dropout",
        "train_file": root / "long.csv",
        "dev_file": root / "long_dev.csv",
        "test_file": root / "long_dev.csv",
        "long_texts": "attention",
        "max_seq_length": 10,
        "doc_stride": 6,
        "num_train_epochs": 20,
        "learning_rate": 1e-3,
    }
    folder = classifier_runs.run_csv(
        root, "windows", *TRAIN, "--do_predict", **flags
    )
    assert tiny_runs.eval_results(folder)["eval_accuracy"] > 0.9
    assert not (folder / "train.tf_record").exists()
    again = classifier_runs.run_csv(
        root,
        "windows_again",
        "--do_predict",
        init_checkpoint=folder,
        max_seq_length=None,
        test_file=root / "long_dev.csv",
    )
    name = "test_results.tsv"
    assert (again / name).read_bytes() == (folder / name).read_bytes()


# Grids: the best run is not the last, so its model is loaded at the end.
GRID = {"learning_rate": "5e-3,1e-6", "num_train_epochs": 3}
BEST = "lr0.005_batch32_epochs3.0_seed12345"


@pytest.fixture(scope="module")
def grid(root):
    """Two runs, of which the first was one by itself before, and completed."""
    folder, train = root / "grid", classifier_runs.run_csv
    single = GRID | {"learning_rate": "5e-3"}
    train(root, folder, "--do_train", **single)
    # As if killed when the result was in the journal, and nothing after it.
    card, found = folder / "README.md", journal(folder)
    sets = found.pop("sets")
    (folder / "run.json").write_text(json.dumps(found))
    card.unlink()
    train(root, folder, "--do_train", **single)
    assert journal(folder)["sets"] == sets and card.exists()
    return train(root, folder, *TRAIN, **GRID)


def test_a_grid_keeps_its_best_run(root, grid, capsys):
    found = journal(grid)
    assert len(found["runs"]) == 2
    assert found["best"]["run"] == BEST
    scores = [run["values"]["score"] for run in found["runs"].values()]
    values = tiny_runs.eval_results(grid)
    assert values["eval_score"] == pytest.approx(max(scores))
    assert "All runs" in (grid / "report.html").read_text()
    assert not list(grid.rglob("model.ckpt-*"))
    # The directory has the model that it reports, also without its flags.
    classifier_runs.run_csv(root, "grid", "--do_eval")
    again = tiny_runs.eval_results(grid)
    assert again["eval_loss"] == pytest.approx(values["eval_loss"])


def test_a_grid_is_extended_and_continues_without_a_run_that_diverges(
    root, grid, monkeypatch, capsys
):
    before, train, add, trained = journal(grid), loop.train, loop.Loop._add, []

    def note(learner, **arguments):
        trained.append(arguments["options"].output_dir)
        return train(learner, **arguments)

    def add_nan(self, results, number):
        sums = np.full_like(results.sums, np.nan)
        add(self, results._replace(sums=sums), number)

    monkeypatch.setattr(loop, "train", note)
    monkeypatch.setattr(loop.Loop, "_add", add_nan)
    folder = root / "grid"
    more = GRID | {"learning_rate": "5e-3,1e-6,1e-7"}
    classifier_runs.run_csv(root, folder, *TRAIN, **more)
    assert len(trained) == 1 and "lr1e-07" in trained[0]
    assert "lr1e-07" in capsys.readouterr().out
    found = journal(folder)
    assert len(found["runs"]) == 3 and found["best"] == before["best"]
    for name, run in before["runs"].items():
        assert found["runs"][name] == run
    (failed,) = found["runs"].keys() - before["runs"].keys()
    reason = found["runs"][failed]["failed"]
    assert reason.startswith("step 0: the loss is nan")


def test_a_grid_from_another_model_is_refused(root, grid, capsys):
    """The path is the same, its model was trained further."""
    path = root / "encoder" / "model.safetensors"
    before = path.read_bytes()
    tensors = safetensors.numpy.load(before)
    tensors["bert.embeddings.LayerNorm.bias"][0] += 1e-3
    safetensors.numpy.save_file(tensors, path)
    run = classifier_runs.run_csv
    error = refusal(capsys, run, root, "grid", *TRAIN, **GRID)
    path.write_bytes(before)
    assert "init_checkpoint had other contents" in error


def test_training_ends_early_and_keeps_the_best(root):
    flags = {
        "eval_every_steps": 6,
        "early_stopping_patience": 2,
        "num_train_epochs": 40,
        "layer_decay": 0.9,
    }
    switches = (*TRAIN, "--bias_correction")
    folder = classifier_runs.run_csv(root, "early", *switches, **flags)
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    scores = {
        x["step"]: x["eval/score"]
        for x in map(json.loads, lines)
        if "eval/score" in x
    }
    best = max(scores, key=lambda step: (scores[step], -step))
    values = tiny_runs.eval_results(folder)
    assert max(scores) == best + 12 < 203 * 40 // 32
    assert values["global_step"] == best
    assert values["eval_score"] == pytest.approx(scores[best])
    # Evaluated again without the flags, the directory still has the best.
    classifier_runs.run_csv(root, "early", "--do_eval")
    again = tiny_runs.eval_results(folder)
    assert again["global_step"] == best
    assert again["eval_loss"] == pytest.approx(values["eval_loss"])


def test_a_file_of_ones_own_and_the_order_of_the_labels(root):
    """The card names no GLUE, whatever the file's name; a trained output layer
    goes on with its labels, see also network_test.
    """
    first, words = root / "first", classifier_runs.WORDS
    model = models.ClassificationModel(tiny_runs.config(words), num_classes=2)
    model_directory.save(model, str(first), labels=["1", "0"])
    (first / "vocab.txt").write_text("\n".join(words) + "\n")
    (root / "own").mkdir()
    shutil.copy(root / "train.tsv", root / "own" / "train.tsv")
    folder = classifier_runs.run(
        root,
        "own_file",
        "--do_train",
        task_name="SST-2",
        train_file=root / "own" / "train.tsv",
        init_checkpoint=first,
        num_train_epochs=0.2,
    )
    card = (folder / "README.md").read_text()
    assert "glue" not in card and "train.tsv" in card
    assert model_directory.read_settings(str(folder)).labels == ["1", "0"]


def test_a_folder_that_has_no_model_yet_uses_the_last_checkpoint(root, sst):
    """Of a training that was stopped; the labels are those that it read."""
    stopped = tiny_runs.killed(sst, root / "stopped_copy")
    found = journal(sst)
    del found["best"], found["runs"]
    (stopped / "run.json").write_text(json.dumps(found))
    classifier_runs.run(root, stopped, "--do_eval", init_checkpoint=None)
    values, again = map(tiny_runs.eval_results, (sst, stopped))
    assert again["eval_loss"] == pytest.approx(values["eval_loss"], rel=1e-6)
    assert again["global_step"] == values["global_step"]


def test_standard_input_is_predicted_line_by_line(root, sst, capfdbinary):
    import io
    import sys

    texts = [text for text, _ in classifier_runs.sentences(3, 9)]
    data = "\n".join(texts).encode()
    stdin, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(data))
    try:
        classifier_runs.run(
            root, "typed", "--do_predict", init_checkpoint=sst, test_file="-"
        )
    finally:
        sys.stdin = stdin
    printed = capfdbinary.readouterr().out
    assert printed == (sst / "predictions.tsv").read_bytes()
    assert not list((root / "typed").glob("pred*"))
