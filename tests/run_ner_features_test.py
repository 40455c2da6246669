"""Proves --features of run_ner.py: a BiLSTM on a frozen encoder.

python -m pytest tests/run_ner_features_test.py
"""

import functools
import json
import shutil

import ner_runs
import pytest
import safetensors.numpy
import tiny_runs

from modeling import lstm
from tasks.ner import activations

MODES = ("--do_train", "--do_eval")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """An encoder and data."""
    root = tmp_path_factory.mktemp("data")
    ner_runs.make_data(root, (300, 40, 15))
    return root


def run(root, name, *switches, **flags):
    flags = {"features": "last", "learning_rate": 1e-2, "lstm_size": 8} | flags
    return ner_runs.run(root, name, *switches, **flags)


@pytest.fixture
def without_lstms(monkeypatch):
    """What is proved with it needs no LSTM, which is slow to trace."""
    make = functools.partial(lstm.BiLstmTagger, depth=0)
    monkeypatch.setattr(lstm, "BiLstmTagger", make)


def test_a_tagger_learns_and_predicts_without_its_activations(
    root, monkeypatch
):
    make = functools.partial(lstm.BiLstmTagger, depth=1)
    monkeypatch.setattr(lstm, "BiLstmTagger", make)
    folder = run(
        root,
        "frozen",
        *MODES,
        "--do_predict",
        lstm_size=24,
        num_train_epochs=24,
    )
    values = tiny_runs.eval_results(folder)
    assert values["eval_f1"] > 0.8
    # The encoder is what it was, and the directory is complete.
    before = safetensors.numpy.load_file(root / "encoder/model.safetensors")
    after = safetensors.numpy.load_file(folder / "model.safetensors")
    encoder = {name for name in after if name.startswith("bert.")}
    assert encoder and "bilstm.output_weights" in after
    assert all((before[name] == after[name]).all() for name in encoder)
    predictions = (folder / "predictions_test.txt").read_bytes()
    shutil.rmtree(folder / "activations")
    (root / "line.txt").write_text("w1 jim smith w2 rome\n")
    flags = {"init_checkpoint": None, "features": None, "lstm_size": None}
    flags |= {"max_seq_length": None, "data_dir": None}
    tests = {"test_file": root / "eng.testb", "text_file": root / "line.txt"}
    run(root, "frozen", "--do_eval", "--do_predict", **flags, **tests)
    assert tiny_runs.eval_results(folder) == values
    assert (folder / "predictions_test.txt").read_bytes() == predictions
    entities = json.loads((folder / "entities.jsonl").read_text())["entities"]
    assert [entity["text"] for entity in entities] == ["jim smith", "rome"]


def test_a_dry_run_computes_no_activations(root, without_lstms, monkeypatch):
    def expect_none(values, features, batches):
        assert not list(batches)

    monkeypatch.setattr(activations, "on_disk", None)
    monkeypatch.setattr(activations, "set_words", expect_none)
    with pytest.raises(SystemExit) as exit:
        run(root, "dry", *MODES, "--dry_run")
    assert exit.value.code == 0
    assert not (root / "dry").exists()
