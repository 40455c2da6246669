"""Proves that perfect tags score so in every scheme, as they are written.

python -m pytest tests/tasks/ner/ner_outputs_test.py
"""

import dataclasses
import types

import numpy as np
import pytest

from data import text_files
from foundation import config_flags
from jobs import grid, source, streaming
from jobs import outputs as run_outputs
from tasks.ner import (
    ner_data,
    outputs,
    settings,
    tag_spans,
    task,
    word_files,
)

# Two persons side by side, a location of one word, an organization of three.
FILES = {
    "iob1": "I-PER I-PER B-PER O I-LOC O I-ORG I-ORG I-ORG",
    "bio2": "B-PER I-PER B-PER O B-LOC O B-ORG I-ORG I-ORG",
    "iobes": "B-PER E-PER S-PER O S-LOC O B-ORG I-ORG E-ORG",
    "bilou": "B-PER L-PER U-PER O U-LOC O B-ORG I-ORG L-ORG",
    "stray": "B-PER I-PER B-PER O I-LOC O B-ORG I-ORG I-ORG",
    "plain": "NNP NNP NNP VBD NNP IN NNP NNP NNP",
}
WRITTEN = {name: FILES["bio2"] for name in FILES} | {
    "iob1": FILES["iob1"],
    "plain": FILES["plain"],
}


def open_file(tmp_path, tags, model_scheme="bio2", tag_scheme="auto"):
    """Opens a file of a sentence as training and test set."""
    path = tmp_path / "tags.txt"
    path.write_text("".join(f"w{i} {t}\n" for i, t in enumerate(tags)))
    return ner_data.open_data(
        settings.Files(train_file=str(path), test_file=str(path)),
        tag_scheme=tag_scheme,
        model_scheme=model_scheme,
        known_labels=None,
        trains=True,
    )


def perfect(data):
    """Logits of a model that is right, and its tags."""
    ids = data.split("test").label_ids
    logits = np.eye(len(data.labels), dtype=np.float32)[ids] * 9
    return logits, [data.labels[i] for i in ids]


@pytest.mark.parametrize("model_scheme", ["bio2", "iobes"])
@pytest.mark.parametrize("name", FILES)
def test_perfect_tags_are_all_right(tmp_path, name, model_scheme):
    data = open_file(tmp_path, FILES[name].split(), model_scheme)
    found = outputs.evaluate(data, "test", *perfect(data))
    assert found.values["accuracy"] == 1
    assert found.values["score"] == 1
    assert list(found.predicted) == WRITTEN[name].split()
    shown = dict(outputs.sections(found))
    assert shown["Worst sentences"] == "<p>None.</p>"


def open_outputs(folder):
    """Returns what writes the files of a run."""
    return run_outputs.Outputs(
        output_dir=str(folder),
        flags={},
        given_flags={},
        results=grid.Results(str(folder)),
    )


def write_test(folder):
    """Writes the predictions of a model that is right, and their scores."""
    path = str(folder / "tags.txt")
    config = config_flags.build(
        settings.NerConfig,
        output_dir=str(folder),
        train_file=path,
        test_file=path,
        do_train=True,
        do_predict=True,
    )
    start = types.SimpleNamespace(
        config=None, tokenizer=None, labels=None, num_outputs=None
    )
    model = source.ModelSource(case="TRAINED_NOW", start=start, folder=None)
    ner = task.NerTask(config, model)
    test = task.TestSet(ner, None)
    blocks = streaming.Blocks(str(folder / "work"), {})
    for number, block in enumerate(test.read()):
        blocks.find(number, "")
        parts = outputs.test_parts(ner.data, block, *perfect(ner.data))
        blocks.add(number, "", parts)
    test.write(blocks, open_outputs(folder))


