"""Proves that --teacher_dir trains a student, and --init_layers makes one.

python -m pytest tests/run_classifier_distillation_test.py
"""

import csv
import json
import shutil

import classifier_runs
import numpy as np
import pytest
import tiny_runs

from finetuning import given_model
from foundation import config_flags
from modeling import models
from serving import api
from tasks.classification.settings import ClassifierFlags
from tasks.classification.task import Classification
from weights import checkpoint_sources, model_directory, tokenizer_files

# With any seed, and the arithmetic of any CPU, losses are near 0 after 50 of
# the 76 steps. At a rate of 5e-3 some diverge.
LEARNS = {"learning_rate": 2e-3, "num_train_epochs": 12}


def run(root, name, **flags):
    """Trains the student for two epochs; returns its directory."""
    common = {"init_checkpoint": root / "student", "num_train_epochs": 2}
    return classifier_runs.run_csv(
        root, name, "--do_train", **common | {"dev_file": None} | flags
    )


def save_teacher(folder, words, labels=("no", "yes"), **sizes):
    """Saves a classifier with random weights."""
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    tokenizer = tokenizer_files.load(str(folder))
    model = models.ClassificationModel(
        tiny_runs.config(words, **sizes), num_classes=len(labels), seed=5
    )
    model_directory.save(model, str(folder), tokenizer, labels=list(labels))
    return folder


def weights(folder):
    return (folder / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("distillation")
    classifier_runs.make_data(root, dropout=0)
    words = classifier_runs.WORDS
    tiny_runs.save_encoder(root / "student", words)
    still = {"hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0}
    tiny_runs.save_encoder(root / "without_dropout", words, **still)
    # The teacher contradicts the labels: who agrees with it has learned of it.
    rows = list(csv.reader((root / "train.csv").open()))
    other = {"no": "yes", "yes": "no", "verdict": "verdict"}
    with open(root / "other.csv", "w", newline="") as file:
        csv.writer(file).writerows([a, b, other[c]] for a, b, c in rows)
    classifier_runs.run_csv(
        root,
        "teacher",
        "--do_train",
        train_file=root / "other.csv",
        dev_file=None,
        **LEARNS,
    )
    return root


@pytest.fixture(scope="module")
def learned(root):
    """The directory of a student that has learned the teacher."""
    return run(
        root,
        "learned",
        teacher_dir=root / "teacher",
        init_checkpoint=root / "without_dropout",
        distillation_weight=1,
        **LEARNS,
    )


def test_the_student_learns_the_teacher(root, learned):
    rows = list(classifier_runs.sentences(9, 60))
    texts, right = [x for x, _ in rows], [["no", "yes"][i] for _, i in rows]
    teacher, found = (
        [x.label for x in api.load(str(folder)).predict(texts)]
        for folder in (root / "teacher", learned)
    )
    assert np.mean(np.equal(teacher, right)) < 0.2
    assert np.mean(np.equal(teacher, found)) > 0.8
    lines = (learned / "metrics.jsonl").read_text().splitlines()
    values = [json.loads(line) for line in lines]
    (name,) = {k for x in values for k in x if k.endswith("distillation_loss")}
    seen = [x[name] for x in values if name in x]
    assert seen[-1] < 0.3 * seen[0]


@pytest.mark.all
def test_without_weight_it_is_the_plain_training_bit_for_bit(root):
    plain = run(root, "plain")
    without = run(
        root, "none", teacher_dir=root / "teacher", distillation_weight=0
    )
    assert weights(plain) == weights(without)


def test_init_layers_are_those_of_the_teacher(root):
    words = classifier_runs.WORDS
    teacher = save_teacher(root / "deep", words, num_hidden_layers=3)
    out = run(
        root,
        "layers",
        init_checkpoint=None,
        teacher_dir=teacher,
        init_layers="2,0",
        learning_rate=1e-9,
        weight_decay_rate=0,
        num_train_epochs=0.2,
    )
    theirs, ours = (checkpoint_sources.read(str(x)) for x in (teacher, out))
    assert ours.config.num_hidden_layers == 2
    for path, tensor in ours.tensors.items():
        for new, old in (("_0/", "_2/"), ("_1/", "_0/")):
            if f"layer{new}" in path:
                path = path.replace(f"layer{new}", f"layer{old}")
                break
        expected = theirs.tensors[path].read()
        np.testing.assert_allclose(tensor.read(), expected, atol=1e-7)


def test_what_does_not_fit_is_refused_in_one_line(root, capsys):
    words = classifier_runs.WORDS
    save_teacher(root / "vocabulary", [*words[:-1], "other"])
    save_teacher(root / "order", words, ["yes", "no"])
    save_teacher(root / "short", words, max_position_embeddings=16)
    shutil.copytree(root / "teacher", root / "cased")
    (config,) = (root / "cased").glob("tokenizer_config.json")
    stored = json.loads(config.read_text())
    config.write_text(json.dumps(stored | {"do_lower_case": False}))
    for name, part in (
        ("vocabulary", "vocabulary"),
        ("order", "its labels are yes, no, those of the student no, yes"),
        ("short", "16 positions"),
        ("cased", "do_lower_case=False"),
    ):
        with pytest.raises(SystemExit):
            run(root, "refused", teacher_dir=root / name)
        message = capsys.readouterr().err.splitlines()[-1]
        assert "teacher_dir" in message and part in message, message


@pytest.mark.parametrize(
    ("of_teacher", "of_student", "expected"),
    [
        ("cut", "mean", "mean"),
        ("max", "mean", "max"),
        ("attention", "max", "attention"),
        ("attention", "cut", None),
    ],
)
def test_a_teacher_pools_windows_as_in_its_training(
    root, of_teacher, of_student, expected, caplog
):
    folder = root / "teacher"
    flags = config_flags.build(
        ClassifierFlags,
        output_dir=str(root / "x"),
        task_name="csv",
        train_file=str(root / "train.csv"),
        text_column="review",
        label_column="verdict",
        init_checkpoint=str(root / "student"),
        max_seq_length=32,
        long_texts=of_student,
        do_train=True,
    )
    model, flags = given_model.find(flags)
    task = Classification(flags, model)
    teacher = given_model.read(str(folder))
    teacher.record.flags = {"long_texts": of_teacher}
    assert task.teacher_head(teacher)._window_pooling == expected
    assert ("reads texts that are cut" in caplog.text) == (expected is None)
