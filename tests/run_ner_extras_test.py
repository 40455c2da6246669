"""Proves that run_ner.py keeps --crf and labels with the weights.

python -m pytest tests/run_ner_extras_test.py
"""

import json
import shutil

import ner_runs
import numpy as np
import pytest
import safetensors.numpy
import tiny_runs
from ner_runs import WORDS, run

from modeling import models
from tasks.ner import tag_spans, word_files
from training import loop
from weights import (
    checkpoint_sources,
    conversion,
    model_directory,
    pretrained,
)

LABELS = "O B-LOC I-LOC B-PER I-PER".split()


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A tiny encoder with its vocabulary, and data."""
    return ner_runs.make_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def trained(root):
    """A model with a CRF, from sequences of several sentences."""
    return run(
        root,
        "crf",
        "--do_train",
        "--do_eval",
        "--crf",
        num_train_epochs=3,
        document_context="maximal",
        doc_stride=12,
    )


def scores(folder):
    values = json.loads((folder / "crf.json").read_text())
    assert values["labels"] == LABELS
    return {k: np.array(values[k]) for k in ("transitions", "start", "end")}


def evaluate(root, name, folder, *switches):
    other = run(
        root,
        name,
        "--do_eval",
        *switches,
        data_dir=None,
        dev_file=root / "eng.testa",
        init_checkpoint=folder,
        document_context="maximal",
        doc_stride=12,
    )
    return tiny_runs.eval_results(other), other / "predictions_dev.txt"


def test_a_crf_learns_and_is_kept_beside_a_plain_model(trained):
    assert tiny_runs.eval_results(trained)["eval_f1"] > 0.8
    values = scores(trained)
    # I-PER behind O is forbidden, and what is allowed has been learned.
    assert values["transitions"][0, 4] == -1e4
    allowed = values["transitions"][values["transitions"] > -1e3]
    assert np.abs(allowed).max() > 0.3
    # A last name needs a first one, and most often is there.
    assert values["transitions"][3, 4] > values["transitions"][1, 2]
    report = pretrained.assign(
        models.TaggingModel(tiny_runs.config(WORDS), num_classes=5),
        str(trained),
    )
    assert not report.initialized and not report.left_over


def test_sentences_are_decoded_completely(root, trained):
    found, predictions = evaluate(root, "other", trained)
    values = tiny_runs.eval_results(trained)
    assert found["eval_f1"] == values["eval_f1"]
    mine = trained / "predictions_dev.txt"
    assert predictions.read_text() == mine.read_text()
    # The same weights without transitions, and with others.
    shutil.copytree(trained, root / "strange")
    for name in ("checkpoint", "crf.json"):
        (root / "strange" / name).unlink()
    single, _ = evaluate(root, "single", root / "strange")
    record = json.loads((trained / "crf.json").read_text())
    record["start"] = [-100.0, 100.0, 0, 0, 0]
    (root / "strange" / "crf.json").write_text(json.dumps(record))
    _, predictions = evaluate(root, "strange_eval", root / "strange")
    tagged = word_files.read_columns(str(predictions))
    for part in tagged.split(tagged.tags):
        assert part[0] in ("I-LOC", "B-LOC")
        iob1 = tag_spans.convert_tags(part, "iob1")
        assert list(part) == iob1
    assert single["eval_f1"] > 0.5


def test_a_crf_comes_along_into_a_released_checkpoint(root, trained):
    checkpoint = conversion.load(checkpoint_sources.read(str(trained)))
    prefix = conversion.write(checkpoint, str(root / "tf1"), conversion.TF1)
    found, predictions = evaluate(root, "of_tf1", prefix)
    assert found["eval_f1"] == tiny_runs.eval_results(trained)["eval_f1"]
    mine = trained / "predictions_dev.txt"
    assert predictions.read_text() == mine.read_text()


def test_training_continues_from_a_crf(root, trained):
    folder = run(
        root,
        "more",
        "--do_train",
        "--crf",
        init_checkpoint=trained,
        learning_rate=1e-9,
        num_train_epochs=0.2,
    )
    before, after = scores(trained), scores(folder)
    for name in before:
        np.testing.assert_allclose(after[name], before[name], atol=1e-4)


def test_another_models_crf_is_not_taken(root, trained, capsys):
    """A model that was made from one with a CRF, but trained without."""
    folder = run(
        root,
        "plain",
        "--do_train",
        init_checkpoint=trained,
        num_train_epochs=1,
    )
    assert not (folder / "crf.json").exists()
    flags = {"init_checkpoint": trained}
    run(root, "plain", "--do_eval", **flags)
    with pytest.raises(SystemExit):
        run(root, "plain", "--do_eval", "--crf", **flags)
    error = capsys.readouterr().err.splitlines()[-1]
    assert f"--crf: no crf.json in {folder}" in error


def test_training_may_start_from_a_model_with_true_case(root, with_true_case):
    """What an older model left in output_dir is removed, too."""
    flags = {"init_checkpoint": with_true_case, "num_train_epochs": 0.2}
    (root / "replaced").mkdir()
    (root / "replaced" / "true_case.json").write_text("{}")
    folder = run(root, "replaced", "--do_train", "--do_eval", **flags)
    assert not (folder / "true_case.json").exists()


def test_a_killed_training_with_true_case_is_refused(
    root, trained, capsys, monkeypatch
):
    killed = tiny_runs.killed(trained, root / "killed_true_case")
    state = loop.last_state(str(killed))
    state["task_settings"]["true_case"] = {"rome": "Rome"}
    monkeypatch.setattr(loop, "last_state", lambda directory: state)
    with pytest.raises(SystemExit):
        run(root, killed.name, "--do_predict")
    error = capsys.readouterr().err.splitlines()[-1]
    assert f"{killed}/model.ckpt-{state['step']}: " in error
    assert "--true_case" in error


def test_a_grid_reports_types_that_the_development_set_lacks(root):
    """Only the untrained of the two models predicts the rare type."""
    path = root / "rare.train"
    text = (root / "eng.train").read_text()
    path.write_text(f"{text}\nw1 x I-RARE\n")
    folder = run(
        root,
        "rare",
        "--do_train",
        "--do_eval",
        train_file=path,
        learning_rate="5e-7,5e-3",
        num_train_epochs=2,
    )
    record = json.loads((folder / "grid_results.json").read_text())
    names = {"precision_RARE", "recall_RARE", "f1_RARE"}
    assert all(names <= set(row) for row in record["runs"])
    assert record["summary"]["f1_RARE"]["best"] == 0.0
    assert tiny_runs.eval_results(folder)["eval_recall_RARE"] == 0.0


@pytest.fixture(scope="module")
def other(root):
    """A tagger of as many other types, and a training set with them."""
    text = (root / "eng.train").read_text()
    text = text.replace("-LOC", "-ANIMAL").replace("-PER", "-ZOO")
    (root / "zoo.train").write_text(text)
    folder = root / "zoo"
    shutil.copytree(root / "encoder", folder)
    model = models.TaggingModel(tiny_runs.config(WORDS), num_classes=5, seed=1)
    labels = "O B-ANIMAL I-ANIMAL B-ZOO I-ZOO".split()
    model_directory.save(model, str(folder), labels=labels)
    return folder


def entities(root, name, text, init_checkpoint):
    """Predicts the entities of a file; returns their lines."""
    folder = run(
        root,
        name,
        "--do_predict",
        text_file=text,
        init_checkpoint=init_checkpoint,
        data_dir=None,
    )
    return (folder / "entities.jsonl").read_text()


def test_a_killed_training_is_read_with_what_it_learns(
    root, trained, other, capsys
):
    """Its checkpoint has its labels and its CRF; other models do not count."""
    lines = root / "lines.txt"
    lines.write_text("jim smith w1 rome\nw1 smith\n")
    plain = run(root, "killed_plain", "--do_train", num_train_epochs=3)
    for number, folder in enumerate((trained, plain)):
        killed = tiny_runs.killed(folder, root / f"killed{number}")
        before = entities(root, folder.name, lines, None)
        assert '"LOC"' in before or '"PER"' in before
        assert entities(root, killed.name, lines, other) == before
    with pytest.raises(SystemExit):
        run(root, killed.name, "--do_predict", "--crf", init_checkpoint=other)
    error = capsys.readouterr().err.splitlines()[-1]
    assert f"--crf: no crf.json in {killed}" in error


@pytest.mark.parametrize("types", ["as many", "fewer"])
def test_the_output_layer_of_other_types_is_not_used(
    root, trained, other, types, caplog
):
    path = root / "zoo.train"
    if types == "fewer":
        text = path.read_text().replace("-ANIMAL", "-ZOO")
        path = root / "one.train"
        path.write_text(text)
    flags = {"learning_rate": 1e-9, "num_train_epochs": 0.2}
    heads = []
    for start in (trained, root / "encoder"):
        folder = run(
            root,
            f"{types}_{start.name}",
            "--do_train",
            "--crf",
            train_file=path,
            init_checkpoint=start,
            **flags,
        )
        tensors = safetensors.numpy.load_file(folder / "model.safetensors")
        heads.append(tensors["classifier.weight"])
        text = "the model to start from has one for O, B-LOC"
        assert (text in caplog.text) == (start == trained)
        caplog.clear()
    np.testing.assert_allclose(*heads, atol=1e-6)


def test_other_windows_than_in_training_are_warned_of(root, trained, caplog):
    run(
        root,
        "crf",
        "--do_eval",
        max_seq_length=24,
        document_context="none",
        doc_stride=0,
        init_checkpoint=None,
    )
    for text in (
        "trained with --max_seq_length=32, but 24 is used now",
        "trained with --document_context=maximal, but none is used now",
        "trained with --doc_stride=12, but 0 is used now",
    ):
        assert text in caplog.text
