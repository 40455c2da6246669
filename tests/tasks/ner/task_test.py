"""Proves what labels a file gives, what is remarked, and what is written.

python -m pytest tests/tasks/ner/task_test.py
"""

import re
import types

import numpy as np
import pytest
import tiny_runs

from data.tokenization import plain_wordpiece, vocabulary
from finetuning import task as tasks
from foundation import config_flags, errors
from tasks.ner import tag_spans, task, word_files
from tasks.ner.settings import NerFlags

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


@pytest.fixture
def read(tmp_path):
    """Opens a file of a sentence, as a training and a development set."""

    def open_tags(tags, *, labels=None, num_outputs=None, **flags):
        path = tmp_path / "tags.txt"
        rows = enumerate(tags.split() if isinstance(tags, str) else tags)
        path.write_text("".join(f"w{i} {tag}\n" for i, tag in rows))
        given = {"do_train": True, "do_eval": True, "output_dir": "x"}
        given |= {"train_file": str(path), "dev_file": str(path)} | flags
        words = [*tiny_runs.SPECIAL, *(f"w{i}" for i in range(50))]
        model = types.SimpleNamespace(
            tokenizer=plain_wordpiece.PlainTokenizer(
                vocabulary.Vocabulary.from_tokens(words)
            ),
            start=types.SimpleNamespace(
                num_outputs=num_outputs, check_segments=lambda features: None
            ),
            record=types.SimpleNamespace(directory=str(tmp_path)),
            labels=labels,
            weights="model",
            unfinished_dir=None,
            config=types.SimpleNamespace(num_hidden_layers=12),
        )
        return task.Ner(config_flags.build(NerFlags, **given), model)

    return open_tags


def evaluate(ner, change=lambda ids: None):
    """Evaluates a model that is right, after changing some of its tags."""
    examples = ner.sets["dev"]
    encoded = tasks.Encoded(ner, list(examples))
    ids = np.concatenate([ner.target(x) for x in encoded.examples])
    change(ids)
    words = np.concatenate([[w.words for w in s] for s in encoded.sequences], 1)
    logits = np.zeros((words.size, len(ner.labels)), np.float32)
    logits[words[0] > 0] = np.eye(len(ner.labels))[ids] * 9
    return ner.evaluate(examples, encoded, {"logits": logits})


@pytest.mark.parametrize("model_scheme", ["bio2", "iobes"])
@pytest.mark.parametrize("name", FILES)
def test_perfect_tags_are_right_as_conlleval_reads_them(
    read, tmp_path, name, model_scheme
):
    found = evaluate(read(FILES[name], model_scheme=model_scheme))
    assert found.values["accuracy"] == found.values["score"] == 1
    assert found.values["loss"] < 0.01
    path = tmp_path / "predictions.txt"
    path.write_bytes(found.files["predictions_dev.txt"])
    sides = [
        list(
            next(word_files.read(str(path), word_files.Columns("0", x))).tags[0]
        )
        for x in ("1", "2")
    ]
    assert sides == [WRITTEN[name].split()] * 2
    if name != "plain":
        scores = tag_spans.score(*([side] for side in sides))
        assert found.files["scores_dev.txt"].decode() == scores.text()
        assert scores.total == (4, 4, 4)
    shown = dict(found.sections())
    assert shown["Worst sentences"] == "<p>None.</p>"


def test_a_wrong_tag_is_counted_once_and_shown(read):
    ner = read("B-PER I-PER O B-ORG")
    assert ner.labels == ["O", "B-ORG", "I-ORG", "B-PER", "I-PER"]

    def lose_the_last_name(ids):
        ids[1] = 0

    found = evaluate(ner, lose_the_last_name)
    assert found.values["accuracy"] == 3 / 4
    assert found.values["recall"] == found.values["precision"] == 1 / 2
    assert ["PER", 1, 1, 0, 0, 0] in found.by_label
    shown = dict(found.sections())
    mark = '<mark class="type" style="--hue:180">{}<sub>PER</sub></mark>'
    assert f"True: {mark.format('w0 w1')} w2" in shown["Worst sentences"]
    assert f"Predicted: {mark.format('w0')} w1" in shown["Worst sentences"]
    assert "By type" in shown and "Confusions of words" in shown


