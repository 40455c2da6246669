"""Proves that a run's files are found, and refused before work begins.

python -m pytest tests/tasks/ner/ner_data_test.py
"""

import gzip
import re

import pytest
import tiny_runs

from data.tokenization import vocabulary, wordpiece
from foundation import errors
from tasks.ner import ner_data, settings, word_files

WINDOWS = settings.WindowSettings(
    max_seq_length=32, document_context="maximal", doc_stride=0
)


def open_folder(folder, **options):
    return ner_data.open_data(
        settings.Files(data_dir=str(folder)),
        model_scheme="bio2",
        **{"tag_scheme": "auto", "known_labels": None, "trains": True}
        | options,
    )


@pytest.fixture
def folder(tmp_path):
    text = b"-DOCSTART- O\n\na B-X\nb O\n"
    (tmp_path / "train.txt.gz").write_bytes(gzip.compress(text))
    (tmp_path / "dev.txt").write_text("a B-X\n")
    (tmp_path / "test.txt").write_text("-DOCSTART-\n\na\n")
    return tmp_path


def test_compressed_files_are_found_by_their_usual_names(folder):
    data = open_folder(folder)
    assert list(data.split("train").sentences.words) == ["a", "b"]
    assert data.labels == ["O", "B-X", "I-X"]
    (folder / "dev.txt").unlink()
    assert data.has("test") and not data.has("dev")


def test_a_second_file_of_a_set_is_named(folder, caplog):
    (folder / "valid.jsonl").write_text("{}")
    with caplog.at_level("WARNING", logger="absl"):
        data = open_folder(folder)
        assert data.files.find("dev") == f"{folder}/dev.txt"
    expected = f"{folder}/dev.txt is the dev set, not {folder}/valid.jsonl; --"
    assert expected in caplog.text


def test_the_columns_integers_have_the_names_of_the_flag(folder):
    path = folder / "dev.txt"
    path.write_text("a 1\nb 0\n")
    files = ner_data.Files(
        flags=settings.Files(dev_file=str(path), tag_names="O,B-X")
    )
    assert files.read("dev").tags == ["B-X", "O"]


def test_the_types_of_a_trained_model_cannot_be_chosen(folder):
    labels = ["O", "B-X", "I-X", "B-Y", "I-Y"]
    options = {"tag_scheme": "auto", "model_scheme": "bio2", "trains": False}
    files = settings.Files(data_dir=str(folder))
    for types in ((), ("X", "Y"), ("Y", "X")):
        ner_data.open_data(files, types=types, known_labels=labels, **options)
    message = "--entity_types=X: the model has X, Y; the flag applies to train"
    with pytest.raises(errors.InputError, match=message):
        ner_data.open_data(files, types=["X"], known_labels=labels, **options)


