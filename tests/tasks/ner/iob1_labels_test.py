"""Proves that models whose labels are of IOB1 files can be scored.

python -m pytest tests/tasks/ner/iob1_labels_test.py

No two persons are neighbors in eng.train, which so has no B-PER.
"""

import pytest

from foundation import errors
from tasks.ner import ner_data, settings, tag_spans, tagging

LABELS = ["O", "I-LOC", "I-PER", "B-LOC"]
TAGS = "I-PER I-PER O I-LOC B-LOC O I-LOC".split()


@pytest.fixture
def open_set(tmp_path):
    def open_tags(tags, labels=LABELS):
        text = "".join(f"w {tag}\n" for tag in tags)
        (tmp_path / "dev.txt").write_text(text)
        return ner_data.open_data(
            settings.Files(data_dir=str(tmp_path)),
            tag_scheme="auto",
            model_scheme="bio2",
            known_labels=labels,
            trains=False,
        )

    return open_tags


@pytest.mark.parametrize(
    "labels, scheme",
    [
        (LABELS, "iob1"),
        (["I-PER", "O"], "iob1"),
        (["O", "B-PER", "B-LOC", "I-PER"], "bio2"),
        (["O", "B-PER", "I-PER", "E-LOC"], "iobes"),
        (["O", "I-PER", "NNP"], "plain"),
        (["O"], "bio2"),
    ],
)
def test_the_scheme_of_labels_is_recognized(labels, scheme):
    assert tag_spans.scheme_of(labels) == scheme


@pytest.mark.parametrize("scheme", ["iob1", "bio2", "iobes"])
def test_tags_become_the_labels_that_there_are(open_set, scheme):
    data = open_set(tag_spans.convert_tags(TAGS, scheme))
    assert [LABELS[i] for i in data.split("dev").label_ids] == TAGS
    assert not data.is_plain


@pytest.mark.parametrize(
    "tags, message",
    [
        (
            ["B-PER", "B-PER"],
            ":2: tag 'B-PER' needs label 'B-PER', but the model has "
            "O, I-LOC, I-PER, B-LOC$",
        ),
        (["B-ORG", "O"], ":1: tag 'B-ORG' is none of .* types: LOC, PER$"),
    ],
    ids=["label", "type"],
)
def test_what_is_missing_is_named(open_set, tags, message):
    with pytest.raises(errors.InputError, match=message):
        _ = open_set(tags).split("dev").label_ids


def test_a_missing_inside_or_outside_is_named_too(open_set):
    labels = ["B-PER", "I-PER", "B-LOC"]
    with pytest.raises(errors.InputError, match=":2: .* needs label 'I-LOC'"):
        _ = open_set(["B-LOC", "I-LOC"], labels).split("dev").label_ids
    with pytest.raises(errors.InputError, match=":1: tag 'O' needs label 'O'"):
        _ = open_set(["O", "I-LOC"], labels).split("dev").label_ids


def test_every_sequence_of_such_labels_is_allowed():
    scheme = tag_spans.scheme_of(LABELS)
    forbidden = tagging.forbidden(LABELS, scheme)
    assert not any(part.any() for part in forbidden)