def test_prefixed_tags_are_plain_if_told(read):
    ner = read("B-X O I-X", tag_scheme="plain")
    assert ner.labels == ["B-X", "I-X", "O"]
    found = evaluate(ner, lambda ids: ids.put(2, 0))
    assert found.values["score"] == found.values["accuracy"] == 2 / 3
    assert b"w2 I-X B-X" in found.files["predictions_dev.txt"]
    assert "f1_macro" in found.values


@pytest.mark.parametrize("scheme", ["iob1", "bio2", "iobes"])
def test_tags_become_the_labels_that_a_model_has(read, scheme):
    """No two persons are neighbors in eng.train, which so has no B-PER."""
    labels = ["O", "I-LOC", "I-PER", "B-LOC"]
    tags = "I-PER I-PER O I-LOC B-LOC O I-LOC".split()
    ner = read(
        tag_spans.convert_tags(tags, scheme), labels=labels, do_train=False
    )
    (example,) = ner.sets["dev"]
    assert [labels[i] for i in ner.target(example)] == tags


REMARKS = {
    "PER 0 0 LOC 0": "'0', is .*--tag_names.*: 0 60.0 %, PER 20.0 %",
    "name=B-PER name=O name=O": "'name=O', is .*: name=O 66.7 %, name=B-PER",
    "<PER> <O> <O>": "'<O>', is probably that of words outside",
    "PER OTHER OTHER LOC": "'OTHER', is probably",
    "PER _ _ LOC": "'_', is probably",
    "B-PER B-NIL I-NIL": "'NIL', is .*: NIL 66.7 %, PER 33.3 %",
    "NN NN": "'NN', is probably .*: NN 100.0 %",
    "PER O LOC": "every tag is a class, O too",
    "B_PER I_PER O": ": no tag has a prefix as in B-PER",
    "B I O": None,
    "B M E S": None,
    "B-PER B-ORG O": None,
}


@pytest.mark.parametrize("tags, message", REMARKS.items(), ids=REMARKS)
def test_tags_that_were_meant_otherwise_are_remarked_on_once(
    read, caplog, tags, message
):
    ner = read(tags)
    warnings = [r.getMessage() for r in caplog.records if r.levelname != "INFO"]
    assert len(warnings) == (message is not None)
    assert message is None or re.search(message, warnings[0])
    # Neither a model's own types nor tags that are stated to be classes.
    caplog.clear()
    read(tags, labels=ner.labels, do_train=False)
    if "O" not in tags.split():
        read(tags, tag_scheme="plain")
    assert not [r for r in caplog.records if r.levelname != "INFO"]


def test_a_set_is_shown_as_it_was_understood(read, caplog):
    with caplog.at_level("INFO", logger="absl"):
        read("I-PER I-PER O O B-LOC")
    for text in (
        "the first: w0 I-PER, w1 I-PER, w2 O, w3 O, w4 B-LOC",
        "labels: PER 40.0 %, O 40.0 %, LOC 20.0 % of 5 words",
    ):
        assert text in caplog.text


BAD = {
    "outside": ("B-PER 0", {}, "tags.txt:1: tag '0' is neither O"),
    "nothing": ("O O", {}, "all tags are O"),
    "no_tags": (["", ""], {}, "no column of tags"),
    "types": ("B-X B-Y", {"entity_types": "X"}, "tags.txt also has Y"),
    "unknown": (
        "O B-Y",
        {"labels": ["O", "B-X", "I-X"], "do_train": False},
        "tags.txt:1: tag 'B-Y' of 'w1' is none of: O, B-X, I-X",
    ),
    "no_outside": (
        "O B-X",
        {"labels": ["B-X", "I-X"], "do_train": False},
        "tag 'O' of 'w0' is none of",
    ),
    "no_names": (
        "O B-X",
        {"do_train": False, "train_file": None},
        'correct "id2label" in its config.json, or give the --train_file',
    ),
    "outputs": (
        "O B-X",
        {"labels": ["O", "B-X"], "num_outputs": 3, "do_train": False},
        "3 outputs.*id2label",
    ),
    "no_test": ("O B-X", {"do_predict": True}, "--test_file or --text_file"),
    "documents": (
        "O B-X",
        {"document_context": "maximal"},
        "tags.txt:1: --document_context needs -DOCSTART- lines",
    ),
    "crf": (
        "O B-X",
        {"labels": ["O", "B-X"], "do_train": False, "crf": True},
        "--crf: no crf.json in",
    ),
}