@pytest.mark.parametrize(
    "tags, message",
    [
        (
            "PER 0 0 LOC 0",
            "'0', is .*--tag_names.*: 0 60 %, PER 20 %, LOC 20 %",
        ),
        (
            "name=B-PER name=O name=O",
            "'name=O', is .*: name=O 67 %, name=B-PER",
        ),
        ("<PER> <O> <O>", "'<O>', is probably that of words outside"),
        ("PER OTHER OTHER LOC", "'OTHER', is probably"),
        ("PER _ _ LOC", "'_', is probably"),
        ("B-PER B-NIL I-NIL", "'NIL', is .*: NIL 67 %, PER 33 %"),
        ("NN NN", "'NN', is probably .*: NN 100 %"),
        (" ".join(f"0.{i}" for i in range(600)), r"0.19 0 %, \.\.\.$"),
        ("PER O LOC", "every tag is a class, O too"),
        ("B_PER I_PER O", ": no tag has a prefix as in B-PER"),
        ("B I O", None),
        ("B M E S", None),
        ("B-PER|I-ORG O", "'PER|I-ORG' is taken for one type"),
        ("B-PER B-ORG O", None),
        ("B-PER B-Per O", "'PER' and 'Per' are taken for different labels"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_tags_that_were_meant_otherwise_are_remarked_on_once(
    tmp_path, caplog, tags, message
):
    text = "".join(f"w {tag}\n" for tag in tags.split())
    (tmp_path / "train.txt").write_text(text)
    data = open_folder(tmp_path)
    warnings = [r.getMessage() for r in caplog.records if r.levelname != "INFO"]
    assert len(warnings) == (message is not None)
    assert message is None or re.search(message, warnings[0])
    # Neither a model's own types nor tags that are stated to be classes.
    caplog.clear()
    open_folder(tmp_path, known_labels=data.labels, trains=False)
    if "O" not in tags.split():
        open_folder(tmp_path, tag_scheme="plain")
    assert not [r for r in caplog.records if r.levelname != "INFO"]


@pytest.mark.parametrize(
    ("dev", "splits", "message"),
    [
        ("a B-X", ["dev"], "dev.txt: --document_context needs"),
        ("a B-X", ["train", "dev"], "dev.txt: --document_context needs"),
        ("a", ["dev"], "dev.txt: has no column of tags"),
    ],
    ids=["documents", "of_any_used", "tags"],
)
def test_what_sets_lack_is_found_first(folder, dev, splits, message):
    (folder / "dev.txt").write_text(f"{dev}\n")
    data = open_folder(folder)
    with pytest.raises(errors.InputError, match=message):
        ner_data.check(data, splits, WINDOWS)
    ner_data.check(data, ["train", "test"], WINDOWS)  # The latter has no tags.


@pytest.mark.parametrize(
    ("name", "lowers", "is_noted"),
    [("Ann", True, True), ("Ann", False, False), ("ann", True, False)],
)
def test_capitals_that_a_model_does_not_see_are_noted(
    tmp_path, caplog, name, lowers, is_noted
):
    path = tmp_path / "train.txt"
    path.write_text(f"{name} B-PER\nis O\nhere O\n")
    words = vocabulary.Vocabulary.from_tokens(tiny_runs.SPECIAL)
    tokenizer = wordpiece.Tokenizer(words, do_lower_case=lowers)
    with caplog.at_level("INFO"):
        ner_data.note_lost_capitals(
            word_files.read_columns(str(path)), tokenizer
        )
    assert ("bert-base-cased" in caplog.text) == is_noted


def test_what_is_asked_for_often_is_computed_once(folder, monkeypatch):
    data = open_folder(folder)
    first = (
        data.split("train").label_ids,
        data.split("train").digest,
        data.split("train").written,
    )
    monkeypatch.setattr(word_files, "encode_tags", None)
    assert data.split("train").label_ids is first[0]
    assert data.split("train").digest is first[1]
    assert data.split("train").written is first[2]


def test_a_head_of_the_same_labels_keeps_their_places(folder):
    former = ["I-X", "O", "B-X"]
    assert open_folder(folder, known_labels=former).labels == former
    for other in (["O", "B-X"], ["O", "B-Y", "I-Y"], None):
        found = open_folder(folder, known_labels=other).labels
        assert found == ["O", "B-X", "I-X"]


def test_an_assumed_order_of_labels_is_warned_of(folder, caplog):
    for unnamed in (None, ["LABEL_0", "LABEL_1", "LABEL_2"]):
        caplog.clear()
        data = open_folder(folder, known_labels=unnamed, trains=False)
        assert data.labels == ["O", "B-X", "I-X"]
        assert "Assumed" in caplog.text
        assert "0 is O, 1 is B-X, 2 is I-X" in caplog.text
    caplog.clear()
    names = ["B-X", "I-X", "O"]
    assert open_folder(folder, known_labels=names, trains=False).labels == names
    with pytest.raises(errors.InputError, match="4 outputs.*id2label"):
        open_folder(folder, known_labels=names, num_outputs=4, trains=False)
    # Training makes a new head.
    open_folder(folder, known_labels=names, num_outputs=4)
    assert "Assumed" not in caplog.text
    (folder / "train.txt.gz").unlink()
    with pytest.raises(errors.InputError, match='add "id2label" to its config'):
        open_folder(folder, trains=False)
