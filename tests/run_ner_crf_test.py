"""Proves that run_ner.py keeps --crf and labels with the weights.

python -m pytest tests/run_ner_crf_test.py
"""

import json
import shutil

import ner_runs
import numpy as np
import pytest
import tiny_runs
from ner_runs import WORDS, run

from modeling import models
from tasks.ner import tag_spans, word_files
from weights import pretrained

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
        keep_checkpoint_max=1,
    )


def scores(folder):
    values = json.loads((folder / "crf.json").read_text())
    assert values["labels"] == LABELS
    return {k: np.array(values[k]) for k in ("transitions", "start", "end")}


def evaluate(root, name, folder):
    other = run(
        root,
        name,
        "--do_eval",
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
    assert found["eval_f1"] == tiny_runs.eval_results(trained)["eval_f1"]
    mine = trained / "predictions_dev.txt"
    assert predictions.read_text() == mine.read_text()
    # The same weights with other scores.
    strange = shutil.copytree(trained, root / "strange")
    record = json.loads((trained / "crf.json").read_text())
    record["start"] = [-100.0, 100.0, 0, 0, 0]
    (strange / "crf.json").write_text(json.dumps(record))
    _, predictions = evaluate(root, "strange_eval", strange)
    for sentence in word_files.read(str(predictions)):
        tags = list(sentence.tags[0])
        assert tags[0] in ("I-LOC", "B-LOC")
        assert tags == tag_spans.convert_tags(tags, "iob1")


@pytest.mark.all
def test_training_continues_from_a_crf_or_without_one(root, trained):
    flags = {"init_checkpoint": trained, "learning_rate": 1e-9}
    flags |= {"num_train_epochs": 0.2}
    folder = run(root, "more", "--do_train", "--crf", **flags)
    before, after = scores(trained), scores(folder)
    for name in before:
        np.testing.assert_allclose(after[name], before[name], atol=1e-4)
    folder = run(root, "plain", "--do_train", **flags)
    assert not (folder / "crf.json").exists()
