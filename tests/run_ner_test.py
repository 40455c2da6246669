"""Proves run_ner.py in small: train, evaluate, predict, talk, bad input.

python -m pytest tests/run_ner_test.py
"""

import io
import json
import random

import ner_runs
import numpy as np
import pytest
import tiny_runs
from ner_runs import CITIES, FIRST, LAST, WORDS, run

from data import features, schema
from tasks.ner import tag_spans, word_files
from weights import model_directory


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A tiny encoder with its vocabulary, and data."""
    folder = tmp_path_factory.mktemp("data")
    return ner_runs.make_data(folder, num_hidden_layers=2)


@pytest.fixture(scope="module")
def trained(root):
    """A run from start to end."""
    return run(
        root, "ner", "--do_train", "--do_eval", "--do_predict", "--verbosity=0"
    )


def read(path, tag="-1"):
    return list(word_files.read(str(path), word_files.Columns("0", tag)))


def test_it_learns_and_writes_the_released_keys(trained):
    values = tiny_runs.eval_results(trained)
    assert values["eval_f1"] > 0.9
    assert values["eval_f1_PER"] > 0.8
    # Sentences of more than 30 tokens are several sequences.
    assert values["global_step"] > int(300 / 32 * 8)
    assert {"eval_precision", "eval_recall", "eval_accuracy"} <= set(values)


@pytest.mark.parametrize("split", ["dev", "test"])
def test_the_predictions_are_what_was_scored(trained, root, split):
    path = trained / f"predictions_{split}.txt"
    source = read(root / {"dev": "eng.testa", "test": "eng.testb"}[split])
    true, predicted = read(path, "1"), read(path)
    assert [x[1:] for x in true] == [x[1:] for x in source]
    scores = tag_spans.score(
        (x.tags[0] for x in true),
        (x.tags[0] for x in predicted),
        boundaries=sum(x.opens for x in source),
    )
    assert (trained / f"scores_{split}.txt").read_text() == scores.text()
    if split == "dev":
        assert tiny_runs.eval_results(trained)["eval_f1"] == scores.total.f1


def test_a_model_directory_with_card_and_report_is_left(trained):
    labels = "O B-LOC I-LOC B-PER I-PER".split()
    assert model_directory.read_settings(str(trained)).labels == labels
    card = (trained / "README.md").read_text()
    for text in ("named entities", "tag: token-class", "f1_PER", "| LOC |"):
        assert text in card
    page = (trained / "report.html").read_text()
    for heading in ("By type", "Confusions of words", "Worst sentences"):
        assert heading in page
    for name in ("train", "eval"):
        assert (trained / f"{name}.tf_record").exists()


def test_a_trained_model_predicts_the_same_of_words_alone(trained, root):
    before = (trained / "metrics.jsonl").read_bytes()
    other = run(
        root,
        "other",
        "--do_predict",
        init_checkpoint=trained,
        data_dir=None,
        test_file=root / "words.txt",
        predict_batch_size=3,
    )
    again = read(other / "predictions_test.txt")
    first = read(trained / "predictions_test.txt")
    assert [x.sentences[0] for x in again] == [x.sentences[0] for x in first]
    # A file without tags gets those that begin every span by B-.
    for ours, theirs in zip(first, again, strict=True):
        assert tag_spans.convert_tags(ours.tags[0], "bio2") == list(
            theirs.tags[0]
        )
    assert (trained / "metrics.jsonl").read_bytes() == before
    assert not (other / "scores_test.txt").exists()


@pytest.mark.all
def test_document_context_and_another_scheme(root, trained):
    folder = run(
        root,
        "context",
        "--do_train",
        "--do_eval",
        document_context="maximal",
        doc_stride=12,
        model_scheme="iobes",
        num_train_epochs=1,
    )
    values = tiny_runs.eval_results(folder)
    assert "S-PER" in model_directory.read_settings(str(folder)).labels
    # Most sequences are full of the document around their sentences.
    alone, within = (lengths(f) for f in (trained, folder))
    assert np.mean(alone >= 30) < 0.5 < np.mean(within >= 30)
    # A later command has the windows of the training.
    flags = {"max_seq_length": None, "data_dir": None, "init_checkpoint": None}
    run(root, "context", "--do_eval", **flags)
    assert tiny_runs.eval_results(folder) == values


def lengths(folder):
    """The tokens of every sequence of the development set."""
    path = str(folder / "eval.tf_record")
    return features.read(path, schema.tagging(32)).lengths


def typed(text):
    return io.TextIOWrapper(io.BytesIO(text))


LINE = "w1 Jim Smith, w2 Rome."


def test_raw_text_gives_entities_by_character(
    trained, root, monkeypatch, capsys
):
    (root / "text.txt").write_text(f"{LINE}\n\nw3\n")
    flags = {"data_dir": None, "init_checkpoint": None}
    folder = run(
        root, "ner", "--do_predict", text_file=root / "text.txt", **flags
    )
    lines = (folder / "entities.jsonl").read_text().splitlines()
    records = [json.loads(text) for text in lines]
    assert [record["text"] for record in records] == [LINE, "", "w3"]
    found = {(e["type"], e["start"], e["end"]) for e in records[0]["entities"]}
    assert found == {("PER", 3, 12), ("LOC", 17, 21)}
    monkeypatch.setattr("sys.stdin", typed(f"{LINE}\n\n".encode()))
    capsys.readouterr()
    run(root, "ner", "--interactive", **flags)
    shown = capsys.readouterr().out.splitlines()
    assert shown == ["w1 [Jim Smith PER], w2 [Rome LOC].", ""]


def test_standard_input_is_tagged_to_standard_output(
    root, trained, monkeypatch, capfdbinary
):
    monkeypatch.setattr("sys.stdin", typed(f"{LINE}\n\nw3\n".encode()))
    flags = {"data_dir": None, "init_checkpoint": trained}
    folder = run(root, "piped", "--do_predict", text_file="-", **flags)
    assert not (folder / "entities.jsonl").exists()
    shown = capfdbinary.readouterr().out.decode().splitlines()
    records = [json.loads(line) for line in shown]
    assert [record["text"] for record in records] == [LINE, "", "w3"]
    assert [e["text"] for e in records[0]["entities"]] == ["Jim Smith", "Rome"]


@pytest.mark.all
def test_tags_without_spans_are_learned_as_they_are(root):
    rng = random.Random(4)
    rows = [rng.choice(WORDS[5:]) for _ in range(1000)]
    text = "".join(
        f"{word}\t{'NNP' if word in FIRST + LAST + CITIES else 'NN'}\n"
        + ("\n" if rng.random() < 0.1 else "")
        for word in rows
    )
    (root / "pos.txt").write_text(text)
    files = {"train_file": root / "pos.txt", "dev_file": root / "pos.txt"}
    folder = run(
        root,
        "pos",
        "--do_train",
        "--do_eval",
        data_dir=None,
        num_train_epochs=3,
        **files,
    )
    values = tiny_runs.eval_results(folder)
    assert values["eval_score"] == values["eval_accuracy"] > 0.95
    assert model_directory.read_settings(str(folder)).labels == ["NN", "NNP"]