@pytest.mark.parametrize("tags, flags, message", BAD.values(), ids=BAD)
def test_what_cannot_be_learned_is_refused(read, tags, flags, message):
    with pytest.raises(errors.InputError, match=message) as caught:
        read(tags, **flags)
    assert "\n" not in str(caught.value)


def test_labels_have_the_order_of_the_model(read, caplog):
    former = ["I-X", "O", "B-X"]
    assert read("O B-X", labels=former, num_outputs=3).labels == former
    for other in (["O", "B-X"], ["O", "B-Y", "I-Y"], None):
        assert read("O B-X", labels=other).labels == ["O", "B-X", "I-X"]
    more = read("O B-X", entity_types="X,Y").labels
    assert more == ["O", "B-X", "I-X", "B-Y", "I-Y"]
    assert "Assumed" not in caplog.text
    for unnamed in (None, [f"LABEL_{i}" for i in range(3)]):
        ner = read("O B-X", labels=unnamed, do_train=False)
        assert ner.labels == ["O", "B-X", "I-X"]
    assert "Assumed" in caplog.text and "LABEL_1 is B-X" in caplog.text


@pytest.mark.parametrize(
    "name, layers",
    [
        ("embeddings", [0]),
        ("second_to_last", [11]),
        ("last", [12]),
        ("weighted_sum_last_four", [9, 10, 11, 12]),
        ("concat_last_four", [9, 10, 11, 12]),
        ("weighted_sum_all", list(range(1, 13))),
    ],
)
def test_layers_are_those_of_the_papers_table_7(name, layers):
    assert list(task.layers_of(name, 12)) == layers


USELESS = {
    "text": ({"text_file": "a.txt"}, "--text_file needs --do_predict"),
    "lstm": ({"lstm_size": 9}, "--lstm_size needs --features"),
    "stride": ({"doc_stride": 5}, "--doc_stride needs"),
    "types": (
        {"do_train": False, "do_eval": True, "entity_types": "X"},
        "--entity_types needs --do_train",
    ),
    "teacher": ({"crf": True, "teacher_dir": "x"}, "--crf: not with"),
    "stdin": (
        {"do_predict": True, "text_file": "-", "interactive": True},
        "both read standard input",
    ),
    "no_mode": ({"do_train": False}, "at least one of .*--interactive"),
    "rate": ({"features": "last", "init_checkpoint": "x"}, "--learning_rate"),
    "start": ({"features": "last", "learning_rate": 0.1}, "--init_checkpoint"),
    "bucket": (
        {
            "features": "last",
            "learning_rate": 0.1,
            "init_checkpoint": "x",
            "output_dir": "gs://b/x",
        },
        "--output_dir=gs://b/x: ",
    ),
    **{
        name: ({"features": "last", name: value}, f"excludes --{name}")
        for name, value in (
            ("crf", True),
            ("layer_decay", 0.5),
            ("bilstm_size", 0),
            ("teacher_dir", "x"),
            ("freeze_layers", 1),
        )
    },
}


@pytest.mark.parametrize("flags, message", USELESS.values(), ids=USELESS)
def test_flags_of_no_effect_are_refused(flags, message):
    flags = {"output_dir": "ner", "do_train": True} | flags
    with pytest.raises((ValueError, errors.InputError), match=message):
        config_flags.build(NerFlags, **flags)


def test_files_of_a_folder_are_found_by_their_usual_names(tmp_path):
    def find(split, **given):
        given = {"data_dir": str(tmp_path), "do_predict": True} | given
        flags = config_flags.build(NerFlags, output_dir="x", **given)
        found = flags.find(split)
        return found and found.removeprefix(f"{tmp_path}/")

    with pytest.raises(errors.InputError, match="no eng.testa or dev or valid"):
        find("dev")
    for name in ("validation.parquet", "valid.jsonl.gz", "eng.testa"):
        (tmp_path / name).write_text("")
        assert find("dev") == name
    (tmp_path / "test.txt").write_text("")
    assert find("test") == "test.txt"
    assert find("test", text_file="a.txt") is None
    assert find("test", text_file="a.txt", test_file="b") == "b"
    assert find("train", data_dir=None) is None