@pytest.mark.parametrize("name", FILES)
def test_what_is_written_is_what_conlleval_reads(tmp_path, name):
    data = open_file(tmp_path, FILES[name].split())
    found = outputs.evaluate(data, "test", *perfect(data))
    write_test(tmp_path)
    path = str(tmp_path / "predictions_test.txt")
    sides = [
        word_files.read_columns(path, tag_column=column).tags
        for column in (1, 2)
    ]
    assert sides == [WRITTEN[name].split()] * 2
    assert (tmp_path / "scores_test.txt").read_text() == found.text
    if name != "plain":
        scores = tag_spans.score(*([side] for side in sides))
        assert scores.text() == found.text
        assert scores.total == (4, 4, 4)


def test_a_wrong_tag_is_counted_once(tmp_path):
    data = open_file(tmp_path, FILES["bilou"].split())
    logits, tags = perfect(data)
    tags[4] = "O"
    found = outputs.evaluate(data, "test", logits, tags)
    assert found.values["accuracy"] == pytest.approx(8 / 9)
    assert found.values["recall"] == pytest.approx(3 / 4)
    assert found.values["precision"] == 1


@pytest.mark.parametrize("tags", ["none O none", "B-none I-none O"])
def test_a_tag_may_be_called_none(tmp_path, tags):
    data = open_file(tmp_path, tags.split())
    logits, found = perfect(data)
    found[2] = {"none": "O", "O": "B-none"}[found[2]]
    evaluated = outputs.evaluate(data, "test", logits, found)
    shown = dict(outputs.sections(evaluated))
    assert "<sub>none</sub>" in shown["Worst sentences"]


def test_prefixed_tags_are_plain_if_told(tmp_path):
    data = open_file(tmp_path, "B-X O I-X".split(), tag_scheme="plain")
    assert data.labels == ["B-X", "I-X", "O"]
    logits, tags = perfect(data)
    tags[2] = "B-X"
    found = outputs.evaluate(data, "test", logits, tags)
    assert found.predicted == ["B-X", "O", "B-X"]
    assert found.values["accuracy"] == pytest.approx(2 / 3)
    assert "f1_macro" in found.values


def test_two_single_words_side_by_side_are_two_phrases(tmp_path):
    data = open_file(tmp_path, ["S-PER", "S-PER"], "iobes")
    found = outputs.evaluate(data, "test", *perfect(data))
    assert found.text.startswith("processed 2 tokens with 2 phrases; found: 2")
    assert tag_spans.spans(found.predicted) == [
        (0, 1, "PER"),
        (1, 2, "PER"),
    ]


def test_entities_of_another_text_are_kept(tmp_path):
    data = open_file(tmp_path, FILES["bio2"].split())
    for name in ("news.txt", "mail.txt"):
        (tmp_path / name).write_text(f"Jim reads {name}\n")
        blocks = streaming.Blocks(str(tmp_path / "work"), {})
        blocks.find(0, "")
        blocks.add(0, "", {"entities.jsonl": name.encode()})
        lines = text_files.open_lines(str(tmp_path / name))
        raw = task.RawTextSet(dataclasses.replace(data, text=lines), None)
        raw.write(blocks, open_outputs(tmp_path))
        blocks.remove()
    assert "mail.txt" in (tmp_path / "entities.jsonl").read_text()
    assert "news.txt" in (tmp_path / "entities_news.jsonl").read_text()


def test_many_types_do_not_become_a_table_of_all_pairs(tmp_path):
    tags = [f"B-T{i:02}" for i in range(50)]
    data = open_file(tmp_path, tags)
    found = outputs.evaluate(data, "test", *perfect(data))
    table = dict(outputs.sections(found))["Confusions of words"]
    assert table.count("<tr>") == 2 + 30 + 1
    assert "20 other types" in table and ">20</td>" in table


def test_a_report_marks_the_entities_of_wrong_sentences(tmp_path):
    data = open_file(tmp_path, ["B-PER", "I-PER", "O"])
    logits, tags = perfect(data)
    tags[1] = "O"
    found = outputs.evaluate(data, "test", logits, tags)
    shown = dict(outputs.sections(found))["Worst sentences"]
    mark = '<mark class="type" style="--hue:0">{}<sub>PER</sub></mark>'
    assert f"True: {mark.format('w0 w1')} w2" in shown
    assert f"Predicted: {mark.format('w0')} w1 w2" in shown
